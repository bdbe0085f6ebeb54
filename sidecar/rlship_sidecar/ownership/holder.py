"""What a lease file says of its owner, and what can be seen of that process from here."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from rlship_sidecar.plainfiles import read_plain

MAX_BYTES = 1 << 16
_PROC = "/proc"
_CGROUPS = "/sys/fs/cgroup"


class Condition(Enum):
    """What is seen of a holder's process. UNSEEN: it is on another host, or in another pid namespace."""

    RUNS = 1
    STANDS = 2
    GONE = 3
    UNSEEN = 4


class Holder(msgspec.Struct, kw_only=True):
    """The content of a lease file. Fields of later versions are ignored.

    `beats` changes while the owner lives. `token` is random: of two processes that both believe that they made the
    file, one finds the other's in it. `suspect` is the newest earlier generation whose owner may still be alive, -1 if
    there is none.
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


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease file as it was read: its bytes, and its holder, None where the bytes are none."""

    raw: bytes
    holder: Holder | None


def here() -> Holder:
    """This process as a holder."""

    def text(path: str) -> str:
        try:
            return Path(path).read_text().strip()
        except OSError:
            return ""

    try:
        pid_space = os.readlink(f"{_PROC}/self/ns/pid")
    except OSError:
        pid_space = ""
    state = _state(os.getpid())
    return Holder(
        host=socket.gethostname(),
        boot=text(f"{_PROC}/sys/kernel/random/boot_id"),
        pid_space=pid_space,
        pid=os.getpid(),
        started=state[1] if state else 0,
        token=secrets.token_hex(8),
    )


def encoded(holder: Holder) -> bytes:
    """The bytes of a lease file; of one length always, so that a reader of a rewritten one sees whole JSON or none."""
    return msgspec.json.encode(holder).ljust(512) + b"\n"


def read(path: Path) -> Seen | None:
    """A lease file, or None where there is none of that name."""
    try:
        raw = read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    try:
        return Seen(raw, msgspec.json.decode(raw, type=Holder))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Seen(raw, None)


def condition(holder: Holder, here: Holder) -> Condition:
    """What is seen of the holder's process."""
    same = (holder.host, holder.boot, holder.pid_space) == (here.host, here.boot, here.pid_space)
    if not same or not here.boot or not here.pid_space:
        return Condition.UNSEEN
    state = _state(holder.pid)
    if state is None and _hidden(holder.pid):
        return Condition.UNSEEN
    # Numbers come again: a process that started at another time is not the holder.
    if state is None or state[1] != holder.started:
        return Condition.GONE
    # T, t: stopped. D: waits for a disk or a server, for a moment or for good, or is frozen by the first freezer.
    return Condition.STANDS if state[0] in "TtD" or _frozen(holder.pid) else Condition.RUNS


def _state(pid: int) -> tuple[str, int] | None:
    """A process's state letter and when it started, in clock ticks since boot; None if there is none of that number."""
    try:
        stat = Path(f"{_PROC}/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else (fields[0], int(fields[19]))


def _hidden(pid: int) -> bool:
    """Whether there is such a process of another user that `/proc` does not show: mounted with `hidepid`, say."""
    if os.path.exists(f"{_PROC}/{pid}"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _frozen(pid: int) -> bool:
    """Whether the process's group is frozen by the second freezer, which shows it as sleeping."""
    try:
        groups = Path(f"{_PROC}/{pid}/cgroup").read_text().splitlines()
        (unified,) = (line[3:] for line in groups if line.startswith("0::"))
        return "frozen 1" in Path(f"{_CGROUPS}{unified}/cgroup.events").read_text().splitlines()
    except (OSError, ValueError):
        return False
