"""What the last sidecar of an experiment left: its status, who it was, and which processes ended since."""

from __future__ import annotations

import math
import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.report import terminal
from rlship_sidecar.tail.ending import is_of_ended_process, last_close

if TYPE_CHECKING:
    from rlship_sidecar.ownership.lease import Owner
    from rlship_sidecar.report.ended import EndedProcesses
    from rlship_sidecar.report.status import Status, WriterStatus

STALE_S = 30.0  # a sidecar writes a status at least every few seconds
DATED_S = 120.0  # older than that, a person wants to see a date
OFFLINE_RUN = "offline-run-"  # how names of W&B's folders of offline runs begin
ENDS_S = 2.0  # the time that a process may need to end once it has released its lease


class SidecarState(NamedTuple):
    """Whether a sidecar runs, in words, and what to `do`, or "". `wanting`: rows wait until that is done."""

    what: str
    do: str = ""
    wanting: bool = False

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.what}. {self.do}" if self.do else self.what


def read(experiment: Path, state_dir: Path, lease_ttl_s: float) -> tuple[Status, Owner | None] | None:
    """The last status in a state folder, with `running` as it is now, and the present or last owner; None without a
    status. Where no sidecar reads now, writers' files that none has read are listed too, and then nothing is finished.
    Raises RlshipError.
    """
    import msgspec

    from rlship_sidecar.ownership.lease import last_owner
    from rlship_sidecar.report.status import STATUS_FILE, LostStatus, read_status

    try:
        known = read_status(state_dir)
        holder = last_owner(state_dir)
    except LostStatus as problem:
        raise RlshipError(
            f"{state_dir / STATUS_FILE} is empty, as after a host lost its power; files and rows are not concerned",
            f"a sidecar writes it anew: rlship watch {shlex.quote(str(experiment))}",
        ) from problem
    except msgspec.DecodeError as problem:
        raise RlshipError(
            f"{state_dir / STATUS_FILE} is damaged: {problem}", "a running sidecar writes it anew"
        ) from problem
    except OSError as problem:
        raise RlshipError(
            f"{problem.filename or state_dir} cannot be read: {problem.strerror}",
            "run as the user who runs the sidecar",
        ) from problem
    if known is None:
        return None
    _follow(known, experiment)
    for sink in known.sinks:
        sink.where = _still_there(sink.where)
    known.running = holder is not None and (
        _rests(known, holder) if holder.released else _alive(holder, known, lease_ttl_s)
    )
    if _is_stale(known):
        new = _never_read(experiment, known)
        known.writers += new
        known.finished = known.finished and not new
        _find_gone(known)
    return known, holder


def beginning(state_dir: Path) -> str | None:
    """Describe the living sidecar of an experiment without a status; None without such a sidecar."""
    from rlship_sidecar.ownership.lease import owner

    try:
        holder = owner(state_dir)
    except OSError:
        return None
    if holder is None or not holder.alive:
        return None
    return f"a sidecar (pid {holder.pid} on {terminal.clean(holder.host)}) has begun and written no status yet"


def _is_stale(known: Status) -> bool:
    """True if no sidecar has read on since the status."""
    return not known.running or time.time() - known.t > STALE_S


def _find_gone(known: Status) -> None:
    """Look for the awaited processes of this machine, as no sidecar does it now."""
    from rlship_sidecar.tail.listing import WRITERS_FOLDER

    for writer in known.writers:
        if writer.awaited and writer.pid and not (writer.gone or writer.format or writer.failure):
            file = Path(known.experiment, WRITERS_FOLDER, writer.file)
            writer.gone = is_of_ended_process(file) and last_close(file) is None


