"""Samples of rows as tables, and how each sink shows them; read back by other code than the sinks' own."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

from rlship_sidecar.rows import Row, Sample
from rlship_sidecar.sinks import tables
from rlship_sidecar.sinks.console import ConsoleSink
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.kit.cases import long
from tests.loopback.backend import GRAPHQL, LoopbackBackend, isolated
from tests.sinks.kinds import client_env
from tests.sinks.readback import offline_folders, offline_rows, run_folder
from tests.sinks.rows import T0, make_row, make_run

ONE = Sample(("top", "random"), "0.1", T0, 0.5, {"prompt": "a|b\nc", "tokens": 3}, {"prompt": 99})
TWO = Sample(("bottom",), "0.0", T0, None, {"why": ["x", None], "tokens": 4.0})
KEY = "trainer/samples/rollouts"


def sampled(no: int, samples: Sequence[Sample] = (ONE, TWO), table: str = "rollouts", **more: Any) -> Row:
    return replace(make_row(no, **more), samples={table: list(samples)})


def test_columns_and_cells() -> None:
    """Why, rank and score, then the rows' own keys as they appear; a key that has such a name gets another one. Lists
    are JSON, and a text that the writer cut says what it had.
    """
    found = tables.table([ONE, TWO])
    assert found.columns == ["why", "rank", "score", "prompt", "tokens", "row/why"]
    assert found.data == [
        ["top random", "0.1", 0.5, "a|b\nc… (cut; it had 99)", 3, None],
        ["bottom", "0.0", None, None, 4.0, '["x",null]'],
    ]


def test_no_two_columns_have_one_name() -> None:
    """A column called row/why keeps its name; that of the sample's own `why` gets another one."""
    both = ONE._replace(row={"why": 1, "row/why": 2, "row/row/why": 3, "rank": 4}, cut=None)
    found = tables.table([both])
    assert found.columns == ["why", "rank", "score", "row/row/row/why", "row/why", "row/row/why", "row/rank"]
    assert found.data == [["top random", "0.1", 0.5, 1, 2, 3, 4]]


def test_long_texts_are_cut() -> None:
    """A cell holds 8 KiB of a text at most, and says how long it was; no character is cut in two."""
    (cells,) = tables.table([ONE._replace(row={"r": "é" * 10_000}, cut=None)]).data
    assert cells[3] == "é" * 4096 + "… (cut; 10000 characters)"
    many = [ONE._replace(row={f"r{i}": "x" * 8000 for i in range(10)}) for _ in range(200)]
    assert len(json.dumps(tables.table(many).data)) < tables.MAX_TABLE_BYTES * 1.2


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", "", "x" * 500, "é\n"])
def test_names_of_tables_become_names_of_files(name: str) -> None:
    """No table's name leads out of the folder that it is written to, and two that differ stay apart."""
    safe = tables.safe_name(f"trainer/samples/{name}")
    family, _, last = safe.rpartition("/")
    assert (family, last.strip(".") != "", len(last) < 120) == ("trainer/samples", True, True)
    assert safe != tables.safe_name(f"trainer/samples/{name}_")
    assert tables.safe_name(KEY) == KEY


def test_a_logged_metric_wins_and_only_changed_tables_are_shown() -> None:
    """A table whose key a figure has is not shown; a revision shows the tables that changed."""
    assert list(tables.tables(sampled(0))) == [KEY]
    assert not tables.tables(sampled(0, values={KEY: 1.0}))
    assert not tables.tables(sampled(0, revision=1, changed=("trainer/loss",)))


def test_the_console_shows_a_table_in_a_few_words(tmp_path: Path) -> None:
    """How many samples there are, and from which score to which."""
    stream = io.StringIO()
    sink = ConsoleSink(stream)
    sink.open(make_run(tmp_path))
    sink.write([sampled(0), sampled(1, [TWO])])
    sink.close()
    assert [line.split("  ")[-1] for line in stream.getvalue().splitlines()] == [
        "samples/rollouts=[2 samples score 0.5..0.5]",
        "samples/rollouts=[1 samples]",
    ]


