"""The callback of transformers' Trainer, driven by events in the order in which the Trainer has them.

`make frameworks` runs it in a real training with TRL.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import rlship
from rlship import registry
from rlship.integrations.trainer import RlshipCallback
from tests.writer.reading import files, kinds, merged, metrics, records


class Arguments:
    """What the callback reads of TrainingArguments."""

    def __init__(self, folder: Path, rank: int = 0, world: int = 1, **more: Any) -> None:
        self.output_dir, self.run_name = str(folder), "try-3"
        self.process_index, self.world_size = rank, world
        self.__dict__.update(more)

    def to_dict(self) -> dict[str, Any]:
        return {
            "learning_rate": 1e-6,
            "hub_token": "hf_abcdefghijklmnopqrstuvwxyz0123456789",
            "lr_scheduler_type": "linear",
        }


class Model:
    """What the callback reads of a model."""

    config = types.SimpleNamespace(to_dict=lambda: {"hidden_size": 16, "learning_rate": 5})

    def num_parameters(self) -> int:
        return 1000


def train(callback: Any, arguments: Arguments, steps: range, evaluated: tuple[int, ...] = ()) -> None:
    """The events of a training, with a log at each step and evaluations at some."""
    state = types.SimpleNamespace(global_step=steps.start, is_world_process_zero=arguments.process_index == 0)
    said: tuple[Any, ...] = (arguments, state, object())
    callback.on_init_end(*said)
    callback.on_train_begin(*said, model=Model())
    for step in steps:
        callback.on_epoch_begin(*said)
        callback.on_step_begin(*said)
        callback.on_pre_optimizer_step(*said)
        state.global_step = step + 1
        callback.on_step_end(*said)
        callback.on_log(*said, model=Model(), logs={"loss": step / 2, "reward": None, "epoch": 0.5})
        if step + 1 in evaluated:
            callback.on_log(*said, model=Model(), logs={"eval_loss": 9.0})
            callback.on_evaluate(*said, metrics={"eval_loss": 9.0})
        callback.on_save(*said)
    callback.on_log(*said, model=Model(), logs={"train_runtime": 3.5, "train_loss": 0.25, "epoch": 0.5})
    callback.on_train_end(*said)


def test_a_step_ends_when_the_next_one_begins(tmp_path: Path) -> None:
    """What is logged and evaluated at a global step is written at it, and its barrier follows: no line comes late."""
    train(RlshipCallback(), Arguments(tmp_path), range(2), evaluated=(1,))
    registry.current().close()
    found = records(tmp_path)
    order = [
        (kind, one.get("step"))
        for kind, one in zip(kinds(found), found_without_facts(found))
        if kind in ("metrics", "barrier")
    ]
    assert order == [("metrics", 1), ("metrics", 1), ("barrier", 1), ("metrics", 2), ("barrier", 2)]
    assert [one["m"] for one in metrics(found)][:2] == [{"loss": 0, "reward": None, "epoch": 0.5}, {"eval_loss": 9}]


def found_without_facts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if "facts" not in one]


def test_the_run_has_its_configuration_and_results(tmp_path: Path) -> None:
    """Model and arguments in one configuration, as W&B's callback has it, without secrets; results are its summary."""
    train(RlshipCallback(), Arguments(tmp_path), range(2))
    registry.current().close()
    found = records(tmp_path)
    run = merged(found)
    assert run["config"] == {
        "hidden_size": 16,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "linear",
        "model/num_parameters": 1000,
    }
    assert (run["name"], run["dropped"]) == ("try-3", ["config.hub_token"])
    assert run["summary"] == {"train_runtime": 3.5, "train_loss": 0.25}
    assert found[0]["labels"] == {"source": "transformers"}
    assert not [one for one in metrics(found) if "train_loss" in one["m"]]


def test_every_rank_logs(tmp_path: Path) -> None:
    """A rank other than the first has a file with its rank; the configuration is said by the first alone."""
    train(RlshipCallback(), Arguments(tmp_path, rank=1, world=2), range(1))
    registry.current().close()
    found = records(tmp_path)
    assert (found[0]["rank"], found[0]["world"], len(metrics(found))) == (1, 2, 1)
    assert "config" not in merged(found)


