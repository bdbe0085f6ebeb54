"""`rlship.init` and the module's functions, each in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.writer.reading import files, kinds, metrics, program, records, whole


def test_the_familiar_calls_work_and_exit_closes(tmp_path: Path) -> None:
    """init, log and barrier as in the documentation; the end of the program writes the close record by itself."""
    done = program(
        """
import sys, rlship
logger = rlship.init(sys.argv[1], actor="trainer")
assert isinstance(logger, rlship.Logger)
for step in range(3):
    rlship.log({"loss": 1 / (step + 1)}, step=step)
    rlship.set_step(step)
    rlship.record_metric("reward", step, rlship.Reduce.MEAN, weight=2)
    rlship.barrier(step)
with rlship.step(9):
    rlship.log({"x": 1})
rlship.define("y", "max")
rlship.rollback(1)
assert rlship.flush()
""",
        tmp_path,
    )
    found = records(tmp_path)
    assert [record["step"] for record in metrics(found)] == [0, 0, 1, 1, 2, 2, 9]
    assert kinds(found)[-3:] == ["define", "rollback", "close"]
    assert found[-1]["reason"] == "exit"
    assert done.stdout == ""
    assert done.stderr == f"rlship: trainer writes to {tmp_path}/rlship\n"


def test_the_environment_names_folder_and_actor(tmp_path: Path) -> None:
    """With RLSHIP_DIR and RLSHIP_ACTOR no init is needed, and the other variables are obeyed."""
    env = {
        "RLSHIP_DIR": str(tmp_path),
        "RLSHIP_ACTOR": "reward",
        "RLSHIP_RANK": "2",
        "RLSHIP_WORLD": "4",
        "RLSHIP_REPLICA": "b",
        "RLSHIP_ATTEMPT": "6",
    }
    program("import rlship; rlship.log({'a': 1}, step=1)", tmp_path, env=env)
    found = records(tmp_path)
    assert {key: found[0][key] for key in ("actor", "rank", "world", "replica", "attempt")} == {
        "actor": "reward",
        "rank": 2,
        "world": 4,
        "replica": "b",
        "attempt": 6,
    }
    assert metrics(found) == [{"step": 1, "m": {"a": 1}}]


def test_calls_before_init_are_dropped_with_one_warning(tmp_path: Path) -> None:
    """Nothing is logged before init, every function returns, and what follows init is logged."""
    done = program(
        """
import sys, rlship
rlship.log({"early": 1}); rlship.record_metric("early", 1); rlship.barrier(1); rlship.set_step(4); rlship.rollback(1)
rlship.define("early", "sum")
with rlship.step(3):
    rlship.log({"early": 2})
assert rlship.flush() and rlship.close()
rlship.init(sys.argv[1], "trainer")
rlship.log({"late": 1})
""",
        tmp_path,
    )
    assert metrics(records(tmp_path)) == [{"m": {"late": 1}}]
    assert done.stderr.count("\n") == 2
    assert done.stderr.startswith("rlship: nothing is logged before rlship.init(dir, actor)")


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("rlship.init()", "dir (or RLSHIP_DIR) and actor (or RLSHIP_ACTOR)"),
        ("rlship.init(sys.argv[1])", "actor (or RLSHIP_ACTOR)"),
        ("rlship.init(actor='trainer')", "dir (or RLSHIP_DIR)"),
    ],
)
def test_init_says_what_is_missing_and_returns_a_logger_that_drops(tmp_path: Path, call: str, missing: str) -> None:
    """Without folder or actor a job runs as before, and one line says why there is no log."""
    done = program(f"import sys, rlship\nl = {call}\nl.log({{'a': 1}}); l.barrier(1); {call}", tmp_path)
    assert done.stderr == f"rlship: init needs {missing}: nothing is logged\n"
    assert list(tmp_path.iterdir()) == []


def test_rlship_disable_makes_every_call_a_no_op(tmp_path: Path) -> None:
    """Neither a file nor a thread nor a word on stderr."""
    done = program(
        """
