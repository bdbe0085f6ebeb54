"""Writes the page of one experiment as one file: gathers the answers as a server would give them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from rlship_sidecar.daemon import loop
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.scratch import scratch
from rlship_sidecar.tail import discover
from rlship_sidecar.view import answers
from rlship_sidecar.view.exported import fitting, held_by
from rlship_sidecar.view.folder import ViewedFolder, identity
from rlship_sidecar.view.making import Making, silent
from rlship_sidecar.view.settings import load_settings
from rlship_sidecar.view.shown import Shown


def page_of(directory: Path, state_dir: str | None) -> bytes:
    """The page of the experiment in `directory` as one file. Rows are made where no sidecar has. Raises RlshipError."""
    path = _only(directory)
    settings, any_owner = load_settings(directory, state_dir)
    with scratch("view") as folder:
        making = Making(folder)
        viewed = ViewedFolder(directory, settings, making, any_owner=any_owner)
        if viewed.state_dir(path) is None:
            loop.watch(path, silent(viewed.settings_of(path), folder / "state"), once=True)
            settings, any_owner = load_settings(directory, os.fspath(folder / "state"))
            viewed = ViewedFolder(directory, settings, making, any_owner=any_owner)
        shown = Shown(viewed, identity(path), path)
        shown.look()
        return fitting(held_by(lambda name, given: _asked(shown, name, given), _listed(viewed, shown)))


def _only(directory: Path) -> Path:
    found = discover.experiments(directory)
    if not found:
        raise discover.nothing_in(directory)
    if len(found) > 1:
        raise UsageProblem(
            f"{directory} holds {len(found)} experiments, and a file holds one",
            f"name one of them: rlship view --export page.html {found[0]}",
        )
    return found[0]


def _asked(shown: Shown, name: str, given: Mapping[str, str]) -> Any:
    """An answer as it would arrive at a page: numbers that are not finite are null."""
    answer = answers.ANSWERS[name](shown, given)
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return orjson.loads(orjson.dumps(answer, lambda value: value.tolist(), options))


def _listed(viewed: ViewedFolder, shown: Shown) -> dict[str, Any]:
    return {
        **viewed.listed(),
        "single": True,
        "now": time.time(),
        "experiments": [viewed.entry(shown.id, shown.path)],
        "left_out": {},
    }
