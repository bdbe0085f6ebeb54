"""What the job said of itself: its records `run`, merged over all writers."""
