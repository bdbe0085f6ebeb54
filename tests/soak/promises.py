"""What the sinks promise to show of a row, said once more and without their code."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rlship_sidecar.rows import Row, Sample, count_ranks, count_short

# What the keys of coverage begin with, by the kind of a unit. Points have none, and rows of alerts no revision either.
SAID_OF = {"step": "{}", "aligned": "{}/aligned", "clock": "clock/{}"}
ALERT = "alert"
OF_RANKS = ["min", "max", "argmax_rank", "argmax_replica"]
W_AND_B_CELL, TENSORBOARD_CELL = 8192, 1000  # bytes of a text
TENSORBOARD_COLUMNS = 8

_Value = TypeVar("_Value")


def shown_as(row: Row, key: str, *, lifted: bool) -> str:
    """The name at a sink of a key; `lifted`: reward and loss stand first, as at TensorBoard. The campaign's lead has
    steps from the start, so that a stream's charts are beside these. Its job defines every metric that has further
    reductions, except the span `rollout`.
    """
    if row.unit.kind == ALERT:
        return key
    metric = key.removeprefix(f"{row.unit.actor}/")
    over, _, last = key.rpartition("/")
    spread = last == "nonfinite" or (last in OF_RANKS and over in row.per_rank) or metric == "rollout_s/max"
    beside = row.unit.kind == "aligned" and "/aligned" in metric
    if row.unit.kind in ("clock", "point") or spread or beside or metric.split("/")[0] in ("barrier", "event"):
        return f"zz_rlship/{key}"
    return f"aa_headline/{key}" if lifted and last in ("reward", "loss") else key


def flat(row: Row, *, lifted: bool) -> dict[str, float | int | str]:
    """A row's numbers and texts by their names, those of single ranks among them, without axes, histograms, tables."""
    coverage = row.coverage
    keys: dict[str, float | int | str] = {}
    if row.unit.kind in SAID_OF:
        of = "zz_rlship/" + SAID_OF[row.unit.kind].format(row.unit.actor)
        keys[f"{of}/ranks/in"] = count_ranks(coverage.ranks)
        keys[f"{of}/ranks/expected"] = coverage.expected
        keys[f"{of}/ranks/missing"] = count_ranks(coverage.missing)
        if row.unit.kind == "step":
            keys[f"{of}/ranks/short"] = count_short(coverage)
        if coverage.missing:
            keys[f"{of}/missing_ranks"] = " ".join(coverage.missing)
        if row.tags:
            keys[f"{of}/tags"] = " ".join(row.tags)
    if row.arrival.revision and row.unit.kind != ALERT:
        of = "zz_rlship/" + SAID_OF.get(row.unit.kind, "point/{}").format(row.unit.actor)
        keys[f"{of}/revision"] = row.arrival.revision
    for key, values in changed(row, row.per_rank).items():
        keys |= {f"zz_rlship/{key}/r{rank}": value for rank, value in values}
    return {**keys, **{shown_as(row, key, lifted=lifted): value for key, value in changed(row, row.values).items()}}


def changed(row: Row, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Those that are new in this revision."""
    return {key: value for key, value in values.items() if row.arrival.revision == 0 or key in row.arrival.changed}


def tables(row: Row) -> dict[str, list[Sample]]:
    """The samples by name."""
    actor = row.unit.actor
    own = {"step": actor, "aligned": f"{actor}/aligned", "clock": f"clock/{actor}", ALERT: "zz_rlship/alert"}
    of = own.get(row.unit.kind, "")
    found = changed(row, {f"{of}/samples/{table}": samples for table, samples in row.samples.items()})
    return {shown_as(row, key, lifted=False): samples for key, samples in found.items()}


def as_wandb(row: Row) -> dict[str, Any]:
    """The history line, but for the files of its tables."""
    line: dict[str, Any] = {"_timestamp": row.t, **flat(row, lifted=False), **row.x}
    for key, hist in changed(row, row.hists).items():
        line[shown_as(row, key, lifted=False)] = {
            "_type": "histogram",
            "values": list(hist.counts),
            "bins": list(hist.edges),
        }
    for key, samples in tables(row).items():
        columns, data = as_table(samples)
        line[key] = {"_type": "table-file", "ncols": len(columns), "nrows": len(data)}
    return line


def as_event(row: Row) -> dict[str, Any]:
    """The values of the event by tag: numbers as float32, histograms and texts as lists."""
    values: dict[str, Any] = {
        tag: float32(value) for tag, value in flat(row, lifted=True).items() if not isinstance(value, str)
    }
    for key, hist in changed(row, row.hists).items():
        values[shown_as(row, key, lifted=True)] = [
            hist.edges[0],
            hist.edges[-1],
            float(sum(hist.counts)),
            [*hist.edges[1:]],
            [*hist.counts],
        ]
    for tag, samples in tables(row).items():
        columns, data = as_table(samples, TENSORBOARD_CELL)
        shown, more = columns[:TENSORBOARD_COLUMNS], columns[TENSORBOARD_COLUMNS:]
        lines = [shown, ["---"] * len(shown), *([_escaped(cell) for cell in cells[: len(shown)]] for cells in data)]
        said = f"\n\n{len(more)} more columns: {', '.join(more)}" if more else ""
        values[tag] = ["\n".join(f"| {' | '.join(line)} |" for line in lines) + said]
    return values


def as_table(samples: Sequence[Sample], most: int = W_AND_B_CELL) -> tuple[list[str], list[list[Any]]]:
    """Columns and cells; a text of more than `most` bytes is cut."""
    names = list(dict.fromkeys(name for sample in samples for name in sample.row))
    return ["why", "rank", "score", *names], [
        [" ".join(one.why), one.rank, one.score, *(_cell(one.row.get(name), most) for name in names)] for one in samples
    ]


def _cell(value: Any, most: int) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, str) and len(value) > most:
        assert value.isascii()
        return f"{value[:most]}… (cut; {len(value)} characters)"
    return value


def _escaped(cell: Any) -> str:
    text = "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def float32(value: float) -> float:
    """The nearest one."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
