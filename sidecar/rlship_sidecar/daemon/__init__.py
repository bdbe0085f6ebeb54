"""The loop over experiments, and what wakes it."""
