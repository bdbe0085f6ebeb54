"""A run that another process goes on with, and what a job reads of its own run: as with W&B's client and its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlship.facade import resumed
from tests.facade.jobs import Job, metrics, run, said
from tests.loopback.backend import LoopbackBackend

SHOW = """
    import json, os, sys
    def own(values):
        return {key: value for key, value in dict(values).items() if key not in ("_timestamp", "_runtime", "_wandb")}
    """
# Each start is a process: the first one says what the run is, the second one reads it.
RESUME = (
    SHOW
    + """
    if not os.path.exists("second"):
        open("second", "w").close()
        run = wandb.init(project="p", id="same", name="nice", tags=["a"], notes="hello", resume="allow",
                         config={"lr": 0.5, "d": {"a": 1, "b": 2}, "seed": 1})
        run.define_metric("m", summary="max")
        for step in range(3):
            run.log({"loss": 4 - step, "m": 5 - step, "text": "abc", "gone": 1})
        run.summary["best"] = 0.75
        run.summary["nested"] = {"a": {"b": 1}}
        del run.summary["never there"]
        run.finish()
    else:
        run = wandb.init(project="p", id="same", resume="must", config={"seed": 2, "new": True}, tags=["z"])
        seen = [run.resumed, run.starting_step, run.name, run.tags, run.notes, own(run.config)]
        summary = own(run.summary)
        summary["nested"], summary["m"] = run.summary["nested"]["a"]["b"], run.summary["m"]["max"]
        try:
            run.config.update({"lr": 0.25})
        except Exception as error:
            seen.append(type(error).__name__)
        run.log({"loss": 1})
        seen += [summary, run.summary["loss"], run.summary["best"], run.status().sync_items_pending]
        run.finish()
        print(json.dumps(seen))
    """
)
SEEN: list[Any] = [
    *(True, 3, "nice", ["z"], "hello", {"lr": 0.5, "d": {"a": 1, "b": 2}, "seed": 2, "new": True}, "ConfigError"),
    {"_step": 2, "loss": 2, "m": 5, "text": "abc", "gone": 1, "best": 0.75, "nested": 1},
    *(1, 0.75, 0),
]


# Each start says whether it goes on with the run of the one before.
AUTO = (
    SHOW
    + """
    number = sum(os.path.exists(f"start{n}") for n in range(9))
    run = wandb.init(project="p", resume=None if number == 3 else "auto")
    before = open(f"start{number - 1}").read() if number else ""
    open(f"start{number}", "w").write(run.id)
    run.log({"x": number})
    print(json.dumps(run.id == before))
    sys.stdout.flush()
    if number in (0, 2):
        os._exit(3)
    run.finish()
    """
)
GOES_ON = [False, True, False, False, False]

FINAL = """
    import numpy
    run = wandb.init(project="p", id="same")
    run.define_metric("*", step_metric="train/global_step")
    run.log({"profile": 1.0})
    for step in (1, 2):
        run.log({"loss": 1 / step, "train/global_step": step})
    run.log({"test/acc": 0.5, "test/flag": True})
    run.log({"test/acc": numpy.float32(0.75), "profile": 2.0, "test/nan": float("nan"), "mine": 4})
    run.summary["mine"] = 5
    run.finish()
    """
AT_END = {"test/acc": 0.75, "test/flag": True, "mine": 5}


API = """
    import json
    run = wandb.init(project="p", id="mine", name="nice", config={"lr": 0.5}, tags=["t"])
    for step in range(3):
        run.log({"x": step}, step=10 * step)
        run.log({"y": 2 * step}, step=10 * step)
    run.summary["best"] = 4
    api = wandb.Api()
    open_one = api.run(run.path)
    open_one.summary["set"] = 1
    seen = [open_one.state]
    run.finish()
    found = api.run("someone/p/runs/mine")
    found.summary["late"] = 1
    found.update()
    seen += [found.id, found.name, found.state, found.config, found.tags, found.path[-1], found.lastHistoryStep]
    seen += [found.summary.get("best"), found.summary._json_dict["x"], list(found.scan_history(keys=["x", "y"]))]
    seen += [found.history(samples=2, keys=["y"], pandas=False), len(found.history(keys=["x"])), found.files()]
    for path in ("p/other", "q/mine"):
        try:
            api.run(path)
        except Exception as error:
            seen.append(type(error).__name__)
    print(json.dumps(seen))
    """


ARTIFACTS = """
    import json, os
    run = wandb.init(project="p")
    for epoch in range(2):
        with open("model.pt", "w") as file:
            file.write(str(epoch))
        artifact = wandb.Artifact("model", type="model")
        artifact.add_file("model.pt")
        run.log_artifact(artifact, aliases=[f"epoch-{epoch}"])
    def content(folder):
        with open(os.path.join(folder, "model.pt")) as file:
            return file.read()
    other = wandb.Artifact("other", type="model")
    other.add_file("model.pt", name="sub/model.pt")
    run.log_artifact(other)
    seen = [content(run.use_artifact(name).download()) for name in ("model:latest", "p/model:epoch-0", "model")]
    seen += [os.path.join(found, "sub/model.pt") for found in [run.use_artifact("other:v0").download(root="own")]]
    model = run.use_model("model:latest")
    seen += [os.path.basename(model), content(os.path.dirname(model))]
    for name in ("model:epoch-7", "q/model:latest", "third:latest"):
        try:
            run.use_artifact(name)
        except Exception as error:
            seen.append(type(error).__name__)
    assert os.path.isfile("own/sub/model.pt")
    print(json.dumps(seen))
    """


def starts(folder: Path, code: str, count: int, **more: str) -> list[Job]:
    """The processes of a program that is started again and again in a folder."""
    return [run(folder, code, check=False, **more) for _ in range(count)]


def test_a_resumed_run_has_what_it_had(tmp_path: Path) -> None:
    """Its config, summary, name, tags and notes are those of earlier processes, under what this one says; it records
    only what it says itself.
    """
    first, second = starts(tmp_path, RESUME, 2)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.values() == SEEN
    found = said(second.files()[1])
    assert (found["config"], found["tags"]) == ({"seed": 2, "new": True}, ["z"])
    assert found.keys().isdisjoint(("name", "notes", "summary"))
    assert metrics(second.files()[1]) == [(3, {"loss": 1})]


def test_auto_goes_on_with_a_run_that_crashed(tmp_path: Path) -> None:
    """With resume="auto" a job goes on with the run before, if that did not finish and no other came in between."""
    assert [job.values() for job in starts(tmp_path, AUTO, len(GOES_ON))] == GOES_ON


def test_another_run_in_the_same_folder(tmp_path: Path) -> None:
    """A process whose run has another id than the one that ended in its folder says so. A resumed run does not, nor
    does one after a process that was killed.
    """
    code = """
        import os
        wandb.init(id=os.environ["ID"], resume="allow").log({"x": 1})
        wandb.finish()
        """
    said_so = [run(tmp_path, code, ID=one).err.count("where the run") for one in ("a", "a", "b", "b")]
    assert said_so == [0, 0, 1, 0]
    assert not run(tmp_path, code, ID="d", RANK="1", WORLD_SIZE="2").err.count("where the run")
    for file in (tmp_path / "run" / "rlship").glob("*.jsonl"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert not run(tmp_path, code, ID="g").err.count("where the run")


def test_what_is_logged_after_the_last_step(tmp_path: Path) -> None:
    """Metrics that begin after the last step of the job's axis are in the summary, as the results of a test are: no row
    has them under their names. What rows have, and what the job sets itself, stays.
    """
    assert said(run(tmp_path, FINAL).file())["summary"] == AT_END


@pytest.mark.long
def test_the_client_itself(tmp_path: Path) -> None:
    """W&B's own client with a server shows the programs of this module the same."""
    with LoopbackBackend() as backend:
        for name, code, count in (("resume", RESUME, 2), ("auto", AUTO, len(GOES_ON)), ("final", FINAL, 1)):
            (tmp_path / name).mkdir()
            more = {**backend.environment(tmp_path / name / "home"), "WANDB_SILENT": "true"}
            jobs = [run(tmp_path / name, code, patched=False, check=False, **more) for _ in range(count)]
            if name == "resume":
                assert jobs[1].values() == SEEN, jobs[1].err
            elif name == "auto":
                assert [job.values() for job in jobs] == GOES_ON
        summary = backend.run("p", "same").summary
        assert {key: summary[key] for key in AT_END} == AT_END


