"""All that is there after a round, and what is said of it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Row
from rlship_sidecar.store.store import Store
from tests.endtoend.evidence import files_of, state_of
from tests.kit.board import Points, default_charts, other_charts
from tests.sinks.readback import run_folder
from tests.soak.word import Word

Event = tuple[float, int, dict[str, Any]]
Dead = tuple[str, int, str, str | None]
SHOWN = 12


@dataclass(frozen=True)
class Evidence:
    """All that is there after a round. `history` are the lines at the W&B server (None: never came), `rewritten` those
    that came again with another text, and `uploads` what was uploaded beside them, by path; `events` are TensorBoard's,
    as its own reader gives them: (wall time, step, values by tag), a histogram or a text as a list; `charts`
    are the numbers of each tag as its two readers show them; `words` are what the writers said; `replayed` are the rows
    that a replay makes of the files.
    """

    files: Mapping[str, bytes]
    rows: Sequence[Row]
    dead: Sequence[Dead]
    history: Sequence[str | None]
    rewritten: Sequence[tuple[int, str, str]]
    other_runs: Sequence[str]
    uploads: Mapping[str, bytes]
    jsonl: bytes
    events: Sequence[Event]
    charts: Sequence[Mapping[str, Points]]
    words: Sequence[Word]
    replayed: Sequence[Row]


@dataclass
class Verdict:
    """What one place holds of the `expected` rows."""

    place: str
    expected: int
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    differences: list[str] = field(default_factory=list)
    """The first of them, in words."""

    @property
    def clean(self) -> bool:
        return self.lost == self.duplicated == self.wrong == 0

    def tell(self, text: str) -> None:
        """Keep a difference for the report."""
        if len(self.differences) < SHOWN:
            self.differences.append(text[:1500])


def gather(
    experiment: Path,
    history: Sequence[str | None],
    rewritten: Iterable[tuple[int, str, str]],
    other_runs: Iterable[str],
    uploads: Mapping[str, bytes],
    words: Sequence[Word],
    replayed: Sequence[Row],
) -> Evidence:
    """Read all that an experiment's folder holds; its daemons must have ended."""
    state_dir = state_of(experiment)
    path = max(state_dir.glob("store.*.db"), key=lambda path: int(path.suffixes[0][1:]))
    store = Store(path, local=True)
    try:
        rows = store.read_rows(0, 1 << 30)
        dead = [(file, one.offset, one.reason, one.metric) for file, one in store.dead_letters(1 << 30)]
    finally:
        store.close()
    jsonl = state_dir / "rows.jsonl"
    folder = run_folder(state_dir / "tensorboard")
    return Evidence(
        files=files_of(experiment),
        rows=rows,
        dead=dead,
        history=history,
        rewritten=list(rewritten),
        other_runs=list(other_runs),
        uploads=dict(uploads),
        jsonl=jsonl.read_bytes() if jsonl.exists() else b"",
        events=tensorboard_events(folder),
        charts=(default_charts(folder), other_charts(folder)) if folder.exists() else ({}, {}),
        words=words,
        replayed=replayed,
    )


def tensorboard_events(folder: Path) -> list[Event]:
    """Every event of a row, part after part, by TensorBoard's own reader, with the values that it holds back."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event as Record
    from tensorboard.compat.proto.summary_pb2 import Summary

    events = []
    for part in sorted(folder.glob("events.*")):
        if part.name.endswith(".again"):
            continue
        for data in RawEventFileLoader(str(part)).Load():
            record = Record.FromString(data)
            if record.HasField("log_message"):
                record.summary.CopyFrom(Summary.FromString(base64.b64decode(record.log_message.message)))
            if record.HasField("summary"):
                # What a revision takes away is a value without content.
                values = {one.tag: _value(one) for one in record.summary.value if one.WhichOneof("value") is not None}
                events.append((record.wall_time, record.step, values))
    return events


def _value(value: Any) -> Any:
    """A number as it is, a histogram as (min, max, num, limits, buckets), a text as [text]."""
    if value.HasField("simple_value"):
        return value.simple_value
    if value.HasField("histo"):
        histo = value.histo
        return [histo.min, histo.max, histo.num, list(histo.bucket_limit), list(histo.bucket)]
    assert value.metadata.plugin_data.plugin_name == "text", value
    return [text.decode() for text in value.tensor.string_val]
