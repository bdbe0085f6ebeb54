"""Rows and records as tables."""
