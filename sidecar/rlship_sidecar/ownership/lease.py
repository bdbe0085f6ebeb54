"""The lease by which one sidecar owns an experiment. Generation g belongs to the process that created `lease.<g>`; the
highest generation owns.

Two sidecars can race only for the creation of that file, and exclusive creation works on every shared filesystem. An
owner beats by rewriting a counter in its file. Another host calls the lease stale only after the counter stood still
for `ttl_s` of its own clock, so host clocks need not agree.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlship_sidecar.errors import OwnedElsewhere, RlshipError
from rlship_sidecar.ownership.holder import Condition, Holder, Seen, condition, encoded, here, read
from rlship_sidecar.ownership.inherit import inherit, store_file, stores
from rlship_sidecar.plainfiles import write_plain

_LEASE = re.compile(r"lease\.(\d{1,9})$")
_BEATS_PER_TTL = 6
# An owner stops being sure before another can take over, because the clocks of two hosts may differ in rate by a tenth.
_SURE_SHARE = 0.9
_HELD: set[str] = set()  # the lease files that this process holds
_ABANDONED: set[str] = set()  # lease files in whose name a thread of this process may still write


class LeaseLost(RlshipError):
    """Another sidecar took over, or this one stood still too long to exclude that."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Owner:
    """The present owner of an experiment, or the last one if it `released` it. `alive` is None if only its host could
    know.
    """

    host: str
    pid: int
    alive: bool | None
    released: bool = False


def _boottime() -> float:
    # Unlike the monotonic clock, this one runs while the machine sleeps, when another sidecar may take over.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _leases(state_dir: Path) -> list[int]:
    with os.scandir(state_dir) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _LEASE.match(entry.name)))


def _lease_file(state_dir: Path, generation: int) -> Path:
    return state_dir / f"lease.{generation}"


def owner(state_dir: Path) -> Owner | None:
    """The owner of the experiment with this state directory; None without one."""
    found = last_owner(state_dir)
    return None if found is None or found.released else found


def last_owner(state_dir: Path) -> Owner | None:
    """The present or last owner of the experiment; None if it is unknown."""
    try:
        leases = _leases(state_dir)
    except FileNotFoundError:
        return None
    seen = read(_lease_file(state_dir, leases[-1])) if leases else None
    if seen is None or seen.holder is None:
        return None
    holder, found = seen.holder, condition(seen.holder, here())
    alive = None if found is Condition.UNSEEN else found is not Condition.GONE
    return Owner(holder.host, holder.pid, alive, holder.released)


