"""Which project and entity a run is in. The job may name them when the run is made, and never afterwards."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlship_sidecar import state_file
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.wandb.described import MAX_NAME
from rlship_sidecar.tail.listing import WRITERS_FOLDER

logger = logging.getLogger("rlship.sinks.wandb")

PLACE_FILE = "wandb-place.json"
AXES_FILE = "wandb-axes.json"
DEFAULT_PROJECT = "rlship"
_NOT_IN_NAMES = frozenset("/\\#?%:")


class RunPlace(NamedTuple):
    """Where a run is; entity None is that of the key."""

    project: str
    entity: str | None


def place_of(run: SinkContext, options: Mapping[str, Any], env: Mapping[str, str]) -> RunPlace:
    """The place of the run: as `[sink.wandb]` has it, else W&B's variables, else as the job said when it was made."""
    project = options.get("project") or env.get("WANDB_PROJECT")
    entity = options.get("entity") or env.get("WANDB_ENTITY")
    if project and entity:
        return RunPlace(project, entity)
    known = _known(run)
    return RunPlace(project or known["project"] or DEFAULT_PROJECT, entity or known["entity"])


def remember(run: SinkContext) -> None:
    """The run is about to be made: what the job says of its place later does not count."""
    path = run.state_dir / PLACE_FILE
    if path.exists():
        return
    known = _known(run)
    state_file.replace(path, json.dumps(known).encode() + b"\n")
    for place in run.run_data.places:
        if known[place.member] is None:
            logger.warning(
                "sink wandb: the %s in %s does not count, because other users can write that file or W&B takes no such "
                "name: set %s in [sink.wandb]",
                place.member,
                place.file,
                place.member,
            )
            return


def _known(run: SinkContext) -> dict[str, str | None]:
    with suppress(FileNotFoundError, ValueError):
        found = json.loads((run.state_dir / PLACE_FILE).read_bytes())
        return {member: found[member] for member in ("project", "entity")}
    if (run.state_dir / AXES_FILE).exists():  # an earlier release made the run
        return {"project": None, "entity": None}
    return {member: _said(run, member) for member in ("project", "entity")}


def _said(run: SinkContext, member: str) -> str | None:
    """What the job says, by a file that no other user can have written; None without one."""
    for place in run.run_data.places:
        usable = len(place.value) <= MAX_NAME and not _NOT_IN_NAMES & set(place.value)
        if place.member == member and usable and _is_trusted(run.experiment, place.file):
            return place.value
    return None


def _is_trusted(experiment: Path, file: str) -> bool:
    """Whether a writer's file is this user's or root's, and only they can write it: as for settings."""
    try:
        descriptor = open_plain(str(experiment / WRITERS_FOLDER / file), str(experiment))
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
