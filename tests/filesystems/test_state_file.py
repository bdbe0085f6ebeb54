"""A file is replaced whole or not at all, nothing else is touched, and it survives what it says."""

from __future__ import annotations

import errno
import os
import re
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlship_sidecar import state_file
from rlship_sidecar.cli.outfile import writing
from rlship_sidecar.config import Config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.ownership.place import UntrustedState
from rlship_sidecar.replay import folders
from rlship_sidecar.replay.run import ReplayRequest, replay
from tests.endtoend.test_messages import an_experiment
from tests.guards.tree import PACKAGES, ROOT, modules

OLD, NEW = b"old\n", b"new\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with former content, alone in a folder."""
    folder = tmp_path / "state"
    folder.mkdir()
    path = folder / "status.json"
    path.write_bytes(OLD)
    return path


def test_the_new_file_is_in_its_place_and_nothing_is_left(file: Path) -> None:
    """With the umask's mode, or one that was asked for."""
    before = os.umask(0o027)
    try:
        state_file.replace(file, NEW)
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (NEW, 0o640)
        with state_file.replacing(file, durable=False, mode=0o644) as new:
            new.write(OLD)
    finally:
        os.umask(before)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (OLD, 0o644)
    assert os.listdir(file.parent) == [file.name]


def test_the_old_file_is_there_until_the_new_one_is_whole(file: Path) -> None:
    """Beside it, with the prefix that the caller chose; an exception removes it, and passes."""
    with pytest.raises(ZeroDivisionError), state_file.replacing(file, scratch_prefix="status.7.") as new:
        new.write(NEW)
        new.flush()
        (scratch,) = set(os.listdir(file.parent)) - {file.name}
        assert re.fullmatch(r"status\.7\.[a-z]{12}\.tmp", scratch)
        assert file.read_bytes() == OLD
        raise ZeroDivisionError
    assert os.listdir(file.parent) == [file.name] and file.read_bytes() == OLD


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_names_it(file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk, wherever it shows: the error has the path that the caller knows."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "scratch")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        state_file.replace(file, NEW)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(file))
    assert os.listdir(file.parent) == [file.name] and file.read_bytes() == OLD


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_synced_and_when(file: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    """Durable: the new file before it has its name, and the folder after; else neither."""
    calls: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(fd: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")
        real_sync(fd)

    def rename(*names: Any) -> None:
        calls.append("rename")
        real_replace(*names)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    state_file.replace(file, NEW, durable=durable)
    assert calls == (["file", "rename", "folder"] if durable else ["rename"])


def test_no_link_is_followed(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in the file's own place is replaced. One that waits for the scratch file, had its name been guessed, is an
    error, and what it leads to stays.
    """
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    file.unlink()
    file.symlink_to(victim)
    state_file.replace(file, NEW)
    assert (file.is_symlink(), file.read_bytes()) == (False, NEW)
    monkeypatch.setattr(secrets, "choice", lambda letters: "a")
    scratch = file.with_name(f".{file.name}.{'a' * 12}.tmp")
    scratch.symlink_to(victim)
    with pytest.raises(FileExistsError):
        state_file.replace(file, OLD)
    assert scratch.is_symlink() and victim.read_bytes() == b"precious"


def test_an_export_writes_through_no_planted_link(tmp_path: Path) -> None:
    """`<target>.<pid>.part`, which could be guessed, is no name of its scratch file."""
    victim, target = tmp_path / "victim", tmp_path / "trace.json"
    victim.write_bytes(b"precious")
    target.with_name(f"{target.name}.{os.getpid()}.part").symlink_to(victim)
    with writing(str(target)) as stream:
        stream.write(b"[]")
    assert (target.read_bytes(), victim.read_bytes()) == (b"[]", b"precious")


@pytest.mark.parametrize("planted", [".replay.json.tmp", "replay.json"])
def test_a_replay_writes_through_no_planted_link(tmp_path: Path, planted: str) -> None:
    """Its folder is looked at before anything is read or written there: a link in it is refused, with the way out."""
    experiment, victim = an_experiment(tmp_path / "job"), tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = experiment / "rlship" / "state" / "replay-1"
    folder.mkdir(parents=True)
    (folder / planted).symlink_to(victim)
    for out in (folder, None):
        with suppress(UsageProblem, UntrustedState):  # the latter where nothing but the link is there
            replay(ReplayRequest(experiment, Config(sinks=[]), out=out))
        assert victim.read_bytes() == b"precious" and os.listdir(folder) == [planted]


def test_a_replay_looks_whose_folder_it_is_before_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of another user it leaves nothing."""
    experiment, out = an_experiment(tmp_path / "job"), tmp_path / "out"
    out.mkdir()

    def of_another_user(experiment: Path, state_dir: Path) -> None:
        raise UntrustedState("the state folder belongs to another user")

    monkeypatch.setattr("rlship_sidecar.replay.run.make_place", of_another_user)
    with pytest.raises(UntrustedState):
        replay(ReplayRequest(experiment, Config(sinks=["jsonl"]), out=out))
    assert os.listdir(out) == []


def test_a_marker_that_is_no_file_is_none(tmp_path: Path) -> None:
    """A FIFO in its place is not waited for."""
    os.mkfifo(tmp_path / folders.MARKER)
    code = (
        "import sys; from pathlib import Path; from rlship_sidecar.replay import folders\n"
        "print(folders.read_marker(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "None\n", done.stderr


def test_a_marker_says_what_was_written(tmp_path: Path) -> None:
    """What a replay is of, and that it is finished."""
    marker = folders.finished(folders.marker_of(Config(), None))
    folders.write_marker(tmp_path, marker)
    assert folders.read_marker(tmp_path) == marker
    assert msgspec.json.decode((tmp_path / folders.MARKER).read_bytes())["finished"] is True


def test_no_other_place_replaces_a_file() -> None:
    """`os.replace` is in one module; the others name stores and a sink's files by rules of their own."""
    found = {
        str(module.relative_to(PACKAGES["rlship_sidecar"]))
        for module in modules(PACKAGES["rlship_sidecar"])
        if re.search(r"os\.(replace|rename)\(", module.read_text(encoding="utf-8"))
    }
    assert found == {"state_file.py", "ownership/inherit.py", "sinks/claim.py"}
