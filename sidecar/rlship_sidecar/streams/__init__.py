"""What goes by time: clocks, the lead's timeline, and units of time."""
