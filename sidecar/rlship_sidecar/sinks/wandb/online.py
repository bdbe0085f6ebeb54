"""The run on the server: which store owns it, at which row it continues, which ids were used, and what to do if it is
gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlship_sidecar import state_file
from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import client, offline
from rlship_sidecar.sinks.wandb.client import Deleted, Execute
from rlship_sidecar.sinks.wandb.described import STORE_ID, digest_in
from rlship_sidecar.sinks.wandb.offline import free_id
from rlship_sidecar.sinks.wandb.protocol import OpenRequest

SETTLE_S = 20.0
GONE_S = 5.0
RUNS_FILE = "wandb-runs.json"
QUERY = """
query RlshipRun($project: String!, $entity: String!, $name: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { name state config historyLineCount historyKeys }
  }
}
"""

SUMMARY_QUERY = """
query RlshipSummary($project: String!, $entity: String!, $name: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { name summaryMetrics }
  }
}
"""


def runs_of(request: OpenRequest) -> Runs:
    """The runs that the store has made on the server of this request."""
    return runs_at(Path(request["state_dir"]), request["entity"], request["project"], request["run_id"])


def runs_at(state_dir: Path, entity: str | None, project: str, run_id: str) -> Runs:
    """The runs that a store has made on the server of the client's settings."""
    return Runs(state_dir, "/".join((client.server(), entity or "", project)), run_id)


def open_run(request: OpenRequest, execute: Execute, runs: Runs) -> tuple[Any, int, list[str]]:
    """Open the run; returns it with the number of the first row that it lacks, and notices for people."""
    known = runs.current in runs.made
    try:
        run, remote = resume(request, execute, runs)
    except Deleted as deletion:
        former, following = runs.current, runs.replace()
        raise SinkReopen(f"sink wandb: {deletion}: {former} is followed by {following}") from deletion
    notes = []
    if remote is None and known:
        notes.append(f"the run {run.project}/{run.id} is gone from the server: all rows are sent again, from row 0")
    elif remote is None and len(runs.made) > 1:
        notes.append(
            f"the run {run.project}/{runs.made[-2]} was deleted on the server, which does not give its id again: "
            f"all rows are sent to a new run, {run.id}"
        )
    removed = offline.discard(Path(request["offline_root"]), request["run_id"], request["store_id"])
    notes += [f"removed the offline run in {folder}: its rows go to the run on the server now" for folder in removed]
    return run, 0 if remote is None else remote.lines, notes


def resume(
    request: OpenRequest,
    execute: Execute,
    runs: Runs,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Any, RemoteRun | None]:
    """Open the current run and return it with the server's earlier state of it (None: no such run).

    It returns once all sources of the number of its rows agree.
    """
    entity, project, known = request["entity"] or "", request["project"], runs.current in runs.made
    path = "/".join(filter(None, (entity, project, runs.current)))
    deadline = clock() + SETTLE_S

    def ask() -> RemoteRun | None:
        found = read_run(execute, entity, project, runs.current)
        why = ownership_error(found, request["store_id"], request["rows"], path)
        if why is not None:
            raise SinkRefused(why)
        return found

    while (found := ask()) is not None and not found.settled:
        if clock() > deadline:
            raise SinkUnavailable(
                f"sink wandb: the run {path} has {found.lines} history lines, but its last step is "
                f"{found.next_step - 1}: rows sent now could overwrite others"
            )
        sleep(1.0)
    runs.making()
    run = client.init(request, runs.current, "online", request["scratch"])
    held = 0 if found is None else found.lines
    if found is None and run.starting_step > 0 and not known:
        raise SinkRefused(
            f"sink wandb: another program wrote {run.starting_step} rows into the run {path} while it was opened: "
            "set [sink.wandb] run_id to a new name"
        )
    if run.starting_step != held:
        raise SinkUnavailable(
            f"sink wandb: the server gave {held} as the number of rows it has, and {run.starting_step} as the step to "
            "go on at"
        )
    ask()  # another store may have made the same run a moment ago: the last mark stays
    return run, found


def position_of(
    request: OpenRequest, execute: Execute, run: Any, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Held]:
    """A function that asks the server what it holds.

    It raises SinkRefused once the run has another store's mark. It raises SinkReopen once the server has not known the
    run for `GONE_S`. (A replica may not know a run that was just made.)
    """
    path = f"{run.project}/{run.id}"
    missed_at: float | None = None

    def position() -> Held:
        nonlocal missed_at
        found = read_run(execute, run.entity, run.project, run.id)
        if found is None:
            missed_at = clock() if missed_at is None else missed_at
            if clock() - missed_at >= GONE_S:
                raise SinkReopen(f"sink wandb: the run {path} is gone from the server")
            return Held(0, "")
        missed_at = None
        if found.store_id not in (None, request["store_id"]):
            raise SinkRefused(
                f"sink wandb: another store ({found.store_id}) has taken the run {path} over from this one "
                f"({request['store_id']}): set [sink.wandb] run_id to a new name for one of the two"
            )
        return Held(found.next_step, found.digest)

    return position


