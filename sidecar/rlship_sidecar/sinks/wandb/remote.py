"""What a W&B server says it holds of a run, and whether that is ours to continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlship_sidecar.sinks.contract import SinkRefused

QUERY = """
query RlshipRun($project: String!, $entity: String!, $name: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { name state config historyLineCount historyKeys }
  }
}
"""


class Rejected(SinkRefused):
    """The server knows us not, or lets us not do this: final at first, but a server that took rows before may do so
    again.
    """


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run on the server. `lines` counts its history lines, `next_step` is one more than the last `_step` it knows."""

    lines: int
    next_step: int
    store_id: str | None

    @property
    def settled(self) -> bool:
        """Whether line number and `_step` agree. Right after a crash a server may show one of them from before it."""
        return self.lines == self.next_step


def read_run(
    execute: Callable[[str, Mapping[str, Any]], Any], entity: str, project: str, run_id: str
) -> RemoteRun | None:
    """Ask the server by `execute(query, variables) -> data`; None if it has no such run."""
    data = execute(QUERY, {"project": project, "entity": entity, "name": run_id})
    run = ((data or {}).get("project") or {}).get("run")
    if run is None:
        return None
    config = run.get("config") or {}
    if isinstance(config, str):
        config = json.loads(config)
    keys = run.get("historyKeys") or {}
    if isinstance(keys, str):
        keys = json.loads(keys)
    entry = config.get("store_id")
    store_id = entry.get("value") if isinstance(entry, dict) else None
    last = keys.get("lastStep")
    return RemoteRun(
        lines=int(run.get("historyLineCount") or 0),
        next_step=0 if last is None else int(last) + 1,
        store_id=None if store_id is None else str(store_id),
    )


def objection(remote: RemoteRun | None, store_id: str, rows: int, path: str) -> str | None:
    """Why the run must not be continued by this store, which has `rows` rows, with the way out; None if it may be.

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
            f"sink wandb: the run {path} holds {remote.lines} rows, but the store has only {rows}, as if it was put "
            f"back to an older state: {way_out}; rows are then shipped again from row 0"
        )
    return None
