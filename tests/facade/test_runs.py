"""Runs: how many there are, where they are written, and who writes them. One test for each line of docs/wandb.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlship.facade.places import actor_of
from tests.facade.jobs import Record, barriers, metrics, records, run, said

pytestmark = pytest.mark.long  # a process with the real package for each line of the table


def experiments(folder: Path) -> dict[str, list[list[Record]]]:
    """The experiments in a folder by name, each with the records of its files."""
    return {
        path.parent.name: sorted(records(path.parent), key=lambda found: found[0]["t"])
        for path in sorted(folder.glob("*/rlship"))
    }


def test_init_finish_init(tmp_path: Path) -> None:
    """A second run after `finish` is another experiment beside the first; finishing twice does nothing."""
    job = run(
        tmp_path,
        """
        first = wandb.init(name="a")
        wandb.log({"x": 1})
        first.finish()
        first.finish(exit_code=1)
        wandb.finish()
        print(wandb.run is None)
        wandb.init(name="b")
        wandb.log({"x": 2})
        """,
    )
    found = experiments(tmp_path)
    assert set(found) == {"run", "run-2"}
    assert metrics(found["run"][0]) == [(0, {"x": 1})]
    assert said(found["run"][0])["exit_code"] == 0
    assert metrics(found["run-2"][0]) == [(0, {"x": 2})]
    assert job.out == "True\n"
    assert "run-2" in job.err


def test_teardown(tmp_path: Path) -> None:
    """It ends the runs that are open with its exit code, as with the client: the next `init` makes another one."""
    run(
        tmp_path,
        """
        wandb.init(name="a").log({"x": 1})
        wandb.teardown(exit_code=3)
        wandb.init(name="b").log({"x": 2})
        """,
    )
    found = experiments(tmp_path)
    assert [said(files[0]).get("exit_code") for files in found.values()] == [3, None]
    assert [metrics(files[0]) for files in found.values()] == [[(0, {"x": 1})], [(0, {"x": 2})]]


def test_the_same_id_goes_on(tmp_path: Path) -> None:
    """A run with the id of a finished one goes on in its experiment; resumed, its own count goes on too."""
    run(
        tmp_path,
        """
        for n in range(2):
            run = wandb.init(id="same", resume="allow")
            assert run.starting_step == 2 * n, run.starting_step
            wandb.log({"x": n})
            wandb.log({"x": n})
            wandb.finish()
        """,
    )
    found = experiments(tmp_path)
    assert set(found) == {"run"}
    assert [barriers(file) for file in found["run"]] == [[0, 1], [2, 3]]


def test_a_restart_resumes(tmp_path: Path) -> None:
    """A process that resumes the run of an earlier one counts on from its last step, and finds a file that it saved."""
    code = """
        run = wandb.init(id="same", resume="must")
        found = wandb.restore("m.pt")
        print(found and found.read())
        for n in range(3):
            wandb.log({"x": n})
        with open("m.pt", "w") as file:
            file.write("weights")
        wandb.save("m.pt")
        """
    first = run(tmp_path, code)
    job = run(tmp_path, code)
    assert (first.out, job.out) == ("None\n", "weights\n")
    assert [barriers(file) for file in job.files()] == [[0, 1, 2], [3, 4, 5]]


def test_init_again_returns_the_run(tmp_path: Path) -> None:
    """While a run is open, `init` returns it, as the client does without `reinit`."""
    job = run(
        tmp_path,
        """
        first = wandb.init(name="a")
        print(wandb.init(name="b") is first, wandb.init(reinit=False) is first,
              wandb.init(reinit="return_previous") is first)
        wandb.log({"x": 1})
        """,
    )
    assert job.out == "True True True\n"
    assert set(experiments(tmp_path)) == {"run"}


def test_reinit_finishes_the_run_before(tmp_path: Path) -> None:
    """With `reinit=True` or "finish_previous" the open run ends, and the new one is another experiment."""
    run(
        tmp_path,
        """
        wandb.init(name="a")
        wandb.log({"x": 1})
        wandb.init(name="b", reinit=True)
        wandb.log({"x": 2})
        wandb.init(name="c", settings={"reinit": "finish_previous"})
        wandb.log({"x": 3})
        """,
    )
    found = experiments(tmp_path)
    assert set(found) == {"run", "run-2", "run-3"}
    assert [file[-1]["kind"] for files in found.values() for file in files] == ["close"] * 3


def test_runs_that_are_open_at_one_time_are_actors(tmp_path: Path) -> None:
    """With `reinit="create_new"` both runs are open: they are actors of one experiment, by their roles, and the
    module's functions stay with the first.
    """
    run(
        tmp_path,
        """
        train = wandb.init(name="exp_trainer", job_type="train")
        rollout = wandb.init(name="exp_explorer", job_type="rollout", reinit="create_new")
        third = wandb.init(name="exp_third", job_type="train", reinit="create_new")
        wandb.log({"x": 1})
        rollout.log({"x": 2})
        third.log({"x": 3})
        rollout.finish()
        wandb.log({"x": 4})
        """,
    )
    (found,) = experiments(tmp_path).values()
    assert {file[0]["actor"]: metrics(file) for file in found} == {
        "trainer": [(0, {"x": 1}), (1, {"x": 4})],
        "generator": [(0, {"x": 2})],
        "trainer-2": [(0, {"x": 3})],
    }


def test_shared_mode(tmp_path: Path) -> None:
    """Processes that share a run are actors of one experiment, or replicas by their label where no role is known."""
    job = run(
        tmp_path,
        """
        import subprocess, sys
        if len(sys.argv) == 1:
            run = wandb.init(id="one", settings=wandb.Settings(mode="shared", x_primary=True, x_label="main"))
            run.log({"loss": 1.0})
            for label in ("rollout_0", "node-7"):
                subprocess.run([sys.executable, __file__, label], check=True)
        else:
            settings = wandb.Settings(mode="shared", x_primary=False, x_label=sys.argv[1], x_update_finish_state=False)
            run = wandb.init(id="one", settings=settings)
            run.log({"loss": 2.0})
            run.finish()
        """,
    )
    found = {(file[0]["actor"], file[0]["replica"]): said(file).get("exit_code") for file in job.files()}
    assert found == {("trainer", "0"): None, ("generator", "0"): None, ("node", "node-7"): None}


def test_fork(tmp_path: Path) -> None:
    """A forked child that uses its parent's run writes a file of its own, as a child of the parent; its calls without a
    step belong to none, since it does not know the parent's count.
    """
    job = run(
        tmp_path,
        """
        import os
        run = wandb.init()
        wandb.log({"x": 1})
        if os.fork() == 0:
            wandb.log({"x": 10})
            wandb.log({"y": 5}, step=7)
            import rlship.registry
            rlship.registry._close_all()
            os._exit(0)
        os.wait()
        wandb.log({"x": 2})
        """,
    )
    parent, child = job.files()
    assert metrics(parent) == [(0, {"x": 1}), (1, {"x": 2})]
    assert child[0]["parent"] == parent[0]["id"]
    assert metrics(child) == [(None, {"x": 10}), (7, {"y": 5})]
    assert barriers(child) == []


def test_a_run_of_a_forked_process(tmp_path: Path) -> None:
    """`init` in a forked child opens a run of the child's, in the experiment of its parent; so does a process that is
    started.
    """
    run(
        tmp_path,
        """
        import os, subprocess, sys
        if len(sys.argv) == 1:
            wandb.init(id="a")
            wandb.log({"x": 0}, step=0)
            wandb.finish()
            first = wandb.init(id="b")
            wandb.log({"x": 1}, step=0)
            if os.fork() == 0:
                assert wandb.init(id="c") is not first
                wandb.log({"y": 2}, step=0)
                wandb.finish()
                os._exit(0)
            os.wait()
            subprocess.run([sys.executable, __file__, "again"], check=True)
        else:
            wandb.init(id="d")
            wandb.log({"z": 3}, step=0)
        """,
    )
    found = experiments(tmp_path)
    assert {name: [metrics(file) for file in files] for name, files in found.items()} == {
        "run": [[(0, {"x": 0})]],
        "run-2": [[(0, {"x": 1})], [(0, {"y": 2})], [(0, {"z": 3})]],
    }
    parent, child, started = found["run-2"]
    assert child[0]["parent"] == started[0]["parent"] == parent[0]["id"]


def test_a_forked_process_of_multiprocessing(tmp_path: Path) -> None:
    """What a `multiprocessing` child logs is written when the child ends, while another thread of the parent logs."""
    job = run(
        tmp_path,
        """
        import multiprocessing, threading
        def child(n):
            for i in range(20):
                wandb.log({"c": n}, step=i)
        if __name__ == "__main__":
            wandb.init()
            wandb.log({"p": 1}, step=0)  # so that there is a file whose child the children's are
            stop = threading.Event()
            def busy():
                while not stop.is_set():
                    wandb.log({"p": 1}, step=0)
            thread = threading.Thread(target=busy)
            thread.start()
            context = multiprocessing.get_context("fork")
            children = [context.Process(target=child, args=(n,)) for n in range(3)]
            for one in children: one.start()
            for one in children: one.join()
            stop.set()
            thread.join()
            assert all(one.exitcode == 0 for one in children)
        """,
    )
    parent, *children = job.files()
    assert len(children) == 3
    assert all(len(metrics(child)) == 20 and child[0]["parent"] == parent[0]["id"] for child in children)


def test_spawn(tmp_path: Path) -> None:
    """A run that is passed to a spawned process is the same run there: a child's file in the same experiment."""
    job = run(
        tmp_path,
        """
        import multiprocessing
        def child(run):
            run.log({"c": 1}, step=3)
        if __name__ == "__main__":
            run = wandb.init(name="n", id="fixed")
            run.log({"p": 1}, step=3)
            process = multiprocessing.get_context("spawn").Process(target=child, args=(run,))
            process.start()
            process.join()
            assert process.exitcode == 0
        """,
    )
    parent, child = job.files()
    assert child[0]["parent"] == parent[0]["id"]
    assert child[0]["labels"]["wandb_id"] == "fixed"
    assert job.rows() == {3: {"p": 1.0, "c": 1.0}}


