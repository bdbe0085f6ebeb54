"""The callback of transformers' Trainer, and of TRL's: every rank logs. `report_to="rlship"` names it.

    patch(integration_utils)

It derives from no class of transformers, so that this module needs none of it.
"""

from __future__ import annotations

import os

from .source import open_logger, safely
from .trl_ledger import patch_trainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..logger import Logger

SOURCE = "transformers"
# What the trainer logs once, at the end of a training.
RESULTS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
MAX_TABLE = 512  # rows of one table of completions that are offered as samples


def patch(module: Any) -> None:
    """Make `report_to="rlship"` known to `transformers.integrations.integration_utils`, once that was imported."""
    module.INTEGRATION_TO_CALLBACK["rlship"] = RlshipCallback


class RlshipCallback:
    """The callback of a Trainer.

    What is logged at a global step becomes a line of that step. The step ends when the next one begins: only then has
    the trainer evaluated and saved.
    """

    def __init__(self) -> None:
        self._logger: Logger | None = None
        self._folder = ""
        self._logged = -1  # the greatest step of a line
        self._ended = -1  # the greatest step with a barrier
        # Name and file of the completions that the trainer writes once it has logged. An evaluation at the same step
        # overwrites the file.
        self._table: tuple[str, str] | None = None
        self._results: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # an event that means nothing here, of a newer transformers too
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Open the file, and note the configuration; TRL's groups go into the ledger from now on."""
        safely(SOURCE, self._begin, args, state, more.get("model"))
        safely(SOURCE, patch_trainer)

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the step before."""
        safely(SOURCE, self._end_step, state)

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write what the trainer logs, at its global step."""
        safely(SOURCE, self._log, args, state, more.get("logs") or {}, more.get("model"))

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the last step, and note results."""
        safely(SOURCE, self._end, state)

    def _begin(self, args: Any, state: Any, model: Any) -> None:
        logger = self._open(args, state, model)
        step = int(state.global_step)
        if step < self._ended:  # it goes on at an older checkpoint
            logger.rollback(step + 1)
            self._logged = self._ended = step
        logger.set_step(step + 1)

    def _open(self, args: Any, state: Any, model: Any) -> Logger:
        """The Logger. A trainer with another output folder is another experiment."""
        folder = os.path.abspath(str(args.output_dir))
        if self._logger is not None and self._folder == folder:
            return self._logger
        rank, world = int(args.process_index), int(args.world_size)
        alone = world <= 1  # then the launcher may know better
        logger = open_logger(SOURCE, folder, rank=None if alone else rank, world=None if alone else world)
        self._logger, self._folder, self._logged, self._ended = logger, folder, -1, -1
        if state.is_world_process_zero:
            name = getattr(args, "run_name", None)
            logger.run_data(config=configuration(args, model), name=None if name == args.output_dir else name)
        return logger

    def _log(self, args: Any, state: Any, logs: Mapping[str, Any], model: Any) -> None:
        logger = self._open(args, state, model)
        step = int(state.global_step)
        self._read_table(logger)
        results = {key: logs[key] for key in RESULTS if key in logs}
        if results:  # once, at the end of a training; the epoch beside them has been logged with the step
            self._results.update(results)
            return
        logger.log(logs, step=step)
        self._logged = max(self._logged, step)
        if getattr(args, "log_completions", False) and state.is_world_process_zero:
            name = "eval_completions" if any(key.startswith("eval_") for key in logs) else "completions"
            path = os.path.join(args.output_dir, "completions", f"completions_{step:05d}.parquet")
            self._table = name, path

    def _end_step(self, state: Any) -> None:
        logger, step = self._logger, int(state.global_step)
        if logger is None:
            return
        self._read_table(logger)
        if self._ended < self._logged <= step:
            self._ended = step
            logger.barrier(step)
        logger.set_step(step + 1)

    def _end(self, state: Any) -> None:
        if self._logger is None:
            return
        if self._results and state.is_world_process_zero:
            self._logger.summary(self._results)
        self._end_step(state)

    def _read_table(self, logger: Logger) -> None:
        """Offer the completions that TRL has written as samples of their step."""
        table, self._table = self._table, None
        if table is None or not os.path.exists(table[1]):
            return
        from importlib import import_module

        pandas = import_module("pandas")  # TRL has imported it to write the file
        for row in pandas.read_parquet(table[1]).head(MAX_TABLE).to_dict("records"):
            step = row.pop("step", None)
            logger.sample(table[0], row, score=row.get("advantage"), step=step)


def configuration(args: Any, model: Any) -> dict[str, Any]:
    """The configuration as W&B's callback shows it: that of the model, then the training arguments."""
    found: dict[str, Any] = {}
    config = getattr(model, "config", None)
    if config is not None:
        found.update(config if isinstance(config, dict) else config.to_dict())
    peft = getattr(model, "peft_config", None)
    if peft is not None:
        found["peft_config"] = peft
    found.update(args.to_dict())
    count = getattr(model, "num_parameters", None)
    if callable(count):
        found["model/num_parameters"] = count()
    return found


def _nothing(*_: Any, **__: Any) -> None:
    """An event that means nothing here."""
