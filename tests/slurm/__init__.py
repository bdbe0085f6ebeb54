"""`make slurm`: the documented batch script on a real Slurm of one node. Not a part of `make test`."""
