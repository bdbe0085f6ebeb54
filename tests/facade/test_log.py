"""What calls of `log`, `define_metric`, `config` and `summary` become, called on the real package."""

from __future__ import annotations

from pathlib import Path

from tests.endtoend.evidence import files_of
from tests.facade.jobs import barriers, events, metrics, rows_of, run, said, samples
from tests.reference.runs import run_data


def test_steps_that_are_passed(tmp_path: Path) -> None:
    """`log(step=)` is a line at that step; a later step ends the one before; a late call is a revision of its step;
    keyword `data=` and `commit=` are the client's own.
    """
    job = run(
        tmp_path,
        """
        run = wandb.init(project="p")
        for step in range(1, 4):
            wandb.log(data={"loss": 1 / step}, step=step)
        wandb.log({"loss": 5.0, "late": 1}, step=1)
        run.log({"lr": 0.5}, step=3, commit=True)
        print(run.step)
        """,
    )
    found = job.file()
    assert found[0]["axis"] == "_step"
    assert found[0]["labels"]["source"] == "wandb"
    assert barriers(found) == [1, 2, 3]
    assert job.rows() == {1: {"loss": 5.0, "late": 1.0}, 2: {"loss": 0.5}, 3: {"loss": 1 / 3, "lr": 0.5}}
    assert found[-1]["reason"] == "exit"
    assert job.values() == 4


def test_calls_are_counted_where_there_is_no_step(tmp_path: Path) -> None:
    """Without step and axis each committed call is a step, which ends with the call; `commit=False` joins the next."""
    job = run(
        tmp_path,
        """
        wandb.init()
        wandb.log({"a": 1})
        wandb.log({"a": 2}, commit=False)
        wandb.log({"b": {"c": 3}})
        wandb.run.log({"a": 4})
        wandb.finish()
        """,
    )
    assert metrics(job.file()) == [(0, {"a": 1}), (1, {"a": 2}), (1, {"b.c": 3}), (2, {"a": 4})]
    assert barriers(job.file()) == [0, 1, 2]


def test_the_axis_is_the_step_metric(tmp_path: Path) -> None:
    """Rows that have the step metric are at its value; calls without it are aligned to the step during which they were
    made, as a distribution; the reductions are so declared.
    """
    job = run(
        tmp_path,
        """
        wandb.init()
        wandb.define_metric("train/global_step")
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        for step in range(1, 51):
            for x in (1.0, 2.0, 6.0):
                wandb.log({"profiling/generate": x * step})
            wandb.log({"train/loss": 0.5, "train/global_step": step})
        """,
    )
    found = job.file()
    assert found[0]["axis"] == "train/global_step"
    assert all(record["stream"] for record in found if "kind" not in record and "step" not in record)
    assert barriers(found) == [*range(1, 51)]
    assert job.rows() == {step: {"train/loss": 0.5} for step in range(1, 51)}
    name = "profiling/generate"
    # However close the calls are.
    assert job.rows("aligned") == {
        step: {name: 3.0 * step, f"{name}/min": 1.0 * step, f"{name}/max": 6.0 * step} for step in range(1, 51)
    }


def test_each_further_axis_is_an_actor(tmp_path: Path) -> None:
    """A second integer axis has a file of its own, `<actor>.<axis>`, with barriers of its own."""
    job = run(
        tmp_path,
        """
        wandb.init()
        for name in ("train", "rollout", "eval"):
            wandb.define_metric(f"{name}/step")
            wandb.define_metric(f"{name}/*", step_metric=f"{name}/step")
        wandb.log({"rollout/reward": 0.1, "rollout/step": 0})
        wandb.log({"train/loss": 3.0, "train/step": 0})
        wandb.log({"train/loss": 2.0, "train/step": 1})
        wandb.log({"rollout/reward": 0.2, "rollout/step": 1})
        wandb.log({"eval/acc": 0.9, "eval/step": 0, "train/step": 1})
        """,
    )
    axes = {found[0]["actor"]: found[0]["axis"] for found in job.files()}
    assert axes == {
        "trainer": "train/step",
        "trainer.rollout/step": "rollout/step",
        "trainer.eval/step": "eval/step",
    }
    assert job.rows() == {0: {"train/loss": 3.0}, 1: {"train/loss": 2.0}}
    assert job.rows(actor="trainer.rollout/step") == {0: {"rollout/reward": 0.1}, 1: {"rollout/reward": 0.2}}
    assert job.rows(actor="trainer.eval/step") == {0: {"eval/acc": 0.9}}


