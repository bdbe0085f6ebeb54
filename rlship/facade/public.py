"""What `wandb.Api().run(path)` gives for a run of this process: W&B has none of that id, the files have it."""

from __future__ import annotations

import json
import time
from importlib import import_module

from .axes import COUNTER
from .places import belongs_to, newest_files
from .recorder import notices
from .resumed import METRICS
from .told import CLIENTS_OWN, Summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


def names(path: Any, run: Any) -> bool:
    """Whether a path that a job gives to the client's API is that of `run`: its id, perhaps behind its project."""
    parts = [part for part in str(path).strip("/").replace(":", "/").split("/") if part and part != "runs"]
    run_id, project = run._rlship.recorder.place.run_id, run.project
    return bool(parts) and parts[-1] == run_id and (len(parts) < 2 or parts[-2] == project)


class OwnRun:
    """Answers what a job asks of its own run. What W&B alone has of a run is empty, or an AttributeError."""

    def __init__(self, run: Any) -> None:
        state = run._rlship
        state.recorder.flush()
        self._place = state.recorder.place
        self.id = self.storage_id = self._place.run_id
        self.name = self.display_name = run.name
        self.entity, self.project, self.url = run.entity, run.project, run.url
        self.path = [self.entity, self.project, self.id]
        self.tags, self.notes = list(run.tags or ()), run.notes
        self.state = "running" if not state.finished else "failed" if state.failed else "finished"
        self.config = {key: run.config[key] for key in run.config if key != CLIENTS_OWN}
        self.summary = state.summary if not state.finished else Summary(_not_recorded, dict(state.summary))
        self.created_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._place.opened))
        self.sweep = self.sweep_name = self.metadata = None

    @property
    def summary_metrics(self) -> dict[str, Any]:
        return dict(self.summary)

    @property
    def rawconfig(self) -> dict[str, Any]:
        return dict(self.config)

    @property
    def lastHistoryStep(self) -> int:  # noqa: N802 - the client's name
        return max((row[COUNTER] for row in _rows(self._place)), default=-1)

    def scan_history(
        self,
        keys: Sequence[str] | None = None,
        page_size: int = 1000,
        min_step: int | None = None,
        max_step: int | None = None,
        **_: Any,
    ) -> Iterator[dict[str, Any]]:
        """The rows that have all of `keys`, in the order of their first call."""
        for row in _rows(self._place):
            if (min_step or 0) <= row[COUNTER] and (max_step is None or row[COUNTER] < max_step):
                if keys is None:
                    yield row
                elif all(key in row for key in keys):
                    yield {key: row[key] for key in keys}

    def history(
        self,
        samples: int = 500,
        keys: Sequence[str] | None = None,
        x_axis: str = COUNTER,
        pandas: bool = True,
        stream: str = "default",
    ) -> Any:
        """At most `samples` rows, evenly spaced: a frame of pandas, or a list without that package."""
        wanted = None if keys is None else [x_axis, *(key for key in keys if key != x_axis)]
        rows = [] if stream != "default" else [*self.scan_history(wanted)]
        rows = rows[:: -(-len(rows) // max(1, samples)) or 1]
        if pandas:
            try:
                return import_module("pandas").DataFrame.from_records(rows)
            except ImportError:
                return rows
        return rows

    def load(self, force: bool = False) -> dict[str, Any]:
        return {}

    def update(self) -> None:
        _not_recorded({})

    save = update

    def wait_until_finished(self) -> None:
        """It has ended, or this process would wait for itself."""

    def files(self, *_: Any, **__: Any) -> list[Any]:
        return []

    logged_artifacts = used_artifacts = files

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: W&B has nothing of the run {self.__dict__.get('id')}, which rlship records")

    def __repr__(self) -> str:
        return f"<Run {'/'.join(filter(None, self.path))} ({self.state})>"


def _not_recorded(values: dict[str, Any]) -> None:
    notices.once("api", "what wandb.Api changes of a run of this process is not recorded: use the run itself")


def _rows(place: Any) -> Iterator[dict[str, Any]]:
    """The rows of a run, of each step in one piece; `_step` is that of the row's axis."""
    found: dict[Any, dict[str, Any]] = {}
    for path in reversed(newest_files(place.folder)):
        with open(path, "rb") as file:
            opened = belongs_to(file, place.run_id)
            file.seek(0)
            for line in file if opened is not None else ():
                if line.startswith(METRICS) and line.endswith(b"\n"):
                    _add(found, opened["axis"] if opened else "", json.loads(line))
    return iter(found.values())


def _add(found: dict[Any, dict[str, Any]], axis: str, record: dict[str, Any]) -> None:
    step = record.get("step")
    row = found.setdefault((axis, step) if step is not None else len(found), {COUNTER: len(found)})
    row["_timestamp"] = record["t"]
    if step is not None:
        row[axis] = row[COUNTER] = step
    row.update((key, value) for key, value in record["m"].items() if type(value) in (int, float))
