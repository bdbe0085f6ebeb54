"""The demo's task: its policy gradient is right, and it learns."""

from __future__ import annotations

import math
import random

import pytest

from rlship_sidecar.demo import task


def test_score_counts_places_of_the_reversed_prompt() -> None:
    """The reward is the share of positions that hold the prompt's symbol from the other end."""
    assert task.score((0, 1, 2, 3), (3, 2, 1, 0)) == 1.0
    assert task.score((0, 1, 2, 3), (3, 2, 0, 1)) == 0.5
    assert task.score((0, 1), (0, 1)) == 0.0


def test_advantages_are_relative_to_the_group() -> None:
    """Advantages are standard deviations from the group's mean, and 0 where all answers are equally good."""
    assert task.advantages([1.0, 0.0, 1.0, 0.0]) == pytest.approx([1.0, -1.0, 1.0, -1.0], abs=1e-5)
    assert task.advantages([0.5, 0.5]) == [0.0, 0.0]


def test_policy_gives_probabilities() -> None:
    """At every position the symbols' probabilities are positive and add up to 1."""
    weights = task.initial_weights(3)
    for position in range(4):
        probabilities = task.distribution(weights, (4, 0, 2, 2), position)

        assert len(probabilities) == task.SYMBOLS
        assert min(probabilities) > 0
        assert math.isclose(sum(probabilities), 1.0)


def test_gradient_is_the_slope_of_the_loss() -> None:
    """The gradient agrees with finite differences of the loss, for a policy newer than the one that sampled."""
    rng = random.Random(0)
    old = task.initial_weights(5)
    weights = [w + rng.gauss(0.0, 0.01) for w in old]
    rollouts = [task.sample(old, task.draw_prompt(rng), rng) for _ in range(6)]
    gains = [rng.gauss(0.0, 1.0) for _ in rollouts]

    learned = task.gradient(weights, old, rollouts, gains)

    assert learned.clip_frac == 0.0
    assert learned.tokens == sum(len(rollout.prompt) for rollout in rollouts)
    for index in [i for i, slope in enumerate(learned.total) if slope != 0.0][::7]:
        losses = []
        for move in (-1e-5, 1e-5):
            moved = list(weights)
            moved[index] += move
            losses.append(task.gradient(moved, old, rollouts, gains).loss * learned.tokens)
        assert learned.total[index] == pytest.approx((losses[1] - losses[0]) / 2e-5, rel=1e-4, abs=1e-7)


def test_clipped_tokens_do_not_push() -> None:
    """A token that became much likelier already, and was good, adds nothing to the gradient."""
    weights = task.initial_weights(5)
    prompt = (1, 2)
    unlikely = math.log(0.001)

    learned = task.gradient(weights, weights, [task.Rollout(prompt, (2, 1), (unlikely, unlikely))], [1.0])

    assert learned.clip_frac == 1.0
    assert set(learned.total) == {0.0}
    assert learned.loss == pytest.approx(-(1.0 + task.CLIP))


def test_entropy_and_kl_of_known_policies() -> None:
    """All-zero weights have the entropy ln 5 per token, and no divergence from themselves."""
    zeros = [0.0] * task.WEIGHTS
    rollout = task.Rollout((0, 1, 2), (2, 1, 0), (math.log(0.2),) * 3)

    learned = task.gradient(zeros, zeros, [rollout], [1.0])

    assert learned.entropy == pytest.approx(math.log(5))
    assert learned.kl == pytest.approx(0.0)


def test_ranks_add_up_to_the_whole() -> None:
    """Gradients of two ranks' halves add up to that of all rollouts, which data parallelism rests on."""
    rng = random.Random(1)
    weights = task.initial_weights(1)
    rollouts = [task.sample(weights, task.draw_prompt(rng), rng) for _ in range(8)]
    gains = [rng.gauss(0.0, 1.0) for _ in rollouts]

    whole = task.gradient(weights, weights, rollouts, gains)
    halves = [task.gradient(weights, weights, rollouts[part], gains[part]) for part in (slice(4), slice(4, 8))]

    assert [a + b for a, b in zip(halves[0].total, halves[1].total)] == pytest.approx(whole.total)
    assert halves[0].tokens + halves[1].tokens == whole.tokens


def test_policy_gradient_learns() -> None:
    """In 60 steps of 60 rollouts the mean reward rises from about 0.2 to beyond 0.6."""
    initial = weights = task.initial_weights(1)
    optimiser = task.Adam(task.WEIGHTS)
    rewards = []
    for step in range(60):
        rng = random.Random(step)
        rollouts: list[task.Rollout] = []
        scores: list[float] = []
        gains: list[float] = []
        for _ in range(10):
            prompt = task.draw_prompt(rng)
            group = [task.sample(weights, prompt, rng) for _ in range(6)]
            of_group = [task.score(prompt, rollout.answer) for rollout in group]
            rollouts += group
            scores += of_group
            gains += task.advantages(of_group)
        learned = task.gradient(weights, initial, rollouts, gains)
        weights = optimiser.step(weights, [slope / learned.tokens for slope in learned.total])
        rewards.append(sum(scores) / len(scores))

    assert sum(rewards[:5]) / 5 < 0.3
    assert sum(rewards[-5:]) / 5 > 0.6
