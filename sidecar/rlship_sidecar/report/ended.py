"""Processes of the job that ended without a close, as `status` names them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlship_sidecar.report.status import Status, WriterStatus
from rlship_sidecar.report.terminal import MAX_LINES, RankNames, clean, date, duration

SILENT_S = 60.0  # a writer that beats and lives writes in this time
SILENT_WITHOUT_BEAT_S = 600.0  # others write once in a step, which may take minutes


def patience_s(writer: WriterStatus) -> float:
    """How long a living process may be silent."""
    return SILENT_S if writer.beats else SILENT_WITHOUT_BEAT_S


@dataclass(frozen=True, slots=True)
class EndedProcesses:
    """The awaited processes that have been silent for too long; `silent_s` by file. `all`: no other one is awaited."""

    writers: tuple[WriterStatus, ...]
    silent_s: Mapping[str, float]
    all: bool

    def lines(self, status: Status, t: float) -> list[str]:
        """Name them, one line for each actor, and say what to do. `t` is the present in Unix seconds."""
        if not self.writers:
            return []
        names, found = RankNames(status), []
        for actor in sorted({writer.actor for writer in self.writers}):
            of_actor = [writer for writer in self.writers if writer.actor == actor]
            ranks = list(dict.fromkeys(f"{writer.replica}.{writer.rank}" for writer in of_actor))
            ago_s = min(self.silent_s[writer.file] for writer in of_actor)
            when = f"last line {duration(ago_s)} ago ({date(t - ago_s)})"
            found.append(f"ended without a close: {clean(actor, 40)} {names.places(actor, ranks)}, {when}")
        if len(found) > MAX_LINES:
            found[MAX_LINES - 1 :] = [f"and processes of {len(found) - MAX_LINES + 1} more actors: --writers"]
        it = "it was" if len(self.writers) == 1 else "they were"
        found.append(
            f"  {it} killed, crashed or stopped: see the log of the job. Every line that was written counts. To go on, "
            "start the job again in the same folder; otherwise there is nothing to do for it here"
        )
        return found


def ended_processes(status: Status, silent_s: Mapping[str, float]) -> EndedProcesses:
    """Of the processes that a status awaits, those that ended. `silent_s` is their present silence by file.

    Files of other frameworks have no close, so nothing is said of them.
    """
    awaited = [writer for writer in status.writers if writer.awaited]
    ended = [w for w in awaited if not w.format and silent_s.get(w.file, 0.0) >= patience_s(w)]
    return EndedProcesses(tuple(ended), silent_s, bool(ended) and len(ended) == len(awaited))
