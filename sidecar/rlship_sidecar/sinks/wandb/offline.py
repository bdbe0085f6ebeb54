"""The folder of an offline run: one folder must hold the whole run, because `wandb sync` delivers it once."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb.file import HeldRows, store_of

_NAME = re.compile(r"offline-run-\d{8}_\d{6}-(?P<id>.+)")


class Whole(NamedTuple):
    """An offline folder that holds every row of the store, in order."""

    folder: Path
    rows: int


class Found(NamedTuple):
    """An offline folder of ours; `synced`: `wandb sync` has delivered it."""

    folder: Path
    run_id: str
    held: HeldRows
    synced: bool


def sync_command(root: Path, folder: Path, *, shared: bool) -> str:
    """The shell command that uploads the run in `folder`, which lies in `root`/wandb, also after later starts.

    A start with further rows gives the folder another name. So the command names the folder above, of which `wandb
    sync` uploads each run that it has not uploaded yet. If other experiments may write there (`shared`), the command
    matches this run's id alone: a run that is uploaded while it is written would be uploaded again from its first row.
    """
    above = root / "wandb"
    if not shared:
        return f"wandb sync {shlex.quote(str(above))}"
    run = _NAME.fullmatch(folder.name)
    assert run is not None, folder
    return f"wandb sync {shlex.quote(f'{above}/')}offline-run-????????_??????-{shlex.quote(run['id'])}"


def prepare(
    root: Path, run_id: str, store_id: str, rows: int, online: Collection[str] = (), digest: str = ""
) -> Whole | str:
    """The folder under `root`/wandb that holds all `rows` of this store and shows the run's data of this digest,
    otherwise the run id for a new one.

    The client cannot continue an offline run. So a folder that lacks rows is removed and the run written again from row
    0: the store has them all. A synced folder stays, and so does the run on the server. `wandb sync` would append a
    second folder of that id to it, every row a second time. So the new run becomes `<run_id>-2`, and so on. For the
    same reason it gets none of the ids `online`, which are those of runs on the server. Raises SinkRefused if a folder
    holds another store's rows, or more than this store has.
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
    free = [one for one in found if one.synced or one.run_id not in online]
    # A folder that was not finished may lack the last values of the summary: nothing in it shows which ones.
    done = [one for one in free if one.held.whole and one.held.finished]
    whole = [one for one in done if one.held.rows == rows > 0 and one.held.digest == digest]
    keep = whole[-1] if whole else None
    for one in found:
        if one is not keep and not one.synced:
            shutil.rmtree(one.folder)
    if keep is not None:
        return Whole(keep.folder, rows)
    return free_id(run_id, {one.run_id for one in found if one.synced} | set(online))


def discard(root: Path, run_id: str, store_id: str) -> list[Path]:
    """Remove this store's offline folders that were never synced, and return them.

    Its rows go to a run on the server now. `wandb sync` of such a folder would give that run every row a second time.
    """
    removed = []
    for folder, _, file in _folders(root, run_id):
        if not _synced(file) and store_of(file) == store_id:
            shutil.rmtree(folder)
            removed.append(folder)
    return removed


def _find(root: Path, run_id: str) -> list[Found]:
    """The content of the folders of this run id and its successors, oldest first."""
    return [
        Found(folder, name, HeldRows(file).update(), _synced(file)) for folder, name, file in _folders(root, run_id)
    ]


def _folders(root: Path, run_id: str) -> list[tuple[Path, str, Path]]:
    """The folders of this run id and its successors, each with its run's id and its `.wandb` file."""
    pattern = re.compile(rf"offline-run-\d+_\d+-(?P<id>{re.escape(run_id)}(-\d+)?)")
    found = []
    for folder in sorted((root / "wandb").glob("offline-run-*")):
        match = pattern.fullmatch(folder.name)
        if match is not None:
            found.append((folder, match["id"], folder / f"run-{match['id']}.wandb"))
    return found


def _synced(file: Path) -> bool:
    return file.with_name(file.name + ".synced").exists()


def free_id(run_id: str, taken: Collection[str]) -> str:
    """The first of `run_id`, `<run_id>-2`, `<run_id>-3`, … that is not `taken`."""
    number, name = 1, run_id
    while name in taken:
        number += 1
        name = f"{run_id}-{number}"
    return name
