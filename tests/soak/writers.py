"""The job's processes, seen from outside: started, killed, started again, and what they said."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.endtoend.job import CLEAN, ROOT
from tests.soak.values import CREWS, HOSTS, Crew, skew
from tests.soak.word import Word


@dataclass
class Attempt:
    """One writer process. `said` is the file of its standard output."""

    crew: Crew
    replica: str
    rank: int
    number: int
    first: int
    said: Path
    process: subprocess.Popen[bytes]
    stopped: bool = False
    torn: bool = False
    """Its file's last line was cut: the step logged last is not promised any more."""

    @property
    def name(self) -> str:
        return f"{self.crew.actor}/{self.replica}/r{self.rank}#{self.number}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[list[str]]:
        """What it said so far, in words; a line that it could not finish is left out."""
        text = self.said.read_text()
        return [line.split(" ", 1) for line in text[: text.rfind("\n") + 1].splitlines()]

    def reached(self) -> int:
        """The step logged last, or where it was to begin."""
        return max([int(words[1]) for words in self.lines()[-4:] if words[0] == "logged"], default=self.first)

    def file(self) -> Path | None:
        """Its file, None if it did not come so far."""
        paths = [words[1] for words in self.lines() if words[0] == "file"]
        return Path(paths[-1]) if paths else None

    def word(self) -> Word:
        """All that it said of its steps."""
        steps: list[int] = []
        flushed = 0
        for words in self.lines():
            if words[0] == "logged":
                steps.append(int(words[1]))
            elif words[0] == "flushed":
                flushed = len(steps)
        if self.torn:
            flushed = min(flushed, len(steps) - 1)
        place = (self.crew.actor, self.replica, self.rank)
        following = steps[-1] + 1 if steps else self.first
        return Word(place, self.number, steps, steps[: max(0, flushed)], following)


@dataclass
class Job:
    """All writers of an experiment. `folder` is what they give to `rlship.init`."""

    folder: Path
    home: Path
    pace_s: float
    seed: str
    current: dict[tuple[str, str, int], Attempt] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)

    def start(self) -> None:
        """Start every writer at step 0."""
        for crew in CREWS:
            for replica, rank in crew.places():
                self._launch(crew, replica, rank, 0, 0)

    def alive(self) -> list[Attempt]:
        """The running ones that are not stopped."""
        return [one for one in self.current.values() if one.alive and not one.stopped]

    def kill(self, victims: list[Attempt]) -> int:
        """kill -9, all at once; returns how many it struck."""
        for one in victims:
            one.process.send_signal(signal.SIGKILL)
        return sum(one.process.wait() == -signal.SIGKILL for one in victims)

    def restart(self, dead: Attempt, back: int) -> None:
        """The next attempt of a dead one, some steps before where it had come to."""
        self._launch(dead.crew, dead.replica, dead.rank, dead.number + 1, max(0, dead.reached() - back))

    def end(self, timeout_s: float) -> Iterator[str]:
        """Let all come to their end; yields what went wrong."""
        deadline = time.monotonic() + timeout_s
        for one in self.current.values():
            assert one.process.stdin is not None
            one.process.stdin.close()
        for one in self.current.values():
            try:
                status = one.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                yield f"writer {one.name} did not end within {timeout_s:g} s"
                continue
            if status != 0:
                yield f"writer {one.name} ended with {status}: {self._stderr(one)}"

    def ended_early(self) -> Iterator[str]:
        """Writers that ended without a kill."""
        for one in self.current.values():
            if one.process.poll() not in (None, -signal.SIGKILL):
                yield f"writer {one.name} ended with {one.process.returncode} by itself: {self._stderr(one)}"

    def close(self) -> None:
        """Make sure that nothing is left."""
        for one in self.attempts:
            if one.alive:
                one.process.kill()
                one.process.wait()
            if one.process.stdin is not None:
                one.process.stdin.close()

    def _stderr(self, one: Attempt) -> str:
        return one.said.with_suffix(".err").read_text()[-500:]

    def _launch(self, crew: Crew, replica: str, rank: int, number: int, first: int) -> None:
        place = (crew.actor, replica, rank)
        said = self.home / f"{crew.actor}-{replica}-{rank}-{number}.out"
        seed = f"{self.seed}/{place}/{number}"
        host = random.Random(f"{seed}/host").choice(HOSTS)
        order = {
            "folder": str(self.folder),
            "actor": crew.actor,
            "replica": replica,
            "rank": rank,
            "attempt": number,
            "first": first,
            "pace_s": self.pace_s,
            "seed": seed,
            "host": host,
            "skew": skew(self.seed, host),
        }
        with open(said, "wb") as out, open(said.with_suffix(".err"), "wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.writer", json.dumps(order)],
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.current[place] = Attempt(crew, replica, rank, number, first, said, process)
        self.attempts.append(self.current[place])


def cut_unread(file: Path, read: int, dice: random.Random) -> bool:
    """Cut a dead writer's file within its last line, as a host that dies may leave it, but only in what no sidecar read
    yet. Returns whether there was anything to cut.
    """
    data = file.read_bytes()
    last = data.rfind(b"\n", 0, max(0, len(data) - 1)) + 1
    low = max(last, read)
    if low >= len(data):
        return False
    with open(file, "r+b") as writable:
        writable.truncate(dice.randrange(low, len(data)))
    return True


def append_rubbish(file: Path, detail: str, dice: random.Random) -> None:
    """What may stand behind the last line of a dead writer's file: half a line, invalid lines, bytes."""
    if detail == "torn":
        rubbish = b'{"t":1763600001.5,"step":3,"m":{"loss":1'
    elif detail == "rubbish":
        rubbish = (
            b'{"step":2,"m":{"loss":"large"}}\n{"step":-1,"m":{}}\n[1,2]\n{"kind":"barrier"}\n\n}{\n'
            b'{"kind":"span","name":"","dur":1}\n{"kind":"event","step":2,"name":"step_tag"}\n'
            b'{"kind":"sample","step":2,"table":"rollouts","pri":0.5,"row":1}\n{"kind":"clock","offset":"x","err":0}\n'
        )
    else:
        rubbish = bytes(dice.randrange(1, 256) for _ in range(dice.randrange(1, 400))) + dice.choice([b"", b"\n"])
    with open(file, "ab") as out:
        out.write(rubbish)
