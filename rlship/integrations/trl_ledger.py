"""The ledger in TRL's GRPO trainer: what a rank's samples are as they are generated, scored, and handed to the loss.

A group may lie on several ranks: each of them writes its part.
"""

from __future__ import annotations

import functools
import sys

from .. import registry
from .source import safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SOURCE = "trl"
MODULE = "trl.trainer.grpo_trainer"


def patch_trainer() -> None:
    """Record the groups of TRL's GRPOTrainer in the ledger, if the job has imported it; once."""
    trainer: Any = getattr(sys.modules.get(MODULE), "GRPOTrainer", None)
    score, make = (getattr(trainer, name, None) for name in ("_calculate_rewards", "_generate_and_score_completions"))
    if score is None or make is None or hasattr(make, "__wrapped__"):
        return  # no TRL, another version of it, or patched already

    @functools.wraps(score)
    def calculate_rewards(
        self: Any, inputs: Any, prompts: Any, completions: Any, ids: Any, *more: Any, **by: Any
    ) -> Any:
        rewards = score(self, inputs, prompts, completions, ids, *more, **by)
        safely(SOURCE, _scored, self, ids, rewards)
        return rewards

    @functools.wraps(make)
    def generate_and_score(self: Any, inputs: Any, *more: Any, **by: Any) -> Any:
        made = make(self, inputs, *more, **by)
        safely(SOURCE, _trained, self, made)
        return made

    trainer._calculate_rewards = calculate_rewards
    trainer._generate_and_score_completions = generate_and_score


class _Batch:
    """What a rank generated at once: its tokens without padding, its rewards, and its groups."""

    def __init__(self, trainer: Any, tokens: Any, rewards: Any, count: int) -> None:
        self.step = int(trainer.state.global_step) + 1
        self.count = count  # of batches for this step before it
        self.tokens = [one.tolist() if hasattr(one, "tolist") else list(one) for one in tokens]
        self._first = int(trainer.accelerator.process_index) * len(self.tokens)
        self._size = int(trainer.num_generations)
        # Rewards come of all ranks, by function.
        weighted = (rewards * trainer.reward_weights.to(rewards.device).unsqueeze(0)).nansum(1)
        self.rewards = weighted[self._first : self._first + len(self.tokens)]

    def groups(self) -> Iterator[tuple[str, slice, tuple[int, int] | None]]:
        """Of each group its key, where its samples lie, and which part of it this rank has."""
        length, size = len(self.tokens), self._size
        for group in range(self._first // size, -(-(self._first + length) // size)):
            begin, end = group * size, (group + 1) * size
            first, last = begin // length, (end - 1) // length  # ranks
            own = slice(max(0, begin - self._first), min(length, end - self._first))
            part = (self._first // length - first, last - first + 1) if last > first else None
            yield f"{self.step}.{self.count}.{group}", own, part


def _scored(trainer: Any, tokens: Any, rewards: Any) -> None:
    logger = registry.opened()
    if logger is None or not trainer.model.training:
        return
    before: _Batch | None = getattr(trainer, "_rlship_batch", None)
    again = before is not None and before.step == int(trainer.state.global_step) + 1
    batch = trainer._rlship_batch = _Batch(trainer, tokens, rewards, before.count + 1 if before and again else 0)
    for key, own, part in batch.groups():
        tokens = batch.tokens[own]
        logger.ledger("generated", key, step=batch.step, tokens=tokens, part=part)
        logger.ledger("rewarded", key, step=batch.step, tokens=tokens, part=part, reward=batch.rewards[own])


def _trained(trainer: Any, made: Any) -> None:
    logger = registry.opened()
    batch: _Batch | None = getattr(trainer, "_rlship_batch", None)
    if logger is None or batch is None or not trainer.model.training:
        return
    mask, tools = made["completion_mask"], made.get("tool_mask")
    lengths = [len(one) for one in batch.tokens]
    for key, own, part in batch.groups():
        logger.ledger(
            "trained",
            key,
            step=batch.step,
            tokens=made["completion_ids"][own],
            lengths=lengths[own],
            reward=batch.rewards[own],
            advantage=made["advantages"][own],
            mask=(mask if tools is None else mask * tools)[own],
            response=lengths[own] if tools is None else None,
            part=part,
        )
