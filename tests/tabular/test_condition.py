"""What a query does not need is not read, and its answer is the same as if all had been read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.cli.progress import ReadingProgress
from rlship_sidecar.tabular import database, from_files
from rlship_sidecar.tabular.columns import TABLES, Column
from rlship_sidecar.tabular.condition import (
    EVERYTHING,
    NOTHING,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Need,
    constants,
    given,
    needs,
    possible,
)
from tests.kit.cases import long
from tests.kit.files import CLOSE, barrier, clock, event, file, lines, log, sample, span, stream
from tests.tabular.stores import experiment, rich_rows
from tests.tabular.test_query import ask, run

OBSERVATIONS = TABLES["observations"].columns


def parsed(*filters: str) -> Condition:
    """The condition of a plan that scans observations once, with these filters."""
    scan = {"name": "SEQ_SCAN", "extra_info": {"Table": "tables.main.observations", "Filters": list(filters)}}
    plan = [{"name": "TOP", "extra_info": {}, "children": [scan]}]
    return needs(plan, {"observations": OBSERVATIONS})["observations"].condition


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        ("(metric = 'loss')", Compare("metric", "=", "loss")),
        ("metric='it''s'", Compare("metric", "=", "it's")),
        ("((step >= 3) AND (step <= 9))", AllOf((Compare("step", ">=", 3), Compare("step", "<=", 9)))),
        ("step>=3 AND step IS NOT NULL", AllOf((Compare("step", ">=", 3), EVERYTHING))),
        ("optional: (rank IN (1, -2))", AnyOf((Compare("rank", "=", 1), Compare("rank", "=", -2)))),
        ("((actor = 'a') OR (rank > 2))", AnyOf((Compare("actor", "=", "a"), Compare("rank", ">", 2)))),
    ],
)
def test_simple_filters_are_understood(said: str, condition: Condition) -> None:
    """Comparisons of texts and integers with constants, and what joins them, as DuckDB's versions write them."""
    assert parsed(said) == AllOf((condition,))


@pytest.mark.parametrize(
    "said",
    [
        "(rank != 3)",
        "(value > 0.5)",
        "(upper(actor) = 'X')",
        "(metric ~~* 'LOSS')",
        "(metric = actor)",
        "(weight IS NULL)",
        "optional: Dynamic Filter (step)",
        "(CAST(rank AS DECIMAL(20,1)) = 3.0)",
        "(step = 9) OR",
        "(step = '9')",
        "((step = 9)",
    ],
)
def test_other_filters_limit_nothing(said: str) -> None:
    """What is not understood, whole, counts as no filter, beside one that is."""
    assert parsed(said) == EVERYTHING
    assert parsed(said, "(rank = 1)") == AllOf((Compare("rank", "=", 1),))


def test_a_constant_with_a_line_break_invents_no_filter() -> None:
    """DuckDB separates filters by line breaks, so such a constant looks like several filters: none of them counts."""
    assert parsed("(metric = 'a", "(actor = ''b'')", "')", "(rank = 1)") == EVERYTHING


def test_several_scans_need_what_each_of_them_needs() -> None:
    """A table that is scanned twice needs the records of both; one that is not scanned needs none."""
    scans = [{"extra_info": {"Table": "m.main.spans", "Filters": f"(name = '{name}')"}} for name in "ab"]
    found = needs(scans, {"spans": TABLES["spans"].columns, "events": TABLES["events"].columns})
    assert constants(found["spans"].condition, "name") == {"a", "b"}
    assert found["events"].condition == NOTHING
    scans.append({"extra_info": {"Table": "m.main.spans"}})
    assert needs(scans, {"spans": TABLES["spans"].columns})["spans"] == Need()


@pytest.mark.parametrize(
    ("about", "columns"),
    [
        ({"Projections": ["step", "value"], "Filters": "(metric = 'loss')"}, {"step", "value", "metric"}),
        ({"Projections": "value", "Filters": ["(rank = 1)", "(step > 2)"]}, {"value", "rank", "step"}),
        ({"Projections": ""}, set()),
        ({"Projections": ["step", "a new kind of thing"]}, None),
        ({"Filters": "(rank = 1)"}, None),
    ],
)
def test_a_scan_needs_what_it_yields_and_filters_by(about: dict[str, Any], columns: set[str] | None) -> None:
    """A projection that names anything but columns, or none, needs all columns."""
    scan = {"extra_info": {"Table": "tables.main.observations", **about}}
    assert needs([scan], {"observations": OBSERVATIONS})["observations"].columns == columns
    if columns is not None:
        other = {"extra_info": {"Table": "tables.main.observations", "Projections": "t"}}
        assert needs([scan, other], {"observations": OBSERVATIONS})["observations"].columns == {*columns, "t"}


