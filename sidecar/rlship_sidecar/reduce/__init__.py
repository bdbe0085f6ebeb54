"""From the observations of a unit to the values of its row. Pure."""
