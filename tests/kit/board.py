"""TensorBoard as people start it, asked over HTTP what its charts show; and how its two readers take event files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from rlship_sidecar.sinks.tensorboard import events as tfevents

Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Board:
    """A server at `address`."""

    address: str

    def tags(self) -> dict[str, list[str]]:
        """The tags of scalars by run."""
        return {run: sorted(tags) for run, tags in self._get("tags", {}).items()}

    def points(self, run: str, tag: str) -> Points:
        """(step, value) of what a chart shows, in the order in which its line is drawn."""
        return [(step, value) for _, step, value in self._get("scalars", {"run": run, "tag": tag})]

    def charts(self) -> dict[str, dict[str, Points]]:
        """The points of all scalars, by run and tag."""
        return {run: {tag: self.points(run, tag) for tag in tags} for run, tags in self.tags().items()}

    def _get(self, what: str, query: dict[str, str]) -> dict[str, list[str]]:
        with urlopen(f"{self.address}data/plugin/scalars/{what}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)  # type: ignore[no-any-return]


@contextmanager
def board(logdir: Path, *options: str) -> Iterator[Board]:
    """TensorBoard on a free port of loopback; it looks at the files every second."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    command += ["--reload_interval", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = next(filter(None, (re.search(r" at (http://\S+)", text) for text in server.stderr)))
            drain = threading.Thread(target=server.stderr.read)  # so that the server never waits for this process
            drain.start()
            yield Board(found[1])
        finally:
            server.terminate()
            server.wait()
            drain.join()


def default_charts(folder: Path) -> dict[str, Points]:
    """What the default data server makes of the event files of a run: a point drops those of its tag from its step on.

    `tests/sinks/test_tensorboard_charts.py` compares it with the server.
    """
    from tensorboardX.proto.event_pb2 import Event

    charts: defaultdict[str, Points] = defaultdict(list)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        for frame in tfevents.frames(path):
            event = Event.FromString(data[frame.start : frame.start + frame.size])
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    kept = [point for point in charts[value.tag] if point[0] < event.step]
                    charts[value.tag] = [*kept, (event.step, value.simple_value)]
    return dict(charts)


def other_charts(folder: Path) -> dict[str, Points]:
    """What TensorBoard's own reader in Python makes of them, that of `--load_fast false`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
