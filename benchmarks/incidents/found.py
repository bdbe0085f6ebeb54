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
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.cli.group import rlship as commands
from rlship_sidecar.config import Config
from rlship_sidecar.replay.run import ReplayRequest, replay
from rlship_sidecar.rows import STEP, Row
from rlship_sidecar.store.past_rows import PastRowTable
from rlship_sidecar.store.store import Store
from rlship_sidecar.why.text import LEAST_WEIGHT

LEAD = "trainer"


@dataclass(frozen=True, slots=True)
class Answer:
    """What `rlship why` answers: causes with their places, the likeliest first, and `unknown` as one of them."""

    causes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of an experiment in the order in which they were made, and what steps of the lead were before they were
    done again.
    """

    every: list[Row]
    past: Mapping[int, Sequence[Row]]

    def newest(self) -> list[Row]:
        """The last row of each unit."""
        return list({row.unit: row for row in self.every}.values())


def rows_of(experiment: Path, state: Path) -> Rows:
    """The rows of an experiment's files, in a store below `state`, where `rlship why` looks for it."""
    below = state / experiment.name
    below.mkdir(parents=True)
    replay(ReplayRequest(experiment, Config(sinks=[]), out=below))
    (path,) = below.glob("store.*.db")
    store = Store(path, local=True)
    try:
        past: dict[int, list[Row]] = {}
        for step, _, body in PastRowTable(store).between(LEAD, 0, 1 << 62):
            past.setdefault(step, []).append(Row.from_json(body))
        return Rows(store.read_rows(0, 1 << 30), past)
    finally:
        store.close()


def episodes_of(rows: Rows) -> tuple[list[Episode], int]:
    """The episodes of the rules that come with rlship, as `rlship alerts` has them, and how many frames there are."""
    newest = rows.newest()
    history = History(rules_of(), LEAD)
    history.take(newest, rows.past)
    history.settle()
    steps = sum((row.unit.actor, row.unit.kind) == (LEAD, STEP) for row in newest)
    return history.episodes(), steps + sum(map(len, rows.past.values()))


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
