"""The calls of Forge's metric logging, so that a job changes its import and nothing else.

from rlship.forge import Reduce, Tracer, get_or_create_metric_logger, record_metric, trace
"""

from __future__ import annotations

from .control import MetricLogger, get_or_create_metric_logger
from .perf import Tracer, trace
from .recording import Reduce, record_metric

__all__ = ["MetricLogger", "Reduce", "Tracer", "get_or_create_metric_logger", "record_metric", "trace"]
