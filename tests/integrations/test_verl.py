"""verl's plug-in, driven by classes of our own with the names and signatures of verl 0.9.1's.

verl needs torch, Ray and more, so `make frameworks` runs the plug-in in the real package.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import rlship
from rlship import registry
from rlship.integrations import verl_driver, verl_workers
from rlship.integrations.verl_driver import patch_tracking
from rlship.integrations.verl_ledger import patch_trainer
from rlship.integrations.verl_workers import patch_profiler, patch_workers
from tests.facade import jobs
from tests.pipeline.simulated import simulation
from tests.writer.reading import files, merged, metrics, records, whole


def barriers(found: list[dict[str, Any]]) -> list[int]:
    """The steps of the barriers, in order."""
    return [one["step"] for one in found if one.get("kind") == "barrier"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No driver and no workers of another test."""
    monkeypatch.setattr(verl_driver, "_driver", None)
    monkeypatch.setattr(verl_driver, "_facade_drives", False)
    monkeypatch.setattr(verl_workers, "_workers", {})
    monkeypatch.setattr(verl_workers, "_step", None)
    yield


def tracking() -> Any:
    """The module `verl.utils.tracking`, patched."""

    class Tracking:
        supported_backend: ClassVar = ["wandb", "console"]

        def __init__(
            self, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None
        ) -> None:
            names = [default_backend] if isinstance(default_backend, str) else default_backend
            for backend in names:
                assert backend in self.supported_backend, f"{backend} is not supported"
            self.logger: dict[str, Any] = {}

        def log(self, data: Any, step: int, backend: Any = None) -> None:
            for logger in self.logger.values():
                logger.log(data=data, step=step)

        def finish(self, exit_code: int = 0) -> None:
            self.finished = exit_code

    class ValidationGenerationsLogger:
        def log(self, loggers: Any, samples: Any, step: int) -> str:
            return "as it was"

    module: Any = types.SimpleNamespace(Tracking=Tracking, ValidationGenerationsLogger=ValidationGenerationsLogger)
    patch_tracking(module)
    patch_tracking(module)  # the entry point and VERL_USE_EXTERNAL_MODULES may both name the plug-in
    assert Tracking.supported_backend == ["wandb", "console", "rlship"]
    return module


def test_the_driver_logs_what_tracking_gets(tmp_path: Path) -> None:
    """The list of loggers is enough: metrics as they are, a barrier with each whole step, configuration and samples, in
    the folder of verl's checkpoints.
    """
    module = tracking()
    made = module.Tracking("math", "try-3", ["console", "rlship"], config={"trainer": {"default_local_dir": tmp_path}})
    table = module.ValidationGenerationsLogger()
    assert table.log(["console", "rlship"], [("1+1=", "2", 1.0)], 0) == "as it was"
    made.log({"val-core/acc": 0.25}, step=0)
    made.log({"training/global_step": 1, "actor/lr": 1e-6}, step=1)
    made.log({"late": 2.0}, step=1)
    made.log({"val-core/acc": 0.5}, step=2)
    made.finish(exit_code=3)
    registry.current().close()
    found = records(tmp_path)
    assert (found[0]["actor"], found[0]["world"], found[0]["labels"]) == ("trainer", 1, {"source": "verl"})
    assert (merged(found)["name"], merged(found)["project"]) == ("try-3", "math")
    assert [(one["step"], one["m"]) for one in metrics(found)] == [
        (0, {"val-core/acc": 0.25}),
        (1, {"training/global_step": 1, "actor/lr": 1e-6}),
        (1, {"late": 2.0}),
        (2, {"val-core/acc": 0.5}),
    ]
    assert barriers(found) == [0, 1, 2]
    (sample,) = (one for one in found if one.get("kind") == "sample")
    assert (sample["step"], sample["score"]) == (0, 1.0)
    assert sample["row"] == {"input": "1+1=", "output": "2", "score": 1.0}
    assert made.finished == 3


def test_going_back_to_a_checkpoint_is_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step below one that has ended takes back the later ones."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    made = tracking().Tracking("p", "e", "rlship")
    for step in (1, 2, 3, 2):
        made.log({"training/global_step": step}, step=step)
    registry.current().close()
    told = [(one["kind"], one) for one in records(tmp_path) if one.get("kind") in ("barrier", "rollback")]
    assert [(kind, one["step"]) for kind, one in told] == [
        ("barrier", 1),
        ("barrier", 2),
        ("barrier", 3),
        ("rollback", 2),
        ("barrier", 2),
    ]


