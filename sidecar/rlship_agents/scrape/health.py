"""The state of an endpoint after failed and good looks: failures, and the time to recover. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlship_agents.scrape.figures import Figure, Figures


@dataclass(frozen=True, slots=True)
class Health:
    """`seen`: it answered once. `down`: the time of the first failed look since the last good one, None while it
    answers. `failures` counts the failed looks since then, and `reason` is that of the last one.
    """

    seen: bool = False
    down: float | None = None
    failures: int = 0
    reason: str = ""

    def failed(self, t: float, reason: str) -> Health:
        """The state after a look that began at `t` and failed."""
        return Health(self.seen, t if self.down is None else self.down, self.failures + 1, reason)

    def answered(self) -> Health:
        """The state after a good look."""
        return replace(self, seen=True, down=None, failures=0, reason="")

    def recovery_s(self, t: float) -> float | None:
        """The seconds from the first failed look to a good one that began at `t`; call it before `answered`. None if
        it was not down, or never up before: then it is starting, not recovering.
        """
        return t - self.down if self.seen and self.down is not None else None


def failure() -> Figures:
    """The values of a failed look."""
    return {"svc/replica_failures": _failures(1.0)}


def success(took_s: float, recovery_s: float | None, restarts: int) -> Figures:
    """The values of a good look; `took_s`: seconds until its answer was parsed."""
    figures = {
        "svc/replica_failures": _failures(0.0),
        "svc/replica_restarts": Figure(float(restarts), ("sum",), "count"),
        "svc/scrape_s": Figure(took_s, ("max",), "s"),
    }
    if recovery_s is not None:
        figures["svc/recovery_s"] = Figure(recovery_s, ("max",), "s", per_rank=True)
    return figures


def _failures(count: float) -> Figure:
    return Figure(count, ("sum",), "count", per_rank=True)
