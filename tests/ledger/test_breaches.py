"""Each fault that the ledger can see, seeded into a healthy group, gives exactly its key; healthy ways give none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.files import CLOSE, T0, barrier, file, log, rollback
from tests.ledger.groups import (
    ADVANTAGE,
    MASK,
    REWARD,
    TOKENS,
    counted,
    dropped,
    generated,
    record,
    rewarded,
    trained,
    weights,
)

HEALTHY = {"groups", "generated_samples", "trained_samples", "dropped_samples", "masked_out_samples"}
NEXT = [generated("next", 4.0), trained("next", 1, 5.0)]  # the trainer goes on


def breaches(**by_actor: list[dict[str, Any]]) -> set[str]:
    """The keys that a healthy group would not have, of the records of each actor."""
    files = {}
    for actor, records in by_actor.items():
        name, _, rank = actor.partition("_")
        files[f"{actor}.jsonl"] = file(*records, id=actor, actor=name, rank=int(rank or 0))
    return counted(files).keys() - HEALTHY


def seeded(**changed: Any) -> set[str]:
    """The breaches of a group whose record at the named hop has these members instead."""
    made = {
        "generator": [generated(**changed.get("generated", {}))],
        "reward": [rewarded(**changed.get("rewarded", {}))],
        "trainer": [trained(**changed.get("trained", {}))],
    }
    return breaches(**made)


SWAPPED = [REWARD[1], REWARD[0], *REWARD[2:]]
OTHER_TOKEN = [*TOKENS[:3], [11]]
SEEDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "a reward swapped between two samples": ({"rewarded": {"reward": SWAPPED}}, {"reward_differs"}),
    "a reward changed in its last bit": ({"trained": {"reward": [0.0, 1.0, 0.50000006, 0.0]}}, {"reward_differs"}),
    "a token changed on its way to the reward": ({"rewarded": {"tokens": OTHER_TOKEN}}, {"tokens_differs"}),
    "a token changed in the trainer": (
        {"trained": {"tokens": OTHER_TOKEN}},
        {"tokens_differs"},
    ),
    "two samples exchanged their tokens under their names": (
        {
            hop: {"sample": ["a", "b", "c", "d"]}
            | ({"tokens": [TOKENS[1], TOKENS[0], *TOKENS[2:]]} if hop == "rewarded" else {})
            for hop in ("generated", "rewarded", "trained")
        },
        {"tokens_differs"},
    ),
    "another sample under another name": (
        {
            hop: {"sample": ["a", "b", "c", "x" if hop == "trained" else "d"]}
            for hop in ("generated", "rewarded", "trained")
        },
        {"sample_differs"},
    ),
    "a mask that the generator has otherwise": (
        {"generated": {"mask": [[1, 1, 1], [1, 1], [0, 1, 1, 1], [1]]}},
        {"mask_differs"},
    ),
    "a mask over tokens of a tool": ({"trained": {"mask": [[1, 1, 1], [1, 1], [1, 1, 1, 1], [1]]}}, {"mask_wrong"}),
    "a mask that lacks tokens": ({"trained": {"mask": [[0, 1, 1], [1, 1], [1, 0, 1, 1], [1]]}}, {"mask_wrong"}),
    "a sample masked out on purpose": ({"trained": {"mask": [[0, 0, 0], *MASK[1:]]}}, set()),
    "a flipped sign": ({"trained": {"advantage": [-x for x in ADVANTAGE]}}, {"sign_wrong"}),
    "the advantages of rewards that are all equal": (
        {hop: {"reward": [1.0] * 4} for hop in ("rewarded", "trained")},
        set(),
    ),
    "another version": ({"trained": {"version": 2}}, {"version_disagrees"}),
    "a sample less": (
        {
            "trained": {
                "tokens": TOKENS[:3],
                "reward": REWARD[:3],
                "advantage": ADVANTAGE[:3],
                "mask": MASK[:3],
                "response": 8,
            }
        },
        {"group_short"},
    ),
    "bf16 on one side is not compared": ({"trained": {"precision": "bf16"}}, set()),
    "bf16 on both sides": (
        {
            hop: {"precision": "bf16", "reward": [0.0, 1.0, x, 0.0]}
            for hop, x in (("rewarded", 0.5001), ("trained", 0.5))
        },
        set(),
    ),
}


@pytest.mark.parametrize("name", SEEDS)
def test_a_seeded_fault_gives_its_key(name: str) -> None:
    """One fault in one group gives exactly its key, in the pipeline and in the reference."""
    seed, expected = SEEDS[name]
    assert seeded(**seed) == expected


def test_a_group_trained_twice() -> None:
    """A group that two steps train on, or two ranks as the same part, is twice, and nothing else."""
    assert breaches(generator=[generated()], trainer=[trained(step=0), trained(step=1, after=4.0)]) == {"twice"}
    assert breaches(generator=[generated()], trainer_0=[trained()], trainer_1=[trained()]) == {"twice"}
    both = [trained(part=(0, 1)), trained(part=(0, 2), after=3.5)]
    assert breaches(generator=[generated()], trainer=both) == {"twice"}
    assert breaches(generator=[generated()], buffer=[dropped(n=1)], trainer=[trained()]) == {"twice"}


def test_parts_of_ranks_make_one_group() -> None:
    """Parts of data-parallel ranks add up to the group; a part that lacks makes it short."""
    first = {"tokens": TOKENS[:2], "reward": REWARD[:2], "advantage": ADVANTAGE[:2], "mask": MASK[:2], "response": 5}
    second = {"tokens": TOKENS[2:], "reward": REWARD[2:], "advantage": ADVANTAGE[2:], "mask": MASK[2:], "response": 4}
    sides = {"generator": [generated()], "reward": [rewarded()]}
    halves = [trained(part=(0, 2), **first), trained(part=(1, 2), **second)]
    assert breaches(**sides, trainer_0=halves[:1], trainer_1=halves[1:]) == set()
    assert breaches(**sides, trainer_0=halves[:1]) == {"group_short"}
    assert breaches(
        **sides, trainer_0=halves[:1], trainer_1=[trained(part=(1, 2), **second | {"reward": [0.0, 0.5]})]
    ) == {"reward_differs"}


def test_dropped_samples_are_accounted_for() -> None:
    """What was dropped makes a group neither short nor lost, and with digests of it the rest is compared."""
    rest = {"tokens": TOKENS[1:], "reward": REWARD[1:], "advantage": ADVANTAGE[1:], "mask": MASK[1:], "response": 6}
    for told in ({"n": 1}, {"tokens": TOKENS[:1], "reward": REWARD[:1]}):
        assert breaches(generator=[generated()], buffer=[dropped(**told)], trainer=[trained(**rest)]) == set()
    with_digests = dropped(tokens=TOKENS[:1])
    assert breaches(generator=[generated(tokens=OTHER_TOKEN)], buffer=[with_digests], trainer=[trained(**rest)]) == {
        "tokens_differs"
    }
    assert breaches(generator=[generated()], buffer=[dropped(n=3), dropped(n=1, after=2.7)], trainer=NEXT[1:]) == set()


def test_a_group_that_never_arrives() -> None:
    """Once the trainer has gone on for `ledger_wait_s`, a group that did not come is lost; before, it is open."""
    on_time = [generated("next", 3000.0), trained("next", 1, 3600.9)]
    assert breaches(generator=[generated()], trainer=on_time) == {"open", "open_samples"}
    behind = [generated("next", 3000.0), trained("next", 1, 3601.1)]
    assert breaches(generator=[generated()], trainer=behind) == {"lost", "lost_samples"}
    partly = breaches(generator=[generated()], buffer=[dropped(n=3)], trainer=behind)
    assert partly == {"lost", "lost_samples"}


def test_a_hop_that_comes_too_late() -> None:
    """An entry more than `ledger_wait_s` behind the group's first counts as late; the group is lost without it."""
    assert breaches(generator=[generated()], trainer=[trained(after=3602.0)]) == {"late", "lost", "lost_samples"}
    late_reward = breaches(
        generator=[generated()], trainer=[trained()], reward=[rewarded(after=3602.0, reward=SWAPPED)]
    )
    assert late_reward == {"late"}


