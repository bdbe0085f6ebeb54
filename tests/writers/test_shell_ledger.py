"""The ledger of the shell writer: what awk makes of a group is what Python makes of it, with mawk and busybox."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from rlship.ledgers.digest import keeps
from rlship.ledgers.entry import Given, lines
from tests.kit.tools import needed
from tests.writers.commands import command, init
from tests.writers.driver import all_records, drive, of_kind
from tests.writers.languages import language_of

pytestmark = pytest.mark.toolchain

# Bounds of float32 and between its neighbours, of which one has an even last bit; and what is not finite.
ODD = (0.0, -0.0, 1e-45, -1e-46, 7.006492321624085e-46, 2.1019476964872256e-45, 1.1754943508222875e-38, 1.1754942e-38)
ODD += (3.4028235677973362e38, 3.4028235677973366e38, -3.5e38, 1.00390625, 1.01171875, 1.0000000596046448)
ODD += (float("nan"), float("inf"), -float("inf"))
TOKENS = (0, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, -(2**32), 2**53 + 1, 2**63 - 1, -(2**63))


def _number(chance: random.Random) -> float:
    return chance.choice(
        (chance.choice(ODD), chance.uniform(-2, 2), chance.choice((-1, 1)) * 10 ** chance.uniform(-50, 45))
    )


def _group(chance: random.Random) -> dict[str, Any]:
    n = chance.choice((1, 2, 3, 11))
    rows = [[chance.randrange(150_000) for _ in range(chance.choice((1, 2, 5)))] for _ in range(n)]
    rows[-1] += chance.choice(((), TOKENS))
    every = {
        "tokens": rows,
        "mask": [[chance.choice((0, 1)) for _ in row] for row in rows],
        "sample": [chance.choice(("a", "é", "日本", "x y", '"q"\\', "0")) + str(place) for place in range(n)],
        "reward": [_number(chance) for _ in range(n)],
        "advantage": [_number(chance) for _ in range(n)],
        "logprobs": [[_number(chance) for _ in row] for row in rows],
        "precision": "bf16",
        "version": [3, 4],
        "part": [1, 4],
    }
    return {"n": n} | {name: value for name, value in every.items() if chance.random() < 0.6}


def _flat(value: Any) -> str:
    if isinstance(value, list):
        return (";" if any(isinstance(item, list) for item in value) else ",").join(map(_flat, value))
    return value if isinstance(value, str) else repr(value)


def _call(key: str, group: dict[str, Any]) -> str:
    return command(
        "ledger", "", 3, "trained", key, *(part for name, value in group.items() for part in (name, _flat(value)))
    )


def _busybox_alone(folder: Path) -> dict[str, str]:
    """Settings under which awk, od and the like are those of busybox."""
    folder.mkdir()
    for applet in ("awk", "od", "tr", "cut", "date", "ls", "mkdir", "chmod", "stat", "readlink", "uname"):
        os.symlink(needed("busybox"), folder / applet)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("language", ["dash", "ash"])
def test_a_shell_makes_the_digests_of_python(language: str, tmp_path: Path) -> None:
    """Groups with integers of 64 bits, numbers at the bounds of float32 and between its neighbours, bfloat16, empty
    rows and names of any text come to the very record that Python writes, by mawk and by the awk of busybox.
    """
    chance = random.Random(16)
    groups = {f"k{number}é": _group(chance) for number in range(25)}
    settings = _busybox_alone(tmp_path / "bin") if language == "ash" else {}
    calls = [_call(key, group) for key, group in groups.items()]
    ended = drive(language_of(language), tmp_path, init("job", "t"), *calls, settings=settings)
    assert (ended.code, ended.said) == (0, "")
    for found, (key, group) in zip(of_kind(all_records(tmp_path / "job"), "ledger"), groups.items(), strict=True):
        given = {**group, "version": tuple(group["version"])} if "version" in group else group
        (line,) = lines(Given("trained", key, given), [(key, None)], 3, found["t"])
        assert found == json.loads(line)


def test_a_shell_keeps_the_keys_that_others_keep(tmp_path: Path) -> None:
    """Of a share of the keys the shell records the ones that Python does; one line says which
    share is no number from 0 to 1, and an eighth is recorded.
    """
    keys = [f"{epoch}:{index}é" for epoch in range(2) for index in range(12)]
    for share, kept in (("0.3", 0.3), ("", 1 / 8), ("2", 1 / 8), ("0", 0.0)):
        job = tmp_path / f"job{share}"
        calls = [_call(key, {"n": 1}) for key in keys]
        settings = {"RLSHIP_LEDGER_SHARE": share}
        ended = drive(language_of("dash"), tmp_path, init(job, "t"), *calls, settings=settings)
        found = [record["key"] for record in of_kind(all_records(job), "ledger")]
        assert found == [key for key in keys if keeps(key, kept)]
        assert ("is not a number from 0 to 1" in ended.said) == (share == "2")


REFUSED = {
    "n= is needed": {},
    'n "-1" is not an integer from 0': {"n": -1},
    "tokens has values of 1 samples, and n is 2": {"n": 2, "tokens": "1"},
    'tokens holds "1.5"': {"tokens": "1.5"},
    "does not fit in 64 bits": {"tokens": "9223372036854775808"},
    "a value has a line break": {"tokens": "1\n=n\n:1"},
    'reward holds "a"': {"reward": "a"},
    'reward holds "1e400"': {"reward": "1e400"},
    'a field is named "fi"eld"': {'fi"eld': "1"},
    'precision "fp8" is not known': {"n": 1, "precision": "fp8"},
    'part "1,1" cannot be used': {"n": 1, "part": "1,1"},
    'passes "0" is not an integer from 1': {"n": 1, "passes": "0"},
    "key is given twice": {"n": 1, "key": "2"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_group_that_cannot_be_used_is_left_out_and_told(said: str, tmp_path: Path) -> None:
    """No record is written of it, one line says why, and the next call is as if nothing were."""
    calls = _call("k", REFUSED[said]) + _call("k", {"n": 0})
    ended = drive(language_of("dash"), tmp_path, init("job", "t"), calls)
    (found,) = of_kind(all_records(tmp_path / "job"), "ledger")
    assert found["n"] == 0
    assert said in ended.said and len(ended.said.splitlines()) == 1
