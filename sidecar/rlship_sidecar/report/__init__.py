"""Reports on a running experiment, for people and programs."""
