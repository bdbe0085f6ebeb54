"""The loop over experiments, and the events that wake it."""
