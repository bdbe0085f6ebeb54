"""The folder of an offline run: one folder must hold the whole run, for that is what `wandb sync` delivers once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb_file import HeldRows


class Whole(NamedTuple):
    """An offline folder that holds every row there is, in order."""

    folder: Path
    rows: int


class Found(NamedTuple):
    """An offline folder of ours; `synced`: `wandb sync` has delivered it."""

    folder: Path
    run_id: str
    held: HeldRows
    synced: bool


def prepare(root: Path, run_id: str, store_id: str, rows: int) -> Whole | str:
    """The folder under `root`/wandb that holds all `rows` of this store, else the run id to write a new one with.

    The client cannot continue an offline run. So a folder that lacks rows is removed and the run written anew from row
    0: the store has them all. A folder that was synced stays, and so does the run it made; `wandb sync` would append a
    second folder of that id to it, every row a second time, and so the new one becomes the run `<run_id>-2`, and so on.
    Raises SinkRefused where a folder holds another store's rows, or more than this store has.
    """
    found = _find(root, run_id)
    for folder, _, held, _ in found:
        if held.store_id != store_id and (held.store_id is not None or held.rows > 0):
            raise SinkRefused(
                f"sink wandb: {folder} holds {held.rows} rows of another store ({held.store_id or 'unknown'}), not of "
                f"this one ({store_id}): move the folder away, or set [sink.wandb] run_id or dir"
            )
        if held.rows > rows:
            raise SinkRefused(
                f"sink wandb: {folder} holds {held.rows} rows, but the store has only {rows}: move the folder away"
            )
    whole = [one for one in found if one.held.whole and one.held.rows == rows > 0]
    keep = whole[-1] if whole else None
    for one in found:
        if one is not keep and not one.synced:
            shutil.rmtree(one.folder)
    if keep is not None:
        return Whole(keep.folder, rows)
    taken = {one.run_id for one in found if one.synced}
    number, name = 1, run_id
    while name in taken:
        number += 1
        name = f"{run_id}-{number}"
    return name


def _find(root: Path, run_id: str) -> list[Found]:
    """The folders of this run id and its successors, in the order of their making."""
    name = re.compile(rf"offline-run-\d+_\d+-(?P<id>{re.escape(run_id)}(-\d+)?)")
    found = []
    for folder in sorted((root / "wandb").glob("offline-run-*")):
        match = name.fullmatch(folder.name)
        if match is None:
            continue
        path = folder / f"run-{match['id']}.wandb"
        synced = path.with_name(path.name + ".synced").exists()
        found.append(Found(folder, match["id"], HeldRows(path).update(), synced))
    return found