def test_values_of_every_kind(tmp_path: Path) -> None:
    """Arrays are distributions, texts and other objects an event, None nothing; numbers of numpy are numbers."""
    job = run(
        tmp_path,
        """
        import numpy as np, datetime
        wandb.init()
        wandb.log({
            "i": np.int64(3), "f": np.float32(0.5), "zero_d": np.array(2.0), "yes": True, "nothing": None,
            "array": np.arange(6).reshape(2, 3), "list": [1, 2.5], "text": "warm-up", "nan": float("nan"),
            "when": datetime.date(2026, 1, 2), "names": ["a", "b"],
        }, step=0)
        wandb.log({"hist": wandb.Histogram(np_histogram=([2, 0, 1], [0.0, 1.0, 2.0, 3.0]))}, step=1)
        wandb.log({"density": wandb.Histogram(np_histogram=([0.5, 1.5], [0.0, 1.0, 2.0]))}, step=1)
        """,
    )
    found = job.file()
    (step, first), (at, second), (_, third) = metrics(found)
    assert step == 0
    assert first == {
        "i": 3,
        "f": 0.5,
        "zero_d": 2.0,
        "yes": True,
        "array": [0, 1, 2, 3, 4, 5],
        "list": [1, 2.5],
        "nan": "NaN",
    }
    (texts,) = events(found, "texts")
    assert texts["attrs"] == {"text": "warm-up", "when": "2026-01-02", "names": ["a", "b"]}
    (histogram,) = events(found, "histogram")
    assert histogram["attrs"] == {"key": "density", "edges": [0.0, 1.0, 2.0], "heights": [0.5, 1.5]}
    bins = {"edges": [0.0, 1.0, 2.0, 3.0], "counts": [2, 0, 1]}
    assert (at, second) == (1, {"hist": {"n": 3, "sum": 3.5, "min": 0.0, "max": 3.0, **bins}})
    assert third == {"density": {"n": 2, "sum": 2.5, "min": 0.0, "max": 2.0}}
    (row,) = (row for unit, row in rows_of(job.experiment).items() if (unit.kind, unit.index) == ("step", 1))
    assert (row.hists["trainer/hist"].edges, row.hists["trainer/hist"].counts) == ((0.0, 1.0, 2.0, 3.0), (2, 0, 1))


def test_tables_are_samples_without_rows_that_were_logged_before(tmp_path: Path) -> None:
    """Rows of a table are samples, ranked by reward. A table that grows, in one object or in new ones, adds its new
    rows only; a new table with other rows, or an equal one in another object, is new as a whole.
    """
    job = run(
        tmp_path,
        """
        wandb.init()
        for step in range(3):
            rows = [[step, "p", float(step)]]
            wandb.log({"completions": wandb.Table(columns=["step", "prompt", "reward"], data=rows)}, step=step)
        columns, rows = ["step", "out"], []
        for step in range(3):
            rows = [*rows, [step, f"o{step}"]]
            wandb.log({"val": wandb.Table(columns=columns, data=rows)}, step=step)
        grows = wandb.Table(columns=["x"], log_mode="INCREMENTAL")
        for step in range(3):
            grows.add_data(step)
            wandb.log({"grows": grows}, step=step)
            wandb.log({"grows": grows}, step=step)
        for step in range(2):
            wandb.log({"same": wandb.Table(columns=["x"], data=[[1]])}, step=step)
        """,
    )
    found = job.file()
    assert [(one["step"], one["score"], one["row"]) for one in samples(found, "completions")] == [
        (step, float(step), {"step": step, "prompt": "p", "reward": float(step)}) for step in range(3)
    ]
    assert [(one["step"], one["row"]) for one in samples(found, "val")] == [
        (step, {"step": step, "out": f"o{step}"}) for step in range(3)
    ]
    assert [(one["step"], one["row"]["x"]) for one in samples(found, "grows")] == [(0, 0), (1, 1), (2, 2)]
    assert [(one["step"], one["row"]["x"]) for one in samples(found, "same")] == [(0, 1), (1, 1)]


