"""Lightning's logger and callback, driven by calls in the order in which a Trainer makes them.

`make frameworks` runs them in a real training with two ranks.
"""

from __future__ import annotations

import pickle
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

import rlship
from rlship import registry
from rlship.integrations.lightning import RlshipCallback, RlshipLogger, callbacks
from tests.facade.jobs import run
from tests.writer.reading import merged, metrics, records


def trainer(*loggers: Any) -> Any:
    """What the callback reads and sets of a Trainer."""
    return types.SimpleNamespace(loggers=list(loggers))


def fit(trained: Any, steps: range) -> None:
    """The calls of a fit with a validation after its last step."""
    (callback,) = callbacks()
    callback.setup(trained, None, "fit")
    for logger in trained.loggers:
        logger.log_hyperparams({"lr": 0.1})
        logger.log_graph(None)
    for step in steps:
        callback.on_train_batch_start(trained, None, None, 0)
        callback.on_before_zero_grad(trained)
        for logger in trained.loggers:
            logger.log_metrics(metrics={"loss": step, "epoch": 0}, step=step)
            logger.save()
    for logger in trained.loggers:
        logger.log_metrics(metrics={"val_loss": 9}, step=steps[-1])
        logger.finalize("success")
    callback.teardown(trained, None, "fit")


def told(folder: Path) -> list[tuple[str, int]]:
    """The records with a step, in order."""
    found = [one for one in records(folder) if "facts" not in one]
    return [(one.get("kind", "metrics"), one["step"]) for one in found if "step" in one]


def test_a_folder_in_the_environment_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback adds a logger, which writes metrics, hyper-parameters, and a barrier as soon as a batch begins."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    fit(trainer(), range(3))
    registry.current().close()
    found = records(tmp_path)
    assert found[0]["labels"] == {"source": "lightning"}
    assert merged(found)["config"] == {"lr": 0.1}
    last = [("metrics", 2), ("metrics", 2), ("barrier", 2)]
    assert told(tmp_path) == [("metrics", 0), ("barrier", 0), ("metrics", 1), ("barrier", 1), *last]


@pytest.mark.parametrize("reason", ["no folder", "disabled", "its own"])
def test_the_entry_point_is_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """Without a folder, where rlship is off, or in a job that called `rlship.init`, no logger is added."""
    if reason != "no folder":
        monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    if reason == "disabled":
        monkeypatch.setenv("RLSHIP_DISABLE", "1")
    if reason == "its own":
        rlship.init(tmp_path, "trainer")
    trained = trainer()
    fit(trained, range(2))
    assert trained.loggers == []


WITH_WANDB = """
import json, types
from rlship.integrations.lightning import callbacks

class WandbLogger:
    "Like Lightning's: its run is opened in the first rank alone."
    def __init__(self, rank):
        self.run = wandb.init(config={"lr": 0.1}) if rank == 0 else None

def fit(rank, *loggers):
    trained = types.SimpleNamespace(loggers=[one(rank) for one in loggers], global_rank=rank)
    callbacks()[0].setup(trained, None, "fit")
    for logger in trained.loggers[len(loggers) :]:
        logger.log_metrics({"loss": 1.0}, step=0)
    return [type(one).__name__ for one in trained.loggers]
"""


def test_a_job_keeps_its_calls_of_wandb(tmp_path: Path) -> None:
    """Where W&B's calls of the process are recorded, the entry point adds no logger, which would end that: neither
    beside Lightning's WandbLogger nor beside a run of the job's own.
    """
    calls = """
        added = fit(0, WandbLogger)
        for step in range(20):
            wandb.log({"mine": 2.0 * step})
        wandb.finish()
        print(json.dumps(added))
        """
    job = run(tmp_path, WITH_WANDB + textwrap.dedent(calls))
    assert job.values() == ["WandbLogger"]
    assert [one["m"]["mine"] for one in metrics(job.file())] == [2.0 * step for step in range(20)]
    assert merged(job.file())["config"] == {"lr": 0.1}


