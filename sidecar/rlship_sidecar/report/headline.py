"""One short line on the state of a sidecar, which `systemctl status` shows. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlship_sidecar.report.status import ActorStatus, Status
from rlship_sidecar.report.terminal import clean, duration, ranks
from rlship_sidecar.rows import count_ranks
from rlship_sidecar.tally import OWN_ACTOR

_MAX_CHARS = 200


def headline(statuses: Sequence[Status], suspended: int = 0) -> str:
    """Describe the experiment with the most rows, such as `step 1204, 64/64 ranks, lag 0.8 s`.

    The line also names its problems and counts the other experiments. `suspended`: the number of experiments that
    cannot be worked on now.
    """
    left = f"; {suspended} {'is' if suspended == 1 else 'are'} left out for now" if suspended else ""
    if not statuses:
        return f"no experiment yet{left}"
    status = max(statuses, key=lambda one: one.rows)
    parts = [_place(status)]
    parts += [f"sink {clean(sink.name)} {sink.state}" for sink in status.sinks if sink.state in ("waiting", "refused")]
    lost = status.dead_letter_count + status.dead_value_count
    parts += [f"{lost} dead letters and values"] if lost else []
    line = "; ".join(parts)
    if len(statuses) > 1:
        line = f"{clean(os.path.basename(status.experiment))}: {line}; {len(statuses) - 1} more"
    return (line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 1] + "…") + left


def _place(status: Status) -> str:
    actor = _chief(status)
    if actor is None:
        return f"no lines yet, {status.rows} rows"
    step = f"step {actor.step}" if actor.step is not None else f"{clean(actor.actor, 40)}, {status.rows} rows"
    missing = f", {count_ranks(actor.missing)} missing" if actor.missing else ""
    return f"{step}, {ranks(actor)} ranks{missing}, lag {duration(actor.lag_s)}"


def _chief(status: Status) -> ActorStatus | None:
    """The lead, else the actor with the highest step, else any actor but the sidecar itself."""
    others = [actor for actor in status.actors if actor.actor != OWN_ACTOR]
    for actor in others:
        if actor.actor == status.lead:
            return actor
    return max(others, key=lambda actor: -1 if actor.step is None else actor.step, default=None)
