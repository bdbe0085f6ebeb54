"""The backend `rlship` of verl's Tracking: what verl's driver logs."""

from __future__ import annotations

import functools
import os
import sys
from inspect import signature

from .source import is_on, open_logger, safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType
    from typing import Any

    from ..logger import Logger

SOURCE = "verl"
BACKEND = "rlship"  # in `trainer.logger`
GENERATIONS = "val/generations"
FILTERED = "training/filter_groups/filtered_reward_counts"
# A line with this metric is that of a whole training step; others are of a validation, or of a part of a step.
_WHOLE_STEP = "training/global_step"
# Where `rlship run` takes W&B's calls: then a job that names `wandb` alone keeps its names and axes.
_TAKES_WANDB = ("_rlship_hook", "rlship.facade.wandb")

_driver: Driver | None = None
_facade_drives = False


def facade_drives() -> bool:
    """Whether W&B's calls of this process's driver are recorded. A Logger of ours would silence them."""
    return _facade_drives


def current_driver() -> Driver | None:
    """This process's driver, if it logs to rlship."""
    return _driver


class Driver:
    """The backend `rlship` of verl's Tracking: what the driver logs, at its step."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._declared: set[str] = set()
        self._logged = -1  # the greatest step of a line
        self._ended = -1  # the greatest step with a barrier

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Write the metrics of a step, which are reduced already."""
        safely(SOURCE, self._log, data, step)

    def finish(self, exit_code: int = 0) -> None:
        """End the last step."""
        safely(SOURCE, self._end_step)

    def samples(self, table: str, rows: Iterable[tuple[dict[str, Any], Any]], step: int) -> None:
        """Offer rows of a table, each with its score."""
        for row, score in rows:
            self._logger.sample(table, row, score=score, step=step)

    def ledger(self, hop: str, keys: Any, step: int | None, given: dict[str, Any]) -> None:
        """Record the groups of a batch; `keys` has one key for each sample."""
        self._logger.ledger(hop, keys, step=step, **given)

    def _log(self, data: Mapping[str, Any], step: int) -> None:
        logger = self._logger
        if step > self._logged:
            self._end_step()
            self._logged = step
        elif step < self._ended:  # the job went back to an older checkpoint
            logger.rollback(step)
            self._logged, self._ended = step, step - 1
        new = [name for name in data if name not in self._declared]
        if new:
            self._declared.update(new)
            logger.define({name: "last" for name in new if _is_single(data[name])})
        logger.log(data, step=step)
        if _WHOLE_STEP in data:
            self._end_step()

    def _end_step(self) -> None:
        if self._logged > self._ended and not self._logger.closed:  # Tracking may end after the process has
            self._ended = self._logged
            self._logger.barrier(self._logged)


def patch_tracking(module: ModuleType) -> None:
    """Make the backend known to `module`, verl's `verl.utils.tracking`."""
    tracking: Any = module.Tracking
    if BACKEND in tracking.supported_backend:
        return
    tracking.supported_backend.append(BACKEND)
    real_init, real_finish = tracking.__init__, tracking.finish

    @functools.wraps(real_init)
    def init(self: Any, *args: Any, **options: Any) -> None:
        # Before wandb's own init, so that a facade knows that this process logs by itself.
        driver = safely(SOURCE, _open_driver, signature(real_init), (self, *args), options)
        real_init(self, *args, **options)
        if driver is not None:
            self.logger[BACKEND] = driver

    @functools.wraps(real_finish)
    def finish(self: Any, exit_code: int = 0) -> None:
        driver = getattr(self, "logger", {}).get(BACKEND)
        if driver is not None:
            driver.finish(exit_code)
        real_finish(self, exit_code)

    tracking.__init__, tracking.finish = init, finish
    _offer_tables(module, "ValidationGenerationsLogger", GENERATIONS, _generations)
    _offer_tables(module, "DapoFilteredRewardTableLogger", FILTERED, _counts)


def _open_driver(known: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Driver | None:
    """The driver's backend, if the job names it, or has a folder and no other way into it."""
    global _driver, _facade_drives
    given = known.bind(*args, **options)
    given.apply_defaults()
    asked = given.arguments
    backends = asked["default_backend"]
    backends = [backends] if isinstance(backends, str) else list(backends)
    if BACKEND not in backends:
        if "wandb" in backends and any(name in sys.modules for name in _TAKES_WANDB):
            _facade_drives = True
            return None
        if not is_on():
            return None
    project, name, config = str(asked["project_name"]), str(asked["experiment_name"]), asked["config"]
    # The driver is alone, whatever group the launcher put its process into.
    logger = open_logger(SOURCE, _folder(project, name, config), replica="0", rank=0, world=1)
    logger.run_data(config=config, name=name, project=project)
    _driver = Driver(logger)
    return _driver


def _folder(project: str, name: str, config: Any) -> str:
    """Where verl keeps its checkpoints."""
    try:
        return str(config["trainer"]["default_local_dir"])
    except (KeyError, TypeError):
        return os.path.join("checkpoints", project, name)


def _is_single(value: Any) -> bool:
    return not hasattr(value, "__len__") or getattr(value, "ndim", None) == 0


def _offer_tables(module: ModuleType, name: str, table: str, rows: Callable[[Any], Any]) -> None:
    """Offer what a logger of tables gets as samples, if the driver logs to rlship."""
    logger = getattr(module, name, None)  # older versions lack one of them
    if logger is None:
        return
    real = logger.log

    @functools.wraps(real)
    def log(self: Any, loggers: Any, data: Any, step: int) -> Any:
        if _driver is not None:
            safely(SOURCE, _sample, table, rows, data, step)
        return real(self, loggers, data, step)

    logger.log = log


def _sample(table: str, rows: Callable[[Any], Any], data: Any, step: int) -> None:
    if _driver is not None:
        _driver.samples(table, rows(data), step)


def _generations(samples: Iterable[Any]) -> Iterable[tuple[dict[str, Any], Any]]:
    for one in samples:
        row = dict(zip(("input", "output", "score"), one))
        yield row, row.get("score")


def _counts(counts: Mapping[Any, Any]) -> Iterable[tuple[dict[str, Any], Any]]:
    for reward, count in sorted(counts.items()):
        yield {"reward": float(reward), "count": int(count)}, None
