"""`rlship status`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from rlship.identity import pid_space
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.report.status import RunStatus, Status, TrendStatus, write_status
from tests.cli.sample import a_dead_letter, a_sink, a_status, a_writer, an_actor

if TYPE_CHECKING:
    from rlship_sidecar.ownership.lease import Owner

Lease = Callable[["Owner | None"], None]


def owner(alive: bool | None, *, gave_up: bool = False) -> Owner:
    """A sidecar on host n07, which may have released its lease."""

    class Someone:
        host = "n07"
        pid = 4242
        released = gave_up

    someone: Any = Someone()
    someone.alive = alive
    holder: Owner = someone
    return holder


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Lease:
    """Sets who owns every experiment; at first it has no owner."""

    def hold(holder: Owner | None) -> None:
        monkeypatch.setattr("rlship_sidecar.ownership.lease.last_owner", lambda state_dir: holder)

    hold(None)
    return hold


def watched(experiment: Path, **changes: Any) -> Status:
    """Leave a status in the experiment as its daemon would."""
    state = experiment / "rlship" / "state"
    state.mkdir(parents=True, exist_ok=True)
    status = a_status(**({"experiment": str(experiment), "t": time.time()} | changes))
    write_status(state, status)
    return status


def run(*args: object) -> Result:
    return CliRunner().invoke(rlship, ["status", *map(str, args)])


def test_a_complete_experiment(tmp_path: Path, lease: Lease) -> None:
    """The table is on stdout, says that no sidecar runs and how to go on, and the exit code is 0."""
    watched(tmp_path)
    result = run(tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:3] == [
        "actor    ranks  row step  log step  lag  missing  note",
        "trainer  4/4    12        13        -    -",
    ]
    words = rf"no sidecar running; as of \d+\.\d s ago\. To go on: rlship watch {re.escape(str(tmp_path))}\n"
    assert re.search(words, result.stdout)
    assert result.stderr == ""


def test_what_the_job_said_of_the_run_is_shown(tmp_path: Path, lease: Lease) -> None:
    """Name, outcome, a few facts, and the first keys of its configuration and results, without control codes; in JSON
    all of that.
    """
    facts = {"git": "9f2c", "host": "n07", "packages.torch": "2.13.0", "cwd": "/home"}
    config = {"lr": 0.1, "opt.name": "adam", "note": "\x1b[2J" + "x" * 300}
    about = RunStatus(
        outcome="running",
        name="seven",
        tags=["a", "b"],
        config=config,
        config_keys=226,
        summary={"best": 1},
        summary_keys=1,
        facts=facts,
        labels={"generator": {"tp": 2}},
        changes=3,
        dropped=["config.api_key"],
        left_out=2,
    )
    watched(tmp_path, run=about)
    shown = [line for line in run(tmp_path).stdout.splitlines() if "sidecar" not in line]
    first = shown.index(
        "run seven: running; tags a, b; git 9f2c; host n07; torch 2.13.0; 3 changes of what was said first: "
        "rlship query, table run_changes"
    )
    assert shown[first + 1].startswith("config: lr=0.1 opt.name=adam note=\\x1b[2Jxxx")
    assert shown[first + 1].endswith("… (all 226: rlship query, table run)")
    assert shown[first + 2 : first + 6] == [
        "summary: best=1",
        "labels generator: tp=2",
        "not written because they look like secrets: config.api_key",
        "2 values left out: docs/semantics.md has the bounds of a run's data",
    ]
    found = json.loads(run(tmp_path, "--json").stdout)["run"]
    assert (found["name"], found["outcome"], found["config"], found["facts"]) == ("seven", "running", config, facts)
    watched(tmp_path, run=RunStatus(outcome="running", facts=facts))
    assert "run: running; git 9f2c; host n07; torch 2.13.0" in run(tmp_path).stdout.splitlines()


def test_a_finished_job_needs_no_sidecar(tmp_path: Path, lease: Lease) -> None:
    """When all writers closed and all rows are delivered, that is said, and no command to go on."""
    done: dict[str, Any] = {
        "actors": [an_actor(open_step=None, open_units=0)],
        "finished": True,
        "sinks": [a_sink(state="closed", next_row=120)],
    }
    watched(tmp_path, **done)
    last = run(tmp_path).stdout.splitlines()[-1]
    assert last.startswith("finished: all writers closed, all rows delivered; as of ")
    for undone in (
        {"finished": False},
        {"sinks": [a_sink(state="closed", next_row=119)]},
    ):
        watched(tmp_path, **(done | undone))
        assert f"To go on: rlship watch {tmp_path}" in run(tmp_path).stdout


def test_files_that_no_sidecar_has_read_are_named(tmp_path: Path, lease: Lease) -> None:
    """A job that was started again, or an agent that writes on, is not finished while no sidecar runs: what waits is
    said with the way on. The data are incomplete while a file was never read; an empty one holds nothing.
    """
    done: dict[str, Any] = {
        "actors": [an_actor(open_step=None, open_units=0)],
        "finished": True,
        "sinks": [a_sink(state="closed", next_row=120)],
        "writers": [
            a_writer(closed=True, unread=0),
            a_writer(file="sysmon-0-r0-n07-7-0a.jsonl", actor="sysmon", unread=0, observes=True),
        ],
    }
    told = watched(tmp_path, **done)
    folder = tmp_path / "rlship"
    for writer in told.writers:
        (folder / writer.file).write_bytes(b"x")
        os.utime(folder / writer.file, (told.t - 5, told.t - 5))
    (folder / "empty.jsonl").touch()
    assert (run(tmp_path).exit_code, json.loads(run(tmp_path, "--json").stdout)["finished"]) == (0, True)
    os.utime(folder / told.writers[1].file, (told.t + 5, told.t + 5))
    result = run(tmp_path)
    assert f"; 1 file has grown since. To go on: rlship watch {tmp_path}" in result.stdout
    assert result.exit_code == 0
    for name in ("trainer-0-r0-n07-9-1b.jsonl", "trainer-0-r1-n07-8-1c.jsonl"):
        (folder / name).write_bytes(bytes(1024))
    result = run(tmp_path)
    words = "2 files that no sidecar has read (2048 bytes); 1 file has grown since. To go on: rlship watch"
    assert words in result.stdout
    assert "all writers closed" not in result.stdout and result.exit_code == 3
    found = json.loads(run(tmp_path, "--json").stdout)
    assert not found["finished"] and sum(writer["unread"] for writer in found["writers"]) == 2048
    lease(owner(True))
    assert "sidecar running" in run(tmp_path).stdout and run(tmp_path).exit_code == 0  # it reads them in a moment
    told = watched(tmp_path, **(done | {"t": told.t - 60.0}))
    lease(owner(True, gave_up=True))
    assert "at rest: 2 files that no sidecar has read (2048 bytes)" in run(tmp_path).stdout


def test_a_restarted_job_goes_on_though_its_former_processes_ended(tmp_path: Path, lease: Lease) -> None:
    """Of a file that no sidecar has read it is not known whose it is, so it is not said that all processes ended."""
    idle: dict[str, Any] = {"actors": [an_actor(open_units=0)], "sinks": [a_sink(next_row=120)]}
    watched(tmp_path, writers=[a_writer(silent_s=900.0, beats=True, awaited=True, unread=0)], **idle)
    assert "once the job goes on" in run(tmp_path).stdout
    (tmp_path / "rlship" / "b.jsonl").write_bytes(b"x")
    assert "1 file that no sidecar has read (1 byte). To go on: rlship watch" in run(tmp_path).stdout


def test_much_that_is_not_read_yet_is_said(tmp_path: Path, lease: Lease) -> None:
    """While a sidecar catches up, every row it has made may be there though most lines are not read."""
    lease(owner(True))
    watched(tmp_path, writers=[a_writer(unread=17_000_000), a_writer(file="b.jsonl", unread=230_000)])
    assert "17.2 MB not read yet" in run(tmp_path).stdout.splitlines()
    watched(tmp_path, writers=[a_writer(unread=230_000)])
    assert "not read yet" not in run(tmp_path).stdout


def test_a_sidecar_that_has_just_begun_is_named(tmp_path: Path, lease: Lease) -> None:
    """It owns the experiment and has written no status: no other one is to be started."""
    (tmp_path / "rlship" / "state").mkdir(parents=True)
    lease(owner(True))
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "a sidecar (pid 4242 on n07) has begun and written no status yet" in result.stderr
    assert "start one" not in result.stderr
    lease(owner(False))
    assert f"start one: rlship watch {tmp_path}" in run(tmp_path).stderr


def test_a_killed_sidecar_ships_nothing(tmp_path: Path, lease: Lease) -> None:
    """Its last status said that rows are on their way; without it they are not, and no step is waited for."""
    watched(tmp_path, rows=150, sinks=[a_sink(sent=150)], actors=[an_actor(note="waits for r1", waiting="0.1")])
    lease(owner(alive=False))
    told = run(tmp_path).stdout
    assert "sink wandb: stopped, written 150 rows, 118 of them confirmed, the rest by the next sidecar" in told
    assert "0.8 s  -" not in told and "waits for r1" not in told
    lease(owner(alive=True))
    told = run(tmp_path).stdout
    assert "sink wandb: shipping, written 150 rows, 118 of them confirmed, the rest within 30 s" in told
    assert "waits for r1" in told


def test_a_folder_that_is_gone_is_not_offered(tmp_path: Path, lease: Lease) -> None:
    """`wandb sync` of an offline run is shown as long as there is one."""
    folder = tmp_path / "of all" / "offline-run-20260101_000000-abc"
    for command in (
        f"wandb sync '{folder.parent}'",
        f"wandb sync '{folder.parent}/'offline-run-????????_??????-abc",
        f"wandb sync '{folder}'",
    ):
        folder.mkdir(parents=True, exist_ok=True)
        watched(tmp_path, sinks=[a_sink(where=command)])
        assert f"-> {command}" in run(tmp_path).stdout
        folder.rmdir()
        assert "wandb sync" not in run(tmp_path).stdout
    assert "wandb sync" not in run(tmp_path).stdout
    assert json.loads(run(tmp_path, "--json").stdout)["sinks"][0]["where"] == ""


def test_a_process_that_is_gone_is_not_waited_for(tmp_path: Path, lease: Lease) -> None:
    """Where the sidecar knows that a process has ended, that is said without a minute of silence, and that it did not
    merely stop.
    """
    gone = a_writer(host="n07", pid=4121, silent_s=6.0, beats=True, awaited=True, gone=True)
    other = a_writer(file="b.jsonl", rank=1, silent_s=1.0, beats=True, awaited=True)
    watched(tmp_path, writers=[gone, other])
    done = run(tmp_path)
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("ended")]
    said = r"ended without a close: trainer r0 \(n07 pid 4121\) at step 13, its process is gone, last line \d"
    assert re.match(said, line), line
    assert lines[lines.index(line) + 1].startswith("  it was killed or crashed: ")
    assert done.exit_code == 3


def test_the_process_that_ended_first_is_named(tmp_path: Path, lease: Lease) -> None:
    """Where a launcher ended the rest later, the rank with the oldest last line is named as the first, or all ranks of
    an actor. Within the time between two beats no order is known, nor of processes that do not beat.
    """
    lease(owner(True))

    def said(silent_s: Sequence[float], *, beats: bool = True, of: Sequence[str] = ("trainer",) * 4) -> list[str]:
        written = enumerate(zip(silent_s, of))
        each: dict[str, Any] = {"beats": beats, "awaited": True, "gone": True, "pid": 40, "host": "n07"}
        writers = [a_writer(file=f"{no}", rank=no, silent_s=s, actor=actor, **each) for no, (s, actor) in written]
        watched(tmp_path, writers=writers)
        return [line.partition(" gone, ")[2] for line in run(tmp_path).stdout.splitlines() if " gone, " in line]

    (line,) = said((12.0, 119.0, 14.0, 9.0))
    assert line.startswith("first r1 (n07 pid 40), 105 s before the others, last line 9.")
    (line,) = said((12.0, 119.0, 120.0, 9.0))
    assert line.startswith("first r1 (n07 pid 40), r2 (n07 pid 40), 107 s before the others, last line 9.")
    generator, trainer = said((119.0, 12.0), of=("generator", "trainer"))
    assert generator.startswith("first, 107 s before the other, last line 119 s") and trainer.startswith("last line 1")
    for unclear in (said((12.0, 22.0, 14.0, 9.0)), said((12.0, 119.0, 14.0, 9.0), beats=False)):
        assert unclear[0].startswith("last line 9.")


def test_a_job_that_was_killed_after_its_sidecar_ended_is_dead_at_once(tmp_path: Path, lease: Lease) -> None:
    """No sidecar has seen that its processes are gone, so `status` looks for those of this machine. One that closed,
    one that lives and one of another machine did not end without a close.
    """
    here, killed = pid_space(), subprocess.Popen(["true"])
    killed.wait()
    processes = {"gone": killed.pid, "closed": killed.pid, "lives": os.getpid(), "elsewhere": killed.pid}
    writers = []
    for rank, (name, pid) in enumerate(processes.items()):
        writers.append(a_writer(file=f"{name}.jsonl", rank=rank, pid=pid, silent_s=1.0, beats=True, awaited=True))
        space = f"{here}0" if name == "elsewhere" else here
        lines: list[dict[str, Any]] = [{"kind": "open", "actor": "trainer", "pid": pid, "pid_space": space}]
        lines += [{"kind": "close", "reason": "exit"}] if name == "closed" else []
        place = tmp_path / "rlship" / f"{name}.jsonl"
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    watched(tmp_path, writers=writers)
    shown = run(tmp_path)
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("ended")]
    who = f"trainer r0 (pid {killed.pid}) at step 13"
    assert line.startswith(f"ended without a close: {who}, its process is gone, last line ")
    assert shown.exit_code == 3
    told = json.loads(run(tmp_path, "--json").stdout)["writers"]
    assert [writer["file"] for writer in told if writer["gone"]] == ["gone.jsonl"]
    for writer in writers[1:]:
        (tmp_path / "rlship" / writer.file).unlink()
    watched(tmp_path, writers=writers[:1], run=RunStatus(outcome="running"))
    shown = run(tmp_path)
    assert "run: unknown" in shown.stdout and "watch --once" in shown.stdout
    lease(owner(True))
    watched(tmp_path, writers=writers[:1])
    assert "ended" not in run(tmp_path).stdout


def test_a_dead_job_is_called_dead(tmp_path: Path, lease: Lease) -> None:
    """Processes that ended without a close are named, with the time of their last line and the way on. Other files say
    nothing: who closed, another attempt's, an agent's, or one that was written just now.
    """
    writers = [
        a_writer(file="a.jsonl", host="n07", pid=4121, silent_s=90.0, beats=True, awaited=True),
        a_writer(file="b.jsonl", rank=1, silent_s=900.0, awaited=True),
        a_writer(file="c.jsonl", rank=2, silent_s=900.0),
    ]
    idle: dict[str, Any] = {"actors": [an_actor(open_units=0)], "sinks": [a_sink(next_row=120)]}
    died = watched(tmp_path, t=time.time() - 750.0, writers=writers, **idle)
    for writer in writers:
        place = tmp_path / "rlship" / writer.file
        place.touch()
        os.utime(place, (died.t - writer.silent_s, died.t - writer.silent_s))
    lines = run(tmp_path).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("ended")]
    said = r"ended without a close: trainer r0 \(n07 pid 4121\), r1 at step 13, first r1, 13\.5 min before the other, "
    assert re.match(said + r"last line 14\.0 min ago \(20", line)
    assert "start the job again in the same folder" in lines[lines.index(line) + 1]
    assert lines[-1].endswith(f". All rows are delivered; once the job goes on: rlship watch {tmp_path}")
    watched(tmp_path, t=died.t, writers=writers, actors=[an_actor()])
    assert run(tmp_path).stdout.endswith(f"the last rows: rlship watch --once {tmp_path}\n")
    os.utime(tmp_path / "rlship" / "a.jsonl")
    lines = run(tmp_path).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("ended")]
    assert line.startswith("ended without a close: trainer r1 at step 13, last line 27.5 min ago")
    assert lines[-1].endswith(f". To go on: rlship watch {tmp_path}")


def test_the_newest_values_are_shown(tmp_path: Path, lease: Lease) -> None:
    """Each metric with its curve below the table, and the rate of the steps while the experiment runs."""
    trends = [
        TrendStatus("reward/score", "reward", "step", 12, 0.875, [0.0, 0.5, 0.875]),
        TrendStatus("trainer/loss", "trainer", "step", 12, 0.25, [2.0, 0.25]),
    ]
    lease(owner(True))
    watched(tmp_path, trends=trends, actors=[an_actor(steps_per_s=0.03)])
    lines = run(tmp_path).stdout.splitlines()
    assert lines[2].startswith("trainer  4/4")
    assert lines[3:6] == ["  score      0.875  ▁▅█", "  loss        0.25  █▁", "  33.33 s/step"]
    lease(None)
    watched(tmp_path, trends=trends, actors=[an_actor(steps_per_s=0.03)])
    assert run(tmp_path).stdout.splitlines()[4:6] == [lines[4], "rows 120, row function 1"]
    plain = CliRunner(charset="ascii").invoke(rlship, ["status", str(tmp_path)])
    assert plain.stdout.splitlines()[3:5] == ["  score      0.875", "  loss        0.25"]


def test_a_process_that_ended_without_a_close_gives_exit_code_3(tmp_path: Path, lease: Lease) -> None:
    """As a missing rank does, though every row is complete; not while its file still grows."""
    watched(tmp_path, writers=[a_writer(silent_s=90.0, beats=True, awaited=True)])
    assert (run(tmp_path).exit_code, run(tmp_path, "--json").exit_code) == (3, 3)
    (tmp_path / "rlship" / a_writer().file).touch()
    assert (run(tmp_path).exit_code, run(tmp_path, "--json").exit_code) == (0, 0)


def test_a_process_that_closed_after_the_last_status_did_not_crash(tmp_path: Path, lease: Lease) -> None:
    """No sidecar runs, so the end of the file decides: a close, or lines that no sidecar has read."""
    writers = [
        a_writer(file="a.jsonl", beats=True, awaited=True),
        a_writer(file="b.jsonl", rank=1, beats=True, awaited=True),
    ]
    idle: dict[str, Any] = {"actors": [an_actor(open_units=0)], "sinks": [a_sink(next_row=120)]}
    died = watched(tmp_path, t=time.time() - 300.0, writers=writers, **idle)
    ends = {"a.jsonl": {"kind": "close", "t": died.t, "reason": "exit"}, "b.jsonl": {"step": 14, "t": died.t}}
    for name, last in ends.items():
        place = tmp_path / "rlship" / name
        place.write_text(json.dumps({"kind": "open", "actor": "trainer"}) + "\n" + json.dumps(last) + "\n")
        os.utime(place, (died.t + 100.0, died.t + 100.0))
    lines = run(tmp_path).stdout.splitlines()
    assert any(re.fullmatch(r"closed in order: trainer r0, not read since 20\d\d-.*", line) for line in lines)
    (line,) = [line for line in lines if line.startswith("ended")]
    said = r"ended without a close: trainer r1 at step 13, last line 3\.3 min ago \(.*\), not read since 20\d\d-"
    assert re.match(said, line)
    assert lines[-1].endswith(f"the last rows: rlship watch --once {tmp_path}")
    (tmp_path / "rlship" / "b.jsonl").write_bytes((tmp_path / "rlship" / "a.jsonl").read_bytes())
    lines = run(tmp_path).stdout.splitlines()
    assert not [line for line in lines if line.startswith("ended")]
    assert lines[-1].endswith(f"the last rows: rlship watch --once {tmp_path}")


def test_a_process_that_is_silent_while_a_sidecar_runs_is_named(tmp_path: Path, lease: Lease) -> None:
    """Its file is read to its end, so the status knows; one without a heartbeat may be in a long step."""
    lease(owner(True))
    watched(tmp_path, writers=[a_writer(silent_s=90.0, beats=True, awaited=True)])
    assert "ended without a close: trainer r0 at step 13, last line 90 s ago" in run(tmp_path).stdout
    watched(tmp_path, writers=[a_writer(silent_s=120.0, awaited=True)])
    assert "ended" not in run(tmp_path).stdout


def test_a_process_that_an_error_ended_is_named_at_once(tmp_path: Path, lease: Lease) -> None:
    """With rank, error and step, unless its rank was started again; the experiment is not called finished."""
    lease(owner(True))
    error = "RuntimeError: CUDA out of memory"
    failed = a_writer(rank=1, host="n07", pid=4121, step=20, awaited=True, failure=error)
    watched(tmp_path, writers=[failed, a_writer(file="b.jsonl", awaited=True)])
    lines = run(tmp_path).stdout.splitlines()
    assert f"trainer r1 (n07 pid 4121) ended with {error} at step 20" in lines
    assert not any(line.startswith("ended without a close") for line in lines)
    assert "start the job again in the same folder" in lines[-2]
    assert "finished" not in lines[-1]
    watched(tmp_path, writers=[replace(failed, awaited=False)])
    assert "ended with" not in run(tmp_path).stdout


def test_a_running_sidecar_is_named(tmp_path: Path, lease: Lease) -> None:
    """A living owner is reported with pid and host."""
    lease(owner(True))
    watched(tmp_path)
    assert "sidecar running (pid 4242 on n07), as of" in run(tmp_path).stdout


def test_a_dead_sidecar_is_named(tmp_path: Path, lease: Lease) -> None:
    """An owner that is gone is reported as the last one."""
    lease(owner(False))
    watched(tmp_path)
    assert "no sidecar running (the last was pid 4242 on n07)" in run(tmp_path).stdout


@pytest.mark.parametrize(("age_s", "gave_up"), [(90, False), (3, True)])
def test_a_sidecar_that_lives_but_cannot_write_is_told(tmp_path: Path, lease: Lease, age_s: int, gave_up: bool) -> None:
    """An owner whose process is there while its status is old, or that gave the lease up, is not called gone: on a full
    disk it tries again and again.
    """
    lease(owner(True, gave_up=gave_up))
    watched(tmp_path, t=time.time() - age_s)
    last = run(tmp_path).stdout.splitlines()[-1]
    said = re.fullmatch(
        r"process 4242 on n07 is alive, but its last status is ([\d.]+) s old \(state disk full\?\)", last
    )
    assert said and age_s <= float(said[1]) < age_s + 30, last
    assert json.loads(run(tmp_path, "--json").stdout)["running"] is not gave_up


def test_an_owner_that_ended_in_order_is_not_named(tmp_path: Path, lease: Lease) -> None:
    """A process that released its lease and is gone is no last owner to look for."""
    lease(owner(False, gave_up=True))
    watched(tmp_path)
    assert "no sidecar running; as of" in run(tmp_path).stdout


def test_a_sink_that_refused_gives_exit_code_4(tmp_path: Path, lease: Lease) -> None:
    """It outweighs incomplete data, and the way out is printed to its end, with the sink named once."""
    error = "x" * 300 + ": point the sink to another place"
    watched(tmp_path, complete=False, sinks=[a_sink(state="refused", error=error)])
    result = run(tmp_path)
    assert result.exit_code == 4
    assert f"sink wandb: refused: {error}; confirmed" in result.stdout


@pytest.mark.parametrize(("age", "running"), [(0, True), (300, False)])
def test_an_owner_on_another_host_is_judged_by_age(tmp_path: Path, lease: Lease, age: float, running: bool) -> None:
    """Where the owner's process cannot be seen, a fresh status means that it runs."""
    lease(owner(None))
    watched(tmp_path, t=time.time() - age)
    assert json.loads(run(tmp_path, "--json").stdout)["running"] is running


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False, "actors": [an_actor(missing=["0.3"])]},
        {"dead_letters": [a_dead_letter()], "dead_letter_count": 3},
        {"dead_value_count": 1},
    ],
)
def test_incomplete_data_gives_exit_code_3(tmp_path: Path, lease: Lease, changes: dict[str, Any]) -> None:
    """Missing ranks, dead letters and dead values each give exit code 3."""
    watched(tmp_path, **changes)
    assert run(tmp_path).exit_code == 3
    assert run(tmp_path, "--json").exit_code == 3