def test_what_is_known_decides_as_far_as_it_goes() -> None:
    """A condition on columns that are not known yet is possible; null compares with nothing."""
    either = AnyOf((AllOf((Compare("actor", "=", "a"), Compare("step", ">", 5))), Compare("rank", "=", 1)))
    assert possible(either, {}) and possible(either, {"actor": "a", "rank": 0})
    assert not possible(either, {"actor": "a", "rank": 0, "step": 5})
    assert not possible(either, {"actor": "a", "rank": 0, "step": None})
    assert given(either, {"actor": "b", "rank": 0}) == NOTHING
    assert given(either, {"actor": "b", "rank": 1}) == EVERYTHING
    assert given(either, {"actor": "a", "rank": 0}) == AnyOf((AllOf((Compare("step", ">", 5),)),))


QUESTIONS = [
    "SELECT * FROM observations WHERE metric = 'loss'",
    "SELECT * FROM observations WHERE metric IN ('loss', 'mét') AND rank = 1 AND step >= 1",
    "SELECT * FROM observations WHERE metric LIKE 'lo%' OR actor = 'generator'",
    "SELECT * FROM observations WHERE metric = 'a\"b\\c'",
    "SELECT * FROM observations WHERE metric = 'late'",
    "SELECT * FROM observations WHERE step = (SELECT max(step) FROM observations WHERE metric = 'loss')",
    "SELECT * FROM observations WHERE metric = 'loss\nx'",
    "SELECT o.*, dur FROM observations o JOIN spans s USING (file, step) WHERE name = 'train' AND metric = 'loss'",
    "SELECT * FROM spans WHERE actor = 'trainer' AND name = 'train'",
    "SELECT * FROM spans",
    "SELECT * FROM events WHERE rank > 0",
    "SELECT * FROM samples WHERE name = 'rollouts' AND step = 1",
    "SELECT * FROM barriers WHERE step BETWEEN 1 AND 1",
    "SELECT * FROM clocks",
    "SELECT * FROM writers WHERE actor = 'trainer'",
    "SELECT * FROM figures WHERE key = 'trainer/loss' AND step < 2",
    "SELECT * FROM per_rank WHERE actor = 'trainer' AND rank = 0",
    "SELECT * FROM rows WHERE kind = 'aligned'",
    "SELECT * FROM rows WHERE experiment = 'nope' OR index = 1",
    "SELECT * FROM trainer_steps WHERE step = 1",
    "SELECT * FROM figures_all WHERE revision = 1",
    "DESCRIBE observations",
    "SUMMARIZE observations",
    "SELECT count(*) FROM observations WHERE 1 = 0",
    "SELECT count(*) FROM trainer_steps",
    "SELECT rowid FROM barriers ORDER BY rowid",
    "SELECT spans FROM spans",
    "SELECT columns('.*r.*') FROM trainer_steps WHERE index >= 0",
    "SELECT a.loss, b.step FROM trainer_steps a JOIN trainer_steps b ON a.step = b.step",
    "WITH x AS (SELECT *, value * 2 AS twice FROM observations) SELECT max(twice) FROM x WHERE rank = 1",
    "SELECT loss FROM trainer_steps ORDER BY expected DESC, step",
]
SOON = QUESTIONS[::4]  # of each kind of table, with conditions and without


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment whose lines are hard to pass over: times that are inherited, escapes, other records between."""
    folder = experiment(tmp_path_factory.mktemp("c") / "grpo", rich_rows())
    for rank in (0, 1):
        data = file(
            log(0, loss=rank, other=1.0),
            log(0, **{"late": 1, "mét": 2.0, 'a"b\\c': 3.0}) | {"t": 1763600005.5},
            span("train", 0.5, after=7.0) | {"step": 0},
            log(1, other=[1.0, 2.0]),
            log(1, loss=[rank, None, 2.5]),
            {"kind": "new in a later version", "t": 1763600099.0},
            span("wait", 0.25, after=8.0) | {"step": 1},
            sample(1.0),
            log(1, late=2),
            event("pushed", step=1),
            clock(0.25, 0.01, 8),
            barrier(1),
            stream(12.0, loss=7),
            actor="trainer",
            rank=rank,
            world=2,
            id=f"t{rank}",
        )
        escaped = lines({"step": 2, "m": {"x": 9}}).replace(b'"x"', b'"lo\\u0073s"')
        broken = b'{"step": 3, "m": {"loss": 1}, "t": "soon"}\n{"m": 1, "t": 5}\n' + lines(log(3, late=5), CLOSE)
        (folder / "rlship" / f"t{rank}.jsonl").write_bytes(data + escaped + broken)
    (folder / "rlship" / "g.jsonl").write_bytes(file(log(0, loss=3, reward=1), actor="generator", id="g"))
    (folder / "rlship" / "no.jsonl").write_bytes(b"{}\n")
    return folder


@pytest.mark.parametrize("question", [*SOON, *long(*(one for one in QUESTIONS if one not in SOON))])
def test_the_answer_is_the_same_as_without_conditions(
    question: str, watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question, with what it needs and with everything."""
    answer = ask(question, watched)
    monkeypatch.setattr(database, "needs", lambda plan, tables: dict.fromkeys(tables, Need()))
    monkeypatch.setattr(from_files, "_words_of", lambda table: [])
    assert key(ask(question, watched)) == key(answer)