def test_fingerprints_of_a_version() -> None:
    """Two ranks that load other weights under one version disagree; other sets of parameters cannot be compared."""
    pushed = weights(3, "bfloat16:9:aa:11", 0.5)
    for other, expected in (
        ("bfloat16:9:aa:11", set()),
        ("bfloat16:9:aa:22", {"version_disagrees"}),
        ("bfloat16:7:bb:22", set()),
        ("unknown", set()),
        ("", set()),
    ):
        found = breaches(trainer=[pushed, trained()], generator=[weights(3, other, 0.7), generated()])
        assert found == expected, other
    loaded_again = [weights(3, "bfloat16:9:aa:22", 0.7), weights(3, "bfloat16:9:aa:11", 0.9), generated()]
    assert breaches(trainer=[pushed, trained()], generator=loaded_again) == set()


def test_a_rollback_takes_no_group_twice() -> None:
    """Steps that are done again train on their groups again; a group from before the rollback's step is twice."""
    redone = [log(0, x=1), trained("a", 0, 2.0), log(1, x=1), trained("b", 1, 3.0), rollback(1), trained("b", 1, 4.0)]
    sides = [generated("a"), generated("b")]
    assert breaches(generator=sides, trainer=redone) == set()
    assert breaches(generator=sides, trainer=[*redone, trained("a", 2, 5.0)]) == {"twice"}