def _never_read(experiment: Path, known: Status) -> list[WriterStatus]:
    """The writers' files with lines that the status does not know: those of a job, or an agent, that began later."""
    from rlship_sidecar.report.status import MAX_WRITERS, never_read
    from rlship_sidecar.tail.listing import WRITERS_FOLDER, list_writers

    folder, names = experiment / WRITERS_FOLDER, {writer.file for writer in known.writers}
    # A status does not list all of very many files: of those it leaves out, the time says which are new.
    since = known.t if len(names) >= MAX_WRITERS else -math.inf
    found = []
    with suppress(OSError):
        for name in list_writers(os.fspath(folder)).files:
            if name not in names:
                with suppress(OSError):
                    seen = os.lstat(folder / name)
                    if seen.st_size and seen.st_mtime > since:
                        found.append(never_read(name, seen.st_size))
    return found


def _follow(known: Status, experiment: Path) -> None:
    """Name the present places of an experiment whose folder got another name since the status."""
    before, now = known.experiment, os.path.abspath(experiment)
    with suppress(OSError):
        if os.path.samefile(before, now):
            return
    known.experiment = now
    if shlex.quote(now) == now:  # else a command would need quotes
        for sink in known.sinks:
            sink.where = sink.where.replace(f"{before}/", f"{now}/")


def _still_there(where: str) -> str:
    """The destination of a sink; "" for a command on a folder that was removed since."""
    if not where.startswith("wandb sync "):
        return where
    # The folder of all offline runs, or a pattern of folders in it, or one of them, as an earlier rlship wrote it.
    named = Path(shlex.split(where)[-1])
    runs = (named.parent, named.name) if named.name.startswith(OFFLINE_RUN) else (named, f"{OFFLINE_RUN}*")
    return where if any(runs[0].glob(runs[1])) else ""


def _alive(holder: Owner, known: Status, lease_ttl_s: float) -> bool:
    """True if the owner lives. An owner on another host can only be judged by the age of its status."""
    return holder.alive if holder.alive is not None else time.time() - known.t < lease_ttl_s


def _rests(known: Status, holder: Owner) -> bool:
    """True if a living sidecar put the experiment to rest: it watches the files, and holds nothing open."""
    delivered = all(sink.next_row >= known.rows or sink.state == "refused" for sink in known.sinks)
    made = not any(actor.open_units for actor in known.actors)
    return holder.alive is True and delivered and made


def ended(now: Status) -> EndedProcesses:
    """The processes that ended. If no sidecar has read on since the status, the files themselves tell how they end and
    when they last grew.
    """
    from rlship_sidecar.report.ended import FileEnds, ended_processes
    from rlship_sidecar.tail.listing import WRITERS_FOLDER

    t = time.time()
    is_stale = _is_stale(now)
    silent_s, ends = {}, FileEnds()
    for writer in now.writers:
        if not writer.awaited:
            # An agent writes on after the job, and a process that another one took the place of may do so.
            if is_stale and not (writer.closed or writer.format or writer.is_never_read) and _has_grown(now, writer):
                ends.unread.add(writer.file)
            continue
        silent_s[writer.file] = max(0.0, writer.silent_s + t - now.t)
        if is_stale and not writer.format:
            file = Path(now.experiment, WRITERS_FOLDER, writer.file)
            with suppress(OSError):
                written = os.lstat(file).st_mtime
                silent_s[writer.file] = min(silent_s[writer.file], max(0.0, t - written))
                if written > now.t:
                    ends.unread.add(writer.file)
            close = last_close(file)
            if close is not None and not (close.rolls or close.failed):
                ends.closed.add(writer.file)
    return ended_processes(now, silent_s, ends)


def _has_grown(now: Status, writer: WriterStatus) -> bool:
    """True if a file was written after the status."""
    from rlship_sidecar.tail.listing import WRITERS_FOLDER

    try:
        return os.lstat(Path(now.experiment, WRITERS_FOLDER, writer.file)).st_mtime > now.t
    except OSError:
        return False


