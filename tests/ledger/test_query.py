"""The records of the ledger as a table, and its rows as records of tables and at sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlship_sidecar.rows import LEDGER, Unit
from rlship_sidecar.sinks.names import flatten
from rlship_sidecar.sinks.wandb.point import point
from rlship_sidecar.tabular.columns import TABLES
from rlship_sidecar.tabular.source import ExperimentTables, RecordFilter
from rlship_sidecar.tabular.wide import short, table_name
from tests.kit.files import CLOSE, T0, experiment, file
from tests.ledger.groups import dropped, generated, trained, weights
from tests.pipeline.simulated import simulation


def test_records_are_a_table(tmp_path: Path) -> None:
    """Each record is a line with its members; what it lacks is null."""
    experiment(tmp_path, {"t.jsonl": file(trained(step=4, passes=2), dropped(n=3, why="stale"), weights(7, "a:1"))})
    tables = ExperimentTables("job", tmp_path, None)
    names = [column.name for column in TABLES["ledger"].columns]
    found = [dict(zip(names, one)) for one in tables.records(TABLES["ledger"], RecordFilter())]
    kept: list[dict[str, Any]] = [{name: value for name, value in one.items() if value is not None} for one in found]
    who = {"experiment": "job", "file": "t.jsonl", "actor": "trainer", "replica": "0", "rank": 0, "attempt": 0}
    plain = {"part": 0, "parts": 1, "retry": 0, "passes": 1, "digests": "{}"}
    digests = kept[0].pop("digests")
    assert digests.startswith('{"tokens":[')
    assert kept[0] == who | {
        "step": 4,
        "t": T0 + 3,
        "hop": "trained",
        "key": "p",
        "n": 4,
        "part": 0,
        "parts": 1,
        "retry": 0,
        "passes": 2,
        "version_from": 3,
        "version_to": 3,
        "reward_sum": 1.5,
        "advantage_sum": 0.0,
        "mask_tokens": 9,
        "tokens": 10,
        "masked_out": 0,
        "response": 9,
    }
    assert kept[1] == who | plain | {"t": T0 + 2.5, "hop": "dropped", "key": "p", "n": 3, "why": "stale"}
    version = {"version_from": 7, "version_to": 7, "fingerprint": "a:1"}
    assert kept[2] == who | plain | version | {"t": T0 + 1, "hop": "weights", "key": "7", "n": 0}


def test_a_row_keeps_its_keys_at_sinks() -> None:
    """The keys of a row are the names at sinks, over the trainer's axis, and nothing is said of ranks."""
    with simulation() as sim:
        sim.write("t.jsonl", file(trained(step=4), CLOSE, id="t", axis="policy_step"))
        sim.write("g.jsonl", file(generated(), CLOSE, id="g", actor="generator"))
        sim.finish()
        row = sim.final()[Unit("", LEDGER, 4)]
    flat = flatten(row)
    assert flat.keys() == row.values.keys()
    assert flat["zz_rlship/ledger/groups"] == 1 and flat["zz_rlship/ledger/tokens_differs"] == 0
    assert (row.x, row.t) == ({"policy_step": 4}, T0 + 3)
    shown = point(row)
    assert (shown.actor, shown.axis) == ("zz_rlship/ledger", "policy_step")
    assert row.from_json(row.to_json()) == row
    assert table_name("", LEDGER) == "ledger_steps"
    assert short("", LEDGER)("zz_rlship/ledger/groups") == "groups"
