"""The incidents and healthy runs as `incidents.toml` fixes them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rlship_sidecar import bounded_toml

FILE = Path(__file__).with_name("incidents.toml")


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident: the seed of its run, where the fault begins, how large it is, and which rank or replica has it."""

    type: str
    seed: int
    step: int
    size: float
    at: int


@dataclass(frozen=True, slots=True)
class IncidentType:
    """What a type's incidents have in common. `places` are right answers, the first one the exact one."""

    name: str
    cause: str
    place: str
    actors: tuple[str, ...]
    impact: str
    held_out: bool
    node: bool
    incidents: tuple[Incident, ...]

    def place_of(self, incident: Incident) -> str:
        """The place of one incident, as `<actor>` or `<actor>/<replica>.<rank>`."""
        return self.place.format(at=incident.at)


@dataclass(frozen=True, slots=True)
class HealthyRun:
    """A run in which nothing is wrong; `events` are what happens in it."""

    seed: int
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RealRuns:
    """Runs of the demo's processes. `faults` has by fault the type that is the right cause."""

    steps: int
    seeds: tuple[int, ...]
    healthy: tuple[int, ...]
    faults: dict[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it. `impact` has the bounds that the oracle uses."""

    steps: int
    healthy_steps: int
    impact: dict[str, float]
    types: tuple[IncidentType, ...]
    healthy: tuple[HealthyRun, ...]
    real: RealRuns


@cache
def plan() -> Plan:
    """The plan."""
    table = bounded_toml.decode(FILE.read_bytes())
    healthy = [HealthyRun(seed, ()) for seed in table["healthy"]["quiet"]]
    healthy += [HealthyRun(one["seed"], tuple(one["events"])) for one in table["healthy"]["eventful"]]
    return Plan(
        table["runs"]["steps"],
        table["runs"]["healthy_steps"],
        table["impact"],
        tuple(map(_type, table["type"])),
        tuple(healthy),
        RealRuns(
            table["real"]["steps"],
            tuple(table["real"]["seeds"]),
            tuple(table["real"]["healthy"]),
            table["real"]["faults"],
        ),
    )


def reseeded(planned: Plan, of: str) -> Plan:
    """The same plan with other runs: each seed is drawn from `of` and the planned one. Types, sizes and steps stay."""

    def other(seed: int) -> int:
        return random.Random(f"{of} {seed}").randrange(1_000_000)

    return replace(
        planned,
        types=tuple(
            replace(kind, incidents=tuple(replace(one, seed=other(one.seed)) for one in kind.incidents))
            for kind in planned.types
        ),
        healthy=tuple(replace(run, seed=other(run.seed)) for run in planned.healthy),
        real=replace(
            planned.real, seeds=tuple(map(other, planned.real.seeds)), healthy=tuple(map(other, planned.real.healthy))
        ),
    )


def _type(table: dict[str, Any]) -> IncidentType:
    name = table["name"]
    return IncidentType(
        name,
        table["cause"],
        table["place"],
        (table["place"].partition("/")[0], *table.get("or", ())),
        table["impact"],
        table.get("held_out", False),
        table.get("node", True),
        tuple(Incident(name, one["seed"], one["step"], one["size"], one["at"]) for one in table["incidents"]),
    )