import sys, threading, rlship
logger = rlship.init(sys.argv[1], "trainer")
rlship.log({"a": 1}, step=1); rlship.log({"a": object()}); logger.log({"a": 1}); rlship.record_metric("x", 1, "sum")
rlship.define("x", "sum"); rlship.set_step(1); rlship.barrier(); rlship.rollback(0)
rlship.config(a=1); rlship.summary({"b": 2}); logger.run_data(name="n", exit_code=1)
rlship.event("e", a=1); rlship.add_step_tag("t"); rlship.clear_step_tags(); rlship.sample("t", {"a": 1}, score=1)
rlship.mlogger.log({"a": 1}); rlship.mlogger.event("")
with rlship.step(2):
    pass
assert rlship.flush() and rlship.close() and logger.close()
assert threading.active_count() == 1
""",
        tmp_path,
        env={"RLSHIP_DISABLE": "1", "RLSHIP_DIR": str(tmp_path), "RLSHIP_ACTOR": "x"},
    )
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_init_never_raises(tmp_path: Path) -> None:
    """Arguments of the wrong type are reported and left out, or make a Logger that drops."""
    done = program(
        """
import sys, rlship
bad = rlship.init(5, "trainer"); bad.log({"a": 1})
rlship.init(sys.argv[1] + "/x\\0y", "trainer").log({"a": 1})
rlship.init(sys.argv[1], "trainer", rank="seven", world=-1, attempt=None, labels={1: None}).log({"b": 1})
""",
        tmp_path,
    )
    assert "rlship: init failed, nothing is logged: TypeError" in done.stderr
    assert "rlship: init failed, nothing is logged: ValueError: dir='" in done.stderr
    assert "trainer: rank='seven' is not an integer from 0 to 1048575, so it is left out" in done.stderr
    assert "trainer: world=-1 is not an integer from 1 to 1048575, so it is left out" in done.stderr
    found = records(tmp_path)
    assert found[0]["labels"] == {"1": "None"}
    assert metrics(found) == [{"m": {"b": 1}}]


def test_one_folder_and_actor_is_one_logger(tmp_path: Path) -> None:
    """init again returns the same Logger, another actor has a file of its own, and the first is the default."""
    program(
        """
import os, sys, rlship
os.chdir(sys.argv[1])
a = rlship.init("run", "trainer")
assert rlship.init(os.path.abspath("run"), "trainer") is a
os.chdir("/")
b = rlship.init(sys.argv[1] + "/run", "generator", axis="generation")
assert b is not a and rlship.init(sys.argv[1] + "/run/", "trainer") is a
rlship.log({"default": 1}); b.log({"own": 1})
a.close()
c = rlship.init(sys.argv[1] + "/run", "trainer")
assert c is not a and c.id != a.id
rlship.log({"after": 1})
""",
        tmp_path,
    )
    found = [[json.loads(line) for line in whole(path)] for path in files(tmp_path / "run")]
    assert sorted((part[0]["actor"], part[0]["axis"], metrics(part)[0]["m"].popitem()) for part in found) == [
        ("generator", "generation", ("own", 1)),
        ("trainer", "global_step", ("after", 1)),
        ("trainer", "global_step", ("default", 1)),
    ]


def test_the_folder_is_shown_once_and_only_by_the_first_rank(tmp_path: Path) -> None:
    """A thousand ranks do not fill the job's output with a thousand equal lines."""
    source = "import sys, rlship\nrlship.init(sys.argv[1], 'trainer'); rlship.init(sys.argv[1], 'reward')"
    first = program(source, tmp_path, env={"RANK": "0", "WORLD_SIZE": "2"})
    second = program(source, tmp_path, env={"RANK": "1", "WORLD_SIZE": "2"})
    assert first.stderr.startswith(f"rlship: trainer writes to {tmp_path}/rlship\n")
    assert first.stderr.count("writes to") == 1
    assert second.stderr == ""


def test_an_exception_or_sys_exit_still_closes(tmp_path: Path) -> None:
    """What was logged right before an unhandled exception is in the file, with the close record."""
    for name, end, code in (("error", "raise SystemError", 1), ("exit", "sys.exit(3)", 3)):
        program(
            f"import sys, rlship\nrlship.init(sys.argv[1], 'trainer')\nrlship.log({{'a': 1}})\n{end}",
            tmp_path / name,
            code=code,
        )
        assert kinds(records(tmp_path / name)) == ["open", "metrics", "close"]


