"""`rlship alerts`: the list, rules tried on history, the check of a file; over stores and a real experiment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.alerts.signals import Signal
from rlship_sidecar.alerts.words import words_of
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from tests.kit.files import CLOSE, T0, barrier, file, log, rollback
from tests.pipeline.simulated import simulation
from tests.tabular.stores import experiment

RULES = """\
[alert.high]
about = "x is high"
look = "at x"
warning = "it"
need = [2, 3]
clear = 2
[alert.high.signals]
it = { kind = "above", metric = "trainer/x", high = 10 }
never = { kind = "above", metric = "trainer/y", high = 10, missing = "false" }
"""


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(rlship, ["alerts", *map(str, args)], env={"TZ": "UTC"})


def rows(values: list[float], key: str = "trainer/x") -> list[Row]:
    coverage = Coverage(("0.0",), 1, attempts=(0,))
    return [
        Row(
            Unit("trainer", "step", at), T0 + at, {"global_step": at}, {key: value}, coverage, Arrival(at, 0, (), "end")
        )
        for at, value in enumerate(values)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment whose rows have one episode that is over and one that goes on, by a rule of its own."""
    made = experiment(tmp_path / "run", rows([1, 20, 20, 1, 1, 1, 20, 20]))
    (made / "rlship.toml").write_text(RULES)
    return made


def test_the_list(folder: Path) -> None:
    """Episodes that go on come first, with what happened, the values and where to look."""
    told = run(folder)
    assert told.exit_code == 0, told.output
    head, first, about, values, look, second, *rest = told.stdout.splitlines()
    assert head == "run: 2 episodes, 1 going on, up to step 7"
    assert first.startswith("  firing      warning   high, from step 6, fired at 7 (")
    assert (about, values, look) == ("      x is high", "      it 20: trainer/x", "      look at: at x")
    assert second.startswith("  resolved    warning   high, steps 1..2, fired at 2 (")
    assert rest[:2] == ["      x is high", "      it 20: trainer/x"]
    (blind,) = rest[2:]
    assert blind.startswith("  16 rules saw none of their metrics: divergence, memory, ")
    assert blind.endswith(f", host_memory; rlship alerts test {folder} lists the signals")


def test_each_signal_of_the_package_has_words(tmp_path: Path) -> None:
    """A newcomer reads what was looked at, in the catalogue's words; the list has them below the episode."""
    for rule in rules_of():
        for signal in rule.signals:
            meaning, bracket, name = words_of(signal).partition(" (")
            assert (meaning and bracket and name) or not signal.metrics or signal.kind == "stalled", signal.name
    made = experiment(tmp_path / "run", rows([0.0, 0.0, 3.0, 0.0], key="zz_rlship/ledger/version_disagrees"))
    assert "      versions 3: groups or processes whose weights are not those of their version (zz_" in run(made).stdout


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        (Signal("it", "level", ("train/kl_ref",)), "KL divergence of the policy from the reference (train/kl_ref)"),
        (
            Signal("it", "above", ("bal/rank_tokens/max", "bal/rank_tokens"), less="a", of="b", high=1),
            "tokens that a rank got to work on ((bal/rank_tokens/max less a) / b)",
        ),
        (Signal("it", "growth", ("my/own", "eval/score"), window=8), "change of my/own or eval/score over 8 values"),
        (Signal("it", "equal", ("x",), to="y"), "x less y"),
        (
            Signal("it", "invariant", ("train/loss/nonfinite",), high=0),
            "values that were not finite of: loss that is optimised (train/loss/nonfinite)",
        ),
        (Signal("it", "stalled", ("perf/stage_s/eval",)), "seconds since the step before"),
        (Signal("it", "shift"), "seconds that a step takes"),
    ],
)
def test_the_words_of_a_signal(signal: Signal, words: str) -> None:
    """They say what the first metric means, if the catalogue has it, and of which metrics the value is made."""
    assert words_of(signal) == words


def test_rules_that_see_a_metric_are_not_named(folder: Path) -> None:
    """A rule is blind if it saw no metric of any signal: one that looks at times or ranks never is, and one metric is
    enough. Without a blind rule there is no line, and JSON lines are episodes only.
    """
    (folder / "rlship.toml").write_text(RULES.replace("trainer/x", "trainer/z").replace("trainer/y", "trainer/x"))
    told = run(folder)
    assert "high" not in told.stdout and "stall" not in told.stdout and "lost_or_slow_place" not in told.stdout
    assert run(folder, "--json").stdout == ""
    off = "".join(f"[alert.{rule.name}]\nenabled = false\n" for rule in rules_of())
    (folder / "rlship.toml").write_text(RULES + off)
    assert "saw none" not in run(folder).stdout
    (folder / "rlship.toml").write_text(off + RULES.replace("trainer/", "trainer/z/"))
    assert run(folder).stdout.splitlines() == [
        "run: 0 episodes, 0 going on, up to step 7",
        f"  1 rule saw none of its metrics: high; rlship alerts test {folder} lists the signals",
    ]


