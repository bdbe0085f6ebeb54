"""Writers on what says that it is a network filesystem: when they sync, and what they do if that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.tools import needed
from tests.writers.commands import command, init
from tests.writers.driver import Ended, drive, of_kind, only_file, records
from tests.writers.languages import WRITERS, language_of

pytestmark = pytest.mark.toolchain

SHELLS = ("dash", "ash", "bash")

# Every file lies on NFS; each fdatasync is a line in the file SYNCED, and the one that FAILING names fails.
_NFS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

int fstatfs(int fd, struct statfs *status) {
    memset(status, 0, sizeof *status);
    status->f_type = 0x6969;
    return fd < 0;
}

int fdatasync(int fd) {
    static int calls;
    const char *failing = getenv("FAILING");
    int log = open(getenv("SYNCED"), O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (fd < 0 || log < 0 || write(log, "sync\\n", 5) != 5) abort();
    close(log);
    if (++calls == (failing ? atoi(failing) : 0)) {
        errno = EIO;
        return -1;
    }
    return 0;
}
"""

# `stat` says NFS, `sync` takes a note of its file.
_TOOLS = {"stat": "echo 6969", "sync": 'echo "$2" >>"$SYNCED"'}


def on_nfs(folder: Path, *lines: str, failing: int = 0) -> Ended:
    """Run the driver in C there."""
    (folder / "nfs.c").write_text(_NFS)
    gcc = needed("gcc")
    subprocess.run([gcc, "-shared", "-fPIC", "-o", "nfs.so", "nfs.c"], cwd=folder, check=True, timeout=60)
    settings = {"LD_PRELOAD": str(folder / "nfs.so"), "SYNCED": str(folder / "synced"), "FAILING": str(failing)}
    return drive(language_of("c"), folder, *lines, settings=settings)


def syncs(folder: Path) -> int:
    """How often something was synced."""
    return (folder / "synced").read_text().count("\n")


def test_lines_are_synced_before_flush_and_close_return(tmp_path: Path) -> None:
    """Each flush that has something to sync does it once; barriers that follow each other closely share one."""
    barriers = [line for step in range(50) for line in (command("log", step, "", "x", 1), command("barrier", step))]
    ended = on_nfs(
        tmp_path,
        init("job", "gen"),
        *(command("log", 0, "", "x", 1), command("flush"), command("flush"), *barriers, command("close")),
    )
    assert (ended.code, ended.said) == (0, "")
    assert 2 <= syncs(tmp_path) <= 4


def test_lines_in_doubt_are_told(tmp_path: Path) -> None:
    """After a sync that failed there is a gap for the lines since the last good one, the definitions come again, and no
    line is written twice.
    """
    ended = on_nfs(
        tmp_path,
        init("job", "gen"),
        *(command("define", "x", "max", "", "", ""), command("flush"), command("sleep", 700)),
        *(command("log", step, "", "x", step) for step in (1, 2)),
        *(command("flush"), command("log", 3, "", "x", 3), command("close")),
        failing=2,
    )
    assert ended.code == 0
    assert len(ended.said.splitlines()) == 1
    found = records(only_file(tmp_path / "job"))
    assert [record["step"] for record in of_kind(found, None)] == [1, 2, 3]
    (gap,) = of_kind(found, "gap")
    assert (gap["n"], gap["from"], gap["to"]) == (2, 1, 2)
    assert len(of_kind(found, "define")) == 2


def test_a_file_whose_first_line_is_in_doubt_is_given_up(tmp_path: Path) -> None:
    """Where the `open` may not have arrived another file follows, with another id, and a gap."""
    ended = on_nfs(
        tmp_path,
        init("job", "gen"),
        *(command("log", 1, "", "x", 1), command("flush"), command("log", 2, "", "x", 2), command("close")),
        failing=1,
    )
    assert ended.code == 0
    found = [records(path) for path in (tmp_path / "job" / "rlship").iterdir()]
    assert len({one[0]["id"] for one in found}) == len(found) == 2
    (after,) = [one for one in found if one[-1].get("kind") == "close"]
    assert of_kind(after, None)[-1]["step"] == 2
    assert of_kind(after, "gap")


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_sync_where_others_would_not_see_lines(shell: str, tmp_path: Path) -> None:
    """The file is synced before flush and close return, and for many lines in between not more often than it has to."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, line in _TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    path = f"{tools}:/usr/local/bin:/usr/bin:/bin"
    ended = drive(
        language_of(shell),
        tmp_path,
        init("job", "gen"),
        *(command("log", step, "", "x", step) for step in range(20)),
        *(command("flush"), command("close")),
        settings={"PATH": path, "SYNCED": str(tmp_path / "synced")},
    )
    assert (ended.code, ended.said) == (0, "")
    assert 2 <= syncs(tmp_path) <= 6
    assert set((tmp_path / "synced").read_text().split()) == {str(only_file(tmp_path / "job"))}


INTERVALS_MS = {1: 500, 250: 500, 500: 1000, 1000: 2000, 4000: 2000, 10_000: 5000}


def test_c_syncs_less_often_in_large_jobs(tmp_path: Path) -> None:
    """The interval is max(0.5, min(world / 500, 2), world / 2000) s."""
    calls = "".join(f'printf("%.0f\\n", rlship__sync_s({world}) * 1000);' for world in INTERVALS_MS)
    (tmp_path / "main.c").write_text(
        f'#define RLSHIP_IMPLEMENTATION\n#include "rlship.h"\nint main(void) {{ {calls} return 0; }}'
    )
    include = WRITERS / "c"
    build = [needed("gcc"), "-I", include, "-o", "main", "main.c", "-lpthread", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=60)
    said = subprocess.run([tmp_path / "main"], check=True, timeout=60, capture_output=True, text=True).stdout
    assert [*map(int, said.split())] == [*INTERVALS_MS.values()]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_sync_less_often_in_large_jobs(shell: str, tmp_path: Path) -> None:
    """The interval is that of the other writers."""
    inits = "".join(
        f'rlship_open "$1/{world}" gen world={world}; echo "$_rlship_every"; rlship_close; ' for world in INTERVALS_MS
    )
    (tmp_path / "job.sh").write_text(f". '{WRITERS / 'sh' / 'rlship.sh'}'\n{inits}")
    program = [needed("busybox"), "ash"] if shell == "ash" else [needed(shell)]
    done = subprocess.run([*program, "job.sh", tmp_path], cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [*map(int, done.stdout.split())] == [*INTERVALS_MS.values()]