def test_an_equal_table_of_one_step_adds_nothing(tmp_path: Path) -> None:
    """TRL logs the table of its last evaluation once more as the training ends. One that equals the last one of its key
    and step adds nothing, whether the call or the rows name the step. Of another step, or without one, it is new.
    """
    job = run(
        tmp_path,
        """
        wandb.init()
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        def log(key, *cells, **more):
            wandb.log({key: wandb.Table(columns=["step", "text"], data=[list(row) for row in cells]), **more})
        for step in (1, 2):
            wandb.log({"loss": 0.5, "train/global_step": step})
            log("completions", (step, "a"), (step, "b"))
            log("completions", (step, "c"), (step, "d"))  # an evaluation
            log("asked", ("one", "a"), **{"train/global_step": step})
            log("asked", ("one", "a"), **{"train/global_step": step})
        wandb.log({"train_loss": 0.4, "train/global_step": 2})
        log("completions", (2, "c"), (2, "d"))
        log("none", ("one", "a"))
        log("none", ("one", "a"))
        """,
    )
    found = job.file()
    texts = [(one["step"], one["row"]["text"]) for one in samples(found, "completions")]
    assert texts == [(step, text) for step in (1, 2) for text in "abcd"]
    assert [one["step"] for one in samples(found, "asked")] == [1, 2]
    assert [one.get("step") for one in samples(found, "none")] == [None, None]


def test_a_table_that_names_the_step_just_logged_is_at_it(tmp_path: Path) -> None:
    """A table without a step, whose rows all name the newest step, is of that step, in step with W&B, although its time
    is in the next one. With another step, several steps or texts it belongs to none.
    """
    job = run(
        tmp_path,
        """
        wandb.init()
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        def log(key, *steps):
            wandb.log({key: wandb.Table(columns=["step", "text"], data=[[step, "x"] for step in steps])})
        log("before", 1)
        for step in (1, 2):
            wandb.log({"loss": 0.5, "train/global_step": step})
            log("completions", step, step)
        log("other", 1)
        log("several", 1, 2)
        log("texts", "2")
        """,
    )
    found = job.file()
    at = {name: [one.get("step") for one in samples(found, name)] for name in ("completions", "other", "several")}
    assert at == {"completions": [1, 1, 2, 2], "other": [None], "several": [None, None]}
    assert [one.get("step") for name in ("before", "texts") for one in samples(found, name)] == [None, None]


def test_config_and_summary(tmp_path: Path) -> None:
    """Every way to change the config is recorded, a changed value still raises, and what the job puts into the summary
    is recorded; a summary asked for by `define_metric` too. Secrets do not reach the disk.
    """
    job = run(
        tmp_path,
        """
        import argparse
        given = {"lr": 1e-6, "_hidden": 1, "model": {"name": "x"}, "api_key": "sk-1234567890123456"}
        run = wandb.init(config=given)
        run.config.epochs = 3
        run.config["seed"] = 7
        wandb.config.update({"batch": 8})
        wandb.config.update(argparse.Namespace(flag=True))
        wandb.config.setdefaults({"lr": 5, "new": "yes"})
        try:
            run.config.update({"lr": 2})
            print("no error")
        except Exception as error:
            print(type(error).__name__)
        run.config.update({"lr": 3e-6}, allow_val_change=True)
        run.define_metric("acc", summary="max,mean", hidden=True)
        run.summary["best"] = 0.5
        run.summary.nested = {"a": {"b": 1}}
        run.summary["nested"]["a"]["b"] = 2
        wandb.summary.update({"more": 1})
        for acc in (0.1, 0.9, 0.2):
            wandb.log({"acc": acc})
        print(run.summary["acc"], wandb.summary["best"], run.config.lr)
        """,
    )
    assert job.out.splitlines() == ["ConfigError", "{'max': 0.9, 'mean': 0.4} 0.5 3e-06"]
    whole = said(job.file())
    assert whole["config"] == {
        "lr": 3e-6,
        "_hidden": 1,
        "model": {"name": "x"},
        "epochs": 3,
        "seed": 7,
        "batch": 8,
        "flag": True,
        "new": "yes",
    }
    assert whole["dropped"] == ["config.api_key"]
    assert whole["summary"]["best"] == 0.5
    assert whole["summary"]["nested"] == {"a": {"b": 2}}
    assert whole["summary"]["more"] == 1
    assert whole["facts"]["define_metric"] == {"acc": {"summary": "max,mean", "hidden": True}}
    assert whole["summary"]["acc"] == {"max": 0.9, "mean": 0.4}
    assert "sk-1234567890123456" not in "".join(path.read_text() for path in job.experiment.rglob("*.jsonl"))