def test_json(folder: Path) -> None:
    """An object a line for each episode, with all that is known of it; `list` may be said or left out."""
    told = run("list", folder, "--json")
    going_on, over = map(json.loads, told.stdout.splitlines())
    assert over == {
        "experiment": "run",
        "id": over["id"],
        "rule": "high",
        "severity": "warning",
        "state": "resolved",
        "place": "",
        "lineage": [0, 0, 0],
        "first": {"step": 1, "t": T0 + 1},
        "fired": {"step": 2, "t": T0 + 2},
        "last": {"step": 2, "t": T0 + 2},
        "ended": {"step": 4, "t": T0 + 4},
        "evidence": {"it": 20.0},
    }
    assert (going_on["state"], going_on["ended"]) == ("firing", None)
    assert over["id"] != going_on["id"] and len(over["id"]) == 16
    assert run(folder, "--json").stdout == told.stdout


def test_rules_that_come_with_rlship(tmp_path: Path) -> None:
    """Without a file the rules are those of the package: a loss that is not finite fires."""
    made = experiment(tmp_path / "run", rows([0, 0, 1, 0], key="trainer/train/loss/nonfinite"))
    (episode,) = [json.loads(line) for line in run(made, "--json").stdout.splitlines()]
    assert (episode["rule"], episode["severity"], episode["fired"]["step"]) == ("divergence", "critical", 2)


def test_rules_tried_on_history(folder: Path, tmp_path: Path) -> None:
    """Only the rules of the file count, those in force do not; signals say in how many frames they were known."""
    (tmp_path / "rules.toml").write_text(RULES.replace("high = 10", "high = 30").replace("alert.high", "alert.higher"))
    told = run("test", folder, "--rules", tmp_path / "rules.toml")
    assert told.stdout.splitlines() == [
        "run: 0 episodes, 0 going on, up to step 7",
        "  of 8 frames:",
        "      higher.it: true in 0, known in 8",
        "      higher.never: never known: its metric was not logged",
    ]
    (tmp_path / "rules.toml").write_text("[alert.stall]\nclear = 4\n")
    assert "stall.late: true in 0, known in 2" in run("test", folder, "--rules", tmp_path / "rules.toml").stdout
    assert "high.it: true in 4, known in 8" in run("test", folder).stdout


