"""The content of a lease file, and the visible state of the process that owns it."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from rlship_sidecar import pids
from rlship_sidecar.plainfiles import read_plain

MAX_BYTES = 1 << 16
_CGROUPS = "/sys/fs/cgroup"


class Condition(Enum):
    """The visible state of a holder's process. UNSEEN: it runs on another host or in another pid namespace."""

    RUNS = 1
    STANDS = 2
    GONE = 3
    UNSEEN = 4


class Holder(msgspec.Struct, kw_only=True):
    """The content of a lease file. Fields of later versions are ignored.

    `beats` changes while the owner lives. `token` is random: if two processes both believe that they created the file,
    one finds the other's token in it. `suspect` is the newest earlier generation whose owner may be alive, or -1.
    """

    host: str
    boot: str
    pid_space: str
    pid: int
    started: int
    beats: int = 0
    released: bool = False
    token: str = ""
    suspect: int = -1


_decode = msgspec.json.Decoder(Holder).decode


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease file as read: its bytes, and its holder, or None if the bytes describe no holder."""

    raw: bytes
    holder: Holder | None


def here() -> Holder:
    """Describe this process as a holder."""
    state = pids.state(os.getpid())
    return Holder(
        host=socket.gethostname(),
        boot=pids.boot(),
        pid_space=pids.namespace(),
        pid=os.getpid(),
        started=state[1] if state else 0,
        token=secrets.token_hex(8),
    )


def encoded(holder: Holder) -> bytes:
    """The bytes of a lease file. Their length is constant, so a reader of a file being rewritten sees whole JSON or an
    error.
    """
    return msgspec.json.encode(holder).ljust(512) + b"\n"


def read(path: Path) -> Seen | None:
    """Read a lease file; None if it does not exist."""
    try:
        raw = read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    try:
        return Seen(raw, _decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Seen(raw, None)


def condition(holder: Holder, here: Holder) -> Condition:
    """The visible state of the holder's process."""
    same = (holder.host, holder.boot, holder.pid_space) == (here.host, here.boot, here.pid_space)
    if not same or not here.boot or not here.pid_space:
        return Condition.UNSEEN
    state = pids.state(holder.pid)
    if state is None and pids.is_hidden(holder.pid):
        return Condition.UNSEEN
    # The system reuses process numbers: a process with another start time is not the holder.
    if state is None or state[1] != holder.started:
        return Condition.GONE
    # T, t: stopped. D: waiting for a disk or server, for a moment or for good, or frozen by the cgroup v1 freezer.
    return Condition.STANDS if state[0] in "TtD" or _frozen(holder.pid) else Condition.RUNS


def _frozen(pid: int) -> bool:
    """True if the process is frozen by the cgroup v2 freezer, which shows it as sleeping."""
    try:
        groups = Path(f"{pids.PROC}/{pid}/cgroup").read_text().splitlines()
        (unified,) = (line[3:] for line in groups if line.startswith("0::"))
        return "frozen 1" in Path(f"{_CGROUPS}{unified}/cgroup.events").read_text().splitlines()
    except (OSError, ValueError):
        return False
