"""The ledger in TRL's GRPO trainer, driven by a trainer of our own with the names and signatures of TRL 1.16's.

TRL needs torch, so `make frameworks` runs it in the real package.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlship
from rlship import registry
from rlship.integrations.trl_ledger import MODULE, patch_trainer
from tests.pipeline.simulated import simulation
from tests.writer.reading import files, records

TOKENS = [[5, 6, 7], [8], [9, 9], [1, 2, 3, 4], [3], [4, 4]]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 0.5]
GROUP = 3


class Tensor(np.ndarray):
    """An array with what the plug-in calls of torch's."""

    device = "cpu"

    def to(self, device: str) -> Any:
        return self

    def unsqueeze(self, axis: int) -> Any:
        return np.expand_dims(self, axis).view(Tensor)

    def nansum(self, axis: int) -> Any:
        return np.nansum(self, axis=axis).view(Tensor)


def tensor(values: Any) -> Any:
    return np.array(values).view(Tensor)


def trainer(monkeypatch: pytest.MonkeyPatch, mistake: Callable[[dict[str, Any]], Any] = id) -> Any:
    """The class GRPOTrainer, patched; `mistake` changes what one hands to the loss."""

    class GRPOTrainer:
        num_generations = GROUP
        reward_weights = tensor([1.0, 2.0])

        def __init__(self, rank: int, world: int) -> None:
            self.accelerator = types.SimpleNamespace(process_index=rank)
            self.model = types.SimpleNamespace(training=True)
            self.state = types.SimpleNamespace(global_step=0)
            self.own = slice(rank * len(TOKENS) // world, (rank + 1) * len(TOKENS) // world)

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            return tensor([[one, np.nan] for one in REWARDS])

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            tokens = TOKENS[self.own]
            rewards = self._calculate_rewards(inputs, None, None, tokens)[:, 0]
            means = np.repeat(rewards.reshape(-1, GROUP).mean(1), GROUP)
            width = max(map(len, tokens)) + 1
            made = {
                "completion_ids": tensor([one + [0] * (width - len(one)) for one in tokens]),
                "completion_mask": tensor([[1] * len(one) + [0] * (width - len(one)) for one in tokens]),
                "advantages": (rewards - means)[self.own],
            }
            mistake(made)
            return made

    monkeypatch.setitem(sys.modules, MODULE, types.SimpleNamespace(GRPOTrainer=GRPOTrainer))  # type: ignore[arg-type]
    patch_trainer()
    patch_trainer()  # a second training of the process
    return GRPOTrainer


def run(folder: Path, made: Any, *, world: int = 1, batches: int = 2) -> dict[str, float]:
    """The sums of the ledger's rows of two steps with so many batches each, on so many ranks."""
    for rank in range(world):
        registry.init(str(folder), "trainer", rank=rank, world=world, ledger_share=1)
        one = made(rank, world)
        for step in range(2):
            one.state.global_step = step
            for _ in range(batches):
                one._generate_and_score_completions([])
            one.model.training = False
            one._generate_and_score_completions([])  # an evaluation
            one.model.training = True
            rlship.log({"loss": 1.0}, step=step + 1)
            rlship.barrier(step + 1)
        rlship.close()
    with simulation() as sim:
        for path in files(folder):
            sim.write(path.name, path.read_bytes())
        sim.finish()
        total: dict[str, float] = {}
        for row in sim.final().values():
            if row.unit.kind == "ledger":
                for key, value in row.values.items():
                    name = key.rpartition("/")[2]
                    total[name] = total.get(name, 0) + value
    return {name: value for name, value in total.items() if value}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_group_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    """Each batch of each step has its groups, generated, scored and trained on, also where they lie on several ranks.
    What is evaluated has none.
    """
    found = run(tmp_path, trainer(monkeypatch), world=world)
    assert found == {"groups": 8, "generated_samples": 24, "trained_samples": 24}


def swapped(made: dict[str, Any]) -> None:
    made["completion_ids"][[0, 1]] = made["completion_ids"][[1, 0]]


def flipped(made: dict[str, Any]) -> None:
    made["advantages"] = -made["advantages"]


def masked(made: dict[str, Any]) -> None:
    made["completion_mask"][:, 1] = 0


@pytest.mark.parametrize(
    ("mistake", "key"), [(swapped, "tokens_differs"), (flipped, "sign_wrong"), (masked, "mask_wrong")]
)
def test_a_mistake_between_scores_and_loss_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[dict[str, Any]], Any], key: str
) -> None:
    """Other tokens than were generated, the wrong sign, and a mask that leaves tokens of answers out."""
    assert run(tmp_path, trainer(monkeypatch, mistake), batches=1)[key] >= 2


def test_another_version_of_trl_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these methods nothing is patched, and without TRL nothing is imported."""
    monkeypatch.setitem(sys.modules, MODULE, types.SimpleNamespace(GRPOTrainer=object))  # type: ignore[arg-type]
    patch_trainer()
    monkeypatch.delitem(sys.modules, MODULE)
    patch_trainer()
    assert MODULE not in sys.modules and not list(tmp_path.glob("*"))


def test_records_are_at_the_step_that_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key says step, batch and group; the rewards are the weighted sums of those that are known."""
    run(tmp_path, trainer(monkeypatch), batches=1)
    found = [one for one in records(tmp_path) if one.get("kind") == "ledger"]
    assert {one["key"] for one in found} == {"1.0.0", "1.0.1", "2.0.0", "2.0.1"}
    assert all(one["step"] == int(one["key"][0]) for one in found)
    assert {tuple(one["reward"]) for one in found if one["hop"] == "rewarded"} == {(1.5, 1.25)}
