"""What the job declared of itself, as texts for TensorBoard: one for each actor, when it is new or has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rlship_sidecar import state_file
from rlship_sidecar.sinks.contract import Config
from rlship_sidecar.sinks.tables import escaped

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary

CONFIG_FILE = "tensorboard-config.json"
TAG = "config/"


class ConfigTexts:
    """The texts that are shown, each with the row that brought it, in a file of the state directory.

    A restart would otherwise show each text again. What a row brought that the event files no longer hold is forgotten.
    """

    def __init__(self, state_dir: Path, rows: int) -> None:
        """`rows`: how many rows the event files hold."""
        self._path = state_dir / CONFIG_FILE
        try:
            known: dict[str, Any] = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):  # a torn file: the texts are shown again
            known = {}
        self._shown: dict[str, tuple[int, str]] = {
            actor: (row, text) for actor, (row, text) in known.items() if row < rows
        }
        self._due: dict[str, str] = {}

    def take(self, config: Config) -> None:
        """Note the texts that are not shown yet."""
        for actor, declared in config.items():
            text = markdown(declared)
            if self._shown.get(actor, (0, ""))[1] != text:
                self._due[actor] = text

    def due(self) -> dict[str, str]:
        """The texts to show with the next row, by tag."""
        return {f"{TAG}{actor}": text for actor, text in self._due.items()}

    def shown(self, row_number: int) -> None:
        """Row `row_number` brought what was due."""
        self._shown.update((actor, (row_number, text)) for actor, text in self._due.items())
        self._due.clear()
        state_file.replace(self._path, json.dumps(self._shown).encode() + b"\n", durable=False)


def is_config(value: Summary.Value) -> bool:
    """Whether a value of an event is such a text, and so no part of its row."""
    return bool(value.tag.startswith(TAG) and value.metadata.plugin_data.plugin_name == "text")


def markdown(declared: Any) -> str:
    """A table of keys and values; the keys of nested tables are joined by dots."""
    lines = [f"| {escaped(key)} | {escaped(value)} |" for key, value in _cells("", declared)]
    return "\n".join(["| key | value |", "| --- | --- |", *lines])


def _cells(prefix: str, declared: Any) -> list[tuple[str, str]]:
    if isinstance(declared, dict) and declared:
        return [cell for key, value in declared.items() for cell in _cells(f"{prefix}.{key}" if prefix else key, value)]
    return [(prefix, declared if isinstance(declared, str) else orjson.dumps(declared).decode())]
