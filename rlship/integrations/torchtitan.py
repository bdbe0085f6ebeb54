"""TorchTitan's structured log and its metrics, of every rank.

TITAN_STRUCT_LOGGER_HANDLERS=rlship.integrations.torchtitan.register

Or, without the structured log, in a job's configuration: `metrics=MetricsProcessor.Config(…)` with this module's
MetricsProcessor, which derives from TorchTitan's and is made once it is asked for.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from threading import get_ident

from .later import after_import
from .source import open_logger, safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

    from ..logger import Logger
    from ..tracing import Span

SOURCE = "torchtitan"
TRAINING = "training"
# rlship's names for TorchTitan's kinds of processes, as the reader of its files has them; others keep their names.
ACTORS = {TRAINING: "trainer", "rl_trainer": "trainer", "rl_generator": "generator", "rl_controller": "controller"}
_LOSS = "loss_metrics/"
# What all ranks have alike is shown as it is; what each measures of itself, by what matters: (reductions, per rank).
_REDUCED = {
    "throughput(tps)": (["mean", "min"], True),
    "tflops": (["mean", "min"], True),
    "mfu(%)": (["mean", "min"], True),
    "time_metrics/end_to_end(s)": (["max", "mean"], True),
    "time_metrics/data_loading(s)": (["max", "mean"], True),
    "time_metrics/data_loading(%)": (["max", "mean"], True),
    "memory/max_active(GiB)": (["max", "mean"], True),
    "memory/max_active(%)": (["max", "mean"], True),
    "memory/max_reserved(GiB)": (["max", "mean"], True),
    "memory/max_reserved(%)": (["max", "mean"], True),
    "memory/num_alloc_retries": (["sum_last"], True),
    "memory/num_ooms": (["sum_last"], True),
}
_ALIKE = (["last"], False)

_file: File | None = None


class File:
    """The file of this process, and its step: what the structured log and the metrics share."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        self._declared: set[str] = set()
        self._step = -1

    def reach(self, step: int | None) -> None:
        """A later step ends the one before, with its validation and its checkpoint."""
        if step is None or step <= self._step:
            return
        if self._step >= 0:
            self.logger.barrier(self._step)
        self._step = step
        self.logger.set_step(step)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Write the metrics of a step."""
        self.reach(step)
        for name in metrics:
            if name not in self._declared:
                self._declared.add(name)
                reductions, per_rank = _REDUCED.get(name.removeprefix("validation_metrics/"), _ALIKE)
                self.logger.define({name: reductions}, per_rank=per_rank)
        self.logger.log(metrics, step=step)

    def end(self) -> None:
        """End the last step."""
        if self._step >= 0:
            self.logger.barrier(self._step)
            self._step = -1


class Handler(logging.Handler):
    """Turns TorchTitan's trace records into spans, events, metrics and step tags."""

    def __init__(self, file: File, tags: Any) -> None:
        super().__init__()
        self._file = file
        self._tags = tags
        self._open: dict[tuple[int, str], list[tuple[str, Span]]] = {}  # by thread and task: the spans under way
        self._failed: set[tuple[int, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        safely(SOURCE, self._take, record)

    def _take(self, record: logging.LogRecord) -> None:
        name = getattr(record, "log_type_name", None)
        if not name:  # a plain text, which TorchTitan's own handler leaves out, too
            return
        step = getattr(record, "step", None)
        step = self._tags.get_step() if step is None else step
        self._file.reach(step)
        logger = self._file.logger
        for tag in self._tags.get_step_tags():
            logger.add_step_tag(str(tag))
        if getattr(record, "log_type", "") == "event":
            self._span(str(name), (get_ident(), getattr(record, "task_name", None) or ""), record)
        elif name == "metric_value":
            logger.log({str(record.event_name): record.value}, step=step)  # type: ignore[attr-defined]
        else:
            logger.event(str(name), step=step)

    def _span(self, name: str, lane: tuple[int, str], record: logging.LogRecord) -> None:
        name, _, part = name.rpartition("_")
        if part == "start":
            span = self._file.logger.span(name)
            span.__enter__()
            self._open.setdefault(lane, []).append((name, span))
        elif part == "error":
            self._failed.add(lane)
            self._file.logger.event(f"{name}_error", error=record.getMessage().partition(f"{name}_error: ")[2])
        elif part == "end":
            error = sys.exc_info() if lane in self._failed else (None, None, None)
            self._failed.discard(lane)
            known = self._open.get(lane) or []
            while known:
                opened, span = known.pop()
                span.__exit__(*error)
                if opened == name:
                    break
            if not known:
                self._open.pop(lane, None)


class MetricLogger:
    """The logger among those of a MetricsProcessor. Every rank has one."""

    def __init__(self, file: File, has_loss: bool) -> None:
        self._file = file
        self._has_loss = has_loss

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Write the metrics. A rank whose stage of the pipeline computes no loss leaves the loss out."""
        found = metrics if self._has_loss else {k: v for k, v in metrics.items() if not k.startswith(_LOSS)}
        safely(SOURCE, self._file.log, found, step)

    def close(self) -> None:
        """End the last step."""
        safely(SOURCE, self._file.end)


def register(*, structured_logger: logging.Logger, rank: int, source: str, output_dir: str, **_: Any) -> None:
    """The factory of a handler, for `TITAN_STRUCT_LOGGER_HANDLERS`. Metrics of a training are written, too."""
    safely(SOURCE, _register, structured_logger, rank, source, output_dir)


def patch_metrics(module: ModuleType) -> None:
    """Give each MetricsProcessor of `module`, TorchTitan's `torchtitan.components.metrics`, a logger of rlship's."""
    real = module.MetricsProcessor._build_metric_logger
    if hasattr(real, "_rlship"):
        return

    @wraps(real)
    def build(self: Any, **options: Any) -> Any:
        built = real(self, **options)
        return safely(SOURCE, _with_ours, module, built, options) or built

    build._rlship = True  # type: ignore[attr-defined]
    module.MetricsProcessor._build_metric_logger = build


def _register(structured_logger: logging.Logger, rank: int, source: str, output_dir: str) -> None:
    tags: Any = import_module("torchtitan.observability.structured_logger.step_state")
    structured_logger.addHandler(Handler(_opened(output_dir, source, rank), tags))
    if source == TRAINING:
        after_import({"torchtitan.components.metrics": lambda module: safely(SOURCE, patch_metrics, module)})


def _opened(folder: str, source: str, rank: int | None) -> File:
    """The file of this process, which the first of handler and metrics opens."""
    global _file
    if _file is None or _file.logger.closed:
        place: dict[str, Any] = {}  # the launcher of a training counts its ranks
        if source in ("rl_trainer", "rl_controller"):
            place = {"rank": rank}
        elif source != TRAINING:
            # Several meshes of one kind count their ranks from 0, each for itself.
            place = {"replica": f"{socket.gethostname()}-{os.getpid()}", "rank": 0, "world": 1}
        actor = ACTORS.get(source, source)
        own = None if actor == "trainer" else actor
        _file = File(open_logger(SOURCE, folder, actor=own, **place))
    return _file


def _with_ours(module: Any, built: Any, options: Mapping[str, Any]) -> Any:
    file = _opened(options.get("dump_folder", "./outputs"), TRAINING, None)
    if file.logger.rank == 0 and options.get("config_dict"):
        file.logger.config(options["config_dict"])
    loggers = module.LoggerContainer()
    loggers.add_logger(built)
    loggers.add_logger(MetricLogger(file, _has_loss(module, options)))
    return loggers


def _has_loss(module: Any, options: Mapping[str, Any]) -> bool:
    """Whether this rank's stage of the pipeline computes the loss. Stages are blocks of neighbouring ranks."""
    dims = options["parallel_dims"]
    if not dims.pp_enabled:
        return True
    first = module._get_metrics_rank(parallel_dims=dims, pp_schedule=options["pp_schedule"])
    stage = dims.world_size // dims.pp
    return bool(int(module.torch.distributed.get_rank()) // stage == int(first) // stage)


@cache
def _processor() -> type:
    module: Any = import_module("torchtitan.components.metrics")
    base: Any = module.MetricsProcessor

    class MetricsProcessor(base):  # type: ignore[misc]
        """TorchTitan's MetricsProcessor, with a logger of rlship's on every rank."""

        @dataclass(kw_only=True, slots=True)
        class Config(base.Config):  # type: ignore[misc]
            """As TorchTitan's."""

        def _build_metric_logger(self, **options: Any) -> Any:
            built = super()._build_metric_logger(**options)
            if isinstance(built, module.LoggerContainer) and any(
                isinstance(one, MetricLogger) for one in built._loggers
            ):
                return built  # the factory of handlers has added it
            return safely(SOURCE, _with_ours, module, built, options) or built

    return MetricsProcessor


def __getattr__(name: str) -> Any:
    if name == "MetricsProcessor":
        return _processor()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
