"""What a job says of its run besides its metrics, and calls near the end of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facade.jobs import metrics, records, run, said


def test_a_job_that_only_says_what_it_is(tmp_path: Path) -> None:
    """A run that is finished without a call of `log` has its record `run`: config, name, summary and exit code."""
    job = run(
        tmp_path,
        """
        run = wandb.init(project="evals", config={"ckpt": "a"}, name="ev1")
        run.summary["acc"] = 0.9
        run.finish()
        """,
    )
    found = said(job.file())
    assert (found["project"], found["name"], found["config"]) == ("evals", "ev1", {"ckpt": "a"})
    assert (found["summary"], found["exit_code"]) == ({"acc": 0.9}, 0)
    assert job.file()[-1]["kind"] == "close"


def test_the_order_of_a_configuration_is_that_of_the_job(tmp_path: Path) -> None:
    """Status and W&B's pages show it in this order, which no other start of the job changes."""
    names = [f"key_{number * 7 % 20}" for number in range(20)]
    job = run(tmp_path, f"wandb.init().config.update({dict.fromkeys(names, 1)})\nwandb.log({{'x': 1}})")
    assert [*said(job.file())["config"]] == names


def test_a_job_that_ends_before_its_first_log(tmp_path: Path) -> None:
    """What was said of a run before an error, or before the end of the program, is in its file, and so is the error."""
    job = run(tmp_path, "wandb.init(config={'lr': 1})\nraise RuntimeError('no data')", check=False)
    assert job.code == 1
    assert said(job.file())["config"] == {"lr": 1}
    assert job.file()[-1]["error"] == "RuntimeError: no data"
    (tmp_path / "other").mkdir()
    job = run(tmp_path / "other", "wandb.init().summary['acc'] = 0.9")
    assert said(job.file())["summary"] == {"acc": 0.9}
    (tmp_path / "third").mkdir()
    job = run(tmp_path / "third", "wandb.init()\nraise RuntimeError('no data')", check=False)
    assert job.file()[-1]["error"] == "RuntimeError: no data"


def test_who_writes_nothing_without_a_log(tmp_path: Path) -> None:
    """A rank other than 0 and a forked child that neither log nor say anything write no file, however they end."""
    code = """
        import os, sys
        wandb.init(config={"lr": 1})
        if os.fork() == 0:
            sys.exit(3)
        os.wait()
        """
    job = run(tmp_path, code + "wandb.finish()", RANK="1", WORLD_SIZE="2")
    assert not [*records(job.experiment)]
    job = run(tmp_path, code)
    assert [file[0]["rank"] for file in job.files()] == [0]


def test_handlers_of_the_exit(tmp_path: Path) -> None:
    """A handler that the job registers after `init` logs and finishes before the files close, as with the client."""
    job = run(
        tmp_path,
        """
        import atexit
        run = wandb.init()
        atexit.register(lambda: (run.log({"final/acc": 0.9}), run.finish(exit_code=4)))
        run.log({"x": 1})
        """,
    )
    assert metrics(job.file()) == [(0, {"x": 1}), (1, {"final/acc": 0.9})]
    assert said(job.file())["exit_code"] == 4


def test_steps_out_of_range(tmp_path: Path) -> None:
    """A call with a step that a row cannot have counts as one without a step, which is said once; later calls go on."""
    job = run(
        tmp_path,
        """
        import time
        wandb.init()
        wandb.log({"x": 1}, step=3)
        for step in (-5, 2**53, 10**30, time.time_ns()):
            wandb.log({"x": 2}, step=step)
        wandb.log({"x": 3})
        wandb.log({"y": 1}, step=2**53 - 1)
        wandb.log({"y": 2})
        wandb.log({"y": 3})
        """,
    )
    assert metrics(job.file()) == [
        *((step, {"x": value}) for step, value in ((3, 1), (3, 2), (4, 2), (5, 2), (6, 2), (7, 3))),
        *((2**53 - 1, {"y": value}) for value in (1, 2, 3)),
    ]
    assert job.err.count("is not a step") == 1


def test_the_project(tmp_path: Path) -> None:
    """Of a job that names no project nothing is said, here and where its run is passed to another process; it reads
    the name that the client has for that. A project with one of the client's names is as the job says.
    """
    job = run(
        tmp_path,
        """
        for number, given in enumerate(({}, {"project": "dummy"}, {"project": "uncategorized"})):
            run = wandb.init(reinit=True, **given)
            run.log({"x": number})
            print(run.project, run.__reduce__()[1][2])
        """,
    )
    names = [said(*records(path)).get("project") for path in (tmp_path / name for name in ("run", "run-2", "run-3"))]
    assert names == [None, "dummy", "uncategorized"]
    assert job.out.split() == ["uncategorized", "None", "dummy", "dummy", "uncategorized", "uncategorized"]


