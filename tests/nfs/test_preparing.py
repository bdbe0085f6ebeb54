"""What `make nfs` does before it boots a machine, as far as it can be tried without one."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nfs import packages
from tests.nfs.__main__ import show
from tests.nfs.boot import Share, first_filesystem, kernel
from tests.nfs.packages import Missing, unpacked


def module(depends: str) -> bytes:
    """What matters of a kernel module."""
    return b"\x7fELF\0vermagic=6.1\0depends=" + depends.encode() + b"\0"


def names_in(archive: bytes) -> list[str]:
    """The names in a cpio archive, in order."""
    found, at = [], 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        size, length = (int(archive[at + 6 + 8 * field : at + 14 + 8 * field], 16) for field in (6, 11))
        found.append(archive[at + 110 : at + 109 + length].decode())
        at += -(-(110 + length) // 4) * 4
        at += -(-size // 4) * 4
    return found


def test_modules_come_after_what_they_depend_on(tmp_path: Path) -> None:
    """Packed or not, each module of the kernel is in the archive once, in an order in which they can be loaded."""
    modules = tmp_path / "lib" / "modules" / "6.1.0-x" / "kernel" / "fs"
    modules.mkdir(parents=True)
    for name, depends in (("nfsv4", "nfs,sunrpc"), ("nfsv3", "nfs"), ("nfs", "sunrpc,lockd"), ("lockd", "sunrpc")):
        (modules / f"{name}.ko").write_bytes(module(depends))
    (modules / "sunrpc.ko.xz").write_bytes(lzma.compress(module("")))
    (modules / "virtio-pci.ko").write_bytes(module(""))
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot" / "vmlinuz-6.1.0-x").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "busybox").touch()
    assert kernel(tmp_path).name == "vmlinuz-6.1.0-x"
    names = names_in(first_filesystem(tmp_path, [Share("a", "ro", "/with space")], "exit\n"))
    loaded = [name.partition("-")[2] for name in names if re.match(r"modules/\d", name)]
    assert loaded == ["virtio_pci", "sunrpc", "lockd", "nfs", "nfsv3", "nfsv4"]
    assert {"init", "bin/busybox", "shares", "program", "etc/netconfig"} <= set(names)
    assert names[-1] == "TRAILER!!!"


def test_a_clock_that_runs_at_another_rate_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guest that counts 30 s in 10 s of the host gives no figures; one that counts as the host does gives them."""
    (tmp_path / "found-3.json").write_text('{"found": [["a delay", "1 s"]], "failure": ""}')
    for when, guest, host in (("began", 100.0, 5000.0), ("ended", 130.0, 5010.0)):
        (tmp_path / f"clock-3-{when}").write_text(str(guest))
        os.utime(tmp_path / f"clock-3-{when}", (host, host))
    assert not show(tmp_path, "3")
    assert "runs 3.00 times as fast as this host's" in capsys.readouterr().out
    (tmp_path / "clock-3-ended").write_text("110.0")
    os.utime(tmp_path / "clock-3-ended", (5010.0, 5010.0))
    assert show(tmp_path, "3")


def test_a_machine_that_is_no_debian_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Without apt nothing is begun: exit code 2, and the way out."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.nfs", "--folder", tmp_path / "lab"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "this needs Debian or Ubuntu on x86_64 with apt-get" in done.stderr
    assert "Run it in a container of debian:12" in done.stderr
    assert not (tmp_path / "lab").exists()


def test_packages_that_cannot_be_had_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What apt says goes to the user, with what to do; nothing half unpacked is taken for whole afterwards."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in packages.NEEDED:
        (tools / name).write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2; exit 100\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(packages.platform, "machine", lambda: "x86_64")
    with pytest.raises(Missing, match=r"`apt-get .*` failed \(run `apt-get update` as root first\?\): E: Unable"):
        unpacked(tmp_path / "lab")
    assert not (tmp_path / "lab" / "tree").exists()
