"""The place of the state: a folder of the sidecar's own, not one that another user put there.

Any user who may write in the experiment may create `rlship/state` before the sidecar does. The state names the W&B run
and the files to write and remove, so it has to come from a sidecar of this user.
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.plainfiles import make_plain
from rlship_sidecar.tail.listing import WRITERS_FOLDER

_TRUSTED = (0,)  # the superuser may do anything anyway
_WAY_OUT = "Keep the state where the job's processes cannot write: --state-dir (docs/security.md)."


class UntrustedState(RlshipError):
    """The state folder, or something in it, may come from another user."""


def make_place(experiment: Path, state_dir: Path) -> None:
    """Create the state folder if it does not exist. Raises UntrustedState, OSError.

    The experiment itself is never created: if it was renamed or removed, this raises FileNotFoundError.
    """
    on_the_way = _within(experiment, state_dir)
    if not on_the_way:
        state_dir.parent.mkdir(parents=True, exist_ok=True)
    for folder in (*on_the_way, state_dir):
        with suppress(FileExistsError):
            os.mkdir(folder)
        _require_folder(folder)
    _require_owner(
        state_dir, f"If that user is to be trusted: chown -R {os.geteuid()} {shlex.quote(str(state_dir))}. {_WAY_OUT}"
    )
    _require_plain_files(experiment, state_dir)


def require_place(experiment: Path, state_dir: Path, *, any_owner: bool) -> bool:
    """The checks of `make_place` for a command that only reads. Returns False if there is no state folder.

    With `any_owner` the folder may belong to any user. Raises UntrustedState, and RlshipError if it cannot be read.
    """
    try:
        for folder in (*_within(experiment, state_dir), state_dir):
            _require_folder(folder)
        if not any_owner:
            owner = os.lstat(state_dir).st_uid
            _require_owner(
                state_dir,
                f"Run this as that user (sudo -u '#{owner}' rlship …). State that the sidecar keeps elsewhere is "
                "trusted if you name its folder: --state-dir.",
            )
        _require_plain_files(experiment, state_dir)
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise RlshipError(
            f"{problem.filename or state_dir} cannot be read: {problem.strerror}",
            "run as the user who runs the sidecar",
        ) from problem
    return True


def _within(experiment: Path, state_dir: Path) -> list[Path]:
    """The folders from the writers' folder down to the state's parent; [] if the state lies elsewhere."""
    within = experiment / WRITERS_FOLDER
    if within not in state_dir.parents:
        return []
    return [within, *reversed([one for one in state_dir.parents if within in one.parents])]


def _require_folder(path: Path) -> None:
    """Raise UntrustedState for a link, NotADirectoryError for another file, FileNotFoundError for a missing folder."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise UntrustedState(f"{path} is a link, which is not followed", f"Put a folder in its place. {_WAY_OUT}")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", os.fspath(path))


def _require_owner(state_dir: Path, way_out: str) -> None:
    """Raise UntrustedState unless the folder belongs to this user or the superuser."""
    owner = os.lstat(state_dir).st_uid
    if owner not in (*_TRUSTED, os.geteuid()) and owner != _our_uid(state_dir):
        raise UntrustedState(
            f"the state folder {state_dir} belongs to another user (uid {owner}), not to the user of this command "
            f"(uid {os.geteuid()})",
            way_out,
        )


def _require_plain_files(experiment: Path, state_dir: Path) -> None:
    """Raise UntrustedState for anything in the state folder that is neither a file nor a folder."""
    with os.scandir(state_dir) as entries:
        for entry in entries:
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                what = "a link" if entry.is_symlink() else "no regular file"
                raise UntrustedState(
                    f"{state_dir / entry.name} is {what}, which no sidecar makes: it is neither read nor written",
                    f"Remove it. To have a sink write elsewhere, give it another place in {experiment.name}'s settings "
                    f"([sink.jsonl] path, [sink.tensorboard] dir). {_WAY_OUT}",
                )


def _our_uid(folder: Path) -> int | None:
    """The owner of a new file in `folder`, because a server may map all users to one. None if this process can make no
    file.
    """
    scratch = folder / f".lease.0.{secrets.token_hex(8)}"  # a successor removes it after a crash
    try:
        fd = make_plain(scratch)
    except PermissionError:
        return None
    except OSError as problem:
        if problem.errno == errno.EROFS:
            return None
        raise
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        os.unlink(scratch)
