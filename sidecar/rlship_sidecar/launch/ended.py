"""What `rlship run --watch` says of a job that a signal ended. Pure."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

from rlship_sidecar.report.status import Status
from rlship_sidecar.report.terminal import clean, reach_of, steps_in_words

MAX_ACTORS = 12


def by_signal(code: int) -> str:
    """What ended a command with this exit code, which is negative for a signal; "" if no signal did.

    A shell whose command a signal ended exits with 128 plus its number.
    """
    number = -code if code < 0 else code - 128
    if number not in signal.valid_signals():
        return ""
    name = f"signal {number}"
    if number in {*signal.Signals}:
        name = f"{signal.Signals(number).name} ({name})"
    killed = number == signal.SIGKILL
    end = f"{'killed' if killed else 'ended'} by {name}"
    senders = ": `kill -9`, a batch system, or the kernel, where memory ran out" if killed else ""
    return f"the job {f'was {end}' if code < 0 else f'ended with exit code {code}, as if {end}'}{senders}"


def ended_at(folder: Path, status: Status) -> str:
    """At which step each actor of a run ended, and what to do next."""
    found = [*_actors(status)]
    more = f" and {len(found) - MAX_ACTORS} more actors" if len(found) > MAX_ACTORS else ""
    steps = f"{', '.join(found[:MAX_ACTORS])}{more}" if found else "no step"
    return f"{folder} ended at {steps}; to look for the cause: rlship why {shlex.quote(str(folder))}"


def _actors(status: Status) -> Iterator[str]:
    """Each actor of the job, the lead first, with the newest steps of its processes: of those that did not end in
    order, if there are any.
    """
    of_job = [writer for writer in status.writers if writer.actor and not writer.observes]
    for actor in sorted({writer.actor for writer in of_job}, key=lambda actor: (actor != status.lead, actor)):
        own = [writer for writer in of_job if writer.actor == actor]
        left = [writer for writer in own if writer.awaited] or own
        steps = steps_in_words(writer.step for writer in left if writer.step is not None)
        yield f"{clean(actor, 40)} {steps or reach_of(status, actor)}"
