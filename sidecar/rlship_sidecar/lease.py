"""Who owns an experiment: generation g belongs to whoever created `lease.<g>`; the highest generation owns.

A file created with O_EXCL is the only step that two sidecars can race for, and it works on every shared filesystem. An
owner
beats by rewriting a counter in its file; another host calls it stale only after watching that counter stand still for
`ttl_s` of its own clock, so host clocks need not agree.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rlship_sidecar.errors import OwnedElsewhere, RlshipError

_LEASE = re.compile(r"lease\.(\d{1,9})$")
_BEATS_PER_TTL = 6
_HELD: set[str] = set()  # lease files of this process


class LeaseLost(RlshipError):
    """Another sidecar took the experiment over, or this one stood still too long to be sure that none did."""

    exit_code = 5


class _Holder(msgspec.Struct, kw_only=True):
    """What stands in a lease file."""

    host: str
    boot: str
    pid_space: str
    pid: int
    started: int
    beats: int = 0
    released: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns an experiment. `alive` is None where only its own host could tell."""

    host: str
    pid: int
    alive: bool | None


def _boottime() -> float:
    # Unlike the monotonic clock this one goes on while the machine sleeps, when another may have taken over.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _here() -> _Holder:
    def text(path: str) -> str:
        try:
            return Path(path).read_text().strip()
        except OSError:
            return ""

    try:
        pid_space = os.readlink("/proc/self/ns/pid")
    except OSError:
        pid_space = ""
    return _Holder(
        host=socket.gethostname(),
        boot=text("/proc/sys/kernel/random/boot_id"),
        pid_space=pid_space,
        pid=os.getpid(),
        started=_started(os.getpid()) or 0,
    )


def _encoded(holder: _Holder) -> bytes:
    # Of one length always: rewritten in place, a reader sees whole JSON or none.
    return msgspec.json.encode(holder).ljust(512) + b"\n"


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _alive(holder: _Holder, here: _Holder) -> bool | None:
    """Whether the holder runs; None where this host cannot see its processes."""
    same = (holder.host, holder.boot, holder.pid_space) == (here.host, here.boot, here.pid_space)
    if not same or not here.boot or not here.pid_space:
        return None
    return _started(holder.pid) == holder.started


def _generations(state_dir: Path) -> list[int]:
    with os.scandir(state_dir) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _LEASE.match(entry.name)))


