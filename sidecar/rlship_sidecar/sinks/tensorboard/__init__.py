"""The TensorBoard sink: `sink` writes an event for each row, `events` frames them, `parts` finds a store's files."""

from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink

__all__ = ["TensorBoardSink"]