def summary_of(execute: Execute, run: Any) -> Callable[[], dict[str, Any]]:
    """A function that asks the server for the run's summary; it is empty without a run."""

    def summary() -> dict[str, Any]:
        found = _ask(execute, SUMMARY_QUERY, run.entity, run.project, run.id)
        return _decoded((found or {}).get("summaryMetrics"))

    return summary


class Held(NamedTuple):
    """What a destination holds: the first row that it lacks, and the digest of what it shows of the run's data."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run on the server. `lines` counts its history lines, `next_step` is one more than the last `_step` it knows.
    `digest` is that of what its config shows of the run's data, "" without any.
    """

    lines: int
    next_step: int
    store_id: str | None
    digest: str = ""

    @property
    def settled(self) -> bool:
        """Whether line count and `_step` agree. After a crash a server may show one of them as it was before."""
        return self.lines == self.next_step


def read_run(
    execute: Callable[[str, Mapping[str, Any]], Any], entity: str, project: str, run_id: str
) -> RemoteRun | None:
    """Ask the server by `execute(query, variables) -> data`; None if it has no such run."""
    run = _ask(execute, QUERY, entity, project, run_id)
    if run is None:
        return None
    config, keys = _decoded(run.get("config")), _decoded(run.get("historyKeys"))
    values = {name: entry["value"] for name, entry in config.items() if isinstance(entry, dict) and "value" in entry}
    store_id = values.get(STORE_ID)
    last = keys.get("lastStep")
    return RemoteRun(
        lines=int(run.get("historyLineCount") or 0),
        next_step=0 if last is None else int(last) + 1,
        store_id=None if store_id is None else str(store_id),
        digest=digest_in(values),
    )


def _ask(execute: Execute, query: str, entity: str, project: str, run_id: str) -> dict[str, Any] | None:
    data = execute(query, {"project": project, "entity": entity, "name": run_id})
    run: dict[str, Any] | None = ((data or {}).get("project") or {}).get("run")
    return run


def _decoded(found: Any) -> dict[str, Any]:
    """An object of an answer, which may be JSON in a text, or null."""
    decoded = json.loads(found) if isinstance(found, str) else found
    return decoded if isinstance(decoded, dict) else {}


def ownership_error(remote: RemoteRun | None, store_id: str, rows: int, path: str) -> str | None:
    """Why this store, which has `rows` rows, must not continue the run, with the way out; None if it may.

    A run without lines and without a store's mark may be one that was made for us a moment ago.
    """
    if remote is None or (remote.store_id is None and remote.lines == 0):
        return None
    way_out = "set [sink.wandb] run_id to a new name, or delete that run"
    if remote.store_id != store_id:
        whose = "that no rlship store wrote" if remote.store_id is None else f"of another store ({remote.store_id})"
        return f"sink wandb: the run {path} holds {remote.lines} rows {whose}, not of this one ({store_id}): {way_out}"
    if remote.lines > rows:
        return (
            f"sink wandb: the run {path} holds {remote.lines} rows, but the store has only {rows}, as if it was set "
            f"back to an older state: {way_out}; rows are then shipped again from row 0"
        )
    return None


class Runs:
    """Ids of the runs that a store has made on servers, for one `run_id` at one `place` (server, entity and project).

    Neither the server nor an offline folder knows them. The id of a run that was deleted on the server cannot be used
    again, so its rows go to a successor, `<run_id>-2`. And an offline run must not have the id of an online one: `wandb
    sync` would append all its rows to that.
    """

    def __init__(self, state_dir: Path, place: str, run_id: str) -> None:
        self._path = state_dir / RUNS_FILE
        self._key = f"{place}/{run_id}"
        self._base = run_id
        try:
            self._all: dict[str, Any] = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):  # a file that a crash or a full disk left torn counts as missing
            self._all = {}
        known = self._all.get(self._key, {})
        self.made: list[str] = list(known.get("made", ()))
        """Ids of runs that were opened on the server, oldest first."""
        self.current: str = known.get("next") or (self.made[-1] if self.made else run_id)
        """The id of the run to open."""

    def elsewhere(self) -> list[str]:
        """The other projects in which the store has made a run for this `run_id`, with their entity if that is set."""
        places = [key.removesuffix(f"/{self._base}") for key in self._all if key != self._key]
        return ["/".join(filter(None, place.rsplit("/", 2)[1:])) for place in places]

    def making(self) -> None:
        """Save durably that the current run may exist on the server from now on."""
        if self.current not in self.made:
            self.made.append(self.current)
            self._save(None)

    def replace(self) -> str:
        """Choose the id of the current run's successor, save it durably and return it."""
        self.current = free_id(self._base, self.made)
        self._save(self.current)
        return self.current

    def _save(self, following: str | None) -> None:
        self._all[self._key] = {"made": self.made, "next": following}
        state_file.replace(self._path, json.dumps(self._all).encode() + b"\n")
