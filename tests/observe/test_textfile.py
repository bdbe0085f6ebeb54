"""Metrics in a file for node_exporter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rlship_sidecar.observe.pulse import LoopSnapshot, Pulse
from rlship_sidecar.observe.textfile import Textfile
from tests.cli.sample import a_status
from tests.kit.clocks import Clock


def test_the_file_is_whole_and_anyones_to_read(tmp_path: Path) -> None:
    """It is replaced, never written in place; with any umask others may read it; nothing else is left in the folder."""
    clock, said = Clock(), list[str]()
    path = tmp_path / "rlship.prom"
    pulse = Pulse(on_report=[Textfile(path, said.append, clock=clock)])
    former = os.umask(0o077)
    try:
        pulse.report(LoopSnapshot([a_status()]))
        first = path.stat().st_ino
        with open(path, encoding="utf-8") as reader:
            clock.now += 20
            pulse.report(LoopSnapshot())
            assert "\nrlship_experiments 1.0\n" in reader.read()
    finally:
        os.umask(former)
    assert path.stat().st_ino != first
    assert "\nrlship_experiments 0.0\n" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["rlship.prom"]
    assert said == []


def test_it_is_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    """The loop tells every second; the file follows every 15 s, and with the last telling, which says so."""
    clock = Clock()
    path = tmp_path / "rlship.prom"
    pulse = Pulse(on_report=[Textfile(path, lambda line: None, clock=clock)])
    seen = set()
    for _ in range(31):
        pulse.report(LoopSnapshot())
        seen.add(path.stat().st_ino)
        clock.now += 1
    before = path.read_text()
    pulse.stopping()
    pulse.report(LoopSnapshot(), last=True)
    assert "\nrlship_up 1.0\n" in before
    assert "\nrlship_up 0.0\n" in path.read_text()
    assert len(seen) in (2, 3)  # an inode's number may come again


def test_trouble_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    """A folder that is not there is named once, until it worked again."""
    clock, said = Clock(), list[str]()
    path = tmp_path / "later" / "rlship.prom"
    pulse = Pulse(on_report=[Textfile(path, said.append, every_s=1.0, clock=clock)])
    for there in (False, False, True, False):
        if there:
            path.parent.mkdir()
        elif path.exists():
            path.unlink()
            path.parent.rmdir()
        clock.now += 1
        pulse.report(LoopSnapshot())
    assert said == [f"the metrics cannot be written to {path}: No such file or directory; trying again"] * 2


def test_a_link_in_its_way_is_not_followed(tmp_path: Path) -> None:
    """What another program put where the file is prepared is removed, not written through."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".rlship.prom.{os.getpid()}.tmp").symlink_to(victim)
    Pulse(on_report=[Textfile(tmp_path / "rlship.prom", lambda line: None)]).report(LoopSnapshot())
    assert victim.read_text() == "mine"
    assert (tmp_path / "rlship.prom").read_text().startswith("# HELP")


@pytest.mark.parametrize("kind", ["device", "fifo", "link"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A device, a FIFO or a link under the file's name stays what it is, and that is said."""
    path, said = tmp_path / "rlship.prom", list[str]()
    if kind == "link":
        path.symlink_to("/dev/fd/1")
    elif kind == "fifo" or os.geteuid() != 0:
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    before = os.lstat(path)
    Pulse(on_report=[Textfile(path, said.append)]).report(LoopSnapshot())
    assert os.path.samestat(os.lstat(path), before)
    assert said == [
        f"the metrics cannot be written to {path}: something is there that is no regular file; trying again"
    ]
    assert os.listdir(tmp_path) == ["rlship.prom"]
