"""Files of other frameworks: which there are, whose they are, and their lines as native ones."""