def test_a_configuration_is_passed_on(tmp_path: Path) -> None:
    """A copy of it, such as one that a spawned process gets as an argument, has its values and changes no run."""
    job = run(
        tmp_path,
        """
        import copy, pickle
        config = wandb.init(config={"lr": 1, "_own": {"a": 2}}).config
        for found in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config), copy.copy(config)):
            assert (found.lr, found["_own"], isinstance(found, wandb.Config)) == (1, {"a": 2}, True)
            found.update({"lr": 5}, allow_val_change=True)
        wandb.log({"x": 1})
        """,
    )
    assert said(job.file())["config"] == {"lr": 1, "_own": {"a": 2}}


def test_a_block(tmp_path: Path) -> None:
    """`with wandb.init() as run` ends the run; an error that leaves the block passes, and the run has failed."""
    job = run(
        tmp_path,
        """
        with wandb.init() as run:
            run.log({"x": 1})
        try:
            with wandb.init(id="b") as run:
                run.log({"x": 2})
                raise ValueError("mine")
        except ValueError as error:
            print(error, wandb.run)
        """,
    )
    codes = {name: said(files[0])["exit_code"] for name, files in experiments(tmp_path).items()}
    assert codes == {"run": 0, "run-2": 1}
    assert job.out == "mine None\n"


