"""Destinations of rows. `contract` is the whole interface; each other module is one sink or serves several."""
