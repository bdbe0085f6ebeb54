"""The plan of the demo job, which every one of its processes gets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

STRAGGLER = 2  # the trainer rank that is slow on purpose


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The size and pace of the job, and the fault that it has on purpose.

    The number of steps is fixed, so that every run learns the same. `pace_s`, seconds per step, only limits the speed.
    At each step every generator answers `prompts` prompts `group` times.
    """

    steps: int = 120
    pace_s: float = 0.25
    seed: int = 1
    trainers: int = 4
    generators: int = 2
    prompts: int = 8
    group: int = 6
    fault: str = ""

    @property
    def detailed(self) -> bool:
        """Whether the job has a buffer, keeps the ledger and logs the catalogue's metrics, as alerts need them."""
        return bool(self.fault)

    @property
    def onset(self) -> int:
        """The step at which the fault begins."""
        return self.steps // 2

    def has(self, fault: str, step: int) -> bool:
        """Whether this fault is on at a step."""
        return self.fault == fault and step >= self.onset

    @property
    def device_s(self) -> float:
        """The sleep that stands in for a trainer rank's work on its accelerator."""
        return 0.2 * self.pace_s

    @property
    def straggle_s(self) -> float:
        """The straggler's extra time, in seconds per step: enough to stand out on a busy machine. A job with a fault
        has no straggler besides.
        """
        return 0.0 if self.detailed else max(0.03, 0.25 * self.pace_s)

    def fed_by(self, generator: int) -> list[int]:
        """The trainer ranks that share this generator's rollouts, in equal parts."""
        return [rank for rank in range(self.trainers) if rank * self.generators // self.trainers == generator]

    def feeder(self, rank: int) -> int:
        """The generator that sends rollouts to this trainer rank."""
        return rank * self.generators // self.trainers

    def to_json(self) -> str:
        """For the command line of a process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))
