"""From the values of a unit to the figures of its row. Pure."""
