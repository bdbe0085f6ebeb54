"""Who owns an experiment: generation g belongs to whoever created `lease.<g>`; the highest generation owns.

A file that is made only if it is not there yet is the one step that two sidecars can race for, and it works on every
shared filesystem. An owner beats by rewriting a counter in its file; another host calls it stale only after watching
that file stand still for `ttl_s` of its own clock, so host clocks need not agree.
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
# An owner stops being sure before another can be: clocks of two hosts may run at rates that differ by a tenth.
_SURE_SHARE = 0.9
_HELD: set[str] = set()  # lease files of this process
_ABANDONED: set[str] = set()  # and those in whose name a thread of it may still write


class LeaseLost(RlshipError):
    """Another sidecar took the experiment over, or this one stood still too long to be sure that none did."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns an experiment, or did and `released` it. `alive` is None where only its own host could tell."""

    host: str
    pid: int
    alive: bool | None
    released: bool = False


def _boottime() -> float:
    # Unlike the monotonic clock this one goes on while the machine sleeps, when another may have taken over.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _leases(state_dir: Path) -> list[int]:
    with os.scandir(state_dir) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _LEASE.match(entry.name)))


def _lease_file(state_dir: Path, generation: int) -> Path:
    return state_dir / f"lease.{generation}"


def owner(state_dir: Path) -> Owner | None:
    """Who owns the experiment with this state directory, or None if nobody does."""
    found = last_owner(state_dir)
    return None if found is None or found.released else found


def last_owner(state_dir: Path) -> Owner | None:
    """Who owns the experiment or owned it last, or None if that is not known."""
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

    `suspect` is the newest earlier generation whose owner may still be alive, however long it was silent; -1: none.
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
        self._real = os.path.realpath(self._path)  # as it is now, wherever the path leads later
        _HELD.add(self._real)

    @property
    def store_path(self) -> Path:
        """This generation's store: a predecessor that wakes up late writes to one that nobody reads."""
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
        """Whether ownership is certain now. Any thread may ask."""
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
        """Whether another folder, or a link, has the place of the one that was locked."""
        found = os.lstat(self.state_dir)
        return found.st_ino != self._place or not stat.S_ISDIR(found.st_mode)

    def check(self) -> None:
        """Make sure of ownership before anything is committed or shipped, and beat if it is time; raises LeaseLost, or
        OSError where the folder cannot be looked into just now.

        A beat that fails is tried again: a full disk or a mount that hangs ends by itself, or the lease does.
        """
        with self._lock:
            # Taken before anything else: whoever stands still from here on finds that it stood still.
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
            # Where O_EXCL does not exclude, two make the same file. The one who wrote last keeps it.
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
        """Beat from another thread until released or lost: copying, reading or delivering much is no death."""
        _KEEPER.keep(self)

    @property
    def is_over(self) -> bool:
        """Whether it was released or abandoned."""
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
        with self._lock, suppress(OSError):  # a full disk or a lost mount: the next one watches for `ttl_s` instead
            self._holder.released = True
            if not self._exchanged():
                self._write()

    def abandon(self) -> None:
        """Stop without letting the next one believe that nothing is written any more: a thread of this process that
        cannot be stopped may do so.
        """
        _ABANDONED.add(self._real)
        self._over.set()
        _KEEPER.end()
        _HELD.discard(self._real)


class Keeper:
    """Beats for all leases of this process: one thread for each device that they are on. So a disk that hangs lets
    none but its own leases run out, and a thousand leases need no thousand threads.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._leases: dict[int, list[Lease]] = {}

    def keep(self, lease: Lease) -> None:
        """Beat until the lease is over or lost. Where the system gives no thread, its owner's own looks must do."""
        device = os.stat(lease.state_dir).st_dev
        with self._change:
            kept = self._leases.setdefault(device, [])
            kept.append(lease)
            if len(kept) > 1:
                self._change.notify_all()  # it may have to be beaten for sooner than the others
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
                except OSError:  # tried again at the next turn, until the lease runs out
                    continue

    def end(self) -> None:
        """Let threads notice that a lease is over."""
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
    """Become the owner, and beat from then on in a thread; raises OwnedElsewhere if somebody is, after at most `ttl_s`
    seconds of watching whether it beats; StoreUnusable where the last one's store is damaged.
    """
    state_dir.mkdir(exist_ok=True)
    while True:
        # Who removed the leases did not mean to give up the store.
        last = max((*_leases(state_dir), *stores(state_dir)), default=-1)
        gone: int | None = None
        suspect = -1
        if last >= 0:
            seen = read(_lease_file(state_dir, last))
            if seen is not None:
                seen = _wait_until_free(_lease_file(state_dir, last), seen, ttl_s, boottime, sleep)
                if seen is None:
                    continue  # it was given up again meanwhile
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
            # Alive and without a store, this process would keep everybody out, itself too when it tries again.
            if lease is not None:
                lease.release()
            with suppress(OSError):
                _lease_file(state_dir, generation).unlink()
            raise
        return lease


def _create(path: Path, holder: Holder) -> None:
    """Make a lease file with its holder in it; raises FileExistsError if another process was first.

    A link makes it appear whole. Where there are no links it appears empty, and a crash just then costs the next
    sidecar `ttl_s` of watching.
    """
    scratch = path.with_name(f".{path.name}.{holder.token}")
    try:
        write_plain(scratch, encoded(holder))
        try:
            os.link(scratch, path)
        except FileExistsError:
            # A server whose answer was lost is asked again, and then says that our own link is in the way.
            if os.stat(scratch).st_nlink < 2:
                raise
        except OSError:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    finally:
        scratch.unlink(missing_ok=True)


def _wait_until_free(
    path: Path, seen: Seen, ttl_s: float, boottime: Callable[[], float], sleep: Callable[[float], None]
) -> Seen | None:
    """Return what the file says once nobody holds the lease; None if the file is gone. Raises OwnedElsewhere."""
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
    """Whether the holder does nothing any more, for sure."""
    holder = seen.holder
    if holder is None or os.path.realpath(path) in _ABANDONED:
        return False
    if holder.released:
        return True
    me = here()
    found = condition(holder, me)
    # Of this process's own, one that it does not hold: the folder was copied or moved while it did, its lease with it.
    ours = found is not Condition.UNSEEN and holder.pid == me.pid and os.path.realpath(path) not in _HELD
    return found is Condition.GONE or ours


def _owned(path: Path, seen: Seen) -> OwnedElsewhere:
    experiment = path.parent.parent.parent
    holder = seen.holder
    if holder is None:
        return OwnedElsewhere(
            f"{experiment} is owned by another sidecar, of a version that writes {path} otherwise than this one",
            "Use that one, or stop it first.",
        )
    return OwnedElsewhere(
        f"{experiment} is owned by another sidecar: process {holder.pid} on {holder.host}",
        f"Use that one, or stop it first (on {holder.host}: kill {holder.pid}); `rlship status` shows what it does.",
    )
