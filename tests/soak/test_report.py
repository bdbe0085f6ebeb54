"""The report: what it adds up, and what it says of a round that went wrong."""

from __future__ import annotations

import json
from collections import Counter

from tests.soak.evidence import Verdict
from tests.soak.injector import Tally
from tests.soak.plan import plan_round
from tests.soak.report import Report
from tests.soak.rounds import Outcome


def outcome(number: int, **wrong: int) -> Outcome:
    """A round in which a little struck; `wrong` are the figures of its only verdict."""
    tally = Tally(
        planned=Counter({"kill writer": 3, "server 5xx": 1, "host dies": 1}),
        struck=Counter({"kill writer": 2, "server 5xx": 4}),
        missed=Counter({"kill writer": 1}),
        signals=Counter({("SIGKILL", "writer"): 2, ("SIGKILL", "wandb-core"): 1, ("SIGSTOP", "writer"): 1}),
        impossible={"state disk full": "no disk"},
        with_rows=Counter({"server 5xx": 3}),
    )
    differences = ["row 3 is lost"] if wrong else []
    return Outcome(
        plan_round(9, number),
        tally,
        [Verdict("jsonl", 10, **wrong, differences=differences)],
        exits=[5],
        resent=3,
        kinds=Counter(step=7, point=number),
        samples=4,
        tables_shown=3,
        tables=2,
    )


def test_rounds_are_added_up() -> None:
    """Faults by kind and signal, rows by place, and what could not be tried, in both forms."""
    report = Report("make soak", 9, [outcome(0), outcome(1)])
    body = json.loads(report.to_json())
    assert report.clean and body["clean"] is True and body["failures"] == []
    assert (body["sigkills"], body["server_faults"], body["rounds"]) == (6, 8, 2)
    assert body["signals"] == {"SIGKILL wandb-core": 2, "SIGKILL writer": 4, "SIGSTOP writer": 2}
    assert body["places"] == {"jsonl": {"expected": 20, "lost": 0, "duplicated": 0, "wrong": 0}}
    assert body["not_struck"] == {"state disk full": "no disk"} and body["exits"] == {"5": 2}
    assert (body["kinds"], body["samples"], body["tables"]) == ({"point": 1, "step": 14}, 8, 4)
    table = report.to_markdown().splitlines()
    assert table[-1].startswith("Rows by kind: 1 point, 14 step. They show 8 samples in 6 tables, of which 4 came")
    for row in (
        "| kill writer | 6 | 4 |",
        "| host dies | 2 | 0 |",
        "| server 5xx (requests) | 2 | 8, 6 with rows |",
        "| state disk full | | not struck: no disk |",
        "| SIGKILL | 4 | 0 | 0 | 2 | 6 |",
        "| jsonl | 20 | 0 | 0 | 0 |",
        "Lines that came to the W&B server again: 6. Sidecars that ended by themselves: 2 with exit code 5.",
    ):
        assert row in table


def test_one_wrong_row_is_a_failure_with_the_way_to_repeat_it() -> None:
    """A lost row, a problem, or no verdict at all: the campaign is not clean, and says which round to run again."""
    lost = outcome(4, lost=1)
    trouble = outcome(5)
    trouble.problems.append("a sidecar ended with 1")
    nothing = outcome(6)
    nothing.verdicts = []
    for bad in (lost, trouble, nothing):
        report = Report("make soak", 9, [outcome(0), bad])
        assert not report.clean and json.loads(report.to_json())["clean"] is False
        assert f"--seed 9 --round {bad.plan.number}" in report.failures()
        assert "round 0" not in report.failures()
    assert "row 3 is lost" in Report("make soak", 9, [lost]).failures()
    assert "a sidecar ended with 1" in Report("make soak", 9, [trouble]).failures()
    assert not Report("make soak", 9, []).clean