@pytest.mark.parametrize(
    ("backends", "folder", "facade", "writes"),
    [
        (["console"], False, False, False),
        (["console"], True, False, True),
        (["wandb"], True, False, True),
        (["wandb"], True, True, False),
        (["wandb", "rlship"], True, True, True),
    ],
)
def test_who_logs_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backends: list[str], folder: bool, facade: bool, writes: bool
) -> None:
    """A folder in the environment is enough, unless W&B's calls are taken: then a job that names wandb alone keeps the
    facade, and its workers in this process leave it alone, too.
    """
    if folder:
        monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    if facade:
        monkeypatch.setitem(verl_driver.sys.modules, "_rlship_hook", types.ModuleType("_rlship_hook"))
    made = tracking().Tracking("p", "e", backends)
    assert ("rlship" in made.logger) is writes
    assert verl_driver.facade_drives() is (facade and not writes)
    assert verl_workers._records() is (folder and (writes or not facade))


def test_a_fault_never_reaches_verl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics that are no dict are said once; an unknown backend is verl's own error."""
    module = tracking()
    made = module.Tracking("p", "e", "rlship", config={"trainer": {"default_local_dir": str(tmp_path)}})
    for _ in range(2):
        made.log(None, step=1)
    assert capsys.readouterr().err.count("integration of verl: log: TypeError") == 1
    with pytest.raises(AssertionError, match="mlflow is not supported"):
        module.Tracking("p", "e", ["mlflow"])


class Metric:
    """verl's class of a value that is reduced over micro-batches."""

    def __init__(self, how: str, values: list[float]) -> None:
        self.aggregation = types.SimpleNamespace(value=how)
        self.values = values


def workers() -> Any:
    """The modules with verl's profiler and its workers, patched."""

    class DistProfiler:
        @classmethod
        def annotate(cls, message: Any = None, **options: Any) -> Callable[[Any], Any]:
            return lambda function: function

    module: Any = types.SimpleNamespace(DistProfiler=DistProfiler)
    patch_profiler(module)

    class TrainingWorker:
        def __init__(self, kind: str, rank: int = 1) -> None:
            self.rank, self.world_size = rank, 4
            self.config = types.SimpleNamespace(model_type=kind)

        @DistProfiler.annotate(color="red", role="train_batch")
        def train_batch(self, metrics: dict[str, Any], forward_only: bool = False) -> Any:
            return self._postprocess_output({"metrics": metrics}, forward_only=forward_only)

        def _postprocess_output(self, output: Any, *, forward_only: bool) -> Any:
            gathered = {name: [value] * 4 for name, value in output.pop("metrics").items()}
            return {
                "metrics": {**gathered, "loss": 0.5, "grad_norm": 1.5, "lr": 1e-6, "mfu": 0.4, "perf/max_a_gb": 3.0}
            }

    class ActorRolloutRefWorker(TrainingWorker):
        role = "actor_rollout"

        async def update_weights(self, global_steps: Any = None, mode: str = "auto") -> str:
            return "done"

    module.TrainingWorker, module.ActorRolloutRefWorker = TrainingWorker, ActorRolloutRefWorker
    patch_workers(module)
    return module