def test_a_restart_takes_no_group_twice() -> None:
    """An attempt does the steps behind its checkpoint again, on whichever rank; a prompt from before it is twice."""
    before = [log(0, x=1), trained("a", 0, 2.0), log(1, x=1), trained("b", 1, 3.0)]
    sides = file(generated("a"), generated("b"), id="g", actor="generator")

    def again(*records: dict[str, Any]) -> set[str]:
        started = file(*records, id="t1", attempt=1, rank=1, t=T0 + 10.0)
        return (
            counted({"g": sides, "t0.jsonl": file(*before, id="t0"), "t1.jsonl": started, "g.jsonl": sides}).keys()
            - HEALTHY
        )

    assert again(log(1, x=1), trained("b", 1, 12.0)) == set()
    assert again(log(1, x=1), trained("b", 1, 12.0), trained("a", 2, 13.0)) == {"twice"}


def test_a_dispatch_that_is_done_again() -> None:
    """A group that a replica generates again, marked as another try or not, is right as either of them."""
    other = {"tokens": [[20, 21], [22], [23], [24]], "version": 4}
    for again in ({"retry": 1}, {}):
        twice = [generated(), generated(after=1.5, **other | again)]
        assert breaches(generator=twice, trainer=[trained(reward=None)]) == set()
        second = {"mask": None, "response": None, "reward": None, **other}
        assert breaches(generator=[twice[0]], generator_1=[twice[1]], trainer=[trained(**second)]) == set()
    assert breaches(generator=[generated(), generated(after=1.5, retry=1)], trainer=[trained(tokens=OTHER_TOKEN)]) == {
        "tokens_differs"
    }
    assert breaches(generator=[generated()], trainer=[trained(), trained(after=3.5, retry=1)]) == set()


def test_copies_of_a_file_count_once() -> None:
    """A file that lies there twice makes no group twice."""
    data = file(trained(), barrier(0), CLOSE, id="t")
    sides = file(generated(), id="g", actor="generator")
    assert counted({"t.jsonl": data, "copy.jsonl": data, "g.jsonl": sides}).keys() <= HEALTHY


def test_hops_of_the_jobs_own() -> None:
    """A hop between the others is compared as they are."""
    buffered = record("buffered", "p", 2.2, tokens=TOKENS, reward=SWAPPED)
    assert breaches(generator=[generated()], buffer=[buffered], trainer=[trained()]) == {"reward_differs"}
