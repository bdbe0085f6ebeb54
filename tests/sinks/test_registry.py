"""Sinks by name, and their options looked at before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.sinks import registry
from rlship_sidecar.sinks.contract import SinkRefused


class Plain:
    """A plug-in's sink that does not look at its options."""


class Strict:
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
    assert caught.value.hint == f"set it right in [sink.strict] of {tmp_path}/rlship.toml"


def test_only_sinks_in_use_are_looked_at(tmp_path: Path) -> None:
    """The options of a sink that no row goes to stop nothing."""
    registry.check_options(tmp_path / "rlship.toml", Config(sinks=["jsonl"], sink={"wandb": {"projct": "x"}}), {})


def test_a_name_that_nothing_provides(tmp_path: Path) -> None:
    """The error lists what is installed."""
    with pytest.raises(UsageProblem, match="there is no sink 'paper'") as caught:
        registry.make_sink("paper")
    assert "jsonl" in caught.value.hint