def test_exit_codes(tmp_path: Path) -> None:
    """`finish(exit_code)` is the outcome; a process that ends by an error without `finish` says so in its last line."""
    job = run(tmp_path, "wandb.init()\nwandb.log({'x': 1})\nwandb.finish(exit_code=3)")
    assert said(job.file())["exit_code"] == 3
    (tmp_path / "other").mkdir()
    job = run(tmp_path / "other", "wandb.init()\nwandb.log({'x': 1})\nraise OSError('lost')", check=False)
    assert job.code == 1
    assert job.file()[-1]["error"] == "OSError: lost"


def test_ranks(tmp_path: Path) -> None:
    """Ranks of a launcher write their own files; a rank that calls `init` and never logs writes none, and is absent."""
    job = run(
        tmp_path,
        """
        import os, subprocess, sys
        if "RANK" not in os.environ:
            for rank in range(3):
                env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)}
                subprocess.run([sys.executable, __file__], check=True, env=env)
        else:
            rank = int(os.environ["RANK"])
            wandb.init(config={"rank": rank})
            if rank < 2:
                wandb.log({"loss": float(rank)}, step=1)
        """,
    )
    assert [(file[0]["rank"], file[0]["world"]) for file in job.files()] == [(0, 3), (1, 3)]
    assert job.rows()[1]["loss"] == 0.5