@pytest.mark.parametrize(
    ("call", "mode", "loggers"),
    [
        ("fit(1, WandbLogger)", "online", ["WandbLogger"]),  # its run is the first rank's
        ("fit(0, WandbLogger)", "disabled", ["WandbLogger", "RlshipLogger"]),
        ("fit(1, WandbLogger)", "disabled", ["WandbLogger", "RlshipLogger"]),
        ("fit(0)", "online", ["RlshipLogger"]),
    ],
    ids=["rank 1", "disabled", "rank 1, disabled", "imported only"],
)
def test_a_process_without_calls_of_wandb_gets_a_logger(
    tmp_path: Path, call: str, mode: str, loggers: list[str]
) -> None:
    """Every rank of a job with a WandbLogger goes by W&B's calls, unless W&B is disabled. A job that merely imported
    the package gets a logger.
    """
    assert run(tmp_path, f"{WITH_WANDB}print(json.dumps({call}))", WANDB_MODE=mode).values() == loggers


def test_a_logger_that_was_named_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Trainer(logger=RlshipLogger(…))` writes each value once, with the entry point too."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    named = RlshipLogger(name="try-3")
    trained = trainer(named)
    fit(trained, range(2))
    registry.current().close()
    assert trained.loggers == [named]
    assert [one["m"] for one in metrics(records(tmp_path))][:2] == [{"loss": 0, "epoch": 0}, {"loss": 1, "epoch": 0}]
    assert merged(records(tmp_path))["name"] == "try-3"


def test_a_folder_that_is_named_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RlshipLogger("outputs/both")` writes there, as `rlship.init` does. `RLSHIP_DIR` is for code without one."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path / "environment"))
    named, unnamed = RlshipLogger(str(tmp_path / "named")), RlshipLogger()
    assert (named.save_dir, unnamed.save_dir) == (str(tmp_path / "named"), str(tmp_path / "environment"))
    for logger, value in ((named, 1), (unnamed, 2)):
        logger.log_metrics({"loss": value}, step=0)
        logger.finalize("success")
        logger.experiment.close()
    assert [one["m"] for one in metrics(records(tmp_path / "named"))] == [{"loss": 1}]
    assert [one["m"] for one in metrics(records(tmp_path / "environment"))] == [{"loss": 2}]


def test_without_the_callback_a_later_step_ends_one(tmp_path: Path) -> None:
    """A logger by itself ends a step when it gets a later one, and at the end; an earlier one is a rollback."""
    logger = RlshipLogger(str(tmp_path))
    for step in (1, 1, 2, 0):
        logger.log_metrics({"loss": step}, step=step)
    logger.log_metrics({"of no step": 1})
    logger.finalize("success")
    registry.current().close()
    steps = [one for one in told(tmp_path) if one[0] != "metrics"]
    assert steps == [("barrier", 1), ("rollback", 0), ("barrier", 0)]


def test_it_crosses_to_a_spawned_rank(tmp_path: Path) -> None:
    """Logger and callback can be pickled after use; the copy opens a file of its own."""
    logger = RlshipLogger(str(tmp_path))
    logger.log_metrics({"loss": 1}, step=1)
    copy = pickle.loads(pickle.dumps(logger))
    assert (copy._logger, copy.save_dir) == (None, str(tmp_path))
    assert isinstance(pickle.loads(pickle.dumps(callbacks()))[0], RlshipCallback)


def test_a_fault_never_reaches_the_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics that are no dict, and steps that are no numbers, are said once; the training goes on."""
    logger = RlshipLogger(str(tmp_path))
    for _ in range(2):
        logger.log_metrics({"loss": 1}, step="x")  # type: ignore[arg-type]
        logger.log_metrics(None, step=1)  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("integration of lightning: log: TypeError") == 1
