"""The W&B sink: one run for each experiment, through a client in a child process."""
