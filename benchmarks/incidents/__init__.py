"""Incidents and healthy runs of a simulated job: what alerts and `rlship why` find in them."""
