"""`rlship why` over incidents that the project's own writers wrote: from files through the sidecar to the answer."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.ownership.lease import acquire
from rlship_sidecar.report.status import read_status, write_status
from rlship_sidecar.report.terminal import date
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from tests.alerts.rows import row
from tests.kit import files
from tests.kit.cases import long
from tests.kit.files import CLOSE, T0, barrier, file, log, rollback
from tests.pipeline.simulated import simulation
from tests.tabular.stores import experiment
from tests.why.job import FAULT_AT, Fault, Job, Now, healthy

WIDTH, LINES = 80, 21


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(rlship, ["why", *map(str, args)], env={"TZ": "UTC"})


def watched(folder: Path) -> Path:
    """The experiment with the rows that a sidecar makes of it."""
    done = CliRunner().invoke(rlship, ["watch", "--once", "--quiet", "--sink", "jsonl", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def incident(folder: Path, fault: Fault, **job: Any) -> dict[str, Any]:
    """What `why --json` says of a job with a fault."""
    said = run(watched(Job(folder, fault, **job).run()), "--json")
    assert said.exit_code == 0, said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found


# The faults ----------------------------------------------------------------------------------------------------------


def reward_times_out(now: Now) -> None:
    """Scoring slows down; three steps later it is given up, and gives 0."""
    now.factor["rwd/latency_s"] = 8
    if now.since >= 3:
        now.value |= {"rwd/timeouts": 12.0, "reward/total": 0.15}
        now.factor["reward/zero_std_frac"] = 4


def gpu_throttled(now: Now) -> None:
    """A GPU of node n1 gets hot until it is slowed; trainer rank 2 runs there."""
    now.hot_node = min(30.0, 6.0 * now.since)
    if now.since >= 5:
        now.slow_rank = 2.2


def rank_slow(now: Now) -> None:
    """Trainer rank 2 takes twice as long, and nothing of its machine shows why."""
    now.slow_rank = 2.2


def lr_reset(now: Now) -> None:
    """The learning rate jumps; gradients and KL follow, and then the reward."""
    now.value["train/lr"] = 2e-5
    if now.since >= 2:
        now.factor |= {"train/grad_norm": 6, "train/kl_ref": 4 + now.since, "train/ppo_kl": 5}
    if now.since >= 8:
        now.value["reward/total"] = 0.1


def replica_stale(now: Now) -> None:
    """Generator 1 gets no new weights."""
    now.behind = {1: now.since}
    if now.since >= 6:
        now.factor |= {"correctness/rollout_train_logp_diff": 5, "async/staleness": 1 + now.since / 2}
    if now.since >= 15:
        now.value["reward/total"] = 0.2


def old_weights(now: Now) -> None:
    """Generator 1 serves the weights of step 5; the trainer sees it two steps later."""
    now.behind = {1: now.step - 6}
    if now.since >= 2:
        now.factor |= {"correctness/rollout_train_logp_diff": 8, "async/staleness": 6}
    if now.since >= 8:
        now.value["reward/total"] = 0.2


def nan(now: Now) -> None:
    """Gradients are not finite from one step to the next."""
    now.value["train/grad_norm"] = float("nan")


def mask_is_wrong(now: Now) -> None:
    """The mask covers a third of the tokens that it should; KL is negative from then on."""
    now.factor["correctness/response_mask_ratio"] = 0.35
    now.value["train/ppo_kl"] = -0.06
    if now.since >= 10:
        now.value["reward/total"] = 0.2


def nothing_known(now: Now) -> None:
    """The reward falls, and no cause of the graph shows anything."""
    now.value["reward/total"] = 0.05


FAULTS: dict[str, tuple[Fault, str]] = {
    "reward_times_out": (reward_times_out, "reward"),
    "gpu_throttled": (gpu_throttled, "trainer/0.2"),
    "replica_stale": (replica_stale, "generator/1.0"),
    "unknown": (nothing_known, "reward"),
    "rank_slow": (rank_slow, "trainer/0.2"),
    "lr_reset": (lr_reset, "settings"),
    "nan": (nan, "trainer"),
    "mask_is_wrong": (mask_is_wrong, "trainer"),
}


@pytest.mark.parametrize("name", [*[*FAULTS][:4], *long(*[*FAULTS][4:])])
def test_an_incident(tmp_path: Path, name: str) -> None:
    """The cause comes first, at its place, with its onset; what it causes does not come first."""
    fault, place = FAULTS[name]
    said = incident(tmp_path, fault)
    first = said["causes"][0]
    assert (first["cause"], first["place"]) == (name, place)
    begun = [said["signs"][root]["onset"]["step"] for root in said["roots"]]
    assert FAULT_AT <= begun[0] <= FAULT_AT + 6
    text = run(tmp_path)
    lines = text.stdout.splitlines()
    assert text.exit_code == 0 and len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH


def test_a_generator_that_came_back_with_old_weights(tmp_path: Path) -> None:
    """Its restart comes first, then its version, then what the trainer sees; it is not taken for one that is only slow
    to get weights.
    """
    said = incident(tmp_path, old_weights, restarted=1)
    first = said["causes"][0]
    assert (first["cause"], first["place"], first["host"]) == ("replica_serves_checkpoint", "generator/1.0", "n0")
    signs = said["signs"]
    assert signs["restart"]["onset"]["step"] <= signs["version_falls"]["onset"]["step"] <= FAULT_AT + 1
    assert (signs["restart"]["actor"], signs["restart"]["rank"]) == ("generator", "generator/1.0")


def test_a_crash_is_named_beside_the_causes(tmp_path: Path) -> None:
    """A process that an error ended is named, whether a rule fired or not: the error may be all there is to explain."""
    failed = {"kind": "close", "reason": "error", "error": "RuntimeError: CUDA out of memory", "t": T0 + 9}
    files.experiment(
        tmp_path / "run", {"a.jsonl": file(*(log(step, loss=1.0) for step in range(3)), barrier(2), failed)}
    )
    said = run(watched(tmp_path / "run"))
    ended = "trainer r0 ended with RuntimeError: CUDA out of memory at step 2"
    assert said.stdout == f"run: nothing to explain, up to step 2: no rule fired\n  {ended}\n"
    (form,) = map(json.loads, run(tmp_path / "run", "--json").stdout.splitlines())
    assert form["ended"] == [ended]


def test_a_killed_process_is_named_beside_the_causes(tmp_path: Path) -> None:
    """A process that ended without a close is named with its last step, first the one that ended first, whether a rule
    fired or not.
    """
    beats = {"beat": 10.0, "world_size": 2}
    ranks = {
        "a.jsonl": file(*(log(step, loss=1.0) for step in range(3)), barrier(2), files.beat(120.0), **beats),
        "b.jsonl": file(*(log(step, loss=1.0) for step in range(3)), barrier(2, 13.0), rank=1, id="b", **beats),
    }
    folder = files.experiment(tmp_path / "run", ranks)
    for name, after in (("a.jsonl", 120.0), ("b.jsonl", 13.0)):
        os.utime(folder / "rlship" / name, (T0 + after, T0 + after))
    said = run(watched(folder))
    ended = "ended without a close: trainer r0, r1 at step 2, first r1, 107 s before the other, last line "
    (form,) = map(json.loads, run(folder, "--json").stdout.splitlines())
    (line,) = form["ended"]
    assert line.startswith(ended) and line.endswith(f"({date(T0 + 120)})")
    head, *lines = said.stdout.splitlines()
    assert head == "run: nothing to explain, up to step 2: no rule fired"
    assert " ".join(map(str.strip, lines)).startswith(ended)
    broken = file(*(log(step, grad_norm="NaN") for step in range(3)), barrier(2, 13.0), beat=10.0)
    folder = files.experiment(tmp_path / "broken", {"a.jsonl": broken})
    said = run(watched(folder))
    assert "ended without a close: trainer r0 at step 2, " in said.stdout.splitlines()[3], said.stdout
    (form,) = map(json.loads, run(folder, "--json").stdout.splitlines())
    assert form["episode"]["rule"] == "divergence" and len(form["ended"]) == 1


def test_ranks_that_a_step_waits_for_are_named(tmp_path: Path) -> None:
    """As long as a sidecar runs, and once the wait is no slow step: a rank that hangs leaves no row that shows it."""
    rank = file(log(2, loss=1.0), barrier(2), CLOSE)
    folder = watched(files.experiment(tmp_path / "run", {"a.jsonl": rank}))
    state = folder / "rlship" / "state"
    waits = "step 3 has waited 40 s for r1 (n07 pid 4121); r1 is at step 2"

    def said(lag_s: float) -> list[str]:
        status = read_status(state)
        assert status is not None
        status.actors[0] = replace(status.actors[0], waiting="0.1", open_units=1, lag_s=lag_s, note=waits)
        write_status(state, replace(status, t=time.time()))
        found: list[str] = json.loads(run(folder, "--json").stdout)["waits"]
        return found

    assert said(40.0) == []
    lease = acquire(state, 30.0)
    try:
        assert said(4.0) == []
        assert said(40.0) == [f"trainer: {waits}"]
        assert run(folder).stdout.endswith(f": no rule fired\n  trainer: {waits}\n")
    finally:
        lease.release()


def test_a_healthy_job_has_nothing_to_explain(tmp_path: Path) -> None:
    """It says so, up to which step, and the exit code is 0."""
    folder = watched(Job(tmp_path / "run", healthy).run())
    said = run(folder)
    assert (said.exit_code, said.stdout) == (0, "run: nothing to explain, up to step 89: no rule fired\n")
    (form,) = map(json.loads, run(folder, "--json").stdout.splitlines())
    assert form == {
        "experiment": "run",
        "episode": None,
        "note": "no rule fired",
        "last": {"step": 89, "t": form["last"]["t"]},
        "ended": [],
        "waits": [],
    }


def test_the_answer_for_people(tmp_path: Path) -> None:
    """The episode, the cause with its evidence in order of time and its host, others, and what was not logged."""
    watched(Job(tmp_path / "run", gpu_throttled).run())
    head, about, others, first, *rest = run(tmp_path / "run").stdout.splitlines()
    assert others.startswith("  with it: imbalance (")
    assert head.startswith("run: slow_step, warning, ")
    assert about.startswith("  steps are slow for good")
    assert first.startswith("1. a GPU is slowed for heat or power [trainer/0.2 (n1)], weight ")
    steps = [int(line.split()[1]) for line in rest[:3]]
    assert steps == sorted(steps) and rest[0].startswith("    step 61  a GPU gets hotter")
    # The median of the other ranks is no former value: no arrow leads from it.
    (slow,) = [line for line in rest if "one rank works longer than the others" in line][:1]
    assert re.search(r": \S+ against \S+, x\S+$", slow), slow
    assert "    look at: node/gpu_temp, node/gpu_sm_clock and node/gpu_throttle of that node" in rest
    assert any(line.startswith("2. unknown at node, weight 4") for line in rest)
    assert any(line.startswith("not logged, would decide: node/gpu_sm_clock") for line in rest)


def test_json_is_complete(tmp_path: Path) -> None:
    """Everything that the ranking is made of: signs with rows and sizes, causes with each part of their evidence."""
    said = incident(tmp_path, reward_times_out)
    assert said["episode"]["rule"] == "reward_fault" and said["episode"]["state"] == "firing"
    slow = said["signs"]["reward_slow"]
    assert slow["onset"]["step"] == FAULT_AT and slow["actor"] == "reward" and isinstance(slow["row"], int)
    assert slow["size"]["value"] > 6 and 0.9 < slow["size"]["usual"] < 1.1
    first = said["causes"][0]
    factors = {part["sign"]: part["factor"] for part in first["for"] if part["wanted"]}
    # That scoring is slow is a symptom of this rule; it follows from nothing else, so it counts in full.
    assert (factors["reward_timeouts"], factors["reward_slow"]) == (50.0, 8.0)
    every = {part["sign"] for key in ("for", "against", "not_counted", "not_logged") for part in first[key]}
    from rlship_sidecar.why.graph import graph_of

    assert every == {part.sign for part in graph_of().causes["reward_times_out"].evidence}
    assert first["look"] and first["try"] and first["source"]
    assert [one["cause"] for one in said["causes"]].count("unknown") == 1
    weights = [one["weight"] for one in said["causes"]]
    assert weights == sorted(weights, reverse=True)
    assert set(said["signs"]) | set(said["absent"]) | set(said["not_logged"]) <= set(graph_of().signs)
    # How much of a further cause's weight is there only because other signs do not show.
    second = said["causes"][1]
    assert second["cause"] == "scorer_hangs" and second["weight"] == pytest.approx(8.0)
    assert "2. a scorer hangs [reward], weight 8 (1.28 by what shows)" in run(tmp_path).stdout.splitlines()
    again = run(tmp_path, "--json").stdout
    assert json.loads(again) == said and again == run(tmp_path, "--json").stdout


@pytest.mark.parametrize(("seen", "later"), [(True, 1000), (False, 1000), (False, 0)])
def test_a_divergence_that_was_rolled_back_is_still_explained(seen: bool, later: float) -> None:
    """A job diverges, goes back and does the steps again, healthy, seen by a sidecar or not, also at the very times of
    the former steps. The episode is there, as superseded, and why names its cause.
    """

    def lines(step: int, *, bad: bool) -> list[dict[str, object]]:
        noise = 1 + 0.03 * ((step * 7919) % 13 - 6) / 6
        values = {"train/kl_ref": 0.02 * noise, "train/grad_norm": 0.5 * noise, "train/lr": 1e-6}
        values |= {"reward/total": 0.5 * noise, "train/entropy": 1.0 * noise}
        if bad:
            values |= {"train/lr": 1e-4, "train/kl_ref": 1.0, "train/grad_norm": 20.0}
        if bad and step > 66:
            values["reward/total"] = 0.0
        return [log(step, **values) | {"t": T0 + 10 * step + later * (not bad)}, barrier(step)]

    with simulation() as running:
        first = [one for step in range(75) for one in lines(step, bad=step >= 60)]
        running.write("a.jsonl", file(*first))
        if seen:
            running.tick()
        again = [one for step in range(50, 100) for one in lines(step, bad=False)]
        running.write("a.jsonl", file(rollback(50), *again, CLOSE).split(b"\n", 1)[1])
        running.finish()
        running.store.close()
        state = running.directory / "rlship" / "state"
        (state / "store.db").rename(state / "store.1.db")
        said = run(running.directory, "--json")
        assert said.exit_code == 0, said.output
        found = json.loads(said.stdout)
        text = run(running.directory).stdout
    assert (found["episode"]["state"], found["episode"]["lineage"]) == ("superseded", [0, 0, 0])
    assert found["causes"][0]["cause"] == "lr_reset"
    assert found["signs"]["lr_jumps"]["onset"]["step"] == 60
    assert "superseded" in text and "the learning rate jumped [settings]" in text


# What is asked --------------------------------------------------------------------------------------------------------


def rows(count: int = 80, **change: float) -> list[Row]:
    """Rows of one trainer, in which values change at step 60."""
    made = []
    for at in range(count):
        noise = 1 + 0.03 * ((at * 7919) % 13 - 6) / 6
        values = {"reward/total": 0.5 * noise, "train/grad_norm": 0.5 * noise, "rwd/timeouts": 0.0}
        if at >= 60:
            values |= {name.replace("__", "/"): value for name, value in change.items()}
        made.append(row(at, values, t=T0 + 10 * at, number=at))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment whose reward falls as its scorers time out."""
    return experiment(tmp_path / "run", rows(reward__total=0.0, rwd__timeouts=4.0))


