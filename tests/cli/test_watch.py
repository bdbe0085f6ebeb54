"""`rlship watch` up to its exit code, each of which a real process gives at least once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.daemon.loop import _Queue
from rlship_sidecar.errors import OwnedElsewhere
from rlship_sidecar.ownership import lease as leasing
from rlship_sidecar.report.status import STATUS_FILE
from tests.kit.cases import long
from tests.kit.verbs import run_here
from tests.kit.waiting import wait_until

MAIN = "from rlship_sidecar.cli import main; main()"
# Another user may not be allowed to read the checkout, as in a private home: so all modules are imported before.
UNPRIVILEGED = """
import importlib, os, pkgutil
import rlship_sidecar
from rlship_sidecar.cli import main
for module in pkgutil.walk_packages(rlship_sidecar.__path__, "rlship_sidecar."):
    importlib.import_module(module.name)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
main()
"""
TIMEOUT_S = 60.0


def command(*args: object, program: str = MAIN) -> list[str]:
    return [sys.executable, "-c", program, *map(str, args)]


def environment(home: Path) -> dict[str, str]:
    """The test's environment without the settings of its user; output is buffered, as it is by default."""
    foreign = ("RLSHIP_", "WANDB_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"HOME": str(home)}


def run(home: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """A verb, to its end, within this process."""
    return run_here(*args, cwd=home, env=environment(home))


def run_process(home: Path, *args: object, program: str = MAIN) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        command(*args, program=program),
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@contextmanager
def running(home: Path, *args: object, program: str = MAIN) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed at the end if it has not ended by itself."""
    process = subprocess.Popen(
        command(*args, program=program),
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def an_experiment(folder: Path, tail: Sequence[str] = (), steps: int = 3, world: int = 1) -> Path:
    """One trainer rank that logged and closed `steps` steps; `tail` are further lines."""
    t = 1763600000
    records: list[dict[str, Any]] = [
        {"kind": "open", "rlship": 1, "id": "a1", "actor": "trainer", "rank": 0, "world": world, "t": t}
    ]
    for step in range(steps):
        records.append({"t": t + step, "step": step, "m": {"loss": 1.0 / (step + 1)}})
        records.append({"kind": "barrier", "step": step, "t": t + step})
    lines = [json.dumps(record) for record in records] + list(tail)
    (folder / "rlship").mkdir(parents=True)
    (folder / "rlship" / "trainer-0-r0.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def rows(experiment: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (experiment / "rlship/state/rows.jsonl").read_text().splitlines()]


def wait_for(what: Path, process: subprocess.Popen[str]) -> None:
    """Wait for a file of a process, which must not end before."""

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return what.exists()

    wait_until(there, f"{what} appears")


def test_missing_folder(tmp_path: Path) -> None:
    """A misspelt DIR exits with 1 and names the folder that was meant."""
    (tmp_path / "outputs").mkdir()
    done = run_process(tmp_path, "watch", "output")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"rlship: there is no folder output\n  did you mean {tmp_path}/outputs? Otherwise create it if the job is "
        "still to start: mkdir -p output\n"
    )
    done = run(tmp_path, "status", "zz")
    assert done.stderr == (
        f"rlship: there is no folder zz\n  give the folder that the job logs into; the path exists up to {tmp_path}\n"
    )


@pytest.mark.parametrize("verb", ["watch", *long("status")])
def test_unreadable_folder(tmp_path: Path, verb: str) -> None:
    """A DIR that may not be read exits with 1 and says so, without a traceback."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    done = run_process(tmp_path, verb, closed, program=UNPRIVILEGED)
    closed.chmod(0o700)
    assert done.returncode == 1
    assert f"{closed} cannot be read: permission denied" in done.stderr
    assert "Traceback" not in done.stderr


def test_mistakes_in_settings(tmp_path: Path) -> None:
    """A wrong flag and a wrong rlship.toml exit with 2 and say what is allowed."""
    an_experiment(tmp_path / "exp")
    done = run_process(tmp_path, "watch", "exp", "--once", "--sink", "jsonk")
    assert done.returncode == 2
    assert 'did you mean "jsonl"?' in done.stderr
    (tmp_path / "exp" / "rlship.toml").write_text("grace = 3\n")
    done = run(tmp_path, "watch", "exp", "--once", "--sink", "jsonl")
    assert done.returncode == 2
    assert 'did you mean "grace_s"?' in done.stderr


def test_once_on_an_empty_folder(tmp_path: Path) -> None:
    """--once where there is no experiment exits with 1 and a way out."""
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, "watch", "empty", "--once", "--sink", "jsonl")
    assert done.returncode == 1
    assert "empty" in done.stderr
    assert len(done.stderr.splitlines()) >= 2
    assert "Traceback" not in done.stderr


def test_once(tmp_path: Path) -> None:
    """--once delivers every row of the folder it is run in and exits with 0; what it says has no control codes."""
    experiment = an_experiment(tmp_path / "exp")
    done = run_process(experiment, "watch", "--once", "--sink", "jsonl")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [(row["row"], row["m"]["trainer/loss"]) for row in rows(experiment)] == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert "rows 3" in done.stderr
    assert "\x1b" not in done.stderr
    status = run_process(experiment, "status", "--json")
    assert status.returncode == 0, status.stderr
    told = json.loads(status.stdout)
    assert (told["rows"], told["running"]) == (3, False)


def test_once_again_delivers_nothing_twice(tmp_path: Path) -> None:
    """A second --once adds no row."""
    experiment = an_experiment(tmp_path / "exp")
    for _ in range(2):
        assert run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl", "--quiet").returncode == 0
    assert len(rows(experiment)) == 3


def test_dead_letters_give_exit_code_3(tmp_path: Path) -> None:
    """--once on a file with a line that cannot be used delivers the rest and exits with 3, as status does."""
    experiment = an_experiment(tmp_path / "exp", tail=["{oops"])
    done = run_process(tmp_path, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == 3, done.stderr
    assert "not JSON" in done.stderr
    assert len(rows(experiment)) == 3
    assert run(tmp_path, "status", experiment).returncode == 3


def test_quiet_and_json(tmp_path: Path) -> None:
    """--quiet says nothing; --json prints statuses as lines of JSON on stdout."""
    experiment = an_experiment(tmp_path / "exp")
    done = run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl", "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 3


def test_a_folder_of_experiments(tmp_path: Path) -> None:
    """Watching a folder ships every experiment in it and names them in what it says."""
    for name in ("a", "b"):
        an_experiment(tmp_path / "outputs" / name)
    done = run(tmp_path, "watch", "outputs", "--once", "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    for name in ("a", "b"):
        assert len(rows(tmp_path / "outputs" / name)) == 3
        assert f" {name}: " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, *long(signal.SIGINT)])
def test_a_signal_drains_and_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    """A daemon that gets SIGTERM delivers what it read, says so and exits with 0."""
    experiment = an_experiment(tmp_path / "exp")
    with running(tmp_path, "watch", experiment, "--sink", "jsonl") as process:
        wait_for(experiment / "rlship/state" / STATUS_FILE, process)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, stderr
    assert "stopping" in stderr
    assert len(rows(experiment)) == 3


def test_once_reports_each_finding_once(tmp_path: Path) -> None:
    """A dead letter, ranks that are missing and a sink that refuses the rows have one line each."""
    experiment = an_experiment(tmp_path / "exp", ["{oops"])
    a_second = (experiment / "rlship" / "trainer-0-r0.jsonl").read_text().replace('"a1"', '"a2"')
    (experiment / "rlship" / "trainer-0-r0-again.jsonl").write_text(a_second)
    state = experiment / "rlship" / "state"
    state.mkdir()
    (state / "rows.jsonl").mkdir()
    done = run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode in (1, 4), done.stderr
    lines = [line.partition("trainer-0")[2] or line for line in done.stderr.splitlines()]
    assert len([line for line in lines if "{oops" in line]) == 2, "one in each of two files"
    assert len([line for line in lines if "rows.jsonl" in line and "refused" in line]) <= 1, done.stderr
    assert len([line for line in lines if "writers claim" in line or "one after the other" in line]) == 1, done.stderr


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """A second sidecar on the same experiment exits with 5 and names the first; status says that one runs."""
    experiment = an_experiment(tmp_path / "exp")
    with running(tmp_path, "watch", experiment, "--sink", "jsonl") as first:
        wait_for(experiment / "rlship/state" / STATUS_FILE, first)
        second = run_process(tmp_path, "watch", experiment, "--sink", "jsonl")
        assert second.returncode == 5, second.stderr
        assert str(first.pid) in second.stderr
        assert json.loads(run(tmp_path, "status", experiment, "--json").stdout)["running"] is True
        first.terminate()
        first.communicate(timeout=TIMEOUT_S)
        assert first.returncode == 0


def test_rows_on_the_console_are_data(tmp_path: Path) -> None:
    """The console's rows stand on standard output alone, what the sidecar says of itself on standard error."""
    done = run_process(tmp_path, "watch", an_experiment(tmp_path / "exp"), "--once", "--sink", "console")
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["trainer", f"global_step={n}"] for n in range(3)
    ]
    assert "global_step" not in done.stderr and "rows 3" in done.stderr


