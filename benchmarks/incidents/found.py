"""What rlship makes of a run's files: rows by a replay, episodes by the rules of alerts, causes by `rlship why`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.frames import lineage_of
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.cli.group import rlship as commands
from rlship_sidecar.config import Config
from rlship_sidecar.replay.run import ReplayRequest, replay
from rlship_sidecar.rows import STEP, Row
from rlship_sidecar.store.store import Store
from rlship_sidecar.why.text import LEAST_WEIGHT

LEAD = "trainer"


@dataclass(frozen=True, slots=True)
class Answer:
    """What `rlship why` answers: causes with their places, the likeliest first, and `unknown` as one of them."""

    causes: tuple[tuple[str, str], ...] = ()


def rows_of(experiment: Path, state: Path) -> list[Row]:
    """All rows of an experiment's files, in a store below `state`, where `rlship why` looks for it."""
    below = state / experiment.name
    below.mkdir(parents=True)
    replay(ReplayRequest(experiment, Config(sinks=[]), out=below))
    (path,) = below.glob("store.*.db")
    store = Store(path, local=True)
    try:
        return store.read_rows(0, 1 << 30)
    finally:
        store.close()


def episodes_of(rows: Sequence[Row]) -> tuple[list[Episode], int]:
    """The episodes of the rules that come with rlship, and how many frames there are."""
    history = History(rules_of(), LEAD)
    history.take(rows)
    history.settle()
    steps = {(lineage_of(row), row.unit) for row in rows if (row.unit.actor, row.unit.kind) == (LEAD, STEP)}
    return history.episodes(), len(steps)


def why(experiment: Path, state: Path) -> Answer:
    """What `rlship why` answers."""
    result = CliRunner().invoke(commands, ["why", str(experiment), "--json", "--state-dir", str(state)])
    if result.exit_code not in (0, 3):
        raise RuntimeError(f"rlship why ended with {result.exit_code}: {result.output[-2000:]}")
    return answer_of(json.loads(result.stdout))


def answer_of(said: Mapping[str, Any]) -> Answer:
    """The causes that `rlship why` may show, from the JSON that it prints; none if there is no episode."""
    return Answer(
        tuple((str(one["cause"]), str(one["place"])) for one in said.get("causes", ()) if one["weight"] >= LEAST_WEIGHT)
    )