def test_a_metric_and_a_step(folder: Path) -> None:
    """A metric by itself; at a step at which nothing fired the nearest episode counts; a range may have none."""
    by_metric = json.loads(run(folder, "--metric", "reward/total", "--json").stdout)
    assert by_metric["episode"]["rule"] == "metric reward/total"
    assert by_metric["causes"][0]["cause"] == "reward_times_out"
    assert json.loads(run(folder, "--step", "3", "--json").stdout)["episode"]["first"]["step"] == 60
    assert (
        "nothing to explain, up to step 79: no rule fired in steps 1..30"
        in run(folder, "--from", "1", "--to", "30").stdout
    )
    assert "train/grad_norm did not leave its usual" in run(folder, "--metric", "train/grad_norm").stdout


def test_a_bound_is_called_one(tmp_path: Path) -> None:
    """Where a sign shows from the first value on, nothing came before it: the bound stands after the value, and no
    arrow leads from it.
    """
    made = [row(at, {"reward/zero_std_frac": 1.0, "reward/total": 0.0}, t=T0 + at, number=at) for at in range(40)]
    folder = experiment(tmp_path / "run", made)
    assert "all rewards are equal: 1, bound 0.98\n" in run(folder).stdout
    (found,) = map(json.loads, run(folder, "--json").stdout.splitlines())
    size = found["signs"]["all_same"]["size"]
    assert (size["value"], size["usual"], size["bound"]) == (1.0, None, 0.98)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--metric", "trainer/reward/totl"], "did you mean trainer/reward/total"),
        (["--metric", "\x1b[2Jx"], "\\x1b[2Jx"),
        (["--step", "1", "--from", "2"], "give either a step or a range"),
        (["--from", "5", "--to", "2"], "give the lesser step first"),
        (["--graph", "gone.toml"], "gone.toml cannot be read"),
    ],
)
def test_wrong_usage(folder: Path, args: list[str], message: str) -> None:
    """Exit code 2, and what to do."""
    said = run(folder, *args)
    assert said.exit_code == 2, said.output
    assert message in said.stderr and "\x1b" not in said.stderr


