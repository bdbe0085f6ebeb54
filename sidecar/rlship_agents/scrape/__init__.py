"""Reads /metrics of inference servers and other exporters, and logs their metrics as an actor of the experiment."""