def test_json_is_the_whole_status(tmp_path: Path, lease: Lease) -> None:
    """--json prints one object with every field of the status, `running` filled in, and nothing else."""
    lease(owner(True))
    watched(tmp_path, writers=[a_writer(), a_writer(rank=1)])
    result = run(tmp_path, "--json")
    told = json.loads(result.stdout)
    assert told["running"] is True
    assert [writer["rank"] for writer in told["writers"]] == [0, 1]
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


def test_writers_are_listed_on_request(tmp_path: Path, lease: Lease) -> None:
    """Writers with a note are always listed, all of them with --writers."""
    watched(tmp_path, writers=[a_writer(), a_writer(rank=1, note="two writers claim trainer/0/r1")])
    brief, full = run(tmp_path).stdout, run(tmp_path, "--writers").stdout
    assert "trainer/0/r1" in brief
    assert "trainer/0/r0" not in brief
    assert "trainer/0/r0" in full


def test_a_folder_of_experiments(tmp_path: Path, lease: Lease) -> None:
    """All experiments of a folder are listed, those never watched on stderr; the worst decides the exit code."""
    watched(tmp_path / "a")
    watched(tmp_path / "b", complete=False)
    (tmp_path / "c" / "rlship").mkdir(parents=True)
    (tmp_path / "not-one").mkdir()
    result = run(tmp_path, "--json")
    assert [json.loads(line)["experiment"] for line in result.stdout.splitlines()] == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    ]
    assert result.stderr == f"{tmp_path}/c: no sidecar has watched it yet: rlship watch {tmp_path}\n"
    assert result.exit_code == 3


