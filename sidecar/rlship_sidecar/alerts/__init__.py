"""Alerts: rules over the rows of each step, and the episodes in which they hold."""