def test_a_summary_that_the_job_sets_or_deletes(tmp_path: Path) -> None:
    """What the job sets itself stays at the end, whatever `define_metric(summary=)` would make of the key. A key that
    it deletes is null in the record; the figure that it asked for begins anew. Until then the summary has that figure.
    """
    job = run(
        tmp_path,
        """
        run = wandb.init()
        run.define_metric("acc", summary="max")
        run.define_metric("loss", summary="min")
        for value in (0.5, 0.9):
            run.log({"acc": value, "loss": value})
        assert run.summary["acc"]["max"] == 0.9 and run.summary["loss"] == {"min": 0.5}
        run.summary["acc"] = 0.95
        run.summary["best"] = 1
        run.summary["nested"] = {"a": 1, "b": 2}
        del run.summary["best"], run.summary["loss"], run.summary["nested"]["a"]
        run.log({"best": 9, "loss": 3})
        print(run.summary["best"], run.summary["nested"])
        """,
    )
    assert job.out.split("\n")[0] == "9 {'b': 2}"
    whole = said(job.file())["summary"]
    assert (whole["acc"], whole["best"], whole["loss"]) == (0.95, None, {"min": 3})


def test_a_metric_as_the_axis_of_another_one(tmp_path: Path) -> None:
    """What `define_metric` returns names its metric, and is taken for an axis like its name."""
    job = run(
        tmp_path,
        """
        epoch = wandb.init().define_metric("epoch", hidden=True)
        metric = wandb.define_metric("acc", step_metric=epoch, summary="max")
        assert (epoch.name, metric.name, metric.step_metric, metric.summary) == ("epoch", "acc", "epoch", ("max",))
        wandb.log({"acc": 0.5, "epoch": 3})
        """,
    )
    assert job.file()[0]["axis"] == "epoch" and metrics(job.file()) == [(3, {"acc": 0.5})]


def test_what_a_job_reads_in_its_summary(tmp_path: Path) -> None:
    """Scalars of numpy, short lists, and W&B's own `_step`, `_timestamp` and `_runtime` are there as with the client. A
    metric defined with `summary="none"` is not, nor are values of an earlier row.
    """
    job = run(
        tmp_path,
        """
        import json
        import numpy as np
        run = wandb.init()
        run.define_metric("hidden/*", summary="none")
        run.define_metric("hidden/best", summary="max")
        run.log({"loss": np.float32(0.5), "lengths": [1, 2], "hidden/x": 1, "hidden/best": 3}, step=7)
        run.log({"loss": np.float32(9)}, step=3)
        found = run.summary
        assert found["_step"] == 7 and found["_timestamp"] > 1e9 and 0 <= found._runtime < 100
        print(json.dumps([found["loss"], found.get("lengths"), found.get("hidden/x"), found.get("hidden/best")]))
        """,
    )
    assert job.values() == [0.5, [1, 2], None, {"max": 3}]


def test_an_object_replaces_the_one_before(tmp_path: Path) -> None:
    """A dict at the top of config or summary replaces the one before, as at W&B, in the file and before there is one:
    keys that it lacks are gone in what the sidecar makes of the records.
    """
    job = run(
        tmp_path,
        """
        adam, sgd = {"name": "adam", "betas": 0.9}, {"name": "sgd", "momentum": 0.5}
        run = wandb.init(config={"early": adam, "opt": adam, "same": {"a": {"b": 1}}})
        run.config.update({"early": sgd}, allow_val_change=True)
        wandb.log({"x": 1})
        run.config.update({"opt": sgd, "same": {"a": {"b": 2}}}, allow_val_change=True)
        run.summary["best"] = {"loss": 1, "step": 3}
        run.summary["best"] = {"loss": 0.5}
        """,
    )
    whole = run_data(files_of(job.experiment))
    sgd = {("name",): "sgd", ("momentum",): 0.5}
    assert whole["config"] == {
        **{(key, *path): value for key in ("early", "opt") for path, value in sgd.items()},
        ("same", "a", "b"): 2,
    }
    assert whole["summary"] == {("best", "loss"): 0.5}


