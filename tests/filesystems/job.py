"""A job whose filesystem fails in the middle: `python -m tests.filesystems.job SHARE TROUBLE PLACE OUT`.

It leaves a copy of its files in OUT/job, and says on stdout, as JSON, what it logged and what it cost.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rlship.flusher import Timing
from rlship.identity import detect
from rlship.logger import Logger
from tests.filesystems.shares import SHARES

BEFORE, AFTER = 50, 50
MOST = 20_000
QUICK = Timing(flush=0.02, sync=0.02, backoff=0.02, backoff_most=0.1, look=0.1)


def main(share_name: str, trouble: str, place: Path, out: Path) -> None:
    """Log before, during and after the trouble."""
    share = SHARES[share_name][0](place)
    facts = detect("trainer", rank=0, world=1)
    logger = Logger(str(share.folder), facts, timing=QUICK, buffer_bytes=1 << 15, disk=share.disk)
    slowest = 0.0
    logged: list[int] = []

    def call(name: str, *arguments: Any) -> None:
        nonlocal slowest
        began = time.monotonic()
        getattr(logger, name)(*arguments)
        slowest = max(slowest, time.monotonic() - began)

    def log(step: int) -> None:
        call("log", {"loss": step / 7, "rank": 0}, step)
        logged.append(step)

    logger.start()
    for step in range(BEFORE):
        log(step)
        call("barrier", step)
    assert logger.flush(20)
    share.strike(trouble)
    began = time.monotonic()
    step = BEFORE
    while (logger.dropped_lines < 100 or time.monotonic() - began < 0.6) and step < MOST:
        log(step)
        if step % 50 == 0:
            call("record_metric", "seldom", 1.0)
            time.sleep(0.01)
        step += 1
    flushed = logger.flush(0.05)
    during = logger.dropped_lines
    share.mend(trouble)
    assert logger.flush(20)
    last_lost = step - 1
    for step in range(last_lost + 1, last_lost + 1 + AFTER):
        log(step)
        call("barrier", step)
    # A step of which the first line was dropped gets a row all the same, and that row has to say so.
    call("log", {"again": 1.0}, last_lost)
    assert logger.close(20)
    shutil.copytree(share.folder, out / "job")
    told = {
        "logged": logged,
        "struck": BEFORE,
        "mended": last_lost + 1,
        "slowest_s": slowest,
        "flushed_while_struck": flushed,
        "dropped": logger.dropped_lines,
        "dropped_while_struck": during,
        "errors": logger.errors,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