def sidecar(now: Status, owner: Owner | None, ended: EndedProcesses) -> SidecarState:
    """Describe the sidecar of an experiment whose last status is `now`."""
    age_s = max(0.0, time.time() - now.t)
    age = f"{terminal.duration(age_s)} ago{f' ({terminal.date(now.t)})' if age_s >= DATED_S else ''}"
    who = f"pid {owner.pid} on {terminal.clean(owner.host)}" if owner else ""
    # An owner that gave the experiment up and lives on tries to get it back, unless it is just ending.
    gave_up = owner is not None and owner.released and age_s > ENDS_S and not (terminal.finished(now) or now.running)
    if owner and owner.alive and (gave_up or (not owner.released and age_s > STALE_S)):
        host, old = terminal.clean(owner.host), terminal.duration(age_s)
        is_old = f"process {owner.pid} on {host} is alive, but its last status is {old} old (state disk full?)"
        return SidecarState(is_old, wanting=True)
    unread = _not_read(now, ended)
    is_over = terminal.finished(now) and not unread
    if owner and owner.released and now.running:
        state = "at rest: " + (", ".join(unread) or "nothing new")
        state = "finished: all writers closed, all rows delivered" if is_over else state
        return SidecarState(f"{state}; as of {age}. The sidecar ({who}) goes on if a file changes")
    if owner and owner.released:
        who = ""
    if now.running:
        return SidecarState(f"sidecar running ({who}), as of {age}")
    if is_over:
        return SidecarState(f"finished: all writers closed, all rows delivered; as of {age}")
    last = f" (the last was {who})" if who else ""
    where = shlex.quote(terminal.clean(now.experiment))
    without = "; ".join([f"no sidecar running{last}", f"as of {age}", *unread])
    is_left = _is_left(now, ended, age_s)
    if not ended.all and (is_left or unread or not _foreign_rest(now, ended)):
        return SidecarState(without, f"To go on: rlship watch {where}", wanting=True)
    if is_left:
        do = f"To make and deliver the last rows: rlship watch --once {where}"
        return SidecarState(without, do, wanting=True)
    return SidecarState(without, f"All rows are delivered; once the job goes on: rlship watch {where}")


def _not_read(now: Status, ended: EndedProcesses) -> list[str]:
    """What no sidecar has read: files that it never knew, and those that grew."""
    new = [writer.unread for writer in now.writers if writer.is_never_read]
    grown = len(ended.unread)
    found = []
    if new:
        found.append(f"{terminal.counted(len(new), 'file')} that no sidecar has read ({terminal.size(sum(new))})")
    if grown:
        found.append(f"{terminal.counted(grown, 'file')} {'has' if grown == 1 else 'have'} grown since")
    return found


def _foreign_rest(now: Status, ended: EndedProcesses) -> bool:
    """True if the processes that did not end have files of other frameworks, which hold no close, and these and their
    folders have not changed since the status.
    """
    from rlship_sidecar.report.status import MAX_WRITERS

    over = {writer.file for writer in (*ended.writers, *ended.closed)}
    going = [writer for writer in now.writers if writer.awaited and writer.file not in over]
    if not going or not all(writer.format for writer in going) or len(now.writers) >= MAX_WRITERS:
        return False
    files = {_path_of(now, writer) for writer in going}
    above = {folder for file in files for folder in file.parents if folder.is_relative_to(now.experiment)}
    try:
        return all(os.lstat(path).st_mtime <= now.t for path in files | above)
    except OSError:
        return False


def _path_of(now: Status, writer: WriterStatus) -> Path:
    from rlship_sidecar.tail.listing import split_part

    return Path(now.experiment, split_part(writer.file)[0])


def _is_left(now: Status, ended: EndedProcesses, age_s: float) -> bool:
    """True if a sidecar would find something to do: steps without a row, a sink without all rows, lines not read."""
    return (
        any(actor.open_units for actor in now.actors)
        or any(sink.next_row < now.rows for sink in now.sinks)
        or any(ended.silent_s[writer.file] < age_s for writer in ended.writers)
        or bool(ended.closed)
    )
