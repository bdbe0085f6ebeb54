"""Tells which process is a child of which writer, when a process spawns another of its own rank.

A forked child knows its parent. A spawned one learns of it from the environment: `RLSHIP_PARENT` holds, for each open
writer of the process that set it, "<id>:<pid>:<start of that pid>:<checksum of the identity>". The variable alone
proves nothing, as it also reaches restarted processes, resubmitted jobs and other ranks. So a process is a child only
if

* its identity is the same in every part: folder, actor, replica, rank, world, attempt and the source of rank and world.
  A process that a launcher gave its own RANK, or another attempt, is not a child;
* the writer's process lives and is an ancestor of this one (same pid and start time, on the way up from our parent). A
  process that replaced itself by exec, that started after its predecessor died, or that runs in another job or on
  another host, is not a child.
"""

from __future__ import annotations

import os
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .identity import Identity

VARIABLE = "RLSHIP_PARENT"
_MAX_ANCESTORS = 64


def announce(writer: str, checksum: str) -> None:
    """Announce this process's writer to processes that are spawned from now on."""
    withdraw(writer)
    pid = os.getpid()
    entry = f"{writer}:{pid}:{_status(pid)[1]}:{checksum}"
    os.environ[VARIABLE] = ",".join([*_entries(), entry])


def withdraw(writer: str) -> None:
    """Remove the entry of a closed writer."""
    entries = [entry for entry in _entries() if not entry.startswith(writer + ":")]
    if entries:
        os.environ[VARIABLE] = ",".join(entries)
    else:
        os.environ.pop(VARIABLE, None)


def parent_of(checksum: str) -> str | None:
    """The id of the writer whose spawned child this process is, if the identity has this checksum; else None."""
    candidates = {}
    for entry in _entries():
        writer, _, rest = entry.partition(":")
        number, _, rest = rest.partition(":")
        start, _, entry_checksum = rest.partition(":")
        if entry_checksum == checksum and number.isdigit():
            candidates[int(number), start] = writer
    if not candidates:
        return None
    pid = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        above, start = _status(pid)
        if (pid, start) in candidates:
            return candidates[pid, start]
        if above <= 0:
            return None
        pid = above
    return None


def identity_of(folder: str, identity: Identity) -> str:
    """The checksum of a writer's identity."""
    facts = (identity.actor, identity.replica, identity.rank, identity.world, identity.attempt, identity.source)
    return checksum((folder, *facts))


def checksum(parts: tuple[object, ...]) -> str:
    """Eight hex digits that identify an identity."""
    return f"{crc32(repr(parts).encode('utf-8', 'replace')):08x}"


def _entries() -> list[str]:
    return [entry for entry in os.environ.get(VARIABLE, "").split(",") if entry]


def _status(pid: int) -> tuple[int, str]:
    """The parent of `pid` and its start time; (0, "") without /proc, where only a direct parent is found."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), fields[19].decode()
    except (OSError, IndexError, ValueError):
        return 0, ""
