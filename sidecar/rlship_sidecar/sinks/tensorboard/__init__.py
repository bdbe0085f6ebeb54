"""The TensorBoard sink: `sink` writes an event for each row, `events` frames them, `parts` finds a store's files.

`config` shows what the job declared of itself.
"""

from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink

__all__ = ["TensorBoardSink"]