def test_each_worker_writes_its_own_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the group gathers them: reduced over micro-batches as verl does, under the driver's names, at the step
    that follows the last update of weights, and with the spans that verl's profiler would mark.
    """
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    module = workers()
    worker = module.ActorRolloutRefWorker("language_model")
    assert asyncio.run(worker.update_weights(global_steps=6)) == "done"
    loss = Metric("sum", [0.25, 0.5])
    result = worker.train_batch({"actor/pg_loss": loss, "x_max": [1.0, 2.0], "y": [1, 2], "tensor": object()})
    assert result["metrics"]["actor/pg_loss"] == [loss] * 4
    worker.train_batch({"actor/pg_loss": loss}, forward_only=True)
    asyncio.run(worker.update_weights(7))
    asyncio.run(worker.update_weights(None))
    registry.current().close()
    found = records(tmp_path)
    assert [found[0][name] for name in ("actor", "rank", "world")] == ["worker", 1, 4]
    (line,) = metrics(found)
    assert (line["step"], line["m"]) == (
        7,
        {
            "actor/pg_loss": 0.75,
            "actor/x_max": 2.0,
            "actor/y": 1.5,
            "actor/grad_norm": 1.5,
            "actor/lr": 1e-6,
            "perf/mfu/actor": 0.4,
            "actor/perf/max_a_gb": 3.0,
        },
    )
    declared = {name: one for record in found if record.get("kind") == "define" for name, one in record["m"].items()}
    assert {name: one["reduce"] for name, one in declared.items()} == {
        "train_batch_s": ["mean", "max"],
        "actor/pg_loss": "mean",
        "actor/x_max": "max",
        "actor/y": "mean",
        "actor/grad_norm": "mean",
        "actor/lr": "last",
        "perf/mfu/actor": "mean",
        "actor/perf/max_a_gb": "max",
    }
    assert all(one["per_rank"] for one in declared.values())
    assert [one["step"] for one in found if one.get("kind") == "span"] == [7, 7]
    assert barriers(found) == [7]


def test_a_critic_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same process, too. Without an update of weights its lines have no step."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    module = workers()
    module.TrainingWorker("value_model").train_batch({"critic/vf_loss": [2.0]})
    module.TrainingWorker("language_model").train_batch({})
    for logger in [*registry._loggers.values()]:
        logger.close()
    critic, worker = sorted(files(tmp_path))
    assert (critic.name.split("-")[0], worker.name.split("-")[0]) == ("critic", "worker")
    (line,) = metrics([json.loads(line) for line in whole(critic)])
    assert line["m"]["critic/vf_loss"] == 2.0
    assert "step" not in line and line["m"]["perf/mfu/critic"] == 0.4


def test_without_a_folder_workers_are_as_they_were() -> None:
    """Nothing is opened, and results are verl's own."""
    worker = workers().ActorRolloutRefWorker("language_model")
    assert worker.train_batch({"a": 1})["metrics"]["a"] == [1] * 4
    assert asyncio.run(worker.update_weights(3)) == "done"
    assert not verl_workers._workers


def test_the_job_of_a_worker_comes_first(tmp_path: Path) -> None:
    """In a process that called `rlship.init`, what verl's worker measures goes to that file."""
    own = rlship.init(tmp_path, "mine")
    verl_workers.open_logger("verl", "", actor="worker", rank=0, world=2)
    assert verl_workers.open_logger("verl", "", actor="worker", rank=0, world=2) is own


class Batch:
    """As much of verl's DataProto as the plug-in reads: two groups of two samples, padded at both sides."""

    def __init__(self) -> None:
        self.batch = {
            "responses": np.array([[5, 6, 0], [7, 0, 0], [8, 9, 10], [11, 12, 0]]),
            "attention_mask": np.array([[0, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0]]),
            "response_mask": np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]]),
            "token_level_scores": np.array([[0, 1.0, 0], [0.25, 0, 0], [0, 0, 0.5], [0, 0.75, 0]]),
        }
        self.non_tensor_batch = {"uid": np.array(["a", "a", "b", "b"], object)}


def ppo_trainer(sign: float = 1.0) -> Any:
    """The module `verl.trainer.ppo.ray_trainer`, patched; its advantages have this sign."""

    def compute_advantage(data: Any, adv_estimator: str, num_repeat: int = 1) -> Any:
        scores = data.batch["token_level_scores"].sum(-1)
        gains = scores - scores.reshape(-1, 2).mean(-1).repeat(2)
        data.batch["advantages"] = sign * gains[:, None] * data.batch["response_mask"]
        return data

    class RayPPOTrainer:
        global_steps = 7

        def _update_actor(self, batch: Any) -> str:
            return "updated"

    module: Any = types.SimpleNamespace(RayPPOTrainer=RayPPOTrainer, compute_advantage=compute_advantage)
    patch_trainer(module)
    patch_trainer(module)
    return module


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_driver_records_its_batches_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: float
) -> None:
    """Each group is recorded after its reward and before the update, by verl's uid; the sidecar finds equal samples,
    and advantages with a wrong sign.
    """
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    monkeypatch.setenv("RLSHIP_LEDGER_SHARE", "1")
    made = tracking().Tracking("p", "e", "rlship")
    module = ppo_trainer(sign)
    batch = module.compute_advantage(Batch(), adv_estimator="grpo", num_repeat=2)
    assert module.RayPPOTrainer()._update_actor(batch) == "updated"
    made.log({"training/global_step": 7}, step=7)
    registry.current().close()
    found = [one for one in records(tmp_path) if one.get("kind") == "ledger"]
    assert [(one["hop"], one["key"], one["n"], one.get("step")) for one in found] == [
        *(("rewarded", "a", 2, None), ("rewarded", "b", 2, None)),
        *(("trained", "a", 2, 7), ("trained", "b", 2, 7)),
    ]
    before, after = found[::2]
    assert before["d"] == {name: after["d"][name] for name in before["d"]} and before["reward"] == after["reward"]
    assert (after["advantage"][2] > 0) == (sign > 0)


