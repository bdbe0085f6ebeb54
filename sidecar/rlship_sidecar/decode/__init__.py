"""Lines to plain data."""
