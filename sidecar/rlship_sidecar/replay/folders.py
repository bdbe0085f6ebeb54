"""Where a replay keeps its state, and whether it continues an earlier one.

Without `--out` that is `replay-<n>` in the folder of the sidecar's state: the newest unfinished replay of the same
kind, or a new folder. A `replay.json` in each folder describes its replay.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import msgspec

from rlship_sidecar import state_file
from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.plainfiles import NotAFile, read_plain
from rlship_sidecar.steps import Steps
from rlship_sidecar.tail.discover import is_experiment

MARKER = "replay.json"
_MAX_BYTES = 1 << 20
_ANOTHER = (
    "give a folder that is empty or does not exist yet with --out, or omit --out: then it is beside the live state"
)
_FOLDER = re.compile(r"replay-(\d{1,9})")


class Marker(msgspec.Struct, frozen=True):
    """The replay of a folder. `steps` as text, None for all; `made_with` are the settings that rows depend on."""

    steps: str | None
    made_with: str
    finished: bool = False


_decode = msgspec.json.Decoder(Marker).decode


def marker_of(config: Config, steps: Steps | None) -> Marker:
    """The marker of a replay with these settings."""
    made_with = [
        sorted(config.reductions.items()),
        config.per_rank,
        config.samples,
        config.samples_every,
        config.lead,
        config.clock_window_s,
        config.short_window,
        config.ledger_wait_s,
    ]
    return Marker(None if steps is None else str(steps), msgspec.json.encode(made_with).decode())


def choose(experiment: Path, config: Config, marker: Marker) -> Path:
    """The folder to use if the user named none. It may not exist yet."""
    state_dir = state_dir_for(experiment, config)
    try:
        names = os.listdir(state_dir)
    except FileNotFoundError:
        names = []
    numbers = sorted(int(match[1]) for name in names if (match := _FOLDER.fullmatch(name)))
    for number in reversed(numbers):
        folder = state_dir / f"replay-{number}"
        found = read_marker(folder)
        if found == marker or (found is None and _is_empty(folder)):
            return folder
    return state_dir / f"replay-{numbers[-1] + 1 if numbers else 1}"


def check(out: Path, marker: Marker, live: Path, experiment: Path) -> None:
    """Raise UsageProblem unless a folder that the user named is usable for a replay of these steps of `experiment`.

    It must not hold anything else, nor lie in another experiment. And it must not be `live`, the folder where the
    sidecar has or will have its state.
    """
    there = next((place for place in (out, *out.parents) if os.path.lexists(place)), out)
    if os.path.lexists(there) and not there.is_dir():
        raise UsageProblem(f"--out {out}: {there} is not a folder", _ANOTHER)
    if os.path.realpath(out) == os.path.realpath(live):
        raise UsageProblem(
            f"{out} is for the state of the sidecar, which would continue from the replay's rows",
            _ANOTHER,
        )
    if is_experiment(out):
        raise UsageProblem(f"{out} is an experiment, and a replay keeps its rows in a folder of its own", _ANOTHER)
    if (other := _experiment_around(out, experiment)) is not None:
        raise UsageProblem(f"{out} is in the experiment {other}, and this is a replay of {experiment}", _ANOTHER)
    found = read_marker(out)
    if found is not None and found.steps != marker.steps:
        raise UsageProblem(
            f"{out} holds a replay of {_of(found.steps)}, not of {_of(marker.steps)}",
            "give each its own folder with --out, or omit --out",
        )
    if found is None and out.is_dir() and not _is_empty(out):
        raise UsageProblem(
            f"{out} holds something other than a replay", "give an empty folder, or one that does not exist yet"
        )


def _experiment_around(out: Path, experiment: Path) -> Path | None:
    """The experiment in whose folder `out` lies, if it is neither `experiment` nor around that, too."""
    own = Path(os.path.realpath(experiment))
    for folder in Path(os.path.realpath(out)).parents:
        if own.is_relative_to(folder):
            return None
        if is_experiment(folder):
            return folder
    return None


def _is_empty(folder: Path) -> bool:
    return all(name.startswith(".") for name in os.listdir(folder))


def _of(steps: str | None) -> str:
    return "all steps" if steps is None else f"steps {steps}"


def read_marker(folder: Path) -> Marker | None:
    """The marker in a folder; None without a readable one."""
    try:
        return _decode(read_plain(folder / MARKER, _MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotAFile, msgspec.DecodeError):
        return None
    except OSError as problem:
        if problem.errno == errno.ELOOP:  # it is a link, and rlship makes no links
            return None
        raise


def write_marker(folder: Path, marker: Marker) -> None:
    """Describe the replay in `folder`, durably. The folder must be ours: see `make_place`."""
    state_file.replace(folder / MARKER, msgspec.json.encode(marker) + b"\n")


def finished(marker: Marker) -> Marker:
    """The marker of the same replay once all rows are delivered."""
    return msgspec.structs.replace(marker, finished=True)
