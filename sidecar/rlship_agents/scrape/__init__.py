"""Reads /metrics of inference servers and other exporters, and logs what they say as an actor of the experiment."""
