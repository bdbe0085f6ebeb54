"""The metrics of an experiment as panels of a saved view at W&B."""