def test_state_kept_elsewhere(tmp_path: Path, lease: Lease) -> None:
    """--state-dir and RLSHIP_STATE_DIR find the status that a sidecar with that state directory wrote."""
    experiment, states = tmp_path / "exp", tmp_path / "states"
    (experiment / "rlship").mkdir(parents=True)
    (states / "exp").mkdir(parents=True)
    write_status(states / "exp", a_status(rows=7))
    assert "rows 7" in run(experiment, "--state-dir", states).stdout
    result = CliRunner().invoke(rlship, ["status", str(experiment)], env={"RLSHIP_STATE_DIR": str(states)})
    assert "rows 7" in result.stdout


def test_never_watched(tmp_path: Path, lease: Lease) -> None:
    """An experiment without a status says what to do and exits with 1."""
    (tmp_path / "rlship").mkdir()
    result = run(tmp_path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"rlship: no sidecar has watched {tmp_path} yet\n  start one: rlship watch {tmp_path}\n"


def test_never_watched_because_the_group_is_shut_out(tmp_path: Path, lease: Lease) -> None:
    """`rlship` of mode 0755 in a folder of a group: a sidecar of that group cannot have watched it, and how to let it
    is said, for one experiment and among others.
    """
    experiment = tmp_path / "a"
    (experiment / "rlship").mkdir(parents=True)
    experiment.chmod(0o2775)
    (experiment / "rlship").chmod(0o755)
    first, start, why = run(experiment).stderr.splitlines()
    assert first.endswith(f"has watched {experiment} yet") and "start one" in start
    assert why.startswith(f"  {experiment}/rlship has mode 0755: other users of the group ")
    assert f"chmod g+ws {experiment}/rlship" in why
    watched(tmp_path / "b")
    assert why in run(tmp_path).stderr.splitlines()
    (experiment / "rlship").chmod(0o2775)
    assert why not in run(tmp_path).stderr.splitlines()


def test_no_experiment(tmp_path: Path, lease: Lease) -> None:
    """A folder without any experiment says how one comes to be."""
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "no experiment in" in result.stderr
    assert "rlship.init(" in result.stderr


def test_experiments_deeper_down_are_named(tmp_path: Path, lease: Lease) -> None:
    """Where the folder given holds the folder of experiments, as `rlship run` makes it, that one is named."""
    watched(tmp_path / "outputs" / "train-1")
    (tmp_path / "data" / "deep").mkdir(parents=True)
    result = run(tmp_path)
    assert result.exit_code == 1
    said = (
        f"no experiment in {tmp_path}, but a folder in it holds experiments\n  give that folder: {tmp_path}/outputs\n"
    )
    assert result.stderr == f"rlship: {said}"
    watched(tmp_path / "more" / "train-2")
    assert f"give one of them: {tmp_path}/more, {tmp_path}/outputs\n" in run(tmp_path).stderr


def test_a_damaged_status(tmp_path: Path, lease: Lease) -> None:
    """A status.json that cannot be decoded is named instead of a traceback."""
    state = tmp_path / "rlship" / "state"
    state.mkdir(parents=True)
    (state / "status.json").write_text("{half")
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "status.json is damaged" in result.stderr


@pytest.mark.parametrize("left", [b"", bytes(512)])
def test_a_status_that_a_power_cut_took(tmp_path: Path, lease: Lease, left: bytes) -> None:
    """Nothing but its name is left, or zeros: it is not called damaged, and the way to a new one is said."""
    state = tmp_path / "rlship" / "state"
    state.mkdir(parents=True)
    (state / "status.json").write_bytes(left)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "status.json is empty, as after a host lost its power" in result.stderr
    assert f"rlship watch {tmp_path}" in result.stderr


def test_experiments_are_in_natural_order(tmp_path: Path, lease: Lease) -> None:
    """seed2 stands before seed10, also where standard output is no terminal."""
    for seed in (10, 2, 1):
        watched(tmp_path / f"seed{seed}")
    result = run(tmp_path)
    heads = [line.rpartition("/")[2] for line in result.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert heads == ["seed1", "seed2", "seed10"]


def test_an_experiment_whose_folder_got_another_name(tmp_path: Path, lease: Lease) -> None:
    """Its places and commands are those of today, also where another experiment has the former name by now."""
    before, now = tmp_path / "demo", tmp_path / "demo-1"
    runs = before / "rlship" / "state" / "wandb"
    (runs / "offline-run-20251120_005320-abc").mkdir(parents=True)
    rows = before / "rlship" / "state" / "rows.jsonl"
    sinks = [a_sink(state="closed", where=f"wandb sync {runs}"), a_sink(name="jsonl", state="closed", where=str(rows))]
    watched(before, sinks=sinks)
    before.rename(now)
    for _ in range(2):
        told = run(now).stdout
        assert told.splitlines()[0] == str(now)
        assert f"-> wandb sync {now}/rlship/state/wandb\n" in told and f"-> {now}/rlship/state/rows.jsonl\n" in told
        assert f"{before}/" not in told
        before.mkdir(exist_ok=True)
