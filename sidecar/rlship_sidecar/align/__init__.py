"""Whose lines belong together, and when a step becomes a row. Pure."""