def test_the_folder_is_gone_from_the_environment(tmp_path: Path) -> None:
    """A job that clears its environment between the import and `init` is recorded where it was to be."""
    job = run(
        tmp_path,
        """
        import os
        del os.environ["RLSHIP_DIR"]
        wandb.init()
        wandb.log({"x": 1})
        os.environ.pop("RLSHIP_DIR")
        if os.fork() == 0:
            wandb.init(reinit=True)
            wandb.log({"y": 1})
            raise SystemExit
        os.wait()
        """,
    )
    assert [metrics(file) for file in job.files()] == [[(0, {"x": 1})], [(0, {"y": 1})]]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        pytest.param("sys.exit('no data')", 1, marks=pytest.mark.long),
        pytest.param("sys.exit()", None, marks=pytest.mark.long),
    ],
)
def test_the_code_of_the_exit(tmp_path: Path, end: str, code: int | None) -> None:
    """`sys.exit` with a code other than 0 is the run's outcome, and the process ends as it would."""
    job = run(tmp_path, f"import sys\nwandb.init()\nwandb.log({{'x': 1}})\n{end}", check=False)
    assert job.code == (code or 0)
    assert said(job.file()).get("exit_code") == code


WITH = "with wandb.init() as run:\n    run.log({'x': 1})\n    "
TRY = "wandb.init().log({'x': 1})\ntry:\n    1 / 0\n"
DIVIDED = "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("end", "code", "close"),
    [
        (WITH + "1 / 0", 1, DIVIDED),
        (TRY + "except Exception:\n    wandb.finish(exit_code=1)\n    raise", 1, DIVIDED),
        pytest.param(TRY + "except Exception:\n    wandb.finish()", 0, None, marks=pytest.mark.long),
        pytest.param("wandb.init().log({'x': 1})\nwandb.finish(exit_code=1)", 1, None, marks=pytest.mark.long),
        pytest.param(WITH + "raise SystemExit(1)", 1, None, marks=pytest.mark.long),
        pytest.param(WITH + "raise KeyboardInterrupt", 1, None, marks=pytest.mark.long),
    ],
)
def test_the_error_of_a_run_that_failed(tmp_path: Path, end: str, code: int, close: str | None) -> None:
    """The file of a run that fails by an error ends with it, although the process ends later: why and status name it.

    A failure without an error has none, nor has a run that the job calls a success.
    """
    found = run(tmp_path, end, check=False).file()
    assert said(found)["exit_code"] == code
    assert (found[-1]["kind"], found[-1].get("error")) == ("close", close)


def test_whose_code_it_is(tmp_path: Path) -> None:
    """The exit of a thread or of a forked child says nothing of the run."""
    run(
        tmp_path,
        """
        import os, sys, threading
        thread = threading.Thread(target=lambda: sys.exit(5))
        run = wandb.init()
        wandb.log({"x": 1})
        thread.start()
        thread.join()
        if os.fork() == 0:
            sys.exit(6)
        os.wait()
        """,
    )
    (found,) = records(tmp_path / "run")
    assert "exit_code" not in said(found)


def test_defaults_in_a_file(tmp_path: Path) -> None:
    """A value of `init` wins over that of config-defaults.yaml, as with the client, and the others stay. With a value
    that the client refuses, it says so.
    """
    (tmp_path / "config-defaults.yaml").write_text("lr:\n  value: 0.5\nbs:\n  value: 8\nseed:\n  value: 1\n")
    job = run(
        tmp_path,
        """
        import json, types
        run = wandb.init(config={"bs": 16, "_own": 1})
        wandb.log({"x": 1})
        found = [dict(run.config)]
        run.finish()
        run = wandb.init(config=types.SimpleNamespace(bs=32, seed=2), config_exclude_keys=["seed"])
        try:
            run.config.update({"bs": 1})
        except Exception as error:
            found.append([type(error).__name__, dict(run.config)])
        try:
            wandb.init(config={"image": wandb.Image("none.png")}, reinit=True)
        except Exception as error:
            found.append(type(error).__name__)
        print(json.dumps(found))
        """,
    )
    once = {"lr": 0.5, "bs": 16, "seed": 1}
    assert job.values() == [once, ["ConfigError", {**once, "bs": 32}], "FileNotFoundError"]
    assert said(job.file())["config"] == {**once, "_own": 1}


def test_a_finished_run_takes_nothing(tmp_path: Path) -> None:
    """What is set in the config or the summary of a finished run raises, as with the client, and is not lost unseen."""
    job = run(
        tmp_path,
        """
        import json
        run = wandb.init(project="p", id="r")
        wandb.log({"x": 1})
        run.finish()
        raised = []
        def call(change):
            try:
                change()
            except Exception as error:
                raised.append([type(error).__name__, str(error)[:34]])
        call(lambda: run.summary.update({"a": 1}))
        call(lambda: run.config.update({"a": 1}))
        call(lambda: run.config.__setitem__("b", 1))
        print(json.dumps([run.path, raised]))
        """,
    )
    path, raised = job.values()
    assert path == "p/r"
    assert raised == [["UsageError", "Run (r) is finished. The call to `"]] * 3
