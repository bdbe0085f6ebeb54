"""The rows of an experiment in the form of the vectors, by the pipeline and by the reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.rows import LEDGER, Coverage, Row, Unit
from tests.ledger.groups import PREFIX
from tests.pipeline.simulated import simulation
from tests.reference.ledger import ledger_rows
from tests.reference.reduction import final_rows
from tests.reference.rows import AnyRow
from tests.reference.settings import Settings
from tests.spec.vectors import RowCase, decimal

Said = dict[str, Any]

DEFAULTS: Said = {
    "reductions": {},
    "per_rank": False,
    "samples": 4,
    "samples_every": 10,
    "lead": "trainer",
    "clock_window_s": 10.0,
    "short_window": 20,
}
"""What a case's `configuration` may set, under the names of rlship.toml."""


def configuration(case: RowCase) -> Said:
    """What is configured, with the defaults of the rest."""
    given = case.case["configuration"]
    assert given.keys() <= DEFAULTS.keys()
    return DEFAULTS | given


def by_reference(case: RowCase) -> list[Said]:
    """The rows that the slow reference makes of the files."""
    own = configuration(case)
    settings = Settings(
        per_rank=own["per_rank"],
        samples=own["samples"],
        samples_every=own["samples_every"],
        lead=own["lead"],
        window=own["clock_window_s"],
        short_window=own["short_window"],
    )
    found = [*final_rows(case.files, own["reductions"], settings).values(), *_of_the_ledger(case.files)]
    return forms(found)


def _of_the_ledger(files: Mapping[str, bytes]) -> Iterator[Row]:
    """Those that the slow reference makes of `ledger` records. Every trainer of a case counts `global_step`."""
    times: dict[int, list[float]] = {}
    for line in b"".join(files.values()).splitlines():
        if b'"hop":"trained"' in line:
            record = json.loads(line)
            times.setdefault(record["step"], []).append(record["t"])
    for step, counts in ledger_rows(files).items():
        values = {f"{PREFIX}{name}": float(count) for name, count in counts.items()}
        yield Row(Unit("", LEDGER, step), min(times[step]), {"global_step": step}, values, Coverage((), 0))


def by_pipeline(case: RowCase) -> list[Row]:
    """The newest rows that the sidecar's store has after it has seen the files."""
    own = configuration(case)
    with simulation(
        overrides=own["reductions"],
        per_rank=own["per_rank"],
        samples=SampleChoice(own["samples"], own["samples_every"]),
        streams=StreamConfig(lead=own["lead"], clock_window_s=own["clock_window_s"]),
        short_window=own["short_window"],
    ) as running:
        for name, data in case.files.items():
            running.write(name, data)
        running.finish()
        return list(running.final().values())


def forms(rows: Iterable[AnyRow]) -> list[Said]:
    """Rows in the form of the vectors, sorted by unit."""
    return [form(row) for row in sorted(rows, key=lambda row: row.unit)]


def form(row: AnyRow) -> Said:
    """A row of the store or of the reference; what is empty is left out, as in rows.jsonl."""
    unit, coverage = row.unit, row.coverage
    short = {key: list(ranks) for key, ranks in coverage.short.items()}
    said: Said = {
        "actor": unit.actor,
        "kind": unit.kind_on_disk,
        "index": unit.index,
        "t": decimal(row.t),
        "x": _decimals(row.x),
        "m": _decimals(row.values),
        "coverage": {
            "ranks": list(coverage.ranks),
            "expected": coverage.expected,
            "missing": list(coverage.missing),
            "absent": list(coverage.absent),
            "attempts": list(coverage.attempts),
            "gap": coverage.gap,
            "underivable": list(coverage.underivable),
            **({"short": short} if short else {}),
            **({"lives": coverage.lives} if coverage.lives > 1 else {}),
            **({"lineage": list(coverage.lineage)} if coverage.lineage else {}),
        },
    }
    hists = {
        key: {"edges": [decimal(edge) for edge in hist.edges], "counts": [int(count) for count in hist.counts]}
        for key, hist in sorted(row.hists.items())
    }
    per_rank = {key: _decimals(dict(values), ordered=True) for key, values in sorted(row.per_rank.items())}
    samples = {
        table: [_sample(one if isinstance(one, dict) else one._asdict()) for one in found]
        for table, found in sorted(row.samples.items())
    }
    parts = {"hists": hists, "per_rank": per_rank, "tags": list(row.tags), "asked": list(row.asked), "samples": samples}
    return said | {name: part for name, part in parts.items() if part}


def _decimals(numbers: Mapping[str, float], *, ordered: bool = False) -> dict[str, str]:
    keys = list(numbers) if ordered else sorted(numbers)
    return {key: decimal(numbers[key]) for key in keys}


def _sample(sample: Mapping[str, Any]) -> Said:
    said = {name: value for name, value in sample.items() if value is not None}
    score = said.get("score")
    if isinstance(score, (int, float)):
        said["score"] = decimal(score)
    return said | {"why": list(said["why"]), "t": decimal(said["t"])}