def test_a_graph_of_a_users_own(folder: Path, tmp_path: Path) -> None:
    """A file adds a cause to the graph, or leaves one out; one with a mistake is refused with its line."""
    mine = tmp_path / "mine.toml"
    mine.write_text(
        '[cause.scorer_quota]\nsays = "our scorer is out of quota"\nat = "reward"\n'
        'decisive = ["reward_timeouts"]\nstrong = ["reward_down"]\nsource = "our runs"\n'
        "[cause.reward_times_out]\nenabled = false\n"
    )
    said = run(folder, "--graph", mine)
    assert "1. our scorer is out of quota [reward], weight 125" in said.stdout
    assert "scoring times out" not in said.stdout
    mine.write_text('[cause.x]\nsays = "a"\nsource = "b"\nstrong = ["reward_dwn"]\n')
    said = run(folder, "--graph", mine)
    assert said.exit_code == 2
    assert "mine.toml, line 4: cause.x.strong: there is no sign 'reward_dwn'" in said.stderr
    assert "did you mean reward_down" in said.stderr
    (folder / "rlship.toml").write_text('[why.sign.reward_timeouts]\nsays = "no score in time"\n')
    assert "no score in time" in run(folder).stdout
    (folder / "rlship.toml").chmod(0o666)
    said = run(folder)
    assert said.exit_code == 2 and "why is not taken from it" in said.stderr


