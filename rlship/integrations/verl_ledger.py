"""The ledger at verl's DataProto boundary: what the driver's batches are after the reward, and before the update."""

from __future__ import annotations

import functools

from . import verl_driver
from .source import safely
from .verl_driver import SOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

# Estimators whose advantages follow the rewards within a group. The name is verl's.
_OF_GROUPS = ("grpo", "grpo_passk", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg")

_estimator = ""


def patch_trainer(module: ModuleType) -> None:
    """Record the groups of `module`, verl's `verl.trainer.ppo.ray_trainer`, in the ledger."""
    trainer: Any = getattr(module, "RayPPOTrainer", None)
    compute: Any = getattr(module, "compute_advantage", None)
    if compute is None or not hasattr(trainer, "_update_actor") or hasattr(compute, "__wrapped__"):
        return  # another version, or patched already
    update = trainer._update_actor

    @functools.wraps(compute)
    def compute_advantage(data: Any, *args: Any, **options: Any) -> Any:
        safely(SOURCE, _rewarded, data, args, options)
        return compute(data, *args, **options)

    @functools.wraps(update)
    def update_actor(self: Any, batch: Any, *args: Any, **options: Any) -> Any:
        safely(SOURCE, _trained, batch, self.global_steps)
        return update(self, batch, *args, **options)

    module.compute_advantage = compute_advantage  # type: ignore[attr-defined]
    trainer._update_actor = update_actor


def _rewarded(data: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    global _estimator
    found = options.get("adv_estimator", args[0] if args else "")
    _estimator = str(getattr(found, "value", found))
    _record("rewarded", data, None, {"reward": data.batch["token_level_scores"]})


def _trained(data: Any, step: int) -> None:
    batch = data.batch
    more = {"reward": batch["token_level_scores"]}
    if _estimator in _OF_GROUPS:
        mask = batch["response_mask"]
        # Long answers have no greater advantage than short ones: the mean over an answer's tokens.
        more["advantage"] = (batch["advantages"] * mask).sum(-1) / mask.sum(-1).clip(1)
    _record("trained", data, step, more)


def _record(hop: str, data: Any, step: int | None, more: dict[str, Any]) -> None:
    driver, batch = verl_driver.current_driver(), data.batch
    if driver is None or "uid" not in data.non_tensor_batch:
        return
    tokens = batch["responses"]
    if "response_mask" in batch.keys():  # noqa: SIM118 - a TensorDict's `in` means something else
        more["mask"] = batch["response_mask"]
    driver.ledger(
        hop,
        data.non_tensor_batch["uid"],
        step,
        {"tokens": tokens, "attention_mask": batch["attention_mask"][:, -tokens.shape[1] :], **more},
    )