@pytest.mark.parametrize("what", [("--sink", "console"), *long(("--sink", "jsonl", "--json"))])
def test_a_reader_that_leaves_causes_no_traceback(tmp_path: Path, what: tuple[str, ...]) -> None:
    """When standard output is closed early, as by `head`, the command ends without a traceback."""
    experiment = an_experiment(tmp_path / "exp", steps=2000)
    with running(tmp_path, "watch", experiment, "--once", *what) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(TIMEOUT_S) in (1, 4)
    assert "Traceback" not in said and "BrokenPipeError" not in said, said


def test_a_reader_that_leaves_is_no_trouble_of_the_state(tmp_path: Path) -> None:
    """A status that cannot be printed ends the command with exit code 1 and one line, which blames no folder; the rows
    stay for the next sidecar, which finds the experiment free.
    """
    experiment = an_experiment(tmp_path / "exp")
    with running(tmp_path, "watch", experiment, "--once", "--sink", "jsonl", "--json", "--quiet") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == "rlship: the reader of standard output is gone; start again to see the rest\n"
        assert process.wait(TIMEOUT_S) == 1
    assert run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl").returncode == 0
    assert len(rows(experiment)) == 3


LEFT_BEHIND = """
import sys, threading
from rlship_sidecar import output
from rlship_sidecar.cli import group

def leave(text):
    sys.stdout.write(text)
    sys.stderr.write(text)

def verb(**settings):
    leave("before the end")
    thread = threading.Thread(target=leave, args=("of a thread",))
    thread.start()
    thread.join()
    sys.exit(3)

group.rlship = verb
real = output.settle
output.settle = lambda: (real(), sys.stdout.write("after the end"))
group.main()
"""