def test_the_api_finds_the_jobs_own_run(tmp_path: Path) -> None:
    """`wandb.Api().run(run.path)` gives config, summary, rows and state of a run of this process, open or finished.
    A path of another run goes to W&B.
    """
    with LoopbackBackend() as backend:
        job = run(tmp_path, API, **backend.environment(tmp_path / "home"))
    assert job.values() == [
        *("running", "mine", "nice", "finished", {"lr": 0.5}, ["t"], "mine", 20, 4, 2),
        [{"x": step, "y": 2 * step} for step in range(3)],
        *([{"_step": 0, "y": 0}, {"_step": 20, "y": 4}], 3, [], "CommError", "CommError"),
    ]
    assert said(job.file())["summary"] == {"best": 4, "set": 1}
    assert job.err.count("is not recorded") == 1


def test_an_artifact_of_the_job_itself(tmp_path: Path) -> None:
    """`use_artifact` and `use_model` find what this process logged, by name and alias, and give its files as they were
    then. A name that it did not log goes to W&B.
    """
    with LoopbackBackend() as backend:
        job = run(tmp_path, ARTIFACTS, **backend.environment(tmp_path / "home"))
    assert job.values() == ["1", "0", "1", "own/sub/model.pt", "model.pt", "1", "CommError", "CommError", "CommError"]


def test_a_large_file_is_read_at_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is larger than is read at a start: what was said at its beginning, and the newest values."""
    monkeypatch.setattr(resumed, "_END_BYTES", 4096)
    monkeypatch.setattr(resumed, "_VALUES_BYTES", 2048)
    lines = ['{"kind":"open","axis":"_step","labels":{"wandb_id":"same"}}', '{"kind":"run","config":{"a":{"b":1}}}']
    lines += [
        '{"kind":"run","config":{"a":{}}}',
        '{"kind":"run","config":{"a":{"c":2}}}',
        '{"t":1,"step":0,"m":{"old":1}}',
    ]
    lines += [f'{{"t":1,"step":{step},"m":{{"x":{step}}}}}' for step in range(1000)]
    (tmp_path / "rlship").mkdir()
    file = tmp_path / "rlship" / "one.jsonl"
    file.write_text("\n".join(lines) + '\n{"t":1,"step":1000,"m":{"x":1000,"cut')
    found = resumed.read(str(tmp_path), "same")
    assert found is not None
    assert (found.config, found.summary) == ({"a": {"c": 2}}, {"x": 999})
    assert resumed.read(str(tmp_path), "other") is None
