"""Opening the run on the server: whose it is, where it goes on, and what to do if it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import client, offline, remote
from rlship_sidecar.sinks.wandb.client import Deleted, Execute
from rlship_sidecar.sinks.wandb.runs import Runs

SETTLE_S = 20.0
GONE_S = 5.0


def runs_of(order: Mapping[str, Any]) -> Runs:
    """The runs that the store has made at the place of this order."""
    place = "/".join((client.server(), order["entity"] or "", order["project"]))
    return Runs(Path(order["state_dir"]), place, order["run_id"])


def open_run(order: Mapping[str, Any], execute: Execute, runs: Runs) -> tuple[Any, int, list[str]]:
    """Open the run; returns it with the number of the first row it lacks, and what a person should know of it."""
    known = runs.current in runs.made
    try:
        run, remote = resume(order, execute, runs)
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
    removed = offline.discard(Path(order["offline_root"]), order["run_id"], order["store_id"])
    notes += [f"removed the offline run in {folder}: its rows go to the run on the server now" for folder in removed]
    return run, 0 if remote is None else remote.lines, notes


def resume(
    order: Mapping[str, Any],
    execute: Execute,
    runs: Runs,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Any, remote.RemoteRun | None]:
    """Open the current run and return it with what the server had of it before (None: no such run), once all sources of
    the number of its rows agree.
    """
    entity, project, known = order["entity"] or "", order["project"], runs.current in runs.made
    path = "/".join(filter(None, (entity, project, runs.current)))
    deadline = clock() + SETTLE_S

    def ask() -> remote.RemoteRun | None:
        found = remote.read_run(execute, entity, project, runs.current)
        why = remote.objection(found, order["store_id"], order["rows"], path)
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
    run = client.init(order, runs.current, "online", order["scratch"])
    held = 0 if found is None else found.lines
    if found is None and run.starting_step > 0 and not known:
        raise SinkRefused(
            f"sink wandb: somebody else wrote {run.starting_step} rows into the run {path} while it was opened: "
            "set [sink.wandb] run_id to a new name"
        )
    if run.starting_step != held:
        raise SinkUnavailable(
            f"sink wandb: the server gave {held} as the number of rows it has, and {run.starting_step} as the step to "
            "go on at"
        )
    ask()  # another store may have made the same run a moment ago: the last one's mark stays
    return run, found


def position_of(
    order: Mapping[str, Any], execute: Execute, run: Any, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], int]:
    """A function that asks the server for the number of the first row it lacks.

    It raises SinkRefused once the run has another store's mark, and SinkReopen once the server has not known the run
    for `GONE_S` (just made, it may be unknown to a replica).
    """
    path = f"{run.project}/{run.id}"
    missed_at: float | None = None

    def position() -> int:
        nonlocal missed_at
        found = remote.read_run(execute, run.entity, run.project, run.id)
        if found is None:
            missed_at = clock() if missed_at is None else missed_at
            if clock() - missed_at >= GONE_S:
                raise SinkReopen(f"sink wandb: the run {path} is gone from the server")
            return 0
        missed_at = None
        if found.store_id not in (None, order["store_id"]):
            raise SinkRefused(
                f"sink wandb: another store ({found.store_id}) has taken the run {path} over from this one "
                f"({order['store_id']}): set [sink.wandb] run_id to a new name for one of the two"
            )
        return found.next_step

    return position
