"""`python -m tests.hostile [NAME…]`: each attack on a real sidecar in bounded memory, while a good rank logs on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.endtoend.sidecar import Sidecar, watching
from tests.hostile.attacks import ATTACKS, T0, Attack, opened, put, step

WATCH_S = 20.0
MEMORY_KB = 3 << 20
GOOD = "good-0-r0.jsonl"


def main() -> int:
    """Run the attacks named, or all; prints a table, and returns 1 if one of them stopped something."""
    chosen = {name: attack for name, attack in ATTACKS.items() if not sys.argv[1:] or name in sys.argv[1:]}
    print("| what is there | first row after | greatest lag of a row | memory | while it lasts | stops in |")
    print("|---|---:|---:|---:|---:|---:|")
    failed = 0
    for name, attack in chosen.items():
        with tempfile.TemporaryDirectory(prefix="rlship-hostile-") as folder:
            try:
                told = against(attack, Path(folder))
            except AssertionError as problem:
                told, failed = f"FAILED: {str(problem)[:2000]} |", 1
        print(f"| {name} | {told}", flush=True)
    return failed


def against(attack: Attack, tmp: Path) -> str:
    """One attack: the cells of its line. Raises AssertionError if the sidecar dies or the good rank gets no row."""
    folder = tmp / "job" / "rlship"
    folder.mkdir(parents=True)
    put(folder, [opened(actor="good"), step(0), {"kind": "barrier", "step": 0, "t": T0}], GOOD)
    attack(folder)
    limited = ("/bin/sh", "-c", f'ulimit -v {MEMORY_KB} && exec "$@"', "sh", sys.executable, "-m", "rlship")
    with watching(tmp / "job", "jsonl", "tensorboard", home=tmp / "home", launch=limited) as sidecar:
        began = time.monotonic()
        rows = Rows(folder / "state" / "rows.jsonl")
        sidecar.until(lambda: rows.has(0), 120.0)
        first_s, lag_s, number = time.monotonic() - began, 0.0, 0
        while time.monotonic() - began < WATCH_S:
            number += 1
            with open(folder / GOOD, "a") as out:
                out.writelines(json.dumps(r) + "\n" for r in (step(number), {"kind": "barrier", "step": number}))
            lag_s = max(lag_s, sidecar.until(lambda number=number: rows.has(number), 120.0))
            time.sleep(0.5)
        cpu, memory = usage(sidecar)
        time.sleep(5.0)
        share = (usage(sidecar)[0] - cpu) / 5.0
        assert (folder / "state" / "status.json").exists() or share > 0.5, "no status"
        stopped = time.monotonic()
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.process.wait(150.0)
        stop_s = time.monotonic() - stopped
        assert "Traceback" not in sidecar.said(), sidecar.said()
    shutil.rmtree(folder)
    return f"{first_s:.1f} s | {lag_s:.1f} s | {memory} MB | {100 * share:.0f} % of a core | {stop_s:.0f} s |"


class Rows:
    """Which steps of the good rank have a row, out of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self._seen: set[int] = set()

    def has(self, number: int) -> bool:
        """Whether this step has one."""
        if self._path.exists():
            with open(self._path, "rb") as file:
                file.seek(self._at)
                data = file.read()
            self._at += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._seen.update(json.loads(line)["index"] for line in lines if b'"good"' in line[:400])
        return number in self._seen


def usage(sidecar: Sidecar) -> tuple[float, int]:
    """CPU seconds so far, and the most memory it had, in MB."""
    fields = Path(f"/proc/{sidecar.process.pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak) // 1024


if __name__ == "__main__":
    sys.exit(main())
