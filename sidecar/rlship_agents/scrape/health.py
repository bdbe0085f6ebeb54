"""What failed and good looks at an endpoint mean: failures, and how long it took to recover. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlship_agents.scrape.figures import Figure, Figures


@dataclass(frozen=True, slots=True)
class Health:
    """`seen`: it answered once. `down`: when the first look failed after the last good one, None while it answers.
    `failures` since then, and the reason of the last one.
    """

    seen: bool = False
    down: float | None = None
    failures: int = 0
    reason: str = ""

    def failed(self, t: float, reason: str) -> Health:
        """After a look that began at `t` and failed."""
        return Health(self.seen, t if self.down is None else self.down, self.failures + 1, reason)

    def answered(self) -> Health:
        """After a good look."""
        return replace(self, seen=True, down=None, failures=0, reason="")

    def recovery_s(self, t: float) -> float | None:
        """Before a good look that began at `t` counts: seconds since the first failed one. None: it was not down, or
        never was up before, so that it is starting and does not recover.
        """
        return t - self.down if self.seen and self.down is not None else None


def failure() -> Figures:
    """The figures of a failed look."""
    return {"svc/replica_failures": _failures(1.0)}


def success(took_s: float, recovery_s: float | None, restarts: int) -> Figures:
    """Those of a good one; `took_s`: seconds until its answer was understood."""
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
