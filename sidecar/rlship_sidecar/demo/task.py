"""The demo's task: to answer a short prompt with the same symbols in reverse order.

The policy is a linear softmax. The scores of the symbol at an answer position are a sum over the prompt's symbols. Each
adds one weight per (answer position, prompt position counted from the end, symbol, answer symbol). Prompts differ in
length, so rollouts differ in tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

SYMBOLS = 5
LENGTHS = (2, 3, 4)
LONGEST = max(LENGTHS)
WEIGHTS = LONGEST * LONGEST * SYMBOLS * SYMBOLS
CLIP = 0.2
RATE = 0.04  # of learning


@dataclass(frozen=True, slots=True)
class Rollout:
    """One answer to one prompt; `logp` is each token's log probability under the policy that sampled it."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    logp: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The result of one rank's rollouts: a gradient of the loss summed over tokens, and means over tokens."""

    total: list[float]
    tokens: int
    loss: float
    entropy: float
    kl: float
    clip_frac: float

    @property
    def norm(self) -> float:
        """The length of the mean gradient per token."""
        return math.sqrt(sum(g * g for g in self.total)) / self.tokens


def initial_weights(seed: int) -> list[float]:
    """Small random weights: a policy that answers about one symbol in five rightly."""
    rng = random.Random(f"{seed}/weights")
    return [rng.gauss(0.0, 0.1) for _ in range(WEIGHTS)]


def draw_prompt(rng: random.Random) -> tuple[int, ...]:
    """A prompt of 2 to 4 symbols."""
    return tuple(rng.randrange(SYMBOLS) for _ in range(rng.choice(LENGTHS)))


def score(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The reward: the share of positions, 0 to 1, where the answer is the prompt reversed."""
    return sum(a == b for a, b in zip(answer, reversed(prompt))) / len(prompt)


def distribution(weights: Sequence[float], prompt: Sequence[int], position: int) -> list[float]:
    """The probabilities of the symbols at one answer position."""
    scores = [0.0] * SYMBOLS
    for start in _rows(prompt, position):
        for symbol in range(SYMBOLS):
            scores[symbol] += weights[start + symbol]
    highest = max(scores)
    exps = [math.exp(value - highest) for value in scores]
    total = sum(exps)
    return [value / total for value in exps]


def sample(weights: Sequence[float], prompt: tuple[int, ...], rng: random.Random) -> Rollout:
    """Answer a prompt by drawing from the policy."""
    answer = []
    logp = []
    for position in range(len(prompt)):
        probabilities = distribution(weights, prompt, position)
        symbol = rng.choices(range(SYMBOLS), probabilities)[0]
        answer.append(symbol)
        logp.append(math.log(probabilities[symbol]))
    return Rollout(prompt, tuple(answer), tuple(logp))


def advantages(scores: Sequence[float]) -> list[float]:
    """How much better each answer to one prompt is than their mean, in standard deviations; 0 if all are alike."""
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in scores) / len(scores))
    return [(value - mean) / (deviation + 1e-6) for value in scores]


def gradient(
    weights: Sequence[float],
    initial: Sequence[float],
    rollouts: Sequence[Rollout],
    advantage: Sequence[float],
    left_out: int = 0,
) -> Gradient:
    """The clipped policy gradient (PPO) of rollouts that a slightly older policy may have sampled.

    `advantage` has one value per rollout; `initial` are the weights that `kl`, in nats, is measured against. So many
    first symbols of each answer are `left_out`.
    """
    total = [0.0] * len(weights)
    tokens = clipped = 0
    loss = entropy = kl = 0.0
    for rollout, gain in zip(rollouts, advantage):
        for position, (symbol, old_logp) in enumerate(zip(rollout.answer, rollout.logp)):
            if position < left_out:
                continue
            now = distribution(weights, rollout.prompt, position)
            then = distribution(initial, rollout.prompt, position)
            ratio = math.exp(log(now[symbol]) - old_logp)
            bounded = min(max(ratio, 1.0 - CLIP), 1.0 + CLIP)
            tokens += 1
            loss -= min(ratio * gain, bounded * gain)
            entropy -= sum(p * log(p) for p in now)
            kl += sum(p * log(p / q) for p, q in zip(now, then))
            if bounded * gain < ratio * gain:
                clipped += 1
                continue
            push = -ratio * gain
            slopes = [push * ((1.0 if other == symbol else 0.0) - now[other]) for other in range(SYMBOLS)]
            for start in _rows(rollout.prompt, position):
                for other in range(SYMBOLS):
                    total[start + other] += slopes[other]
    return Gradient(total, tokens, loss / tokens, entropy / tokens, kl / tokens, clipped / tokens)


def log(p: float) -> float:
    """The logarithm of a probability, which may be too small for a double."""
    return math.log(max(p, 1e-300))


def _rows(prompt: Sequence[int], position: int) -> list[int]:
    """Where the weights of each prompt symbol begin, for one answer position."""
    last = len(prompt) - 1
    return [((position * LONGEST + last - at) * SYMBOLS + symbol) * SYMBOLS for at, symbol in enumerate(prompt)]


class Adam:
    """The optimiser, so that the demo learns at the same pace whatever the scale of its gradients."""

    def __init__(self, size: int, rate: float = RATE) -> None:
        self.rate = rate
        self._steps = 0
        self._mean = [0.0] * size
        self._square = [0.0] * size

    def step(self, weights: Sequence[float], slope: Sequence[float]) -> list[float]:
        """The weights after one step against the mean gradient `slope`."""
        self._steps += 1
        fast = 1.0 - 0.9**self._steps
        slow = 1.0 - 0.99**self._steps
        moved = []
        for index, (weight, value) in enumerate(zip(weights, slope)):
            mean = self._mean[index] = 0.9 * self._mean[index] + 0.1 * value
            square = self._square[index] = 0.99 * self._square[index] + 0.01 * value * value
            moved.append(weight - self.rate * (mean / fast) / (math.sqrt(square / slow) + 1e-8))
        return moved
