"""A sidecar on a filesystem without change events: `python -m tests.filesystems.unwatched PLACE`.

Run in a mount namespace of its own. Writers log into PLACE/back, the sidecar reads PLACE/point, a `mirror` of it. What
was found is said on stdout as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.report.status import Status, read_status
from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import files_of, newest
from tests.endtoend.job import ROOT, crew
from tests.endtoend.sidecar import Sidecar, watching
from tests.filesystems.shares import detach
from tests.reference.reduction import exactly, final_rows

STEPS = 12
NOTICED_S = 30.0  # at most until the sidecar says that the mount is lost
QUIET_S = 2.2
EVENT_S = 0.7


class Mirrored:
    """PLACE/point shows PLACE/back as long as the server lives."""

    def __init__(self, place: Path) -> None:
        self.back, self.point, self.journal = place / "back", place / "point", place / "journal"
        self._server: subprocess.Popen[str] | None = None
        self.back.mkdir()
        self.point.mkdir()

    def begin(self) -> None:
        """Mount it."""
        command = [sys.executable, "-m", "tests.filesystems.mirror", self.back, self.point, self.journal]
        self._server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "mounted\n"

    def kill(self) -> None:
        """Let its server die: programs that use the mount get errors."""
        assert self._server is not None and self._server.stdout is not None
        self._server.kill()
        self._server.wait()
        self._server.stdout.close()

    def end(self) -> None:
        """Take the dead mount away."""
        detach(self.point)

    def looks(self) -> tuple[Counter[str], Counter[str]]:
        """How often each file was opened, and closed."""
        done: dict[str, Counter[str]] = {"open": Counter(), "close": Counter()}
        for line in self.journal.read_text().splitlines():
            what, _, name = line.partition(" ")
            done[what][name] += 1
        return done["open"], done["close"]


def events(folder: Path, file: Path) -> int:
    """How many changes the kernel tells of in `folder` when something is appended to `file`."""
    wake = Wake()
    try:
        assert wake.watch(str(folder))
        with open(file, "ab") as appended:
            appended.write(b" \n")
        return sum(map(len, wake.wait(EVENT_S).values()))
    finally:
        wake.close()


def rows_of(place: Path) -> list[Row]:
    """The rows in the sink's file."""
    try:
        data = (place / "state" / "job" / "rows.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    return [Row.from_json(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def until_row(sidecar: Sidecar, place: Path, actor: str, step: int) -> float:
    """Wait for a step's row; returns the seconds it took."""
    return sidecar.until(lambda: Unit(actor, "step", step) in newest(rows_of(place)))


def main(place: Path) -> None:
    """Watch, and say what was found."""
    found: dict[str, Any] = {}
    mirrored = Mirrored(place)
    mirrored.begin()
    job, seen = mirrored.back / "job", mirrored.point / "job"
    settings = {"RLSHIP_STATE_DIR": str(place / "state")}
    with crew(job, "trainer", 2) as (one, two):
        for worker in (one, two):
            worker.flush()
        file = next((job / "rlship").glob("*.jsonl"))
        found["events_here"] = events(file.parent, file)
        found["events_there"] = events(seen / "rlship", file)
        with watching(seen, home=place / "home", settings=settings) as sidecar:
            found["delays_s"] = []
            for step in range(STEPS):
                for worker in (one, two):
                    worker.log({"loss": step / 3}, step)
                    worker.barrier(step)
                for worker in (one, two):
                    worker.flush()
                found["delays_s"].append(until_row(sidecar, place, "trainer", step))
                time.sleep(0.05 * (step % 4))
            with crew(job, "late", 1) as (late,):
                late.log({"loss": 1.0}, 0)
                late.barrier(0)
                late.flush()
                found["new_file_s"] = until_row(sidecar, place, "late", 0)
                late.end()
            opened, _ = mirrored.looks()
            time.sleep(QUIET_S)
            later, closed = mirrored.looks()
            found["looks_while_quiet"] = {name: later[name] - opened[name] for name in later}
            found["kept_open"] = {name: later[name] - closed[name] for name in later}
            status = status_of(sidecar, place)
            found["filesystem"], found["files"] = status.filesystem, len(status.writers)

            mirrored.kill()
            deadline = time.monotonic() + NOTICED_S
            while "not connected" not in sidecar.said() and time.monotonic() < deadline:
                time.sleep(0.1)
            mirrored.end()
            mirrored.begin()
            for worker in (one, two):
                worker.log({"loss": 0.5}, STEPS)
                worker.barrier(STEPS)
                worker.end()
            found["after_the_mount_failed_s"] = until_row(sidecar, place, "trainer", STEPS)
            found["exit_code"] = sidecar.stop()
            found["said"] = sidecar.said()
    mirrored.kill()
    rows = rows_of(place)
    found["numbers"] = [row.arrival.row_number for row in rows]
    found["right"] = exactly(newest(rows)) == exactly(final_rows(files_of(job)))
    print(json.dumps(found))


def status_of(sidecar: Sidecar, place: Path) -> Status:
    """The status as of now."""
    told: list[Status] = []
    now = time.time()

    def there() -> bool:
        status = read_status(place / "state" / "job")
        if status is not None and status.t >= now:
            told.append(status)
        return bool(told)

    sidecar.until(there)
    return told[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
