"""The fault of a run, as the parts of the simulated job ask for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from benchmarks.incidents.plan import Incident


@dataclass(slots=True)
class Fault:
    """What goes wrong from the incident's step on; without an incident nothing does. `step` is where the job is."""

    incident: Incident | None
    step: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random("fault"))

    def active(self, name: str) -> bool:
        """Whether this fault is on."""
        one = self.incident
        return one is not None and one.type == name and self.step >= one.step

    def size_of(self, name: str, otherwise: float) -> float:
        """The size of a fault that is on."""
        return self.incident.size if self.incident is not None and self.active(name) else otherwise

    def chance(self, name: str) -> bool:
        """Whether a fault strikes this time, if its size is how often it does."""
        return self.active(name) and self._chance.random() < self.size

    @property
    def since(self) -> int:
        """The steps since it began; 0 before."""
        return 0 if self.incident is None else max(0, self.step - self.incident.step)

    @property
    def onset(self) -> int:
        """The step at which it begins; 0 without one."""
        return 0 if self.incident is None else self.incident.step

    @property
    def size(self) -> float:
        """Its size, before it is on too."""
        return 0.0 if self.incident is None else self.incident.size

    @property
    def at(self) -> int:
        """The rank or replica that has it."""
        return -1 if self.incident is None else self.incident.at

    def hits(self, name: str, at: int) -> bool:
        """Whether it is on at this rank or replica."""
        return self.active(name) and self.at == at
