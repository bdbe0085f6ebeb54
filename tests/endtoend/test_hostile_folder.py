"""An experiment in which a user who may write there is against the sidecar."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlship_sidecar.report.status import MAX_WRITERS
from rlship_sidecar.report.survey import MAX_LISTED
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.hostile import closed, line, metrics, opened
from tests.endtoend.sidecar import environment, rlship, watching
from tests.endtoend.test_messages import an_experiment
from tests.kit.cases import long

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;mine\x07\x1b[2J\r\n\u202e\u2067\u200fab\x00\x9b31m"


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """What is in a folder stays as it is, to the byte."""

    def seen() -> dict[str, bytes]:
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}

    before = seen()
    yield
    assert seen() == before


def test_nothing_is_read_or_written_through_what_was_put_in_place_of_a_folder_or_a_file(tmp_path: Path) -> None:
    """Links in place of the writers' folder, of the state, and of files in it, and a FIFO as a lease: each such
    experiment is left out with a word about it, files elsewhere stay as they are, and the good one beside them ships.
    """
    watched, home, victim = tmp_path / "outputs", tmp_path / "home", tmp_path / "victim"
    an_experiment(victim / "secret")
    (victim / "state").mkdir()
    (victim / "rows").write_text("precious\n")
    for name in ("bytes", "lease.0", "store.0.db", "status.json", "rows.jsonl"):
        (victim / "state" / name).write_bytes(b"precious " * 100)
    an_experiment(watched / "good")
    (watched / "writers").mkdir()
    (watched / "writers" / "rlship").symlink_to(victim / "secret" / "rlship")
    (an_experiment(watched / "state") / "rlship" / "state").symlink_to(victim / "state")
    for name in ("lease.0", "rows.jsonl", "status.0.tmp", "wandb", "tensorboard"):
        state = an_experiment(watched / f"file-{name}") / "rlship" / "state"
        state.mkdir()
        (state / name).symlink_to(victim / "rows")
    state = an_experiment(watched / "fifo") / "rlship" / "state"
    state.mkdir()
    os.mkfifo(state / "lease.0")
    os.mkfifo(state / "status.json")

    with untouched(victim), watching(watched, "jsonl", "tensorboard", home=home) as sidecar:
        sidecar.until(lambda: len(shipped(watched / "good")) == 3)
        left_out = [path.name for path in watched.iterdir() if path.name != "good"]
        sidecar.until(lambda: all(f"{watched / name}" in sidecar.said() for name in left_out))
        assert sidecar.stop() == 0 or "is left as it is" in sidecar.said()
        assert "Traceback" not in sidecar.said()
        told = rlship(home, "status", watched)
        assert "Traceback" not in told.stderr and told.returncode in (0, 1, 3), told.stderr
        assert f"{watched / 'fifo'}" in told.stderr + told.stdout
    assert sorted(os.listdir(victim / "state")) == ["bytes", "lease.0", "rows.jsonl", "status.json", "store.0.db"]


def test_a_folder_that_is_exchanged_while_it_is_watched_is_not_followed(tmp_path: Path) -> None:
    """The writers' folder, state and all, becomes a link to a copy elsewhere: nothing of the copy is read or changed,
    the sidecar says so and lives, and goes on once the folder is back.
    """
    experiment, home, victim = tmp_path / "job", tmp_path / "home", tmp_path / "victim"
    folder = experiment / "rlship"
    folder.mkdir(parents=True)
    file = folder / "trainer-0-r0.jsonl"
    file.write_bytes(opened("trainer") + b"\n" + metrics(0, loss=1.0) + b"\n" + line(kind="barrier", step=0) + b"\n")
    an_experiment(victim, steps=9)
    with watching(experiment, home=home) as sidecar:
        sidecar.until(lambda: len(shipped(experiment)) == 1)
        kept = tmp_path / "kept"
        with untouched(victim):
            os.rename(folder, kept)
            folder.symlink_to(victim / "rlship")
            sidecar.until(lambda: "link, which is not followed" in sidecar.said())
            folder.unlink()
            os.rename(kept, folder)
        with open(file, "ab") as out:
            out.write(metrics(1, loss=3.0) + b"\n" + line(kind="barrier", step=1) + b"\n")
        sidecar.until(lambda: len(shipped(experiment)) == 2)
        assert [row.values["trainer/loss"] for row in shipped(experiment)] == [1.0, 3.0]
        assert sidecar.stop() == 0, sidecar.said()


def test_no_name_reaches_a_terminal_with_control_characters(tmp_path: Path) -> None:
    """Actors, replicas, metrics, tables, tags, events, hosts, files and folders whose names have escape sequences, line
    ends, NUL and marks that turn text around: nothing that any verb prints for people has them, and JSON stays JSON.
    """
    evil = EVIL.replace("\n", "").replace("\x00", "").replace("/", "")
    experiment, home = tmp_path / f"job{evil}", tmp_path / "home"
    folder = experiment / "rlship"
    folder.mkdir(parents=True)
    lines = [
        opened(f"a{EVIL}", replica=f"r{EVIL}", host=f"h{EVIL}", labels={f"l{EVIL}": EVIL}),
        line(kind="clock", t=1763600000, offset=0.5, err=0.01),
        line(kind="define", m={f"m{EVIL}": {"reduce": [f"no.{EVIL}", "mean"], "unit": EVIL}}),
        metrics(0, **{f"m{EVIL}": 1.0, f"bad{EVIL}": "x"}),
        line(kind="event", step=0, t=1763600001, name=f"e{EVIL}", attrs={f"k{EVIL}": EVIL}),
        line(kind="span", step=0, t=1763600001, dur=0.1, name=f"s{EVIL}", lane=EVIL),
        line(kind="sample", step=0, t=1763600001, table=f"t{EVIL}", score=1, pri=0.5, row={f"c{EVIL}": EVIL}),
        line(kind=f"kind{EVIL}"),
        b'{"step":1,"m":' + EVIL.replace("\n", "").encode(),
        *closed(1),
    ]
    (folder / f"f{evil}.jsonl").write_bytes(b"".join(text + b"\n" for text in lines))
    (folder / f"odd{evil}.jsonl").symlink_to("/etc/passwd")
    (folder / "\udcff.jsonl").mkdir()
    (folder / ("x" * 249 + ".jsonl")).write_bytes(b"\x1b[2J\n")
    said = [
        rlship(home, "watch", experiment, "--once", "--sink", "console", "--sink", "jsonl"),
        rlship(home, "status", experiment, "--writers"),
        rlship(home, "status", experiment / EVIL.replace("\x00", "")),
        rlship(home, "watch", experiment, "--once", "--sink", evil),
        rlship(home, "export", experiment, "--samples", f"no{evil}"),
    ]
    for told in said:
        assert "Traceback" not in told.stderr, told.stderr
        assert CONTROL.findall(told.stdout + told.stderr) == [], told
        assert told.stdout + told.stderr
    data = rlship(home, "status", experiment, "--json").stdout
    assert CONTROL.search(data) is None and len(data.splitlines()) == 1
    status = json.loads(data)
    assert any("odd" in note for note in status["notes"]) and len(status["actors"]) == 1
    trace = rlship(home, "export", experiment, "--chrome-trace").stdout
    assert json.loads(trace)["traceEvents"] and CONTROL.search(trace) is None
    events = rlship(home, "export", experiment, "--table", "events", "--format", "jsonl").stdout
    assert json.loads(events)["name"] == f"e{EVIL}" and CONTROL.search(events) is None
    assert len(newest(shipped(experiment))) >= 1


@pytest.mark.parametrize("times", [1, *long(10)])
def test_thousands_of_useless_files_hold_nothing_up(tmp_path: Path, times: int) -> None:
    """12,000 tiny files without a writer, 2,000 writers of one rank and 1,000 links, or a tenth of the first two, in
    2 GiB of address space: a good rank's rows come within seconds, the status lists no more than it may and says that
    there are more, and `status` prints it in some hundred lines.
    """
    tiny, writers = 1200 * times, 200 * times
    experiment, home = tmp_path / "job", tmp_path / "home"
    an_experiment(experiment)
    folder = experiment / "rlship"
    for number in range(tiny):
        (folder / f"n{number}.jsonl").write_bytes(b"x\n" * (number % 2))
    for number in range(writers):
        text = opened("many", id=f"m{number}", attempt=number % 2) + b"\n" + metrics(number % 7, loss=1.0) + b"\n"
        (folder / f"many{number}.jsonl").write_bytes(text)
    for number in range(1000):
        (folder / f"link{number}.jsonl").symlink_to("/etc/passwd")
    limited = ("/bin/sh", "-c", 'ulimit -v 2097152 && exec "$@"', "sh", sys.executable, "-m", "rlship")
    with watching(experiment, home=home, launch=limited) as sidecar:
        sidecar.until(lambda: sum(row.unit.actor == "trainer" for row in shipped(experiment)) == 3, 30.0)
        found = tiny + writers + 1
        status = sidecar.until_status(
            lambda status: status.rows >= 3 and len(status.writers) == min(MAX_WRITERS, found)
        )
        assert sum("link" in note for note in status.notes) <= MAX_LISTED + 1
        assert any("more entries" in note for note in status.notes)
        told_of = any(f"lists {MAX_WRITERS} of {found} files" in note for note in status.notes)
        assert told_of == (found > MAX_WRITERS)
        assert {writer.actor for writer in status.writers} >= {"trainer", "many"}
        told = subprocess.run(
            [sys.executable, "-m", "rlship", "status", str(experiment)],
            env=environment(home, {}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert len(told.stdout.splitlines()) < 400
        assert sidecar.stop() == 0, sidecar.said()