def test_a_batch_of_another_trainer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Tracking, without uids or with a critic's advantages nothing wrong is recorded, and the job goes on."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    monkeypatch.setenv("RLSHIP_LEDGER_SHARE", "1")
    module = ppo_trainer()
    assert module.compute_advantage(Batch(), adv_estimator="gae") is not None  # no Tracking yet
    tracking().Tracking("p", "e", "rlship")
    unknown = Batch()
    unknown.non_tensor_batch.clear()
    module.compute_advantage(unknown, adv_estimator="gae")
    trained = module.compute_advantage(Batch(), adv_estimator="gae")
    module.RayPPOTrainer()._update_actor(trained)
    registry.current().close()
    found = [one for one in records(tmp_path) if one.get("kind") == "ledger"]
    assert [one["hop"] for one in found] == ["rewarded", "rewarded", "trained", "trained"]
    assert not any("advantage" in one for one in found)


# verl's Tracking with W&B's package and its file logger, as verl 0.9.1 has them.
TRACKING = """
import json, os, types
from rlship.integrations.verl_driver import patch_tracking

class FileLogger:
    def __init__(self):
        self.file = open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0)
    def log(self, data, step):
        self.file.write(json.dumps({"step": step, "data": data}).encode() + b"\\n")

class Tracking:
    supported_backend = ["wandb", "file", "console"]
    def __init__(self, project_name, experiment_name, default_backend="console", config=None):
        self.logger = {}
        if "wandb" in default_backend:
            wandb.init(project=project_name, name=experiment_name, config=config)
            self.logger["wandb"] = wandb
        if "file" in default_backend:
            self.logger["file"] = FileLogger()
    def log(self, data, step, backend=None):
        for logger in self.logger.values():
            logger.log(data=data, step=step)
    def finish(self, exit_code=0):
        self.logger["wandb"].finish(exit_code=exit_code)

module = types.SimpleNamespace(Tracking=Tracking)
patch_tracking(module)
made = module.Tracking("math", "tiny", BACKENDS, {"lr": 1e-6})
made.log({"val-core/acc": 0.25}, step=0)
for step in (1, 2):
    made.log({"training/global_step": step, "critic/score/mean": 0.5 * step, "perf/total_num_tokens": 100}, step=step)
made.finish()
"""


@pytest.mark.parametrize("backends", [["wandb", "file", "rlship"], ["wandb", "file"]], ids=["plug-in", "facade"])
def test_facade_plug_in_and_file_at_once(backends: list[str], tmp_path: Path) -> None:
    """A driver whose calls of W&B are taken, with the plug-in on and the file logger's file in the experiment: rows
    have each value once, of one rank, live as afterwards, and no value comes from a second place.
    """
    file = tmp_path / "run" / "metrics.jsonl"
    file.parent.mkdir()
    code = TRACKING.replace("BACKENDS", repr(backends))
    job = jobs.run(tmp_path, code, RLSHIP_DIR=str(tmp_path / "run"), VERL_FILE_LOGGER_PATH=str(file))
    assert len(file.read_text().splitlines()) == 3
    assert [found[0]["labels"]["source"] for found in job.files()] == ["verl" if "rlship" in backends else "wandb"]
    twice = {name: ["sum", "count"] for name in ("critic/score/mean", "perf/total_num_tokens")}
    for first in ("file", "own"):
        with simulation(overrides=twice) as sim:
            for part in (first, "own", "file"):
                source = job.experiment / ("rlship" if part == "own" else "metrics.jsonl")
                copy = shutil.copytree if part == "own" else shutil.copy
                where = sim.directory / "rlship" if part == "own" else sim.directory
                copy(source, where, **({"dirs_exist_ok": True} if part == "own" else {}))
                sim.tick()
                sim.wait(11.0)
                sim.tick()
            sim.finish()
            rows = {unit.index: row for unit, row in sim.final().items() if unit.kind == "step"}
            assert rows[0].values == {"trainer/val-core/acc": 0.25}
            for step in (1, 2):
                found = {name.removeprefix("trainer/"): value for name, value in rows[step].values.items()}
                found.pop("training/global_step")
                assert found == {
                    "critic/score/mean": 0.5 * step,
                    "critic/score/mean/count": 1.0,
                    "perf/total_num_tokens": 100.0,
                    "perf/total_num_tokens/count": 1.0,
                }
            assert {(row.coverage.ranks, row.coverage.lives) for row in rows.values()} == {(("0.0",), 1)}
            assert not sim.dead()
