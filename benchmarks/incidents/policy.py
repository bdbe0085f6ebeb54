"""What the job learns: the policy's true quality, its entropy, lengths and distance from the reference.

No metric says the true quality; the oracle reads it here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from benchmarks.incidents.chance import Noises, Task
from benchmarks.incidents.faults import Fault

SPREAD = 0.5  # of the logarithm of lengths
LIMIT = 3.2  # the length limit, as a multiple of the first mean length
NATS_OF_A_WRONG_TOKEN = 5.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy after a step. `hacked` is the share of answers that score without being right."""

    quality: float
    entropy: float
    kl: float
    length: float
    hacked: float = 0.0
    broken: bool = False  # its weights are not finite


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step trained on: the served policies' answers, as they scored."""

    reward: float
    correct: float
    style: float
    clip_ratio: float
    length: float
    zero_std: float
    timed_out: float
    mismatch: float
    honest: float  # the part of the mismatch that the version labels explain


@dataclass(frozen=True, slots=True)
class Update:
    """What the trainers saw while they learned from a batch."""

    grad_norm: float
    entropy: float
    kl: float
    ppo_kl: float
    ess: float
    chi2: float
    mask: float
    finite: bool
    lr: float


@dataclass(slots=True)
class Learner:
    """Learns step by step. `past` has the policy before each step, which engines serve."""

    task: Task
    fault: Fault
    noises: Noises
    past: list[Policy] = field(default_factory=list)
    hard: float = 0.0  # what a harder curriculum takes from the quality
    goal_hard: float = 0.0
    longer: float = 1.0

    def __post_init__(self) -> None:
        task = self.task
        self.past.append(Policy(task.quality, task.entropy, 0.0005, task.length))

    @property
    def now(self) -> Policy:
        """The newest policy."""
        return self.past[-1]

    def go_back(self, step: int) -> None:
        """The policy is that before `step` again."""
        del self.past[step + 1 :]

    def harden(self, by: float, longer: float) -> None:
        """From now on prompts get harder, and answers longer, over some twenty steps."""
        self.goal_hard += by
        self.longer *= longer

    def sample(self, versions: list[tuple[int, float]], mismatch: float, honest: float) -> Batch:
        """The batch of a step: `versions` are those that engines really serve, with their shares of the samples."""
        fault, task = self.fault, self.task
        served = [(self.past[max(0, min(version, len(self.past) - 1))], share) for version, share in versions]
        whole = sum(share for _, share in served)

        def mean(name: str) -> float:
            return float(sum(getattr(policy, name) * share for policy, share in served) / whole)

        self.hard += 0.08 * (self.goal_hard - self.hard)
        broken = any(policy.broken for policy, _ in served)
        length = mean("length") * self.noises.times("length", 0.03)
        limit = fault.size_of("truncation_zeroes_reward", 0) * task.length or LIMIT * task.length
        cut = cut_share(length, limit)
        quality = 0.0 if broken else max(0.0, mean("quality") - self.hard)
        hacked = mean("hacked")
        timed_out = fault.size_of("reward_timeout", 0)
        correct = quality * (1 - 0.5 * hacked) * (1 - cut) * (1 - timed_out)
        done = (mean("quality") - task.quality) / (task.best - task.quality)
        style = max(0.0, min(1.0, 0.5 + 0.3 * done + 0.5 * hacked)) * (1 - cut) * (1 - timed_out) * (not broken)
        constant = fault.size_of("constant_reward", 0)
        seen = correct + 0.1 * fault.size_of("prompts_repeated", 0) * (1 - math.exp(-fault.since / 10))
        reward = (0.5 * seen + 0.5 * style) * (1 - constant)
        wide = max(0.05, mean("entropy") / task.entropy)
        alike = 0.12 + 0.5 * (2 * quality - 1) ** 2 + 0.7 * max(0.0, 1 - wide / 0.3)
        alike = max(alike, timed_out, cut**2, 1.0 if broken else 0.0)
        zero = min(1.0, alike + 0.03 * self.noises("zero_std"))
        zero = max(0.0, zero) * (1 - constant) + constant
        return Batch(reward, correct, style, cut, min(length, limit), zero, timed_out, mismatch, honest)

    def learn(self, batch: Batch, lag: float) -> Update:
        """One step of learning from a batch whose samples are `lag` versions old."""
        fault, task, now = self.fault, self.task, self.now
        times = fault.size_of("lr_reset_at_resume", 1.0)
        wrong = fault.size_of("wrong_loss_mask", 0)
        # How much of the gradient points where it should.
        right = (1 - 2 * fault.size_of("advantage_sign_flipped", 0)) * (1 - fault.size_of("rewards_misassigned", 0))
        right *= (1 - batch.timed_out) ** 2 * (1 - wrong) * (1 - 0.8 * fault.size_of("prompts_repeated", 0))
        signal = 1 - batch.zero_std
        beyond = min(4.0, max(0.0, batch.mismatch / task.tolerance - 1))
        chi2 = 60 * batch.mismatch**2
        ess = 1 / (1 + chi2)
        bad = fault.chance("nonfinite_gradient")
        drift = fault.size_of("kl_explosion", 0) * min(4.0, 1.06**fault.since)
        grad = task.grad * self.noises.times("grad", 0.2) * (0.05 + math.sqrt(signal)) * (1 + 1.5 * beyond)
        grad *= 1 + 0.15 * (times - 1) + 4 * drift + 2 * wrong
        moved = task.move * times**0.7 + drift
        update = Update(
            grad,
            now.entropy + 0.012 * self.noises("entropy"),
            now.kl * (1 + 0.08 * self.noises("kl")),
            0.5 * (1.25 * moved * (lag + 1)) ** 2 * self.noises.times("ppo_kl", 0.15) - 0.3 * wrong,
            max(0.0, min(1.0, ess - 0.03 - 0.01 * abs(self.noises("ess")))),
            chi2 * self.noises.times("chi2", 0.2) + 0.01,
            (0.96 + 0.005 * self.noises("mask")) * (1 - wrong),
            not bad and not now.broken,
            task.lr * times,
        )
        self.past.append(self._after(signal * right, beyond, drift, times, wrong, bad=bad))
        return update

    def _after(self, push: float, beyond: float, drift: float, times: float, wrong: float, *, bad: bool) -> Policy:
        fault, task, now = self.fault, self.task, self.now
        if bad or now.broken:
            return replace(now, broken=now.broken or fault.size >= 1)  # else the step is skipped
        step = push / task.speed
        climb = min(times, 2.0) * step * ((task.best - now.quality) if push > 0 else now.quality)
        harm = 0.004 * min(3.0, beyond) + 0.003 * min(5.0, times - 1) + 0.01 * wrong
        harm += 0.02 * min(1.5, max(0.0, now.kl - 0.3)) + 0.004 * fault.size_of("prompts_repeated", 0)
        harm += 0.003 * (now.entropy < 0.1 * task.entropy)  # it explores no more
        quality = max(0.0, min(task.best, now.quality + climb - harm * now.quality))
        narrow = fault.size_of("entropy_collapse", 0)
        entropy = now.entropy - abs(step) * (now.entropy - 0.3 * task.entropy)
        entropy = max(0.01, entropy * (1 - narrow)) + 0.5 * harm
        progress = (quality - task.quality) / (task.best - task.quality)
        kl = now.kl + 0.05 * (max(0.0, progress) * task.kl + 0.0005 - min(now.kl, task.kl))
        kl += drift + 0.3 * task.move * min(8.0, times - 1) + 0.3 * harm
        goal = self.longer * task.length * (1 + 0.5 * max(0.0, progress))
        length = now.length + 0.02 * (goal - now.length)
        grown = fault.size_of("length_blowup", 0)
        if grown:
            length = min(now.length * (1 + grown), 1.5 * LIMIT * task.length)
        if fault.active("truncation_zeroes_reward"):
            length = max(0.5 * fault.size * task.length, now.length * 0.998)
        hacked = min(0.9, now.hacked + fault.size_of("reward_hacking", 0))
        return replace(now, quality=quality, entropy=entropy, kl=kl, length=length, hacked=hacked)

    def true_quality(self, batch: Batch) -> float:
        """What the oracle knows: how good the newest policy's whole answers are."""
        now = self.now
        return 0.0 if now.broken else now.quality * (1 - 0.5 * now.hacked) * (1 - batch.clip_ratio)


def cut_share(length: float, limit: float) -> float:
    """The share of answers above the limit, if lengths have a log-normal distribution with this mean."""
    middle = math.log(length) - SPREAD**2 / 2
    return 0.5 * math.erfc((math.log(limit) - middle) / (SPREAD * math.sqrt(2)))
