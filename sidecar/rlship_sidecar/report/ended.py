"""Processes of the job that did not end in order, as `status` names them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlship_sidecar.report.status import Status, WriterStatus
from rlship_sidecar.report.terminal import MAX_LINES, RankNames, clean, date, duration, failures

SILENT_S = 60.0  # a writer that beats and lives writes in this time
SILENT_WITHOUT_BEAT_S = 600.0  # others write once in a step, which may take minutes


def patience_s(writer: WriterStatus) -> float:
    """How long a living process may be silent."""
    return SILENT_S if writer.beats else SILENT_WITHOUT_BEAT_S


@dataclass(frozen=True, slots=True)
class EndedProcesses:
    """The awaited processes that ended with an error, are gone, or have been silent for too long; `silent_s` by file.
    `all`: no other one is awaited.

    `closed` are those that closed after the status was made. `unread` are the files that grew after it.
    """

    writers: tuple[WriterStatus, ...]
    silent_s: Mapping[str, float]
    all: bool
    closed: tuple[WriterStatus, ...] = ()
    unread: frozenset[str] = frozenset()

    def lines(self, status: Status, t: float) -> list[str]:
        """Name them, one line for each actor, and say what to do. `t` is the present in Unix seconds."""
        names, not_read = RankNames(status), f"not read since {date(status.t)}"
        closed = [
            f"closed in order: {clean(actor, 40)} {names.processes(of_actor)}, {not_read}"
            for actor, of_actor in _by_actor(self.closed)
        ]
        if len(closed) > MAX_LINES:
            closed[MAX_LINES - 1 :] = [f"and processes of {len(closed) - MAX_LINES + 1} more actors"]
        return closed + (self._without_close(status, names, not_read, t) if self.writers else [])

    def _without_close(self, status: Status, names: RankNames, not_read: str, t: float) -> list[str]:
        found = failures(status)
        for actor, of_actor in _by_actor([writer for writer in self.writers if not writer.failure]):
            ago_s = min(self.silent_s[writer.file] for writer in of_actor)
            when = f"last line {duration(ago_s)} ago ({date(t - ago_s)})"
            if all(writer.gone for writer in of_actor):
                when = f"{'its process is' if len(of_actor) == 1 else 'their processes are'} gone, {when}"
            if any(writer.file in self.unread for writer in of_actor):
                when += f", {not_read}"
            found.append(f"ended without a close: {clean(actor, 40)} {names.processes(of_actor)}, {when}")
        if len(found) > MAX_LINES:
            found[MAX_LINES - 1 :] = [f"and processes of {len(found) - MAX_LINES + 1} more actors: --writers"]
        of_error = sum(bool(writer.failure) for writer in self.writers)
        others = len(self.writers) - of_error
        # The error stands in the line above; of the others only their silence is known.
        why = "" if not others else "it was" if others == 1 else "they were"
        why = f"the other one{'s' * (others > 1)} {'was' if others == 1 else 'were'}" if of_error and others else why
        gone = all(writer.gone for writer in self.writers if not writer.failure)
        why += (" killed or crashed: " if gone else " killed, crashed or stopped: ") if why else ""
        found.append(
            f"  {why}see the log of the job. Every line that was written counts. To go on, start the job again in the "
            "same folder; otherwise there is nothing to do for it here"
        )
        return found


def _by_actor(writers: Sequence[WriterStatus]) -> Iterator[tuple[str, list[WriterStatus]]]:
    for actor in sorted({writer.actor for writer in writers}):
        yield actor, [writer for writer in writers if writer.actor == actor]


@dataclass(slots=True)
class FileEnds:
    """What the files show beyond a status: which end with a `close`, and which grew after the status was made."""

    closed: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)


def ended_processes(status: Status, silent_s: Mapping[str, float], ends: FileEnds) -> EndedProcesses:
    """Of the processes that a status awaits, those that ended. `silent_s` is their present silence by file.

    Files of other frameworks have no close, so they are left out.
    """
    awaited = [writer for writer in status.writers if writer.awaited]
    closed = tuple(writer for writer in awaited if writer.file in ends.closed and not writer.failure)
    silent = {w.file: (w.gone or silent_s.get(w.file, 0.0) >= patience_s(w)) and not w.format for w in awaited}
    ended = [w for w in awaited if w.failure or (w.file not in ends.closed and silent[w.file])]
    # Of a file that no sidecar has read it is not known whose it is: perhaps the job was started again.
    others = any(writer.is_never_read for writer in status.writers)
    over = bool(awaited) and len(ended) == len(awaited) - len(closed) and not others
    return EndedProcesses(tuple(ended), silent_s, over, closed, frozenset(ends.unread))