class Lease:
    """Ownership of one experiment, as long as `check` does not raise.

    `suspect` is the newest earlier generation whose owner may be alive, however long it was silent; -1 without one.
    """

    def __init__(
        self, state_dir: Path, generation: int, holder: Holder, ttl_s: float, boottime: Callable[[], float]
    ) -> None:
        self.state_dir = state_dir
        self.generation = generation
        self.suspect = holder.suspect
        self._ttl_s = ttl_s
        self._boottime = boottime
        self._path = _lease_file(state_dir, generation)
        self._holder = holder
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._usurped = False
        self._failure: OSError | None = None
        self._beat_at = boottime()
        self._place = os.lstat(state_dir).st_ino
        self._write()
        self._real = os.path.realpath(self._path)  # the path as it resolves now, wherever it leads later
        _HELD.add(self._real)

    @property
    def store_path(self) -> Path:
        """The path of this generation's store. A predecessor that wakes up late writes to an older one, which no
        process reads.
        """
        return store_file(self.state_dir, self.generation)

    def _write(self) -> None:
        data = encoded(self._holder)
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(fd, data, 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def held(self) -> bool:
        """True if ownership is certain now. Any thread may call it."""
        try:
            return self._sure()
        except OSError:
            return False

    def _sure(self) -> bool:
        if self._usurped or self._boottime() - self._beat_at >= self._ttl_s * _SURE_SHARE:
            return False
        try:
            return not self._exchanged() and max(_leases(self.state_dir), default=-1) == self.generation
        except FileNotFoundError:
            return False

    def _exchanged(self) -> bool:
        """True if another folder, or a link, took the place of the state folder."""
        found = os.lstat(self.state_dir)
        return found.st_ino != self._place or not stat.S_ISDIR(found.st_mode)

    def check(self) -> None:
        """Verify ownership before a commit or a delivery, and beat if it is time.

        Raises LeaseLost, or OSError if the folder cannot be read now. A failed beat is tried again: a full disk or a
        hanging mount recovers by itself, or the lease runs out.
        """
        with self._lock:
            # Taken first, so that a process that is suspended after this line notices it.
            now = self._boottime()
            if not self._sure():
                raise self._lost(now)
            if now - self._beat_at >= self._ttl_s / _BEATS_PER_TTL and not self._over.is_set():
                try:
                    self._beat(now)
                except OSError as error:
                    self._failure = error
                if self._usurped:
                    raise self._lost(now)

    def _beat(self, now: float) -> None:
        seen = read(self._path)
        if seen is not None and seen.holder is not None and seen.holder.token != self._holder.token:
            # Without a working O_EXCL, two processes create the same file. The one that wrote last keeps it.
            self._usurped = True
            return
        self._holder.beats += 1
        self._write()
        self._beat_at = now
        self._failure = None

    def _lost(self, now: float) -> LeaseLost:
        why = f"this one stood still for {now - self._beat_at:.0f} s"
        if os.path.lexists(self.state_dir) and self._exchanged():
            why = "another folder was put in its place"
        elif self._failure is not None:
            why = f"this one could not write {self._path}: {self._failure.strerror}"
        return LeaseLost(
            f"another sidecar may own {self.state_dir.parent} now ({why})",
            "Nothing is lost: the other one goes on where this one stopped. Keep one sidecar per experiment.",
        )

    def keep(self) -> None:
        """Beat from another thread until released or lost, because a long copy, read or delivery must not look like a
        death.
        """
        _KEEPER.keep(self)

    @property
    def is_over(self) -> bool:
        """True once the lease was released or abandoned."""
        return self._over.is_set()

    @property
    def beat_every_s(self) -> float:
        """Seconds between two beats."""
        return self._ttl_s / _BEATS_PER_TTL

    def release(self) -> None:
        """Let the next sidecar take over at once."""
        self._over.set()
        _KEEPER.end()
        _HELD.discard(self._real)
        # on a full disk or a lost mount, the next sidecar watches for `ttl_s` instead
        with self._lock, suppress(OSError):
            self._holder.released = True
            if not self._exchanged():
                self._write()

    def abandon(self) -> None:
        """Stop without marking the lease as released, because a thread that cannot be stopped may still write."""
        _ABANDONED.add(self._real)
        self._over.set()
        _KEEPER.end()
        _HELD.discard(self._real)


class Keeper:
    """Beats for all leases of this process, with one thread for each device that holds leases.

    So a hanging disk costs only its own leases, and a thousand leases need no thousand threads.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._leases: dict[int, list[Lease]] = {}

    def keep(self, lease: Lease) -> None:
        """Beat until the lease is over or lost. If the system offers no thread, the owner's calls of `check` have to
        do.
        """
        device = os.stat(lease.state_dir).st_dev
        with self._change:
            kept = self._leases.setdefault(device, [])
            kept.append(lease)
            if len(kept) > 1:
                self._change.notify_all()  # this lease may need a beat sooner than the others
                return
            try:
                threading.Thread(target=self._beat, args=(device,), name="rlship-lease", daemon=True).start()
            except (RuntimeError, MemoryError):
                del self._leases[device]

    def _beat(self, device: int) -> None:
        looked_at = time.monotonic()
        while True:
            with self._change:
                kept = self._leases[device] = [lease for lease in self._leases[device] if not lease.is_over]
                if not kept:
                    del self._leases[device]
                    return
                left = looked_at + min(lease.beat_every_s for lease in kept) - time.monotonic()
                if left > 0:
                    self._change.wait(left)
                    continue
            looked_at = time.monotonic()
            for lease in kept:
                try:
                    lease.check()
                except LeaseLost:
                    with self._change:
                        self._leases[device].remove(lease)
                except OSError:  # retried at the next turn, until the lease runs out
                    continue

    def end(self) -> None:
        """Let the threads notice that a lease is over."""
        with self._change:
            self._change.notify_all()


_KEEPER = Keeper()


def acquire(
    state_dir: Path,
    ttl_s: float,
    *,
    boottime: Callable[[], float] = _boottime,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Become the owner, and beat from then on in a thread.

    Watches a silent owner for at most `ttl_s` seconds. Raises OwnedElsewhere if another sidecar owns the experiment,
    and StoreUnusable if the last store is damaged.
    """
    state_dir.mkdir(exist_ok=True)
    while True:
        # Stores count too: a person who removed the leases did not mean to give up the store.
        last = max((*_leases(state_dir), *stores(state_dir)), default=-1)
        gone: int | None = None
        suspect = -1
        if last >= 0:
            seen = read(_lease_file(state_dir, last))
            if seen is not None:
                seen = _wait_until_free(_lease_file(state_dir, last), seen, ttl_s, boottime, sleep)
                if seen is None:
                    continue  # its owner gave it up in the meantime
            gone = last if seen is not None and _certainly_gone(_lease_file(state_dir, last), seen) else None
            suspect = seen.holder.suspect if gone is not None and seen is not None and seen.holder is not None else last
        generation = last + 1
        holder = here()
        holder.suspect = suspect
        try:
            _create(_lease_file(state_dir, generation), holder)
        except FileExistsError:
            continue
        lease: Lease | None = None
        try:
            lease = Lease(state_dir, generation, holder, ttl_s, boottime)
            lease.keep()
            inherit(state_dir, generation, gone)
            lease.check()
        except BaseException:
            # This process lives on without a store. Its lease would keep out every sidecar, including itself on the
            # next try.
            if lease is not None:
                lease.release()
            with suppress(OSError):
                _lease_file(state_dir, generation).unlink()
            raise
        return lease


def _create(path: Path, holder: Holder) -> None:
    """Create a lease file with its holder in it. Raises FileExistsError if another process was first.

    A hard link makes the file appear whole. Without hard links it appears empty, and a crash at that point costs the
    next sidecar `ttl_s` of watching.
    """
    scratch = path.with_name(f".{path.name}.{holder.token}")
    try:
        write_plain(scratch, encoded(holder))
        try:
            os.link(scratch, path)
        except FileExistsError:
            # If a server's answer was lost, the client asks again, and the server then reports our own link as
            # existing.
            if os.stat(scratch).st_nlink < 2:
                raise
        except OSError:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    finally:
        scratch.unlink(missing_ok=True)


def _wait_until_free(
    path: Path, seen: Seen, ttl_s: float, boottime: Callable[[], float], sleep: Callable[[float], None]
) -> Seen | None:
    """Wait until no owner holds the lease and return its content; None if the file is gone. Raises OwnedElsewhere."""
    since = boottime()
    while True:
        if _certainly_gone(path, seen) or os.path.realpath(path) in _ABANDONED or boottime() - since >= ttl_s:
            return seen
        if seen.holder is not None and condition(seen.holder, here()) is Condition.RUNS:
            raise _owned(path, seen)
        sleep(min(1.0, ttl_s / _BEATS_PER_TTL))
        now = read(path)
        if now is None:
            return None
        if now.raw == seen.raw:
            continue
        both = seen.raw and (now.holder is None) == (seen.holder is None)
        if both and not (now.holder is not None and now.holder.released):
            raise _owned(path, now)
        seen, since = now, boottime()


def _certainly_gone(path: Path, seen: Seen) -> bool:
    """True if the holder certainly does nothing any more."""
    holder = seen.holder
    if holder is None or os.path.realpath(path) in _ABANDONED:
        return False
    if holder.released:
        return True
    me = here()
    found = condition(holder, me)
    # A lease in this process's name that it does not hold: the folder was copied or moved with its lease.
    ours = found is not Condition.UNSEEN and holder.pid == me.pid and os.path.realpath(path) not in _HELD
    return found is Condition.GONE or ours


def _owned(path: Path, seen: Seen) -> OwnedElsewhere:
    experiment = path.parent.parent.parent
    holder = seen.holder
    if holder is None:
        return OwnedElsewhere(
            f"{experiment} is",
            f"another sidecar, of a version that writes {path} in another form",
            "Use that one, or stop it first.",
        )
    return OwnedElsewhere(
        f"{experiment} is",
        f"another sidecar: process {holder.pid} on {holder.host}",
        f"Use that one, or stop it first (on {holder.host}: kill {holder.pid}); `rlship status` shows what it does.",
    )
