"""Processes of the job that did not end in order, as `status` names them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rlship_sidecar.report.status import ActorStatus, Status, WriterStatus
from rlship_sidecar.report.terminal import (
    MAX_ERROR_CHARS,
    MAX_LINES,
    RankNames,
    clean,
    date,
    duration,
    failures,
    steps_in_words,
)

SILENT_S = 60.0  # a writer that beats and lives writes in this time
SILENT_WITHOUT_BEAT_S = 600.0  # others write once in a step, which may take minutes
APART_S = 15.0  # processes that beat, every 10 s, and wrote last so far apart did not end together
HELD_BACK_S = 5.0  # seconds for which rows wait for ranks before that is trouble


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
        return closed + (self._without_close(status, t) if self.writers else [])

    def without_close(self, status: Status, t: float) -> list[str]:
        """Name those that no error ended, one line for each actor: their last step, and when they wrote last. Those
        that ended clearly before all others are named as the first.
        """
        names, first, found = RankNames(status), self._first, []
        for actor, of_actor in _by_actor([writer for writer in self.writers if not writer.failure]):
            ago_s = min(self.silent_s[writer.file] for writer in of_actor)
            words = [f"{clean(actor, 40)} {names.processes(of_actor)}{_last_steps(of_actor)}"]
            if all(writer.gone for writer in of_actor):
                words.append(f"{'its process is' if len(of_actor) == 1 else 'their processes are'} gone")
            if own := [writer for writer in of_actor if writer.file in first.files]:
                who = "" if len(own) == len(of_actor) else f" {names.processes(own)}"
                words.append(f"first{who}, {duration(first.before_s)} before the other{'s' * (first.others > 1)}")
            words.append(f"last line {duration(ago_s)} ago ({date(t - ago_s)})")
            if any(writer.file in self.unread for writer in of_actor):
                words.append(f"not read since {date(status.t)}")
            found.append(f"ended without a close: {', '.join(words)}")
        return found

    @property
    def _first(self) -> _FirstEnded:
        """Those whose last line or beat is clearly older than that of all others, errors included."""
        ordered = sorted(self.writers, key=lambda writer: -self.silent_s[writer.file])
        for count, (one, after) in enumerate(pairwise(ordered), 1):
            before_s = self.silent_s[one.file] - self.silent_s[after.file]
            # What writes once in a step may have written that much earlier, and lived on.
            if before_s >= (APART_S if one.beats else SILENT_WITHOUT_BEAT_S):
                return _FirstEnded(frozenset(each.file for each in ordered[:count]), before_s, len(ordered) - count)
        return _FirstEnded()

    def _without_close(self, status: Status, t: float) -> list[str]:
        found = failures(status) + self.without_close(status, t)
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


@dataclass(frozen=True, slots=True)
class _FirstEnded:
    """The files of the processes that ended first, how long before the next one, and how many others ended."""

    files: frozenset[str] = frozenset()
    before_s: float = 0.0
    others: int = 0


def is_held_back(actor: ActorStatus) -> bool:
    """True if ranks have held back an actor's rows for so long that it is no slow step."""
    return bool(actor.waiting) and actor.lag_s >= HELD_BACK_S


def held_back(status: Status) -> list[str]:
    """What the steps wait for that have waited long, a line for each actor; nothing where no sidecar runs."""
    waiting = [actor for actor in status.actors if status.running and is_held_back(actor)]
    return [f"{clean(actor.actor, 40)}: {clean(actor.note, MAX_ERROR_CHARS)}" for actor in waiting[:MAX_LINES]]


def _last_steps(writers: Sequence[WriterStatus]) -> str:
    steps = steps_in_words(writer.step for writer in writers if writer.step is not None)
    return f" at {steps}" if steps else ""


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