def test_logging_in_an_exit_handler_works_before_ours(tmp_path: Path) -> None:
    """A handler registered later runs earlier and its lines are in the file; init during exit does not raise."""
    done = program(
        """
import atexit, sys, rlship
def too_late():
    rlship.log({"too": 1})
    rlship.init(sys.argv[1] + "/other", "late").log({"x": 1})
atexit.register(too_late)
rlship.init(sys.argv[1], "trainer")
atexit.register(lambda: rlship.log({"in_time": 1}))
""",
        tmp_path,
    )
    assert metrics(records(tmp_path)) == [{"m": {"in_time": 1}}]
    assert "Traceback" not in done.stderr
    assert "calls after close() are dropped" in done.stderr


def test_a_missing_working_directory_is_told(tmp_path: Path) -> None:
    """A relative folder in a directory that was deleted cannot be made absolute; the job goes on."""
    done = program(
        """
import os, sys, rlship
os.mkdir(sys.argv[1] + "/gone"); os.chdir(sys.argv[1] + "/gone"); os.rmdir(sys.argv[1] + "/gone")
rlship.init("run", "trainer").log({"a": 1})
""",
        tmp_path,
    )
    assert "rlship: init failed, nothing is logged: FileNotFoundError" in done.stderr
    assert os.listdir(tmp_path) == []


def test_labels_never_make_the_file_unreadable(tmp_path: Path) -> None:
    """Labels that are no dict are left out, and of too many those that fit are kept; both are said."""
    done = program(
        """
import sys, rlship
rlship.init(sys.argv[1], "trainer", labels=["a"]).log({"x": 1})
rlship.init(sys.argv[1], "reward", axis="s" * 300, labels={f"{i:04}": "v" * 1000 for i in range(1000)})
""",
        tmp_path,
    )
    records = {found[0]["actor"]: found for found in ([json.loads(line) for line in whole(p)] for p in files(tmp_path))}
    assert "labels" not in records["trainer"][0]
    assert metrics(records["trainer"]) == [{"m": {"x": 1}}]
    assert [*records["reward"][0]["labels"]] == [f"{i:04}" for i in range(8)]
    assert records["reward"][0]["axis"] == "s" * 200
    assert done.stderr.count("labels=['a'] is not a dict") == 1
    assert done.stderr.count("the labels are longer than 8192 characters: '0008'") == 1


def test_a_second_init_says_what_it_does_not_change(tmp_path: Path) -> None:
    """Another rank for a Logger that writes already, and a second actor beside the default one, are each said once."""
    done = program(
        """
import sys, rlship
first = rlship.init(sys.argv[1], "trainer", rank=0, world=2)
assert rlship.init(sys.argv[1], "trainer", rank=0) is rlship.init(sys.argv[1], "trainer") is first
for _ in range(2):
    assert rlship.init(sys.argv[1], "trainer", rank=1, world=2) is first
    rlship.init(sys.argv[1], "reward")
""",
        tmp_path,
    )
    told = done.stderr.splitlines()
    assert len(told) == 3
    assert "init('trainer') with rank=1, world=2 changes nothing" in told[1]
    assert "still write for 'trainer': for 'reward' use the Logger that init returned" in told[2]


def test_another_folder_of_the_same_actor_is_told_by_its_path(tmp_path: Path) -> None:
    """Where the second Logger has the first one's actor the folders tell them apart."""
    code = "import sys, rlship\nfor name in 'ab':\n    rlship.init(sys.argv[1] + '/' + name, 'trainer')\n"
    told = program(code, tmp_path).stderr.splitlines()
    assert f"still write for '{tmp_path}/a': for '{tmp_path}/b' use the Logger that init returned" in told[1]


def test_init_under_many_threads_makes_one_logger(tmp_path: Path) -> None:
    """Threads that call it at the same moment get the same Logger and one file."""
    program(
        """
import sys, threading, rlship
sys.setswitchinterval(1e-6)
gate = threading.Barrier(8)
found = []
def work():
    gate.wait(10)
    found.append(rlship.init(sys.argv[1], "trainer"))
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert len(found) == 8 and len(set(map(id, found))) == 1
""",
        tmp_path,
    )
    assert len(files(tmp_path)) == 1
