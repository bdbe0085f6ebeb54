"""Who writes in the campaign, and what: every value is a function of (actor, replica, rank, step) and of nothing else.

So whichever attempt of a rank a row is made of, and whichever reader has it, its figures are known without the files.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Crew:
    """One actor's writers: `world` ranks in each replica. Without `barriers` it never calls `barrier`. With `streams`
    it logs without a step, too, and without `steps` only so.
    """

    actor: str
    replicas: tuple[str, ...]
    world: int
    barriers: bool
    steps: bool = True
    streams: bool = False

    def places(self) -> list[tuple[str, int]]:
        """(replica, rank) of every writer, in merge order."""
        return [(replica, rank) for replica in self.replicas for rank in range(self.world)]


CREWS = (
    Crew("trainer", ("0",), 4, True),
    Crew("generator", ("0", "1"), 2, True),
    Crew("reward", ("0",), 2, False, streams=True),
    Crew("sampler", ("0", "1"), 1, False, steps=False, streams=True),
)

HOSTS = ("north", "east", "west")
"""Where writers believe to be; an attempt may come up on another one. The first measures no clock."""

TABLES = {"rollouts": 3, "judged": 1}
"""Samples of each rank and step. A row shows all of `judged`, and a choice of `rollouts`."""
STREAMED = "requests"


def _dice(*what: object) -> random.Random:
    return random.Random("/".join(map(str, what)))


def mark(crew: Crew, replica: str, rank: int) -> int:
    """The writer's own bit. Ranks log it with reduction sum, so that a row itself says whose `loss` is in it, and a
    writer counted twice would show as another writer's bit.
    """
    return 1 << crew.places().index((replica, rank))


def marked(crew: Crew, who: float) -> list[tuple[str, int]]:
    """The inverse for a sum of marks, in merge order; raises ValueError for what is no such sum."""
    if who != int(who) or not 0 < who < 1 << len(crew.places()):
        raise ValueError(f"{who} is no sum of the marks of {crew.actor}")
    return [place for bit, place in enumerate(crew.places()) if int(who) >> bit & 1]


def loss(actor: str, replica: str, rank: int, step: int) -> float:
    """One float for each writer and step."""
    return _dice("loss", actor, replica, rank, step).gauss(1.0, 0.3)


def mean_loss(actor: str, places: list[tuple[str, int]], step: int) -> float:
    """The mean over these writers, added in merge order, so that it is equal bit by bit."""
    first, *others = (loss(actor, replica, rank, step) for replica, rank in places)
    for value in others:
        first += value
    return first / len(places)


def lengths(actor: str, replica: str, rank: int, step: int) -> list[int]:
    """Three observations."""
    dice = _dice("lengths", actor, replica, rank, step)
    return [dice.randrange(1, 900) for _ in range(3)]


def divergence(actor: str, replica: str, rank: int, step: int) -> tuple[list[float], list[float]]:
    """Two observations and their weights, now and then with one that is not finite."""
    dice = _dice("kl", actor, replica, rank, step)
    values = [dice.random(), float("nan") if dice.random() < 0.05 else dice.random()]
    return values, [float(dice.randrange(9)), float(1 + dice.randrange(9))]


def evaluation(actor: str, replica: str, rank: int, step: int) -> float:
    """What is logged late, for a step long promised."""
    return _dice("evaluation", actor, replica, rank, step).random()


def skew(seed: str, host: str) -> float:
    """Seconds that a host's clock is ahead, different in every round."""
    return 0.0 if host == HOSTS[0] else _dice("skew", seed, host).uniform(-1.5, 1.5)


def policy(actor: str, replica: str, rank: int, step: int) -> int:
    """The version of the policy in use, some steps ago."""
    return max(0, step - _dice("policy", actor, replica, rank, step).randrange(6))


def pushes(actor: str, replica: str, rank: int, step: int) -> bool:
    """Whether the event `pushed` happens, once."""
    return _dice("pushed", actor, replica, rank, step).random() < 0.3


def refills(tick: int) -> bool:
    """Whether the event `refilled` happens at this line of a stream, once."""
    return tick % 3 == 0


def tag(step: int) -> str:
    """The tag of a step, "" for none."""
    return "" if step % 7 else "eval"


def gauge(bit: int, attempt: int, tick: int) -> float:
    """A value that no other line of the actor has; a float32 holds it. `bit` is the number of the place."""
    return float(bit * 4_000_000 + attempt * 20_000 + tick)


def sample_id(actor: str, replica: str, rank: int, step: int, attempt: int, part: int, number: int) -> str:
    """What one sample has and no other. `part`: how often the process has gone back."""
    return "/".join(map(str, (actor, replica, rank, step, attempt, part, number)))


def sample_row(name: str) -> dict[str, str | int | list[str]]:
    """The row of the sample with this id; now and then with a text that is too long to be shown as a whole."""
    dice = _dice("sample", name)
    size = 9_000 if dice.random() < 0.02 else dice.choice((10, 50, 300))
    return {"id": name, "text": ("a|b\n" + name * size)[:size], "tokens": size, "turns": ["user", name]}


def sample_score(name: str) -> float | None:
    """Its score; one in five has none."""
    dice = _dice("score", name)
    return None if dice.random() < 0.2 else dice.gauss(0.0, 1.0)