def key(answer: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in answer)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int | None]]]:
    """The file and the step of each record of the writers' files that was read for an answer."""
    found: list[tuple[str, int | None]] = []
    entries = from_files.entries

    def noting(file: Any, words: Any = ()) -> Iterator[Any]:
        for entry in entries(file, words):
            found.append((file.name, entry.step))
            yield entry

    monkeypatch.setattr(from_files, "entries", noting)
    return found


def test_only_what_is_needed_is_read(watched: Path, read: list[tuple[str, int | None]]) -> None:
    """Files of other writers are passed over, and lines that hold nothing of the name; DESCRIBE reads nothing."""
    assert ask("DESCRIBE observations", watched)
    assert read == []
    assert len(ask("SELECT * FROM spans WHERE rank = 1 AND name = 'wait'", watched)) == 1
    assert {name for name, _ in read} == {"t1.jsonl"}
    assert len(read) <= 4  # the span, and lines with a backslash
    read.clear()
    assert ask("SELECT * FROM writers WHERE actor = 'generator'", watched)
    assert {name for name, _ in read} == {"g.jsonl"}


def test_only_the_columns_of_a_question_are_copied(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wide table those that it names; to count records, one."""
    copied: list[list[str]] = []
    batches = database.batches

    def noting(columns: Sequence[Column], records: Any) -> Any:
        copied.append([column.name for column in columns])
        return batches(columns, records)

    monkeypatch.setattr(database, "batches", noting)
    assert ask("SELECT loss FROM trainer_steps WHERE step = 1", watched)
    assert ask("SELECT count(*) AS n FROM trainer_steps", watched)
    assert ask("SELECT avg(value) AS mean FROM observations WHERE metric = 'loss'", watched)
    assert copied == [["step", "loss"], ["experiment"], ["metric", "value"]]


def test_a_wrong_question_is_refused_before_anything_is_read(watched: Path, read: list[tuple[str, int | None]]) -> None:
    """The message shows the question as it was asked."""
    result = run("SELECT stepp FROM observations", watched)
    assert result.exit_code == 2
    assert "explain" not in result.stderr.lower()
    assert read == []


def test_a_plan_of_another_form_means_everything(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the plan does not name tables as expected, nothing is left out."""
    monkeypatch.setattr(database, "_plan", lambda *_: [{"name": "SCAN", "info": "observations"}])
    assert len(ask("SELECT * FROM observations WHERE metric = 'late'", watched)) == 6


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_reading_shows_its_progress_on_a_terminal() -> None:
    """A line after two seconds, redrawn and removed in the end; nothing before, and nothing elsewhere."""
    now = [0.0]
    terminal, pipe = Terminal(), io.StringIO()
    on_terminal = ReadingProgress(terminal, {"TERM": "xterm"}, lambda: now[0])
    elsewhere = ReadingProgress(pipe, {"TERM": "xterm"}, lambda: now[0])
    for progress in (on_terminal, elsewhere):
        progress.start(400_000_000)
    for second in range(4):
        now[0] = second
        on_terminal.add(50_000_000)
        elsewhere.add(50_000_000)
    for progress in (on_terminal, elsewhere):
        progress.clear()
    assert terminal.getvalue() == ("\r\x1b[Kreading 150 of 400 MB\r\x1b[Kreading 200 of 400 MB, 4 s left\r\x1b[K")
    assert pipe.getvalue() == ""
