"""Real worker processes, told what to log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Neither a launcher nor a job that runs around the tests may say who these workers are.
CLEAN = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH") if key in os.environ}


class Worker:
    """One process with one writer: `worker.log({...}, step=3)` is `rlship.log` there, done when it returns."""

    def __init__(self, folder: Path, actor: str, **facts: Any) -> None:
        """Start it; `facts` are those of `rlship.init`, and `beat`, seconds."""
        self._unanswered = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.endtoend.worker"],
            cwd=ROOT,
            env=CLEAN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.tell("start", str(folder), actor, **facts)

    def tell(self, call: str, *arguments: Any, **keywords: Any) -> None:
        """Give an order without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([call, arguments, keywords]) + "\n")
        self.process.stdin.flush()
        self._unanswered += 1

    def answer(self) -> Any:
        """Wait for all orders; returns the answer to the last."""
        assert self.process.stdout is not None and self.process.stderr is not None
        reply = "null"
        while self._unanswered:
            reply = self.process.stdout.readline()
            assert reply, f"the worker died: {self.process.stderr.read()}"
            self._unanswered -= 1
        return json.loads(reply)

    def log(self, metrics: dict[str, Any], step: int, **keywords: Any) -> None:
        """`rlship.log`."""
        self.tell("log", metrics, step, **keywords)

    def define(self, metrics: dict[str, Any]) -> None:
        """`rlship.define`."""
        self.tell("define", metrics)

    def barrier(self, step: int) -> None:
        """`rlship.barrier`."""
        self.tell("barrier", step)

    def flush(self) -> None:
        """Return once all that was ordered is in the file."""
        self.tell("flush")
        assert self.answer() is True

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def end(self) -> str:
        """Let it end as a job does; returns what it said on stderr."""
        self.answer()
        _, said = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def crew(folder: Path, actor: str, world: int, **facts: Any) -> Iterator[list[Worker]]:
    """All ranks of an actor; killed at the end unless they ended before."""
    workers = [Worker(folder, actor, rank=rank, world=world, **facts) for rank in range(world)]
    try:
        for worker in workers:
            worker.answer()
        yield workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
            for stream in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
                if stream is not None:
                    stream.close()