def test_what_the_run_is(tmp_path: Path) -> None:
    """Project, name, group, job type, tags and notes are recorded, as are later changes of them; the run's own names
    are usable, and no member is None where a job expects a text.
    """
    job = run(
        tmp_path,
        """
        import json, os
        run = wandb.init(project="proj", entity="team", name="grpo-7b", group="g", job_type="train", tags=["a"],
                         notes="first", id="fixed", dir=".", save_code=True, force=False,
                         settings=wandb.Settings(console="off"))
        run.tags += ("b",)
        run.notes = "second"
        run.name = "renamed"
        wandb.log({"x": 1})
        print(json.dumps([run.id, run.name, run.entity, run.project, run.path, run.url.startswith("file://"), run.group,
                          run.disabled, run.offline, os.path.isdir(run.dir), wandb.run is run,
                          isinstance(run, wandb.Run), run.sweep_id]))
        """,
    )
    whole = said(job.file())
    assert {name: whole[name] for name in ("project", "entity", "group", "job_type", "tags", "notes", "name")} == {
        "project": "proj",
        "entity": "team",
        "group": "g",
        "job_type": "train",
        "tags": ["a", "b"],
        "notes": "second",
        "name": "renamed",
    }
    assert job.values() == [
        *("fixed", "renamed", "team", "proj", "team/proj/fixed", True, "g", False, True, True, True, True, None)
    ]
    assert job.file()[0]["labels"] == {"source": "wandb", "wandb_id": "fixed"}


def test_tables_and_files_of_the_summary(tmp_path: Path) -> None:
    """A table that is set in the summary is samples, as one that is logged, and a picture is a file; a table that was
    logged already adds nothing. What stands beside them is in the summary.
    """
    job = run(
        tmp_path,
        """
        run = wandb.init()
        table = wandb.Table(columns=["x", "reward"], data=[[1, 0.5], [2, 0.25]])
        run.log({"seen": table}, step=0)
        run.summary["seen"] = table
        run.summary["worst"] = wandb.Table(columns=["x"], data=[[7]])
        run.summary.update({"best": 0.9, "page": wandb.Html("<p>x</p>")})
        print(json.dumps([type(run.summary["worst"]).__name__, run.summary["best"]]))
        run.finish()
        """.replace("run = wandb.init()", "import json; run = wandb.init()"),
    )
    assert job.values() == ["Table", 0.9]
    found = job.file()
    assert [(one.get("step"), one["row"]) for one in samples(found, "seen")] == [
        (0, {"x": 1, "reward": 0.5}),
        (0, {"x": 2, "reward": 0.25}),
    ]
    assert [(one.get("step"), one["row"]) for one in samples(found, "worst")] == [(None, {"x": 7})]
    assert said(found)["summary"] == {"best": 0.9}
    (page,) = events(found, "media")
    assert page["attrs"]["key"] == "page"
    assert (job.experiment / "rlship" / page["attrs"]["path"]).read_text().endswith("<p>x</p>")


def test_more_numbers_than_a_line_has_room_for(tmp_path: Path) -> None:
    """A list, an array or a tensor of more than 262,144 numbers is a histogram of its finite ones, as W&B makes one. A
    tensor on a device is left out without being waited for, which stderr says.
    """
    job = run(
        tmp_path,
        """
        import numpy, sys
        class Tensor:  # as torch has it, of a type that numpy lacks
            def __init__(self, found): self.found, self.shape, self.ndim = found, found.shape, found.ndim
            def detach(self): return self
            def double(self): return self.found.astype(numpy.float64)
            def tolist(self): raise MemoryError
            def numel(self): return self.found.size
        class Device:
            type = "npu"
        class OnDevice(Tensor):
            device = Device()
            def detach(self): raise MemoryError
        run = wandb.init()
        many = numpy.arange(300_000, dtype=numpy.float32)
        odd = many.copy()
        odd[:1000] = numpy.nan
        found = {"array": many.reshape(300, -1), "tensor": Tensor(odd), "device": OnDevice(many)}
        run.log({"list": [float(x) for x in many], **found}, step=0)
        run.finish()
        """,
    )
    assert "device" in job.err and "300000 elements" in job.err
    ((_, found),) = metrics(job.file())
    assert {name: one["n"] for name, one in found.items()} == {"list": 300_000, "array": 300_000, "tensor": 299_000}
    assert {len(one["counts"]) for one in found.values()} == {64}
    row = job.rows()[0]
    assert abs(row["array/mean"] - 149_999.5) < 10
    assert (row["list/min"], row["list/max"], row["tensor/min"]) == (0.0, 299_999.0, 1000.0)
