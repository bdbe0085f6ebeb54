"""The folder of an offline run: one folder must hold the whole run, for that is what `wandb sync` delivers once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb_file import HeldRows


class Finished(NamedTuple):
    """An offline folder that holds every row there is, in order."""

    folder: Path
    rows: int


def prepare(root: Path, run_id: str, store_id: str, rows: int) -> Finished | None:
    """The folder under `root`/wandb that holds all `rows` of this store; if there is none, room is made for a new one.

    The client cannot continue an offline run. So a folder that lacks rows is removed and the run written anew from row
    0: the store has them all. Raises SinkRefused where a folder holds another store's rows, or more than this store
    has.
    """
    found = [(path.parent, HeldRows(path).update()) for path in sorted(_files(root, run_id))]
    for folder, held in found:
        if held.store_id not in (store_id, None) or (held.store_id is None and held.rows > 0):
            raise SinkRefused(
                f"sink wandb: {folder} holds {held.rows} rows of another store ({held.store_id or 'unknown'}), not of "
                f"this one ({store_id}): move the folder away, or set [sink.wandb] run_id or dir"
            )
        if held.rows > rows:
            raise SinkRefused(
                f"sink wandb: {folder} holds {held.rows} rows, but the store has only {rows}: move the folder away"
            )
    if len(found) == 1 and found[0][1].whole and found[0][1].rows == rows > 0:
        return Finished(found[0][0], rows)
    for folder, _ in found:
        shutil.rmtree(folder)
    return None


def _files(root: Path, run_id: str) -> list[Path]:
    return [folder / f"run-{run_id}.wandb" for folder in root.glob(f"wandb/offline-run-*-{run_id}") if folder.is_dir()]
