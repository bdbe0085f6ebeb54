"""What the job said of the run, for TensorBoard: texts, and hyper-parameters with how the run ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rlship_sidecar import state_file
from rlship_sidecar.run_data.merging import FAILED, OPEN, RunData
from rlship_sidecar.run_data.trees import leaves
from rlship_sidecar.sinks.tables import escaped

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary

SHOWN_FILE = "tensorboard-config.json"
CONFIG = "config"
TEXTS = (CONFIG, "summary", "facts", "run")
HPARAMS, ENDED = "_hparams_", "_hparams_/session_end_info"
HPARAMS_PLUGIN = "hparams"
MAX_HPARAMS = 1000  # TensorBoard makes a column of each


class RunTexts:
    """What is shown, by tag, each with the row that brought it, in a file of the state directory.

    A restart would otherwise show everything again. What a row brought that the event files no longer hold is
    forgotten.
    """

    def __init__(self, state_dir: Path, rows: int) -> None:
        """`rows`: how many rows the event files hold."""
        self._path = state_dir / SHOWN_FILE
        try:
            known: dict[str, Any] = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):  # a torn file: everything is shown again
            known = {}
        self._shown: dict[str, tuple[int, str]] = {tag: (row, text) for tag, (row, text) in known.items() if row < rows}
        self._due: dict[str, str] = {}

    def take(self, run: RunData) -> None:
        """Note what is not shown yet."""
        self._due = {tag: text for tag, text in _shown_of(run).items() if self._shown.get(tag, (0, ""))[1] != text}

    def due(self) -> list[Summary.Value]:
        """What to show, with the next row or without one."""
        return [value for tag, text in self._due.items() for value in _values(tag, text)]

    def shown(self, row_number: int) -> None:
        """Row `row_number` brought what was due, or it came after that row."""
        self._shown.update((tag, (row_number, text)) for tag, text in self._due.items())
        self._due.clear()
        state_file.replace(self._path, json.dumps(self._shown).encode() + b"\n", durable=False)


def _shown_of(run: RunData) -> dict[str, str]:
    """By tag what is shown: a text in Markdown, or JSON for hyper-parameters."""
    own: dict[str, Any] = {
        "name": run.name,
        "notes": run.notes,
        "tags": run.tags,
        "group": run.group,
        "job_type": run.job_type,
    }
    if run.outcome != OPEN:
        own["outcome"] = run.outcome or None
    own |= {"dropped": run.dropped or None, "left_out": run.left_out or None}
    trees = {CONFIG: run.config, "summary": run.summary, "facts": run.facts}
    trees["run"] = {name: value for name, value in own.items() if value is not None}
    trees |= {f"{CONFIG}/{actor}": labels for actor, labels in run.labels.items()}
    found = {tag: markdown(tree) for tag, tree in trees.items() if tree}
    if hparams := dict([(".".join(key), value) for key, value in leaves(run.config)][:MAX_HPARAMS]):
        found[HPARAMS] = orjson.dumps(hparams).decode()
    if run.outcome not in ("", OPEN) and hparams:
        found[ENDED] = run.outcome
    return found


def is_run_data(value: Summary.Value) -> bool:
    """Whether a value of an event is one of these, and so no part of its row."""
    plugin = value.metadata.plugin_data.plugin_name
    if plugin == "text":
        return bool(value.tag in TEXTS or value.tag.startswith(f"{CONFIG}/"))
    return bool(plugin == HPARAMS_PLUGIN)


def _values(tag: str, text: str) -> list[Summary.Value]:
    if tag == HPARAMS:
        return _hparams(orjson.loads(text))
    if tag == ENDED:
        return [_ended(text)]
    return [text_value(tag, text)]


def text_value(tag: str, markdown: str) -> Summary.Value:
    """A text."""
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboardX.proto.types_pb2 import DT_STRING

    plugin = SummaryMetadata.PluginData(plugin_name="text")
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[markdown.encode("utf-8", "replace")], tensor_shape=shape)
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)


def _hparams(values: Mapping[str, Any]) -> list[Summary.Value]:
    """The hyper-parameters: numbers, bools and texts as they are, all else as JSON."""
    from tensorboardX.summary import hparams

    plain = {
        key: value if isinstance(value, (str, bool, int, float)) else orjson.dumps(value).decode()
        for key, value in values.items()
    }
    experiment, start, _ = hparams(plain, {})
    return [*experiment.value, *start.value]


def _ended(outcome: str) -> Summary.Value:
    from tensorboardX.proto.api_pb2 import Status
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

    status = Status.Value("STATUS_FAILURE" if outcome == FAILED else "STATUS_SUCCESS")
    content = HParamsPluginData(session_end_info=SessionEndInfo(status=status), version=0).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=HPARAMS_PLUGIN, content=content)
    return Summary.Value(tag=ENDED, metadata=SummaryMetadata(plugin_data=plugin))


def markdown(tree: Mapping[str, Any]) -> str:
    """A table of keys and values; the names of a key are joined by dots."""
    cells = [(".".join(key), value) for key, value in leaves(tree)]
    lines = [
        f"| {escaped(key)} | {escaped(value if isinstance(value, str) else orjson.dumps(value).decode())} |"
        for key, value in cells
    ]
    return "\n".join(["| key | value |", "| --- | --- |", *lines])
