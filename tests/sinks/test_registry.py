"""Sinks by name, and their options looked at before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import registry
from rlship_sidecar.sinks.contract import Sink, SinkRefused
from rlship_sidecar.sinks.delivery import Clocks, Delivery, Pace
from tests.kit.clocks import Clock
from tests.sinks.rows import MemorySource, make_rows, make_run


class Plain:
    """A plug-in's sink that does not look at its options."""

    open = write = flush = close = lambda self, *_: None


class Strict(Plain):
    """A plug-in's sink that refuses all options in its own words."""

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Refuse."""
        if options:
            raise SinkRefused("strict takes nothing")


class Point:
    """An entry point."""

    def __init__(self, name: str, sink: type) -> None:
        self.name = name
        self._sink = sink

    def load(self) -> type:
        """The class it leads to."""
        return self._sink


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sinks of others are installed."""
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point("plain", Plain), Point("strict", Strict)])


@pytest.mark.usefixtures("plugins")
def test_a_plugin_need_not_check_its_options(tmp_path: Path) -> None:
    """A sink without `check_options` is taken as it is, and can be made."""
    registry.check_options(tmp_path / "rlship.toml", Config(sinks=["plain"], sink={"plain": {"anything": 1}}), {})
    assert isinstance(registry.make_sink("plain"), Plain)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_refuses_in_its_own_words(tmp_path: Path) -> None:
    """Any refusal of options is a usage problem that names the table to mend."""
    registry.check_options(tmp_path / "rlship.toml", Config(sinks=["strict"]), {})
    with pytest.raises(UsageProblem, match="strict takes nothing") as caught:
        registry.check_options(tmp_path / "rlship.toml", Config(sinks=["strict"], sink={"strict": {"x": 1}}), {})
    assert caught.value.hint == f"correct it in [sink.strict] of {tmp_path}/rlship.toml"


def test_only_sinks_in_use_are_looked_at(tmp_path: Path) -> None:
    """The options of a sink that no row goes to stop nothing."""
    registry.check_options(tmp_path / "rlship.toml", Config(sinks=["jsonl"], sink={"wandb": {"projct": "x"}}), {})


def test_a_name_that_nothing_provides(tmp_path: Path) -> None:
    """The error lists what is installed."""
    with pytest.raises(UsageProblem, match="there is no sink 'paper'") as caught:
        registry.make_sink("paper")
    assert "jsonl" in caught.value.hint


class Old:
    """A plug-in's sink of a time when the contract was four methods; it keeps rows in memory."""

    __slots__ = ("held",)
    where = "a list"

    def __init__(self) -> None:
        self.held: list[int] = []

    def open(self, run: object) -> int | None:
        """Say how many rows there are."""
        return len(self.held)

    def write(self, rows: Sequence[Row]) -> None:
        """Keep the rows."""
        self.held += [row.row_number for row in rows]

    def flush(self) -> None:
        """Do nothing: rows are there."""

    def close(self) -> None:
        """Do nothing."""


def test_a_plugin_of_four_methods_is_a_whole_sink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plain class gets the defaults of the members that it lacks, keeps its own, and takes rows."""
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point("old", Old)])
    sink = registry.make_sink("old")
    assert isinstance(sink, Sink) and isinstance(sink, Old)
    assert (sink.where, sink.note, sink.trouble) == ("a list", "", "")
    source = MemorySource(make_rows(0, 3))
    run = make_run(tmp_path)
    delivery = Delivery("old", lambda: sink, run, source, pace=Pace(), clocks=Clocks(Clock()))
    while delivery.advance(drain=True) == 0.0:
        pass
    delivery.interrupt()
    delivery.close(abandon=True)
    assert sink.held == [0, 1, 2] and delivery.facts.where == "a list" and delivery.complaint() == ""


@pytest.mark.parametrize(
    ("provided", "message"),
    [(type("Half", (), {"open": None, "close": None}), "lacks flush, write"), (print, "is <built-in .*, not a class")],
)
def test_what_is_no_sink_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provided: Any, message: str
) -> None:
    """A plug-in that cannot take rows stops the start instead of failing at every try; the hint names the contract."""
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point("paper", provided)])
    with pytest.raises(UsageProblem, match=message) as caught:
        registry.check_options(tmp_path / "rlship.toml", Config(sinks=["paper"]), {})
    assert "rlship_sidecar.sinks.contract.Sink" in caught.value.hint
