"""Faults that the demo job can have, each in a real process, from the middle of the run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FaultText(NamedTuple):
    """What goes wrong, and in which process, as `<actor>` or `<actor>/<replica>.<rank>`."""

    about: str
    place: str


NONE = "none"  # the job with a buffer, the ledger and the catalogue's names, and nothing wrong with it
SLOW_RANK, DEAD_GENERATOR, ZERO_REWARDS, SLOW_REWARDS = "slow_rank", "dead_generator", "zero_rewards", "slow_rewards"
STALE_WEIGHTS, MISLABELLED_WEIGHTS, LR_SPIKE = "stale_weights", "mislabelled_weights", "lr_spike"
TRUNCATION, SWAPPED_REWARDS, FLIPPED_SIGN = "truncation", "swapped_rewards", "flipped_sign"
NONFINITE_GRADIENT, WRONG_MASK, MEMORY_LEAK = "nonfinite_gradient", "wrong_mask", "memory_leak"

FAULTS: Mapping[str, FaultText] = {
    NONE: FaultText("nothing is wrong", ""),
    SLOW_RANK: FaultText("a trainer rank takes three times as long", "trainer/0.1"),
    DEAD_GENERATOR: FaultText("a generator is killed and does not come back", "generator/0.1"),
    ZERO_REWARDS: FaultText("the verifier gives 0 to every answer", "reward"),
    SLOW_REWARDS: FaultText("half of the checks time out, and score 0", "reward"),
    STALE_WEIGHTS: FaultText("a generator takes no new weights in, and says so", "generator/0.1"),
    MISLABELLED_WEIGHTS: FaultText("generators go on with old weights under the new version's label", "generator"),
    LR_SPIKE: FaultText("the learning rate is 50 times as high", "trainer"),
    TRUNCATION: FaultText("answers are cut after one symbol", "generator"),
    SWAPPED_REWARDS: FaultText("the buffer joins rewards to other samples of their groups", "buffer"),
    FLIPPED_SIGN: FaultText("advantages have the wrong sign", "trainer"),
    NONFINITE_GRADIENT: FaultText("gradients are not finite, and steps are skipped", "trainer"),
    WRONG_MASK: FaultText("the loss leaves out the first symbol of each answer", "trainer"),
    MEMORY_LEAK: FaultText("a trainer rank keeps ever more memory", "trainer/0.1"),
}
CULPRIT = 1  # the rank that has a fault, where one rank has it
