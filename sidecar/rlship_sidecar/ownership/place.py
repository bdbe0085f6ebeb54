"""Where the state is kept: a folder of the sidecar's own, and not what somebody put in its place.

Whoever may write in the experiment may make `rlship/state` before the sidecar does. What lies there says whose W&B run
this is and what is written and removed where, so that it has to come from a sidecar of this user.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.plainfiles import make_plain
from rlship_sidecar.tail.listing import WRITERS_FOLDER

_TRUSTED = (0,)  # the superuser may do anything anyway
_WAY_OUT = "Keep the state where the job's processes cannot write: --state-dir (docs/security.md)."


class UntrustedState(RlshipError):
    """The state folder, or something in it, may have been put there by somebody else."""


def make_place(experiment: Path, state_dir: Path) -> None:
    """Make the state folder if there is none; raises UntrustedState, OSError."""
    within = experiment / WRITERS_FOLDER
    if within in state_dir.parents:
        for folder in (within, *reversed([one for one in state_dir.parents if within in one.parents])):
            _folder(folder)
    else:
        state_dir.mkdir(parents=True, exist_ok=True)
    found = _folder(state_dir)
    if found.st_uid not in (*_TRUSTED, os.geteuid()) and found.st_uid != _our_uid(state_dir):
        raise UntrustedState(
            f"the state folder {state_dir} belongs to another user (uid {found.st_uid}), not to the one who runs this "
            f"(uid {os.geteuid()})",
            f"If that user is to be trusted: chown -R {os.geteuid()} {state_dir}. {_WAY_OUT}",
        )
    with os.scandir(state_dir) as entries:
        for entry in entries:
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                what = "a link" if entry.is_symlink() else "no regular file"
                raise UntrustedState(
                    f"{state_dir / entry.name} is {what}, which no sidecar makes: nothing is written through it",
                    f"Remove it. To have a sink write elsewhere, give it another place in {experiment.name}'s settings "
                    f"([sink.jsonl] path, [sink.tensorboard] dir). {_WAY_OUT}",
                )


def _folder(path: Path) -> os.stat_result:
    """The folder at a path, made if there is none. Raises UntrustedState for a link."""
    with suppress(FileExistsError):
        os.mkdir(path)
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise UntrustedState(f"{path} is a link, which is not followed", f"Put a folder in its place. {_WAY_OUT}")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "not a folder", os.fspath(path))
    return found


def _our_uid(folder: Path) -> int:
    """Whose a file is that we make there: a server may make all its users one."""
    scratch = folder / f".lease.0.{secrets.token_hex(8)}"  # a successor removes what a crash left
    fd = make_plain(scratch)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        os.unlink(scratch)