def test_what_no_pipe_takes_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """Both streams closed, text left in their buffers by any thread, even after the command's end: the exit code is the
    command's own, never the interpreter's 120.
    """
    with running(tmp_path, program=LEFT_BEHIND) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        assert process.wait(TIMEOUT_S) == 3


def test_json_and_console_exclude_each_other(tmp_path: Path) -> None:
    """Statuses and rows would mix on standard output: exit code 2 and a way out."""
    done = run(tmp_path, "watch", an_experiment(tmp_path / "exp"), "--once", "--json", "--sink", "console")
    assert done.returncode == 2
    assert "--json and the sink console both write to standard output" in done.stderr


def test_a_sidecar_says_of_itself_that_it_runs(tmp_path: Path) -> None:
    """In every status that `watch --json` prints, `running` is true."""
    done = run(tmp_path, "watch", an_experiment(tmp_path / "exp"), "--once", "--json", "--sink", "jsonl")
    assert {json.loads(line)["running"] for line in done.stdout.splitlines()} == {True}


def test_the_reason_of_exit_code_3_is_told_at_the_end(tmp_path: Path) -> None:
    """Rows that lack a rank are reported with their steps, by --once as its last word and by status."""
    experiment = an_experiment(tmp_path / "exp", world=2)
    other = {"kind": "open", "rlship": 1, "id": "b1", "actor": "trainer", "rank": 1, "world": 2, "t": 1763600000}
    lines = [other, {"kind": "barrier", "step": 0, "t": 1763600001}]
    (experiment / "rlship" / "trainer-0-r1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith(" trainer: 2 rows lack ranks, steps 1..2")
    assert "trainer: 2 rows lack ranks, steps 1..2" in run(tmp_path, "status", experiment).stdout


def test_records_without_a_step_are_shown(tmp_path: Path) -> None:
    """They make a row over time, and status tells how far their stream is."""
    stray, close = json.dumps({"t": 1763600009, "m": {"loss": 1.0}}), json.dumps({"kind": "close", "reason": "exit"})
    experiment = an_experiment(tmp_path / "exp", tail=[stray, stray, close])
    done = run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == 0
    rows = [json.loads(line) for line in (experiment / "rlship" / "state" / "rows.jsonl").read_text().splitlines()]
    assert [row["m"] for row in rows if row["kind"] == "clock"] == [{"clock/trainer/loss": 1.0}]
    assert "stream trainer: rows up to step" in run(tmp_path, "status", experiment).stdout


def test_other_windows_are_told_at_the_start(tmp_path: Path) -> None:
    """Rows that the former settings made change by them, and that is said once."""
    stray = json.dumps({"t": 1763600009, "m": {"loss": 1.0}})
    experiment = an_experiment(tmp_path / "exp", tail=[stray])
    said = []
    for settings in ("", "", 'clock_window_s = 2\nlead = "learner"\n', 'clock_window_s = 2\nlead = "learner"\n'):
        (experiment / "rlship.toml").write_text(settings)
        said.append(run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl").stderr)
    told = [
        "lead is learner, was trainer and clock_window_s is 2, was 10: rows of what is logged without a step" in x
        for x in said
    ]
    assert told == [False, False, True, False]


@pytest.mark.parametrize("quiet", [("--quiet",), *long(())])
def test_a_sink_that_warns_is_heard_unless_quiet(tmp_path: Path, quiet: tuple[str, ...]) -> None:
    """That there is no W&B key is reported in a line of rlship's own; --quiet tells errors only."""
    experiment = an_experiment(tmp_path / "exp")
    done = run(tmp_path, "watch", experiment, "--once", "--sink", "wandb", *quiet)
    assert done.returncode == 0, done.stderr
    assert ("rlship: no W&B API key" in done.stderr) == (not quiet)
    assert not quiet or done.stderr == ""


def test_a_whole_offline_run_is_offered_without_advice(tmp_path: Path) -> None:
    """A second sidecar finds the run whole and prints the command, but does not advise a second time. A later row has
    the run written again in another folder: the command is the same.
    """
    experiment = an_experiment(tmp_path / "exp")
    arguments = ("watch", experiment, "--once", "--sink", "wandb")
    assert "no W&B API key" in run(tmp_path, *arguments).stderr
    command = f"-> wandb sync {experiment / 'rlship/state/wandb'}\n"
    again = run(tmp_path, *arguments).stderr
    assert "no W&B API key" not in again and command in again
    with open(experiment / "rlship" / "trainer-0-r0.jsonl", "a") as lines:
        lines.write(
            '{"t": 1763600009, "step": 3, "m": {"loss": 1.0}}\n{"kind": "barrier", "step": 3, "t": 1763600009}\n'
        )
    more = run(tmp_path, *arguments).stderr
    assert "no W&B API key" in more and command in more


@pytest.mark.long
def test_a_lacking_key_is_said_once_for_all_experiments(tmp_path: Path) -> None:
    """Two experiments, one message with their number and the ways out; it has no path that a terminal would break."""
    for number in range(2):
        an_experiment(tmp_path / "runs" / f"exp{number}")
    done = run(tmp_path, "watch", tmp_path / "runs", "--once", "--sink", "wandb")
    [line] = [line for line in done.stderr.splitlines() if "no W&B API key" in line]
    assert line.startswith("rlship: 2 experiments: no W&B API key: runs are written offline.")
    assert "`wandb login`" in line and 'mode = "offline"' in line and str(tmp_path) not in line


def test_a_refusal_for_lack_of_a_key_is_said_once_for_all_experiments(tmp_path: Path) -> None:
    """The same with `mode = "online"`, where nothing is written: the message has the ways out."""
    for number in range(2):
        an_experiment(tmp_path / "runs" / f"exp{number}")
    (tmp_path / "runs" / "rlship.toml").write_text('[sink.wandb]\nmode = "online"\n')
    done = run_process(tmp_path, "watch", tmp_path / "runs", "--once", "--sink", "wandb")
    assert done.returncode == 4, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "WANDB_API_KEY" in line]
    assert line.startswith("rlship: 2 experiments: sink wandb: refused: ")
    assert "`wandb login`" in line and 'mode = "offline"' in line


def test_who_stops_the_sidecar_may_have_its_own_words(tmp_path: Path) -> None:
    """With --no-announce-stop nothing is said of a signal that stops the sidecar, and all else is."""
    experiment = an_experiment(tmp_path / "exp")
    with running(tmp_path, "watch", experiment, "--sink", "jsonl", "--no-announce-stop") as process:
        wait_for(experiment / "rlship/state" / STATUS_FILE, process)
        process.terminate()
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, stderr
    assert "stopping" not in stderr
    assert "rows 3" in stderr


OPTION_MISTAKES = [
    ('[sink.wandb]\nmode = "ofline"', {}, ["rlship.toml: [sink.wandb]", "mode is 'ofline'", 'did you mean "offline"?']),
    ('[sink.wandb]\nprojct = "x"', {}, ["projct (= 'x') is not known", 'did you mean "project"?', "base_url"]),
    ("[sink.wandb]\ntags = 3", {}, ["tags is 3", "allowed: a list of strings"]),
    ("", {"RLSHIP_SINK__WANDB__PROJCT": "x"}, ["RLSHIP_SINK__WANDB__PROJCT: ", 'did you mean "project"?']),
    ("", {"RLSHIP_SINK__WANDB__NAME": "7"}, ["name is 7", """needs quotes: RLSHIP_SINK__WANDB__NAME='"7"'"""]),
    ("[sink.jsonl]\npath = 3", {}, ["path is 3", "a file name"]),
    ("[sink.tensorboard]\ndirr = 3", {}, ["dirr (= 3) is not known", 'did you mean "dir"?']),
    ("[sink.console]\nwidth = 3", {}, ["width (= 3) is not known", "allowed: metrics, extras, ranks"]),
]


@pytest.mark.parametrize(("text", "variables", "told"), OPTION_MISTAKES)
def test_a_wrong_sink_option_is_a_usage_problem(
    tmp_path: Path, text: str, variables: dict[str, str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink's option that cannot be used ends with 2 before anything is started, and names place and way out."""
    experiment = an_experiment(tmp_path / "exp")
    (experiment / "rlship.toml").write_text(text)
    sinks = ("--sink", "wandb", "--sink", "jsonl", "--sink", "tensorboard", "--sink", "console")
    done = CliRunner().invoke(rlship, ["watch", str(experiment), "--once", *sinks], env=variables)
    assert done.exit_code == 2
    for part in told:
        assert part in done.stderr
    assert not (experiment / "rlship" / "state").exists()


def test_a_folder_that_is_renamed_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are delivered: the lease of a folder that is gone was not taken by another sidecar."""
    for name in ("a", "b"):
        an_experiment(tmp_path / "outputs" / name)
    inherit = leasing.inherit

    def and_rename(state_dir: Path, *given: Any) -> None:
        inherit(state_dir, *given)
        if state_dir.parts[-3] == "a":
            os.rename(tmp_path / "outputs" / "a", tmp_path / "renamed")

    monkeypatch.setattr(leasing, "inherit", and_rename)
    result = CliRunner().invoke(rlship, ["watch", "--once", "--sink", "jsonl", str(tmp_path / "outputs")])
    assert result.exit_code == 1, result.output
    assert "it is gone" in result.stderr
    assert os.listdir(tmp_path / "outputs") == ["b"]
    assert len((tmp_path / "outputs" / "b" / "rlship" / "state" / "rows.jsonl").read_bytes().splitlines()) == 3


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay names the file and ends with 3, in words and in JSON; so do an export and a query of rows."""
    experiment = an_experiment(tmp_path / "exp")
    run(tmp_path, "watch", experiment, "--once", "--sink", "jsonl")
    closed = experiment / "rlship" / "other.jsonl"
    closed.write_text('{"kind": "open", "rlship": 1, "id": "0123456789abcdef", "actor": "a", "t": 1763600000}\n')

    def opened(path: Any, *arguments: Any, **named: Any) -> int:
        if os.fsdecode(path).endswith("other.jsonl"):  # this process may be root, to whom all files are open
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_file(path, *arguments, **named)

    open_file = os.open
    monkeypatch.setattr(os, "open", opened)
    for verb in (
        ["replay", experiment, "--dry-run", "--jobs", 1],
        ["replay", experiment, "--dry-run", "--jobs", 1, "--json"],
        ["export", experiment, "-o", tmp_path / "rows.csv"],
        ["query", "SELECT 1", experiment],
    ):
        done = CliRunner().invoke(rlship, [*map(str, verb)], env={"RLSHIP_STATE_DIR": ""})
        assert "other.jsonl" in done.output, verb
        assert "permission denied" in done.output.lower(), verb
        assert done.exit_code == 3, verb


def test_one_owner_of_many_experiments_is_one_message() -> None:
    """Its experiments are counted and some are named; those that were reported are left out until it is asked again."""
    queue = _Queue()

    def own(*names: str) -> None:
        owner = "another sidecar: process 7 on h"
        queue.owned = {Path(name): OwnedElsewhere(f"{name} is", owner, "kill") for name in names}

    own("a", "b", "c", "d", "e")
    (found,) = queue.take_owned(again=False)
    assert found.message == "5 experiments (a, b, c and 2 more) are owned by another sidecar: process 7 on h"
    assert found.exit_code == 5
    own("a", "f")
    assert [str(error) for error in queue.take_owned(again=False)] == [
        "f is owned by another sidecar: process 7 on h\nkill"
    ]
    own("a", "f")
    assert queue.take_owned(again=False) == []
    own("a", "f")
    assert queue.take_owned(again=True)[0].message.startswith("2 experiments (a, f) are owned by")
