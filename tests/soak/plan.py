"""What happens when: a campaign's rounds and their strikes, from a seed and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SECONDS = 24.0
LEASE_TTL_S = 2.0
SETTLED_S = 3.0
"""Nothing is struck before: the first rows are to be on their way."""

FILE_STREAM, GRAPHQL = "file_stream", "graphql"


@dataclass(frozen=True)
class Strike:
    """One fault, `at_s` seconds into its round.

    `pick` in 0..1 chooses among the targets that are there then. `hold_s`: how long it lasts, or until what died is
    started again. `number` and `detail` mean something else for each kind, see KINDS.
    """

    at_s: float
    kind: str
    pick: float
    hold_s: float = 0.0
    number: int = 0
    detail: str = ""

    def __str__(self) -> str:
        more = f" {self.number}" if self.number else ""
        return f"{self.at_s:6.2f} s  {self.kind}{more} {self.detail}".rstrip() + f", for {self.hold_s:.2f} s"


@dataclass(frozen=True)
class Round:
    """One fresh experiment, struck for `seconds`. `disks`: its folders are small filesystems of their own, which can be
    filled.
    """

    number: int
    seed: str
    theme: str
    pace_s: float
    disks: bool
    strikes: tuple[Strike, ...]
    seconds: float


def _endpoint(dice: random.Random) -> str:
    return FILE_STREAM if dice.random() < 0.75 else GRAPHQL


# What each kind needs besides its time: (hold_s, number, detail).
KINDS: Mapping[str, Callable[[random.Random], tuple[float, int, str]]] = {
    # SIGKILL. number: steps that the restarted writer goes back; detail: what else happens to the file.
    "kill writer": lambda d: (d.uniform(0.05, 1.5), d.randrange(9), d.choice(["", "", "torn", "rubbish", "bytes"])),
    # detail: what else happens to what the sidecar wrote, or how it comes back.
    "kill sidecar": lambda d: (
        d.choice([0.0, 0.0, d.uniform(0.1, 2.0)]),
        d.randrange(1, 60),
        d.choice(["", "tear jsonl", "tear tensorboard", "two at once"]),
    ),
    "kill wandb child": lambda d: (0.0, 0, ""),
    "kill wandb-core": lambda d: (0.0, 0, ""),
    # All sidecars and half of the writers at once; unread ends of files are cut within their last lines.
    "host dies": lambda d: (d.uniform(0.1, 1.0), d.randrange(1, 60), ""),
    # SIGSTOP, and SIGCONT after hold_s.
    "stop writer": lambda d: (d.uniform(0.3, 4.0), 0, ""),
    "stop sidecar": lambda d: (d.uniform(0.1, LEASE_TTL_S - 0.5), 0, ""),
    "stop wandb child": lambda d: (d.uniform(0.3, 3.0), 0, ""),
    "stop wandb-core": lambda d: (d.uniform(0.3, 3.0), 0, ""),
    # Past the lease, while a second sidecar is started. detail: where that one believes to be.
    "freeze sidecar": lambda d: (
        LEASE_TTL_S + d.uniform(1.0, 4.0),
        0,
        d.choice(["same host", "another host", "another host"]),
    ),
    "second sidecar": lambda d: (0.0, 0, d.choice(["same host", "another host"])),
    # The W&B server. number: requests; detail: endpoint.
    "server 5xx": lambda d: (0.0, d.randrange(1, 3), f"{d.choice([500, 502, 503, 504])} {_endpoint(d)}"),
    "server 429": lambda d: (0.0, d.randrange(1, 3), f"429 {_endpoint(d)}"),
    "server hangs": lambda d: (d.uniform(0.5, 5.0), 1, _endpoint(d)),
    "request cut": lambda d: (0.0, d.randrange(1, 3), _endpoint(d)),
    "reply cut": lambda d: (0.0, d.randrange(1, 3), _endpoint(d)),
    "server rejects": lambda d: (0.0, 1, f"{d.choice([400, 404, 409, 410, 413, 422])} {FILE_STREAM}"),
    "server down": lambda d: (d.choice([d.uniform(0.3, 2.0), d.uniform(4.0, 8.0)]), 0, ""),
    "stale answers": lambda d: (d.uniform(1.0, 4.0), d.randrange(1, 60), ""),
    # Filled to the last byte for hold_s.
    "writers' disk full": lambda d: (d.uniform(0.5, 3.0), 0, ""),
    "state disk full": lambda d: (d.uniform(0.5, 3.0), 0, ""),
}

SIGKILLS = ("kill writer", "kill sidecar", "kill wandb child", "kill wandb-core", "host dies")
SERVER = (
    "server 5xx",
    "server 429",
    "server hangs",
    "request cut",
    "reply cut",
    "server rejects",
    "server down",
    "stale answers",
)
DISKS = ("writers' disk full", "state disk full")


@dataclass(frozen=True)
class Theme:
    """How often strikes come, a second, and how they are mixed."""

    rate: float
    weights: Mapping[str, float]


# A client of W&B needs two seconds until its first row is there: it must not always die before.
_KILLS = {"kill writer": 6, "kill sidecar": 1, "kill wandb child": 0.6, "kill wandb-core": 0.6, "host dies": 0.4}
_STOPS = {"stop writer": 1, "stop sidecar": 1, "stop wandb child": 1, "stop wandb-core": 1}
_SERVER = {kind: 0.4 if kind in ("server down", "stale answers", "server hangs") else 1.0 for kind in SERVER}
_SERVER_TOO = {kind: weight / 2 for kind, weight in _SERVER.items()}
_OWNERS = {"freeze sidecar": 1, "second sidecar": 0.5}
THEMES: Mapping[str, Theme] = {
    "everything": Theme(2.0, _KILLS | _STOPS | _SERVER | _OWNERS | dict.fromkeys(DISKS, 0.5)),
    "kills": Theme(1.8, _KILLS | _SERVER_TOO),
    "server": Theme(1.2, _SERVER | {"kill wandb child": 0.5, "kill wandb-core": 0.5, "kill writer": 1}),
    "owners": Theme(1.2, _OWNERS | _SERVER_TOO | {"stop sidecar": 1, "kill sidecar": 0.5, "kill writer": 2}),
    "disks": Theme(1.4, _KILLS | _SERVER_TOO | dict.fromkeys(DISKS, 1.5)),
    "writers": Theme(2.2, _SERVER_TOO | {"kill writer": 8, "stop writer": 2, "kill sidecar": 0.5, "host dies": 0.7}),
}


def plan_round(seed: int, number: int, seconds: float = SECONDS) -> Round:
    """The round of that number; it depends on nothing that the rounds before did. Themes follow each other in turn."""
    name = f"{seed}.{number}"
    dice = random.Random(name)
    theme = list(THEMES)[number % len(THEMES)]
    rate, weights = THEMES[theme].rate, THEMES[theme].weights
    strikes = []
    at = SETTLED_S
    while (at := at + dice.expovariate(rate)) < seconds:
        kind = dice.choices(list(weights), list(weights.values()))[0]
        hold_s, count, detail = KINDS[kind](dice)
        strikes.append(Strike(at, kind, dice.random(), hold_s, count, detail))
    disks = any(kind in weights for kind in DISKS)
    return Round(number, name, theme, dice.uniform(0.05, 0.12), disks, tuple(strikes), seconds)


def how_many_rounds(minutes: float, each_s: float) -> int:
    """How many rounds of `each_s` seconds fit; at least one."""
    return max(1, int(minutes * 60 / each_s))