def test_a_file_of_rules_is_checked(tmp_path: Path) -> None:
    """One that is right lists its rules; one that is wrong ends with 2, its line, and what is allowed."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    told = run("check", rules)
    assert (told.exit_code, told.stdout) == (0, f"high\n{rules}: 1 rule, fine\n")
    rules.write_text(RULES.replace('"above"', '"abbove"', 1))
    told = run("check", rules)
    assert told.exit_code == 2
    assert f"{rules}, line 8: alert.high.signals.it.kind: there is no kind of signal 'abbove'" in told.stderr
    assert 'did you mean "above"? allowed are invariant, above,' in told.stderr
    told = run("check", tmp_path / "gone.toml")
    assert (told.exit_code, "gone.toml cannot be read" in told.stderr) == (2, True)


def test_nothing_to_evaluate(tmp_path: Path) -> None:
    """Without steps of the lead it says so; without a store it names the command that makes rows."""
    made = experiment(tmp_path / "run", rows([1.0]))
    (made / "rlship.toml").write_text('lead = "learner"\n')
    assert "nothing to evaluate: no step of the lead has a row" in run(made).stdout
    (tmp_path / "empty" / "rlship").mkdir(parents=True)
    (tmp_path / "empty" / "rlship" / "a.jsonl").write_bytes(file(log(1, x=1)))
    told = run(tmp_path / "empty")
    assert told.exit_code == 1 and "rlship watch" in told.stderr
    assert run(tmp_path / "nowhere").exit_code == 1


def test_names_of_places_are_escaped(tmp_path: Path) -> None:
    """A hostile name of a replica cannot move the cursor."""
    ranks = [("\x1b[2J.0", 9.0), *((f"0.{rank}", 1.0) for rank in range(6))]
    one = [
        Row(
            Unit("trainer", "step", at),
            T0 + at,
            {"global_step": at},
            {},
            Coverage(("0.0",), 1, attempts=(0,)),
            Arrival(at, 0, (), "end"),
            per_rank={"trainer/bal/rank_active_s": ranks},
        )
        for at in range(20)
    ]
    told = run(experiment(tmp_path / "run", one))
    assert "imbalance at trainer/" in told.stdout and "\x1b" not in told.stdout


@pytest.mark.parametrize(
    "odd",
    [
        {"values": {"trainer/x": "text"}},
        {"values": {"trainer/x": [1.0]}},
        {"per_rank": {"trainer/bal/rank_active_s": [("0.0", "text")] * 4}},
        {"coverage": Coverage(("0.0",), 1, ("no rank",), attempts=(0,))},
    ],
    ids=["text", "list", "rank", "coverage"],
)
def test_a_store_that_no_sidecar_wrote(tmp_path: Path, odd: dict[str, Any]) -> None:
    """What is no number in a row is reported with the way out, and no rule sees it."""
    bad = [replace(one, **odd) for one in rows([1.0, 2.0])]
    made = experiment(tmp_path / "run", bad)
    (made / "rlship.toml").write_text(RULES)
    told = run(made)
    assert told.exit_code == 1, told.output
    assert "cannot be used" in told.stderr and "rlship replay" in told.stderr


def test_a_rollback_of_a_real_experiment(tmp_path: Path) -> None:
    """The sidecar sees a job diverge; the job goes back and does the steps again. The episode stays, as superseded."""
    (tmp_path / "rules.toml").write_text(RULES)

    def lines(*values: float, first: int) -> list[dict[str, object]]:
        return [one for at, value in enumerate(values, first) for one in (log(at, t=T0 + at, x=value), barrier(at))]

    with simulation() as running:
        running.write("a.jsonl", file(*lines(1, 1, 20, 20, 20, first=0)))
        running.tick()
        again = file(rollback(2), *lines(1, 1, 1, 1, 1, first=2), CLOSE).split(b"\n", 1)[1]
        running.write("a.jsonl", again)
        running.finish()
        running.store.close()
        state = running.directory / "rlship" / "state"
        (state / "store.db").rename(state / "store.1.db")
        told = run("test", running.directory, "--rules", tmp_path / "rules.toml", "--json")
        assert told.exit_code == 0, told.output
        (episode,) = map(json.loads, told.stdout.splitlines())
    assert (episode["state"], episode["first"]["step"], episode["ended"]["step"]) == ("superseded", 2, 4)
    assert episode["lineage"] == [0, 0, 0]


def test_what_a_sidecar_says_while_it_watches(tmp_path: Path) -> None:
    """`watch` makes rows of verdicts: at sinks, for `query`, in `status`; `alerts` says the same of the stored rows."""
    made = tmp_path / "run"
    (made / "rlship").mkdir(parents=True)
    values = [1, 20, 20, 1, 1, 1, 20, 20, 20]
    lines = [line for at, x in enumerate(values) for line in (log(at, x=x) | {"t": T0 + at}, barrier(at))]
    (made / "rlship" / "a.jsonl").write_bytes(file(*lines, CLOSE, world=1))
    (made / "rlship.toml").write_text(f'sinks = ["jsonl", "tensorboard"]\n{RULES}')

    def call(*args: str | Path) -> Result:
        return CliRunner().invoke(rlship, list(map(str, args)), env={"TZ": "UTC"})

    assert call("watch", "--once", made).exit_code == 0
    shipped = [json.loads(line) for line in (made / "rlship/state/rows.jsonl").read_text().splitlines()]
    alerts = {one["index"]: one["m"] for one in shipped if one["kind"] == "alert"}
    assert alerts == {
        2: {"zz_rlship/alert/high": 1.0},
        4: {"zz_rlship/alert/high": 0.0},
        7: {"zz_rlship/alert/high": 1.0},
    }
    told = call("query", made, "SELECT rule, state, first_step, fired_step, ended_step FROM alerts", "--csv")
    assert told.stdout.splitlines()[1:] == ["high,resolved,1,2,4", "high,firing,6,7,"]
    status = json.loads(call("status", made, "--json").stdout)
    (going_on,) = status["alerts"]
    assert (going_on["rule"], going_on["state"], going_on["first_step"], going_on["last_step"]) == (
        "high",
        "firing",
        6,
        8,
    )
    assert (going_on["about"], status["episodes"]) == ("x is high", 2)
    shown = call("status", made).stdout.splitlines()
    assert shown[1] == "alert: warning high since step 6: it 20"
    listed = [json.loads(line) for line in run(made, "--json").stdout.splitlines()]
    assert sorted(one["id"] for one in listed) == sorted(
        sample["row"]["id"] for one in shipped for sample in one.get("samples", {}).get("episodes", ())
    )
    (made / "rlship.toml").write_text(f'sinks = ["jsonl"]\nalerts = false\n{RULES}')
    with open(made / "rlship" / "b.jsonl", "wb") as more:
        more.write(file(log(9, x=20), barrier(9), CLOSE, id="b", world=1, attempt=1))
    assert call("watch", "--once", made).exit_code == 0
    assert json.loads(call("status", made, "--json").stdout)["alerts"] == []