def _read(path: Path) -> _Holder | None:
    """The holder, or None while its file is still being written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Holder)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def owner(state_dir: Path) -> Owner | None:
    """Who owns the experiment with this state directory, or None if nobody does."""
    try:
        generations = _generations(state_dir)
    except FileNotFoundError:
        return None
    holder = _read(state_dir / f"lease.{generations[-1]}") if generations else None
    if holder is None or holder.released:
        return None
    return Owner(holder.host, holder.pid, _alive(holder, _here()))


class Lease:
    """Ownership of one experiment, as long as `check` does not raise."""

    def __init__(self, state_dir: Path, generation: int, ttl_s: float, boottime: Callable[[], float]) -> None:
        self.state_dir = state_dir
        self.generation = generation
        self._ttl_s = ttl_s
        self._boottime = boottime
        self._path = state_dir / f"lease.{generation}"
        self._holder = _here()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._write()
        self._beat_at = boottime()
        _HELD.add(os.path.realpath(self._path))

    @property
    def store_path(self) -> Path:
        """This generation's store: a predecessor that wakes up late writes to one that nobody reads."""
        return self.state_dir / f"store.{self.generation}.db"

    def _write(self) -> None:
        data = _encoded(self._holder)
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def held(self) -> bool:
        """Whether ownership is certain now. Any thread may ask."""
        if self._boottime() - self._beat_at >= self._ttl_s:
            return False
        try:
            return max(_generations(self.state_dir), default=-1) == self.generation
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Make sure of ownership before anything is committed or shipped, and beat if it is time; raises LeaseLost."""
        with self._lock:
            since = self._boottime() - self._beat_at
            if not self.held():
                raise LeaseLost(
                    f"another sidecar may own {self.state_dir.parent} now (this one stood still for {since:.0f} s)",
                    "Nothing is lost: the other one goes on where this one stopped. Keep one sidecar per experiment.",
                )
            if since >= self._ttl_s / _BEATS_PER_TTL and not self._over.is_set():
                self._holder.beats += 1
                self._write()
                self._beat_at = self._boottime()

    def keep(self) -> None:
        """Beat from a thread of its own until released or lost: reading or delivering much at once is no death."""
        threading.Thread(target=self._keep, name="rlship-lease", daemon=True).start()

    def _keep(self) -> None:
        while not self._over.wait(self._ttl_s / _BEATS_PER_TTL):
            try:
                self.check()
            except LeaseLost:
                return
            except OSError:
                continue  # a full disk or a mount that hangs: it ends by itself, or the lease does

    def release(self) -> None:
        """Let the next sidecar take over at once."""
        self._over.set()
        _HELD.discard(os.path.realpath(self._path))
        with self._lock, suppress(OSError):  # a full disk or a lost mount: the next one watches for `ttl_s` instead
            self._holder.released = True
            self._write()


def acquire(
    state_dir: Path,
    ttl_s: float,
    *,
    boottime: Callable[[], float] = _boottime,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Become the owner; raises OwnedElsewhere if somebody is, after at most `ttl_s` seconds of watching whether it
    beats.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    while True:
        generations = _generations(state_dir)
        dead_here = True
        if generations:
            dead_here = _wait_until_free(state_dir / f"lease.{generations[-1]}", ttl_s, boottime, sleep)
        generation = generations[-1] + 1 if generations else 0
        try:
            _create(state_dir / f"lease.{generation}")
        except FileExistsError:
            continue
        lease = Lease(state_dir, generation, ttl_s, boottime)
        try:
            if generations:
                _inherit(state_dir, generations, lease.store_path, move=dead_here)
        except BaseException:
            # Alive and without a store, this process would keep everybody out, itself too when it tries again.
            for name in (f"store.{generation}.tmp", f"lease.{generation}"):
                (state_dir / name).unlink(missing_ok=True)
            raise
        return lease


def _create(path: Path) -> None:
    """Make a lease file with its holder in it; raises FileExistsError if another process was first.

    A link makes it appear whole. Where there are no links it appears empty, and a crash just then costs the next
    sidecar `ttl_s` of watching.
    """
    scratch = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    scratch.write_bytes(_encoded(_here()))
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    finally:
        scratch.unlink()


def _wait_until_free(path: Path, ttl_s: float, boottime: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Return once nobody holds the lease; True if its holder certainly does nothing any more. Raises OwnedElsewhere."""
    seen = _read(path)
    since = boottime()
    while True:
        if seen is not None:
            here = _here()
            alive = _alive(seen, here)
            if alive and seen.pid == here.pid and os.path.realpath(path) not in _HELD:
                alive = False  # the folder was copied or moved while this process owned it, its lease with it
            if seen.released or alive is False:
                return True
            if alive:
                raise _owned(path, seen)
        if boottime() - since >= ttl_s:
            return False
        sleep(min(1.0, ttl_s / _BEATS_PER_TTL))
        now = _read(path)
        if now != seen:
            if seen is not None and now is not None and not now.released:
                raise _owned(path, now)
            seen, since = now, boottime()


def _owned(path: Path, holder: _Holder) -> OwnedElsewhere:
    return OwnedElsewhere(
        f"{path.parent.parent.parent} is owned by another sidecar: process {holder.pid} on {holder.host}",
        f"Use that one, or stop it first (on {holder.host}: kill {holder.pid}); `rlship status` shows what it does.",
    )


def _inherit(state_dir: Path, generations: list[int], target: Path, *, move: bool) -> None:
    """Take over the newest store there is: by renaming it if its owner, the last one, is gone, else by a copy."""
    for generation in reversed(generations):
        source = state_dir / f"store.{generation}.db"
        if not source.exists():
            continue
        # An older store's owner may be alive: the newest one died before it had a copy.
        if move and generation == generations[-1]:
            with closing(sqlite3.connect(source)) as connection:
                connection.execute("pragma wal_checkpoint(truncate)")
            os.rename(source, target)
        else:
            scratch = target.with_suffix(".tmp")
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(scratch)) as new:
                old.backup(new)
            os.rename(scratch, target)
        break
    for generation in generations[:-1]:
        store = f"store.{generation}"
        for name in (f"{store}.db", f"{store}.db-wal", f"{store}.db-shm", f"{store}.tmp", f"lease.{generation}"):
            (state_dir / name).unlink(missing_ok=True)
