"""Lightning's logger, and the callback that its entry point adds to each Trainer.

Neither derives from a class of Lightning: it exists under two package names, and this module needs none of them.
"""

from __future__ import annotations

import os
from sys import modules

from .source import is_on, job_has_its_own, open_logger, safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..logger import Logger

SOURCE = "lightning"
_FOLDER = "lightning_logs"


class RlshipLogger:
    """A logger for `Trainer(logger=…)`. Every rank logs.

    A step ends when the next batch begins; without rlship's entry point, when a later step is logged.

    Args:
        dir: the experiment's folder. Default: `RLSHIP_DIR`, else `lightning_logs`.
        name: what the run is called.
    """

    def __init__(self, dir: str | None = None, name: str | None = None) -> None:
        self.save_dir = dir or os.environ.get("RLSHIP_DIR") or _FOLDER
        self.name = name or "rlship"
        self.version = ""
        self._logger: Logger | None = None
        self._logged = -1  # the greatest step of a line
        self._ended = -1  # the greatest step with a barrier

    @property
    def root_dir(self) -> str:
        """As `save_dir`."""
        return self.save_dir

    @property
    def log_dir(self) -> str:
        """As `save_dir`."""
        return self.save_dir

    @property
    def group_separator(self) -> str:
        """Between the parts of a metric's name."""
        return "/"

    @property
    def experiment(self) -> Logger:
        """rlship's Logger, which is opened at the first call that needs it."""
        if self._logger is None:
            rank, world = _place()
            self._logger = open_logger(SOURCE, self.save_dir, named=True, rank=rank, world=world)
            if self.name != "rlship":
                self._logger.run_data(name=self.name)
        return self._logger

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write the metrics at Lightning's step."""
        safely(SOURCE, self._log, metrics, step)

    def log_hyperparams(self, params: Any = None, *_: Any, **__: Any) -> None:
        """Note the hyper-parameters, in the first rank."""
        safely(SOURCE, self._configure, params)

    def finalize(self, status: str) -> None:
        """End the last step."""
        safely(SOURCE, self.end_step)

    def log_graph(self, *_: Any, **__: Any) -> None:
        """A graph is no metric: nothing is written."""

    def save(self) -> None:
        """Nothing is left to do: the file is written within half a second."""

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Nothing is written about checkpoints."""

    def end_step(self) -> None:
        """End the step that was logged last, if it has not ended."""
        if self._logger is not None and self._logged > self._ended:
            self._ended = self._logged
            self._logger.barrier(self._logged)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned rank opens a file of its own.
        return {**self.__dict__, "_logger": None}

    def _log(self, metrics: Mapping[str, Any], step: int | None) -> None:
        logger = self.experiment
        if step is not None and step > self._logged:
            self.end_step()
            self._logged = step
        elif step is not None and step < self._ended:  # another fit, or an older checkpoint
            logger.rollback(step)
            self._logged, self._ended = step, step - 1
        logger.log(metrics, step=step)

    def _configure(self, params: Any) -> None:
        logger = self.experiment
        if logger.rank == 0 and params:
            logger.config(params)


class RlshipCallback:
    """Adds the logger to a Trainer of a job that has `RLSHIP_DIR`, and ends steps as soon as a batch begins."""

    state_key = "rlship"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Add the logger, unless the Trainer or the job has its own, or W&B's calls of the job are recorded."""
        safely(SOURCE, _add, trainer)

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """The step before has ended, with its validation."""
        for logger in trainer.loggers:
            if isinstance(logger, RlshipLogger):
                safely(SOURCE, logger.end_step)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Nothing is left to do: Lightning tells the logger of the end."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing is kept in checkpoints."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing is kept in checkpoints."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # an event that means nothing here, of a newer Lightning too
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def callbacks() -> list[Any]:
    """For the entry points `lightning.pytorch.callbacks_factory` and its like: called for each new Trainer."""
    return [RlshipCallback()]


def _add(trainer: Any) -> None:
    if not is_on() or job_has_its_own() or any(isinstance(one, RlshipLogger) for one in trainer.loggers):
        return
    if _wandb_is_recorded(trainer):
        return
    logger = RlshipLogger()
    trainer.loggers = [*trainer.loggers, logger]


def _wandb_is_recorded(trainer: Any) -> bool:
    """Whether a facade records the job's calls of W&B, which a logger of rlship's in the process would end.

    Lightning's WandbLogger opens a run in the first rank alone. In the others it says what the job logs to.
    """
    facade = getattr(modules.get("wandb"), "_rlship", None)
    if facade is None:
        return False
    follows = trainer.global_rank > 0 and any(type(one).__name__ == "WandbLogger" for one in trainer.loggers)
    return bool(facade.would_record() if follows else facade.records())


def _place() -> tuple[int | None, int | None]:
    """Rank and world of the process group; None without a group, so that the launcher counts."""
    distributed = getattr(modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None, None
    return distributed.get_rank(), distributed.get_world_size()


def _nothing(*_: Any, **__: Any) -> None:
    """An event that means nothing here."""