def test_tensorboard_shows_a_table_as_text(tmp_path: Path) -> None:
    """TensorBoard's own reader finds a text at the row's step, a Markdown table; the sink still counts its rows."""
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path, rows=1))
    sink.write([sampled(0)])
    sink.flush()
    sink.close()
    assert sink.open(make_run(tmp_path, rows=1)) == 1
    assert sink.ends_with(sampled(0))
    sink.close()
    accumulator = EventAccumulator(str(run_folder(tmp_path / "rlship" / "state" / "tensorboard")))
    accumulator.Reload()
    assert accumulator.PluginTagToContent("text").keys() == {KEY}
    (event,) = accumulator.Tensors(KEY)
    assert event.step == 0
    assert event.tensor_proto.string_val[0].decode().splitlines() == [
        "| why | rank | score | prompt | tokens | row/why |",
        "| --- | --- | --- | --- | --- | --- |",
        "| top random | 0.1 | 0.5 | a\\|b<br>c… (cut; it had 99) | 3 |  |",
        '| bottom | 0.0 |  |  | 4 | ["x",null] |',
    ]


def test_only_the_first_columns_are_shown_as_text() -> None:
    """Columns beyond the eighth are only named."""
    text = tables.markdown([ONE._replace(row={f"c{i}": i for i in range(7)}, cut=None)])
    assert text.splitlines()[0] == "| why | rank | score | c0 | c1 | c2 | c3 | c4 |"
    assert text.endswith("2 more columns: c5, c6")


def online(backend: LoopbackBackend, home: Path) -> WandbSink:
    return WandbSink(env=client_env(backend.environment(home / "home")))


def test_wandb_gets_a_table_in_the_same_line(tmp_path: Path) -> None:
    """The line of the row holds a reference to the table, which is uploaded as a file and as an artifact; line, row and
    step stay the same number, and nothing is left in the client's folders.
    """
    with LoopbackBackend() as backend:
        sink = online(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=3))
        sink.write([sampled(0), sampled(1, table="../../up"), make_row(2)])
        sink.flush()
        sink.close()
        run = backend.run("rlship", "store1")
        assert run.steps() == [0, 1, 2]
        first, second, _ = run.rows()
        assert (first["trainer/loss"], first[KEY]["_type"], first[KEY]["nrows"]) == (0, "table-file", 2)
        assert second["trainer/loss"] == 1
        assert [key for key in second if "/samples/" in key] == [tables.safe_name("trainer/samples/../../up")]
        held = json.loads(backend.stored[first[KEY]["path"]])
        assert (held["columns"], held["data"]) == tuple(json.loads(json.dumps(tables.table([ONE, TWO]))))
        assert len(backend.artifacts.committed) == 2
        assert not list((tmp_path / "home").rglob("*.table.json"))


@pytest.mark.parametrize("status", [403, *long(500)])
def test_a_table_that_cannot_be_uploaded_holds_no_row_back(status: int, tmp_path: Path) -> None:
    """The server refuses artifacts: lines arrive all the same, with the table as a file or its reference alone."""
    with LoopbackBackend() as backend:
        backend.fail(status, None, endpoint=GRAPHQL, operation="CreateArtifact")
        sink = online(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=2))
        sink.write([sampled(0)])
        sink.flush()
        sink.write([sampled(1)])
        sink.flush()
        backend.heal()
        sink.close()
        assert backend.run("rlship", "store1").steps() == [0, 1]


@pytest.mark.long
def test_an_offline_run_holds_its_tables(tmp_path: Path) -> None:
    """The folder of an offline run has the tables' references in its lines and the tables beside them."""
    sink = WandbSink(env=client_env(isolated(tmp_path / "home")))
    sink.open(make_run(tmp_path, rows=2, mode="offline"))
    sink.write([sampled(0), make_row(1)])
    sink.flush()
    sink.close()
    state = tmp_path / "rlship" / "state"
    rows = offline_rows(state)
    assert [row["_step"] for row in rows] == [0, 1]
    (folder,) = offline_folders(state)
    held = json.loads((folder / "files" / rows[0][f"{KEY}.path"]).read_bytes())
    assert held["columns"] == tables.table([ONE, TWO]).columns
    assert [path.suffix for path in (folder / "data").rglob("*") if path.is_file()]
    assert not list((tmp_path / "home").rglob("*.table.json"))
