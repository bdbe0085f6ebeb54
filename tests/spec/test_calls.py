"""The scripts of calls on the Python writer."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spec.calling import differences, play, unreported
from tests.spec.schemas import faults
from tests.spec.vectors import call_scripts
from tests.writer.reading import lines, logger_at

SCRIPTS = call_scripts()
REPORTING = [name for name, script in SCRIPTS.items() if "reports" in script]
ABILITIES = {
    *("arrays", "summaries", "any value", "64-bit integers", "NUL characters", "half surrogates", "labels", "parent"),
    *("errors of spans", "nested attributes", "samples", "cut", "ledger"),
}


def written(script: dict[str, Any], folder: Path) -> list[str]:
    """The lines that the Python writer makes of a script."""
    logger = logger_at(folder, clock=time.time, **script["open"])
    logger.start()
    play(script, logger)
    assert logger.close()
    return lines(folder)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_writer_makes_the_records_of_the_script(name: str, tmp_path: Path) -> None:
    """The Python writer plays every script, whatever it needs, and its records are those of the vector."""
    made = written(SCRIPTS[name], tmp_path)
    assert not differences(SCRIPTS[name]["records"], [json.loads(line) for line in made], os.getpid())


@pytest.mark.parametrize("name", REPORTING)
def test_the_writer_reports_what_the_script_says(name: str, tmp_path: Path) -> None:
    """Each kind of misuse is reported once, in the file."""
    assert unreported(SCRIPTS[name], list(map(json.loads, written(SCRIPTS[name], tmp_path)))) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_written_is_valid(name: str, tmp_path: Path) -> None:
    """Every line that the writer makes of a script is valid by the schemas, and fits."""
    made = written(SCRIPTS[name], tmp_path)
    assert all(len(line.encode()) < 1 << 20 for line in made)
    assert [fault for line in made for fault in faults("record", json.loads(line))] == []


def test_scripts_are_whole() -> None:
    """Each script has one line that says what it is about, and needs nothing that the README does not name."""
    for name, script in SCRIPTS.items():
        assert script.keys() - {"reports"} == {"about", "needs", "open", "calls", "records"}, name
        assert script["about"] and "\n" not in script["about"], name
        assert set(script["needs"]) <= ABILITIES, name
    assert {need for script in SCRIPTS.values() for need in script["needs"]} == ABILITIES
    needless = [name for name, script in SCRIPTS.items() if not script["needs"]]
    used = {call["call"] for name in needless for call in SCRIPTS[name]["calls"]}
    assert {"log", "define", "span", "event", "barrier", "rollback", "flush", "close", "run"} <= used


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda found: found.pop(1), "record 1 kind"),
        (lambda found: found.append({"kind": "gap", "n": 1}), "too much"),
        (lambda found: found[1]["m"].update(loss=0.5000000000000001), "record 1 m"),
        (lambda found: found[1]["m"].update(more=1), "record 1 m"),
        (lambda found: found[1].update(step=2), "record 1 step"),
        (lambda found: found[2].pop("step"), "record 2 step"),
        (lambda found: found[2].update(t=12), "record 2 t"),
        (lambda found: found[0].update(id=""), "record 0 id"),
        (lambda found: found[0].update(world=1), "record 0 world"),
        (lambda found: found[0].update(rank=True), "record 0 rank"),
        (lambda found: found[0].update(beat=-1), "record 0 beat"),
        (lambda found: found[3].update(reason="roll"), "record 3 reason"),
    ],
)
def test_other_records_are_told(change: Any, told: str, tmp_path: Path) -> None:
    """The comparison tells a record that lacks or is too much, other bits, and members that are wrong."""
    script = SCRIPTS["three-lines"]
    found = [json.loads(line) for line in written(script, tmp_path)]
    found[0]["own"] = 1
    assert not differences(script["records"], [*found, {"kind": "beat"}], os.getpid())
    change(found)
    assert any(told in line for line in differences(script["records"], found, os.getpid()))


def test_negative_zero_is_told_from_zero(tmp_path: Path) -> None:
    """A writer that writes -0.0 as 0.0 does not conform."""
    script = SCRIPTS["numbers-doubles"]
    found = [json.loads(line) for line in written(script, tmp_path)]
    found[1]["m"]["z"] = 0.0
    assert differences(script["records"], found, os.getpid())
