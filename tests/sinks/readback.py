"""Reads back what the sinks wrote, by other code than theirs where there is any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

from rlship_sidecar.sinks.tensorboard import events as tfevents
from rlship_sidecar.sinks.tensorboard.config import is_run_data
from rlship_sidecar.sinks.tensorboard.held import release
from rlship_sidecar.sinks.wandb import file as wandb_file


def jsonl_numbers(path: Path) -> list[int]:
    """The row numbers in a file of rows."""
    return [orjson.loads(line)["row"] for line in path.read_bytes().splitlines()]


def run_folder(logdir: Path) -> Path:
    """The folder of the one run that TensorBoard finds in a logdir; the logdir itself without any."""
    folders = sorted({path.parent for path in logdir.rglob("events.out.tfevents.*.rlship.*")})
    assert len(folders) < 2, folders
    return folders[0] if folders else logdir


def tensorboard_points(logdir: Path, tag: str) -> list[tuple[int, float]]:
    """(step, value) of every point of a tag, as TensorBoard itself reads them."""
    accumulator = EventAccumulator(str(run_folder(logdir)), size_guidance={"scalars": 0})
    accumulator.Reload()
    if tag not in accumulator.Tags()["scalars"]:
        return []
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def offline_folders(root: Path) -> list[Path]:
    """The offline runs under a state directory."""
    return sorted((root / "wandb").glob("offline-run-*"))


def offline_rows(root: Path) -> list[dict[str, Any]]:
    """The history of the one offline run there is."""
    (folder,) = offline_folders(root)
    (file,) = folder.glob("run-*.wandb")
    return list(wandb_file.history(file))


def tensorboard_events(logdir: Path) -> list[Any]:
    """Every Event of the run's parts in the order of their names, but the first of each, the file version; without what
    the job said of the run, and with the values that are held back.
    """
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in sorted(run_folder(logdir).glob("events.out.tfevents.*.rlship.*")):
        data = path.read_bytes()
        found = [Event.FromString(data[frame.start : frame.start + frame.size]) for frame in tfevents.frames(path)]
        assert found[0].file_version == "brain.Event:2"
        events += map(release, found[1:])
    for event in events:
        values = [value for value in event.summary.value if not is_run_data(value)]
        del event.summary.value[:]
        event.summary.value.extend(values)
    return events