def test_calls_of_the_job_belong_to_the_step_under_way(tmp_path: Path) -> None:
    """A reward function that records a metric does so at the step that the trainer will log."""
    callback = RlshipCallback()
    arguments, state = Arguments(tmp_path), types.SimpleNamespace(global_step=4, is_world_process_zero=True)
    callback.on_train_begin(arguments, state, None, model=None)
    callback.on_step_begin(arguments, state, None)
    rlship.record_metric("turns", 3)
    registry.current().close()
    assert metrics(records(tmp_path)) == [{"step": 5, "m": {"turns": 3}}]


def test_the_jobs_own_init_wins(tmp_path: Path) -> None:
    """A job that called `rlship.init` has one file, with what the trainer logs in it."""
    logger = rlship.init(tmp_path / "own", "learner")
    train(RlshipCallback(), Arguments(tmp_path / "out"), range(1))
    logger.close()
    found = records(tmp_path / "own")
    assert (found[0]["actor"], "labels" in found[0], len(metrics(found))) == ("learner", False, 1)
    assert not (tmp_path / "out").exists()


def test_another_output_folder_is_another_experiment(tmp_path: Path) -> None:
    """Two trainers of one process write to two folders, so that the steps of the second are not behind the first's."""
    for name in ("sft", "grpo"):
        train(RlshipCallback(), Arguments(tmp_path / name), range(2))
    for logger in registry._loggers.values():
        logger.close()
    for name in ("sft", "grpo"):
        found = records(tmp_path / name)
        assert [one["step"] for one in found if one.get("kind") == "barrier"] == [1, 2]
        assert not [one for one in found if one.get("kind") == "event"]


def test_a_trainer_that_goes_back_rolls_back(tmp_path: Path) -> None:
    """Training again from an older checkpoint replaces the steps that are done again."""
    callback = RlshipCallback()
    train(callback, Arguments(tmp_path), range(3))
    train(callback, Arguments(tmp_path), range(1, 3))
    registry.current().close()
    told = [
        (kind, one.get("step")) for kind, one in zip(kinds(records(tmp_path)), found_without_facts(records(tmp_path)))
    ]
    steps = [one for one in told if one[0] in ("barrier", "rollback")]
    assert steps == [("barrier", 1), ("barrier", 2), ("barrier", 3), ("rollback", 2), ("barrier", 2), ("barrier", 3)]


def test_events_of_newer_trainers_mean_nothing(tmp_path: Path) -> None:
    """Each `on_…` can be called; other names are no attributes, and a callback can be copied."""
    callback = copy.deepcopy(RlshipCallback())
    assert callback.on_something_new(None, None, None, value=1) is None
    assert not hasattr(callback, "state")


def test_a_fault_never_reaches_the_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments without what the callback needs are said once on stderr, and the training goes on."""
    callback = RlshipCallback()
    for _ in range(2):
        callback.on_train_begin(object(), types.SimpleNamespace(global_step=0), None)
    assert capsys.readouterr().err.count("AttributeError") == 1
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "imports",
    [
        "import rlship; import transformers.integrations.integration_utils",
        "import transformers.integrations.integration_utils; import rlship",
        "import rlship.integrations.transformers; from transformers.integrations import integration_utils",
    ],
)
def test_report_to_is_known_wherever_rlship_is_imported(tmp_path: Path, imports: str) -> None:
    """`import rlship`, before or after, adds the name to transformers' table. It imports nothing of transformers."""
    package = tmp_path / "transformers" / "integrations"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "integration_utils.py").write_text("INTEGRATION_TO_CALLBACK = {'wandb': None}\n")
    source = f"""
import sys
{imports.partition("; ")[0]}
before = "transformers" in sys.modules
{imports.partition("; ")[2]}
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK as known
print(before, sorted(known), known["rlship"].__name__, known["rlship"].__module__)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    first = str(imports.startswith("import transformers"))
    assert done.stdout == f"{first} ['rlship', 'wandb'] RlshipCallback rlship.integrations.trainer\n", done.stderr
