"""Ledger records as a writer makes them, for tests of what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlship.ledgers import entry
from rlship_sidecar.rows import LEDGER
from tests.kit.files import T0
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.ledger import ledger_rows

Record = dict[str, Any]

TOKENS = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
REWARD = [0.0, 1.0, 0.5, 0.0]
ADVANTAGE = [-1.0, 1.5, 0.25, -0.75]
MASK = [[1, 1, 1], [1, 1], [1, 0, 1, 1], [1]]
RESPONSE = [3, 2, 3, 1]
PREFIX = "zz_rlship/ledger/"


def record(hop: str, key: str = "p", after: float = 1.0, step: int | None = None, **given: Any) -> Record:
    """What `rlship.ledger` writes `after` so many seconds; what is None is left out."""
    (line,) = entry.lines(entry.Given(hop, key, given), [(key, None)], step, T0 + after)
    found: Record = json.loads(line)
    return found


def weights(version: int, fingerprint: str, after: float = 1.0, step: int | None = None) -> Record:
    """What `rlship.weights` writes."""
    found: Record = json.loads(entry.weights_line(version, fingerprint, step, T0 + after))
    return found


def generated(key: str = "p", after: float = 1.0, **given: Any) -> Record:
    """Four samples as the generator has them."""
    return record("generated", key, after, **({"tokens": TOKENS, "version": 3} | given))


def rewarded(key: str = "p", after: float = 2.0, **given: Any) -> Record:
    """The same as the reward worker has them."""
    return record("rewarded", key, after, **({"tokens": TOKENS, "reward": REWARD} | given))


def trained(key: str = "p", step: int = 0, after: float = 3.0, **given: Any) -> Record:
    """The same as the trainer has them."""
    own = {"tokens": TOKENS, "reward": REWARD, "advantage": ADVANTAGE, "mask": MASK, "response": RESPONSE, "version": 3}
    return record("trained", key, after, step, **(own | given))


def dropped(key: str = "p", after: float = 2.5, **given: Any) -> Record:
    """Some of them as the buffer drops them."""
    return record("dropped", key, after, **given)


def values(sim: Simulation) -> dict[int, dict[str, float]]:
    """The values of the newest row of each step, without the prefix; rows without any group are as if absent."""
    found = {
        unit.index: {key.removeprefix(PREFIX): value for key, value in row.values.items()}
        for unit, row in sim.final().items()
        if unit.kind == LEDGER
    }
    return {step: row for step, row in found.items() if any(row.values())}


def as_rows(expected: Mapping[int, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    """The rows of the reference, in the same form."""
    return {step: dict(row) for step, row in sorted(expected.items()) if any(row.values())}


def counted(files: Mapping[str, bytes]) -> dict[str, float]:
    """What is not 0 in all rows of these files together, which are those of the reference."""
    with simulation() as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        found = values(sim)
        assert found == as_rows(ledger_rows(files))
    total: dict[str, float] = {}
    for row in found.values():
        for key, value in row.items():
            total[key] = total.get(key, 0) + value
    return {key: value for key, value in total.items() if value}