def test_a_metric_that_is_not_logged_neither_speaks_for_nor_against(tmp_path: Path) -> None:
    """Without the scorers' metrics the same fall of the reward is unknown, and why names what would decide it."""
    bare = [
        replace(one, values={key: value for key, value in one.values.items() if "rwd" not in key})
        for one in rows(reward__total=0.0)
    ]
    said = run(experiment(tmp_path / "run", bare))
    assert "1. unknown at reward, weight 4" in said.stdout
    found = json.loads(run(tmp_path / "run", "--json").stdout)
    assert "reward_timeouts" in found["not_logged"] and found["would_decide"]


def test_unknown_is_named_behind_three_causes(tmp_path: Path) -> None:
    """A mismatch alone has several causes; unknown stands behind them, and what would tell them apart."""
    calm = {"correctness/rollout_train_logp_diff": 0.004, "async/staleness": 1.0, "gen/asleep": 0.0}
    made = [
        replace(one, values={f"trainer/{name}": value for name, value in calm.items()} | one.values)
        for one in rows(correctness__rollout_train_logp_diff=0.2, async__staleness=1.0, gen__asleep=1.0)
    ]
    lines = run(experiment(tmp_path / "run", made)).stdout.splitlines()
    assert lines[2].startswith("1. an engine did not load the weights again after it slept [generator], weight")
    assert [line[:2] for line in lines if line[0].isdigit()] == ["1.", "2.", "3."]
    assert "   unknown at generator: weight 4" in lines
    assert max(map(len, lines)) <= WIDTH and len(lines) <= LINES


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Of ranks, of metrics and in texts of a graph: unprintable characters are escaped, in JSON too."""
    ranks = [("\x1b[2J\u202e.0", 9.0), *((f"0.{rank}", 1.0) for rank in range(6))]
    made = [replace(one, per_rank={"trainer/bal/rank_active_s": ranks}) for one in rows(20)]
    folder = experiment(tmp_path / "\x1b[31mrun", made)
    mine = tmp_path / "mine.toml"
    mine.write_text('[cause.rank_slow]\nlook = "\\u001b[5mhere\\u202e"\n')
    for said in (run(folder, "--graph", mine), run(folder, "--graph", mine, "--json")):
        assert said.exit_code == 0, said.output
        assert "\\x1b[2J" in said.stdout or "\\u001b[2J" in said.stdout
        assert not set("\x1b\u202e") & set(said.output)
        assert "here" in said.stdout


@pytest.mark.parametrize(
    "odd",
    [
        {"values": {"trainer/reward/total": "text"}},
        {"per_rank": {"trainer/bal/rank_active_s": [("0.0", "text")] * 4}},
        {"coverage": Coverage(("0.0",), 1, ("no rank",), attempts=(0,))},
    ],
    ids=["text", "rank", "coverage"],
)
def test_a_store_that_no_sidecar_wrote(tmp_path: Path, odd: dict[str, Any]) -> None:
    """What is no number in a row is reported with the way out."""
    made = rows(reward__total=0.0, rwd__timeouts=4.0)
    made[70] = replace(made[70], **odd)
    said = run(experiment(tmp_path / "run", made))
    assert said.exit_code == 1, said.output
    assert "cannot be used" in said.stderr and "rlship replay" in said.stderr


def test_a_folder_of_experiments(tmp_path: Path) -> None:
    """Each has its answer; one that no sidecar has watched is named."""
    experiment(tmp_path / "a", rows(reward__total=0.0, rwd__timeouts=4.0))
    experiment(tmp_path / "b", rows())
    (tmp_path / "c" / "rlship").mkdir(parents=True)
    (tmp_path / "c" / "rlship" / "a.jsonl").write_bytes(file(log(1, x=1)))
    said = run(tmp_path)
    assert said.stdout.startswith("a: reward_fault, ") and "b: nothing to explain" in said.stdout
    assert "c: no sidecar has watched it yet" in said.stderr
    assert run(tmp_path / "c").exit_code == 1 and run(tmp_path / "nowhere").exit_code == 1


def test_what_cannot_be_read_makes_an_answer_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer's file that this user may not open, or the store of one of several experiments: the rest is answered,
    what is lacking is named, and the exit code is 3.
    """
    shut = experiment(tmp_path / "out" / "shut", rows(reward__total=0.0, rwd__timeouts=4.0))
    (shut / "rlship" / "b.jsonl").write_bytes(file(log(0, loss=1)))
    before = os.open

    def refusing(path: Any, *more: Any, **named: Any) -> int:
        if os.fspath(path).endswith("b.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return before(path, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refusing)
        said = run(shut)
    assert said.exit_code == 3 and said.stdout.startswith("shut: reward_fault, ")
    assert said.stderr == "shut/b.jsonl cannot be read: Permission denied\n"
    assert run(shut).exit_code == 0

    burnt = experiment(tmp_path / "out" / "burnt", rows(1))
    (burnt / "rlship" / "state" / "store.3.db").write_bytes(b"\xff" * 9999)
    said = run(tmp_path / "out")
    assert said.exit_code == 3 and "shut: reward_fault, " in said.stdout
    assert (
        said.stderr.startswith("burnt: the store ")
        and "rows or dead letters of it are not in the answer" in said.stderr
    )


def test_values_that_are_extreme(tmp_path: Path) -> None:
    """Values of any size and sign have a place in an answer."""
    made = [
        Row(
            Unit("trainer", "step", at),
            T0 + at,
            {"global_step": at},
            {"trainer/reward/total": -1e300 if at >= 60 else 1e-300, "trainer/rwd/timeouts": 1e308 * (at >= 60)},
            Coverage(("0.0",), 1, attempts=(0,)),
            Arrival(at, 0, (), "end"),
        )
        for at in range(80)
    ]
    said = run(experiment(tmp_path / "run", made))
    assert said.exit_code == 0, said.output
    assert all(len(line) <= WIDTH for line in said.stdout.splitlines())
