"""What a writer of the ledger that means harm, or whose numbers ran away, can do: nothing to other rows."""

from __future__ import annotations

from typing import Any

import pytest

from rlship_formats.reading import Ledger
from rlship_sidecar.ledger.entries import EntryPlace, LedgerEntry, packed, unpacked
from rlship_sidecar.ledger.judging import current
from tests.counting import calls
from tests.kit.files import CLOSE, T0, file, log
from tests.ledger.groups import counted, generated, trained

MOST = (1 << 53) - 1
GREAT = 1.7e308


def part(number: int, of: int, **members: Any) -> dict[str, Any]:
    found = {"kind": "ledger", "t": T0 + 1, "step": 0, "hop": "trained", "key": "a", "n": 2, "part": [number, of]}
    return found | members


@pytest.mark.parametrize(
    "members",
    [
        {"reward": [1e200, GREAT], "advantage": [1e200, GREAT, -GREAT]},
        {"reward": [0.0, GREAT], "advantage": [0.0, GREAT, GREAT]},
        {"reward": [0.0, -GREAT], "advantage": [0.0, -GREAT, -GREAT]},
        {"reward": [0.0, 1.0], "advantage": [0.0, 1.0, -GREAT]},
    ],
    ids=("variance", "product", "negative", "sign"),
)
def test_sums_that_no_double_holds_say_nothing(members: dict[str, Any]) -> None:
    """Rewards and advantages whose sums over parts are beyond doubles give a row, and no wrong sign. The group beside
    them is judged as always.
    """
    records = [part(number, 2, **members) for number in range(2)]
    found = counted({"a.jsonl": file(log(0, x=1.0), *records, trained(), generated(), CLOSE, world=1)})
    assert found == {"groups": 2, "trained_samples": 8, "generated_samples": 4}


def test_counts_are_bounded() -> None:
    """Parts that together claim more samples than 64 bits hold count as 2^53 - 1."""
    records = [part(number, 2050, n=MOST, mask=[MOST, MOST, MOST]) for number in range(2050)]
    found = counted({"a.jsonl": file(log(0, x=1.0), *records, CLOSE, world=1)})
    assert found == {"groups": 1, "trained_samples": MOST, "masked_out_samples": MOST}


def test_a_key_that_never_changes_costs_in_proportion() -> None:
    """Which entries a newer segment has undone takes work in proportion to their number, also where a job went back
    and gives every group the same key.
    """
    body = unpacked(packed(Ledger(T0, None, "trained", "a", 2)))

    def entries(count: int) -> list[LedgerEntry]:
        places = [EntryPlace("trainer", "0", 0, "w", (0, 0, number), 0) for number in range(2)]
        return [
            LedgerEntry("a", at, "trained", T0 + at, at % count, places[at // count], body) for at in range(2 * count)
        ]

    few, many = entries(20), entries(200)
    assert current(many) == many[200:]
    assert calls(current, many) < 20 * calls(current, few)
