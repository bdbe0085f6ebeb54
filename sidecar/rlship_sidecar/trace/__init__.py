"""Traces: what the processes of an experiment did when, for viewers of traces."""