def test_disabled(tmp_path: Path) -> None:
    """A job that wants no run gets the client's own disabled one, and nothing is written, however it says so."""
    for number, (call, environment) in enumerate(
        [
            ("wandb.init(mode='disabled')", {}),
            ("wandb.init(settings={'mode': 'disabled'})", {}),
            ("wandb.init(settings=wandb.Settings(mode='disabled'))", {}),
            ("wandb.init()", {"WANDB_MODE": "disabled"}),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = run(folder, f"run = {call}\nwandb.log({{'x': 1}})\nprint(run.disabled)", **environment)
        assert job.out == "True\n"
        assert not job.experiment.exists()


def test_offline_and_online_are_recorded_alike(tmp_path: Path) -> None:
    """WANDB_MODE=offline, `mode="online"` and `force=True` change nothing, and `login` asks no server: offline it
    returns False, as the client's does.
    """
    for number, (call, environment, logged_in) in enumerate(
        [("wandb.init()", {"WANDB_MODE": "offline"}, False), ("wandb.init(mode='online', force=True)", {}, True)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = run(folder, f"print(wandb.login(key='x' * 40))\n{call}\nwandb.log({{'x': 1}})", **environment)
        assert job.out == f"{logged_in}\n"
        assert metrics(job.file()) == [(0, {"x": 1})]
        assert not (folder / "wandb").exists()


def test_a_settings_object_may_be_used_again(tmp_path: Path) -> None:
    """The job's own settings are not changed, so that its next run with them is recorded too."""
    run(
        tmp_path,
        """
        settings = wandb.Settings(console="off")
        for n in range(2):
            wandb.init(settings=settings, reinit=True)
            wandb.log({"x": n})
        """,
    )
    assert set(experiments(tmp_path)) == {"run", "run-2"}


def test_explicit_calls_win(tmp_path: Path) -> None:
    """A process that calls `rlship.init` itself is recorded once: its calls of W&B do nothing, before and after."""
    job = run(
        tmp_path,
        """
        import rlship
        wandb.init()
        wandb.log({"x": 1})
        rlship.init(actor="trainer")
        rlship.log({"y": 2}, step=0)
        wandb.log({"x": 3})
        wandb.finish()
        wandb.init(name="again")
        wandb.log({"x": 4})
        """,
    )
    facade, explicit = job.files()
    assert metrics(facade) == [(0, {"x": 1})]
    assert facade[-1]["kind"] == "close"
    assert metrics(explicit) == [(0, {"y": 2})]
    assert "source" not in explicit[0].get("labels", {})
    assert job.err.count("logs to rlship by itself") == 1


def test_the_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RLSHIP_ACTOR` names the actor, else the job type, else the label; the group never does."""
    job = run(tmp_path, "wandb.init(job_type='rollout', group='train')\nwandb.log({'x': 1})")
    assert job.files()[0][0]["actor"] == "generator"
    monkeypatch.delenv("RLSHIP_ACTOR", raising=False)
    for job_type, label, secondary, actor in (
        ("train", "rollout", False, "trainer"),
        (None, "orchestrator", False, "orchestrator"),
        ("my-own-kind", None, False, "trainer"),
        (None, "reward_worker_3", True, "reward"),
        (None, "node-7", True, "node"),
        (None, "node-7", False, "trainer"),
        (None, "7", True, "trainer"),
        ("Evaluation", None, False, "evaluator"),
    ):
        assert actor_of(job_type, label, secondary=secondary) == actor
    monkeypatch.setenv("RLSHIP_ACTOR", "mine")
    assert actor_of("rollout", None, secondary=False) == "mine"


def test_log_before_init_raises_as_before(tmp_path: Path) -> None:
    """Before the first run and after the last one the module's functions raise what the client raises."""
    code = """
        import json
        found = []
        def call(function):
            try:
                found.append(repr(function()))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
        calls = [lambda: wandb.log({"a": 1}), lambda: wandb.config.x, lambda: wandb.summary.update({}),
                 lambda: wandb.define_metric("x"), lambda: wandb.save("x"), lambda: wandb.log_artifact("x")]
        for one in calls: call(one)
        run = wandb.init(id="one", mode="offline")
        wandb.log({"a": 1})
        wandb.finish()
        for one in calls: call(one)
        for one in (lambda: run.log({"a": 1}), lambda: run.log([1]), lambda: run.alert("a", "b")):
            call(one)
        wandb.init(id="two", mode="offline", dir=".")
        for one in (lambda: wandb.log([1]), lambda: wandb.log({1: 2})):
            call(one)
        print(json.dumps([one.partition(" Please")[0] for one in found]))
        """
    real = run(tmp_path, code, patched=False)
    (tmp_path / "patched").mkdir()
    ours = run(tmp_path / "patched", code)
    assert ours.values() == json.loads(real.out.splitlines()[-1])
