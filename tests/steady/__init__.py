"""A long steady job with a sidecar on it: `python -m tests.steady`."""
