"""Who writes in the campaign, and what: every value is a function of (actor, replica, rank, step) and of nothing else.

So whichever attempt of a rank a row is made of, and whoever reads it, its figures can be told without the files.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Crew:
    """One actor's writers: `world` ranks in each replica. Without `barriers` it never calls `barrier`."""

    actor: str
    replicas: tuple[str, ...]
    world: int
    barriers: bool

    def places(self) -> list[tuple[str, int]]:
        """(replica, rank) of every writer, in merge order."""
        return [(replica, rank) for replica in self.replicas for rank in range(self.world)]


CREWS = (
    Crew("trainer", ("0",), 4, True),
    Crew("generator", ("0", "1"), 2, True),
    Crew("reward", ("0",), 2, False),
)


def _dice(*what: object) -> random.Random:
    return random.Random("/".join(map(str, what)))


def mark(crew: Crew, replica: str, rank: int) -> int:
    """The writer's own bit. Ranks log it with reduction sum, so that a row itself says whose `loss` is in it, and a
    writer counted twice would show as somebody else's bit.
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
