"""Verdicts while the job runs: the same as over the rows of a store, whatever the order of arrival, and after kills."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.kept_steps import unpack_steps
from rlship_sidecar.alerts.rules import Rule, each_rule, rules_of
from rlship_sidecar.pipeline import alert_book
from rlship_sidecar.rows import ALERT, Row, Unit
from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.past_rows import PastRowTable
from rlship_sidecar.store.store import Store
from tests.kit.files import CLOSE, T0, file, lines, rollback
from tests.ledger.groups import TOKENS, generated, trained
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_crash_points import FUSE, Fragile, surviving
from tests.spec.schemas import faults


def rules(**tables: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(each_rule(tables))


def above(metric: str, **more: Any) -> dict[str, Any]:
    """A rule that holds where a metric is 10 or more, in 2 of 3 frames, until 2 calm ones."""
    signal = {"kind": "above", "metric": metric, "high": 10}
    return {"warning": "it", "need": [2, 3], "clear": 2, "signals": {"it": signal}} | more


HIGH = rules(high=above("trainer/x"))


def log(step: int, x: float | None, t: float | None = None, **more: float) -> dict[str, Any]:
    values = more if x is None else {"x": x, **more}
    return {"step": step, "m": values, "t": T0 + step if t is None else t}


def barrier(step: int, t: float | None = None) -> dict[str, Any]:
    return {"kind": "barrier", "step": step, "t": (T0 + step if t is None else t) + 0.5}


def steps(values: Sequence[float | None], first: int = 0, late: float = 0.0) -> list[dict[str, Any]]:
    """Steps of one rank, each with a barrier."""
    found = []
    for at, x in enumerate(values, first):
        found += [] if x is None else [log(at, x, T0 + at + late)]
        found.append(barrier(at, T0 + at + late))
    return found


def verdicts(sim: Simulation) -> dict[int, Row]:
    """The newest rows of verdicts that say anything, by step."""
    return {unit.index: row for unit, row in sim.final().items() if unit.kind == ALERT and row.keys()}


def told(sim: Simulation) -> list[tuple[Any, ...]]:
    """(rule, state, first, fired, ended) of the episodes in rows."""
    found = []
    for _, row in sorted(verdicts(sim).items()):
        for sample in row.samples.get("episodes", ()):
            one = sample.row
            found.append((one["rule"], one["state"], one["first_step"], one["fired_step"], one["ended_step"]))
    return found


def over_stored_rows(sim: Simulation, made: tuple[Rule, ...]) -> list[Episode]:
    """What the rules say of the newest rows of the store, from the first to the last."""
    past: dict[int, list[Row]] = {}
    for step, _, body in PastRowTable(sim.store).between("trainer", 0, 1 << 40):
        past.setdefault(step, []).append(Row.from_json(body))
    history = History(made, "trainer")
    history.take((row for _, row in sorted(sim.final().items())), past)
    history.settle()
    return history.episodes()


def check_kept(sim: Simulation) -> int:
    """What the store keeps of steps beside their rows is what the rows say. Returns how many pieces it keeps."""
    pieces = sim.experiment.alert_book._pieces
    kept = dict(sim.store.ask("select piece, steps from alert_frames"))
    for piece, data in kept.items():
        assert unpack_steps(data, pieces._ranks) == pieces._read(piece)
    return len(kept)


def check(sim: Simulation, made: tuple[Rule, ...]) -> None:
    """The verdicts of the running sidecar are those over its stored rows, and its rows show each once."""
    check_kept(sim)
    expected = {one.id: one for one in over_stored_rows(sim, made)}
    assert {one.id: one for one in sim.experiment.alert_book.episodes()} == expected
    ids = [s.row["id"] for row in verdicts(sim).values() for s in row.samples.get("episodes", ())]
    assert sorted(ids) == sorted(expected)
    numbers = [row.row_number for row in sim.rows()]
    assert numbers == list(range(len(numbers)))


def test_an_episode_is_a_row_where_it_fires_and_where_it_ends() -> None:
    """The row of the step where it fires has the rule's severity and the episode; that of its end has 0."""
    with simulation(alerts=HIGH) as sim:
        sim.write("a.jsonl", file(*steps([1, 20, 20, 20]), world=1))
        sim.tick()
        assert told(sim) == [("high", "firing", 1, 2, None)]
        (row,) = verdicts(sim).values()
        assert (row.unit, row.x, row.values) == (Unit("", ALERT, 2), {"global_step": 2}, {"zz_rlship/alert/high": 1.0})
        assert row.t == T0 + 2
        sim.write("a.jsonl", lines(*steps([1, 1], first=4), CLOSE))
        sim.tick()
        assert told(sim) == [("high", "resolved", 1, 2, 5)]
        assert {at: row.values["zz_rlship/alert/high"] for at, row in verdicts(sim).items()} == {2: 1.0, 5: 0.0}
        revisions = [row.arrival.revision for row in sim.rows() if row.unit == Unit("", ALERT, 2)]
        assert revisions == [0, 1]  # what changes with every frame makes no revision
        assert [faults("row", orjson.loads(row.to_json())) for row in sim.rows()] == [[]] * len(sim.rows())
        check(sim, HIGH)


def test_a_divergence_that_was_rolled_back_stays_live_and_in_a_replay() -> None:
    """Diverge, roll back, redo healthy: the episode is superseded and in rows, also where all was read at once."""
    diverged, again = steps([1, 1, 20, 20, 20]), [rollback(2), *steps([1] * 5, first=2, late=60)]
    with simulation(alerts=HIGH) as live, simulation(alerts=HIGH) as replayed:
        live.write("a.jsonl", file(*diverged, world=1))
        live.tick()
        live.write("a.jsonl", lines(*again, CLOSE))
        live.tick()
        live.wait(60)
        live.tick()
        replayed.write("a.jsonl", file(*diverged, *again, CLOSE, world=1))
        replayed.finish()
        assert told(live) == told(replayed) == [("high", "superseded", 2, 3, 4)]
        assert verdicts(live) == verdicts(replayed)
        for sim in (live, replayed):
            check(sim, HIGH)


def test_a_restart_keeps_what_the_attempt_before_it_showed() -> None:
    """Rank 1 dies at step 3; the next attempt does it again from step 2. The missing rank stays an episode."""
    lost = rules(lost={"warning": "it", "signals": {"it": {"kind": "above", "metric": "coverage/missing", "high": 1}}})
    two = {"world": 2, "beat": 10}
    with simulation(alerts=lost) as sim:
        sim.write("a0.jsonl", file(*steps([1] * 6), id="a0", rank=0, **two))
        sim.write("a1.jsonl", file(*steps([1] * 3), id="a1", rank=1, **two))
        sim.tick()
        sim.wait(40)
        sim.write("a0.jsonl", lines({"kind": "beat", "t": T0 + 40}))
        sim.tick()
        assert told(sim) == [("lost", "firing", 3, 3, None)]
        for rank in (0, 1):
            again = steps([1] * 20, first=2, late=100)
            sim.write(f"b{rank}.jsonl", file(*again, CLOSE, id=f"b{rank}", rank=rank, attempt=1, t=T0 + 100, **two))
        sim.tick()
        sim.wait(60)
        sim.tick()
        assert told(sim) == [("lost", "superseded", 3, 3, 5)]
        check(sim, lost)
        with simulation(alerts=lost) as replayed:
            for name in ("b1", "a1", "b0", "a0"):
                replayed.write(f"{name}.jsonl", (sim.directory / "rlship" / f"{name}.jsonl").read_bytes())
            replayed.finish()
            assert verdicts(replayed) == verdicts(sim)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rollback_of_a_child_is_known_after_a_restart(restarts: bool) -> None:
    """A step is of a later lineage as a child went back. Then a rank comes that is newer and did not go back: the step
    is of the first lineage again, and was nothing else before.
    """

    def past(sim: Simulation) -> list[tuple[int, Any]]:
        return [(step, lineage) for step, lineage, _ in PastRowTable(sim.store).between("trainer", 0, 9)]

    with simulation(alerts=HIGH) as sim:
        sim.write("a.jsonl", file(*steps([None] * 2), id="p"))
        sim.write("c.jsonl", file(log(1, 20), rollback(1), log(1, 30), id="c", parent="p", t=T0 + 0.5))
        sim.finish()
        assert past(sim) == [(1, (0, 0, 0))]
        if restarts:
            sim.restart()
        sim.write("z.jsonl", file(*steps([40], 1), CLOSE, id="z", rank=1, t=T0 + 1.0))
        sim.finish()
        assert past(sim) == []
        check(sim, HIGH)


def test_a_rank_that_dies_is_named_beside_one_that_is_short() -> None:
    """Rank 0 leaves a metric out at steps 4 to 6, rank 1 is killed after step 7: the episode of each, live and in a
    replay, and once more after the sidecar's restart.
    """
    (lost,) = [rule for rule in rules_of() if rule.name == "lost_or_slow_place"]
    made, two = (lost,), {"world": 2, "beat": 10}

    def of_rank(rank: int, first: int, end: int) -> list[dict[str, Any]]:
        every = [
            [log(at, 1.0, y=1.0) if rank or at not in (4, 5, 6) else log(at, 1.0), barrier(at)] for at in range(end)
        ]
        return [record for both in every[first:] for record in both]

    with simulation(alerts=made) as live, simulation(alerts=made) as replayed:
        live.write("a0.jsonl", file(*of_rank(0, 0, 12), id="a0", rank=0, **two))
        live.write("a1.jsonl", file(*of_rank(1, 0, 8), id="a1", rank=1, **two))
        live.tick()
        live.wait(40)
        live.restart()
        live.write("a0.jsonl", lines(*of_rank(0, 12, 30), {"kind": "beat", "t": T0 + 40}))
        live.finish()
        for name in ("a1", "a0"):
            replayed.write(f"{name}.jsonl", (live.directory / "rlship" / f"{name}.jsonl").read_bytes())
        replayed.finish()
        assert [(one.place, one.first.step, one.state) for one in live.experiment.alert_book.episodes()] == [
            ("trainer/0.0", 4, "resolved"),
            ("trainer/0.1", 8, "firing"),
        ]
        assert verdicts(live) == verdicts(replayed)
        check(live, made)


def test_the_axis_is_that_of_the_lowest_step() -> None:
    """Ranks of the lead may disagree about what their steps count. The row of the lowest step decides, also where it
    comes last: verdicts are made again, and steps of others on its axis are part of frames from then on.
    """
    made = rules(high=above("trainer/x"), other=above("reward/y", need=[1, 1]))
    reward = [{"step": 3, "t": T0, "m": {"y": 50}}, barrier(3)]
    with simulation(alerts=made) as sim:
        sim.write("a.jsonl", file(*steps([99.0] * 4, 1), CLOSE, world=2))
        sim.write("b.jsonl", file(*reward, CLOSE, id="b", actor="reward", axis="episode"))
        for _ in range(3):
            sim.tick()
            sim.wait(700.0)
        assert {(step, *row.x) for step, row in verdicts(sim).items()} == {(2, "global_step")}
        sim.write("c.jsonl", file(*steps([1.0]), CLOSE, id="c", rank=1, world=2, axis="episode"))
        sim.finish()
        check(sim, made)
        assert {(step, *row.x) for step, row in verdicts(sim).items()} == {(2, "episode"), (3, "episode")}


def test_a_late_line_withdraws_an_episode() -> None:
    """The row that showed it says nothing any more, which equals no row."""
    two = {"world": 2, "beat": 1000}
    with simulation(alerts=rules(high=above("trainer/x"))) as sim:
        sim.write("a.jsonl", file(*steps([20] * 4), id="a", rank=0, **two))
        sim.write("b.jsonl", file(*[barrier(at) for at in range(4)], id="b", rank=1, **two))
        sim.tick()
        assert told(sim) == [("high", "firing", 0, 1, None)]
        sim.write("b.jsonl", lines(*[log(at, -20) for at in range(4)]))
        sim.wait(60)
        sim.tick()
        assert told(sim) == []
        newest = sim.final()[Unit("", ALERT, 1)]
        assert (newest.values, newest.samples, newest.arrival.revision) == ({}, {}, 1)
        check(sim, HIGH)


def test_a_metric_that_is_not_logged_neither_fires_nor_clears() -> None:
    """Frames without it hold the episode as it is, however many."""
    with simulation(alerts=HIGH) as sim:
        sim.write("a.jsonl", file(*steps([1, 20, 20]), *[log(at, None, y=1.0) for at in range(3, 60)], world=1))
        sim.finish()
        assert told(sim) == [("high", "firing", 1, 2, None)]
        sim.write("a.jsonl", lines(*[log(at, 1.0) for at in range(60, 62)]))
        sim.finish()
        assert told(sim) == [("high", "resolved", 1, 2, 61)]


def test_one_late_line_costs_few_frames() -> None:
    """At step 10 of 5,000, by rules of windows of 50: a few pieces, by the rules that look at what changed."""
    made = rules(
        level={
            "warning": "it",
            "signals": {"it": {"kind": "level", "metric": "trainer/x", "ratio": 2, "direction": "both"}},
        },
        other=above("trainer/y"),
    )
    calm = random.Random(1)
    with simulation(alerts=made) as sim:
        two = {"world": 2, "beat": 100_000}
        sim.write("a.jsonl", file(*steps([calm.uniform(1, 2) for _ in range(1500)]), id="a", rank=0, **two))
        sim.write("b.jsonl", file(*[barrier(at) for at in range(1500)], id="b", rank=1, **two))
        sim.tick()
        sim.restart()  # nothing is in memory
        sim.tick()
        book = sim.experiment.alert_book
        before = book._verdicts.evaluated
        sim.write("b.jsonl", lines(log(10, 1.01)))
        asked: list[str] = []
        sim.wait(60)
        sim.store._connection.set_trace_callback(asked.append)
        sim.tick()
        sim.store._connection.set_trace_callback(None)
        assert 0 < book._verdicts.evaluated - before <= 80
        # The rows of the steps after it are not read: what rules ask for is beside them.
        assert sum("from alert_frames" in one for one in asked) >= 4
        assert [one for one in asked if "select body" in one and "number between" in one and "instr" not in one] == []
        check(sim, made)


def test_a_store_without_what_is_kept_beside_rows_gets_it() -> None:
    """As an earlier release made it: the table is there again, and the next row has all judged anew."""
    with simulation(alerts=HIGH) as sim:
        sim.write("a.jsonl", file(*steps([1, 20, 20, *[1] * 40]), world=1))
        sim.tick()
        expected = told(sim)
        sim.store.change("drop table alert_frames")
        sim.store.change("update meta set value = 'of an earlier release' where key = 'alert_rules'")
        sim.store.commit(Changes())
        sim.restart()
        sim.write("a.jsonl", lines(*steps([1] * 20, first=43), CLOSE))
        sim.finish()
        assert told(sim) == expected
        check(sim, HIGH)
        assert check_kept(sim) >= 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_restart_keeps_what_the_ledger_showed(kept: bool) -> None:
    """Another token at step 3 is a breach, and stays one after the sidecar's restart and a late line: steps are looked
    for in the ledger's rows, too, where the store keeps nothing beside them.
    """
    breach = {"kind": "invariant", "metric": "zz_rlship/ledger/tokens_differs", "high": 0, "missing": "false"}
    made, two = rules(breach={"warning": "it", "clear": 50, "signals": {"it": breach}}), {"world": 2, "beat": 100_000}
    wrong = {"tokens": [*TOKENS[:3], [11]]}
    with simulation(alerts=made) as sim:
        groups = [generated(f"p{at}", at + 0.1) for at in range(8)]
        sim.write("g.jsonl", file(*groups, CLOSE, id="g", actor="generator"))
        done = [trained(f"p{at}", at, at + 0.3, **(wrong if at == 3 else {})) for at in range(8)]
        own = [record for at in range(8) for record in (done[at], log(at, 1.0), barrier(at))]
        sim.write("a.jsonl", file(*own, id="a", rank=0, **two))
        sim.write("b.jsonl", file(*[barrier(at) for at in range(8)], id="b", rank=1, **two))
        sim.wait(70)
        sim.tick()
        assert told(sim) == [("breach", "firing", 3, 3, None)]
        if not kept:
            sim.store.change("delete from alert_frames")
            sim.store.commit(Changes())
        sim.restart()
        sim.write("b.jsonl", lines(log(2, 2.0)))
        sim.wait(70)
        sim.tick()
        assert told(sim) == [("breach", "firing", 3, 3, None)]
        check(sim, made)


def test_other_rules_take_effect_once_the_experiment_grows() -> None:
    """Until then the rows keep the verdicts of the rules that made them; then all history is judged by the new ones."""
    with simulation(alerts=HIGH) as sim:
        sim.write("a.jsonl", file(*steps([1, 20, 20, 1, 1, 5, 5, 5]), world=1))
        sim.tick()
        count = len(sim.rows())
        sim.alerts = lower = rules(
            low=above("trainer/x", signals={"it": {"kind": "above", "metric": "trainer/x", "high": 4}})
        )
        sim.restart()
        sim.tick()
        assert len(sim.rows()) == count
        sim.write("a.jsonl", lines(*steps([1], first=8)))
        sim.tick()
        assert told(sim) == [("low", "resolved", 1, 2, 4), ("low", "firing", 5, 6, None)]
        check(sim, lower)
        sim.alerts = ()
        sim.restart()
        sim.write("a.jsonl", lines(*steps([1], first=9)))
        sim.tick()
        assert told(sim) == [("low", "resolved", 1, 2, 4), ("low", "firing", 5, 6, None)]
        sim.alerts = lower
        sim.restart()
        sim.write("a.jsonl", lines(*steps([1], first=10)))
        sim.tick()
        assert told(sim)[1] == ("low", "resolved", 5, 6, 9)
        check(sim, lower)


MANY = rules(
    high=above("trainer/x"),
    both={
        "warning": "x or y",
        "critical": "x and y",
        "need": [2, 4],
        "critical_need": [2, 2],
        "clear": 3,
        "signals": {
            "x": {"kind": "above", "metric": "trainer/x", "high": 10, "hold": 1},
            "y": {"kind": "above", "metric": ["reward/y"], "high": 10, "missing": "false"},
        },
    },
    level={
        "warning": "it",
        "clear": 2,
        "signals": {"it": {"kind": "level", "metric": "trainer/x", "ratio": 2, "window": 12, "warmup": 4}},
    },
    stall={"warning": "it", "clear": 1, "signals": {"it": {"kind": "stalled", "size": 5, "warmup": 4, "window": 8}}},
    lost={
        "warning": "missing or short",
        "critical": "unlogged and high",
        "need": [1, 2],
        "clear": 2,
        "signals": {
            "missing": {"kind": "above", "metric": "coverage/missing", "high": 1},
            "short": {"kind": "above", "metric": "coverage/short", "high": 1, "missing": "false", "hold": 1},
            "high": {"kind": "above", "metric": "trainer/x", "high": 10},
            "unlogged": {"kind": "above", "metric": "trainer/unlogged", "high": 10},
        },
    },
    breach={
        "warning": "it",
        "clear": 2,
        "signals": {"it": {"kind": "invariant", "metric": "zz_rlship/ledger/tokens_differs", "high": 0}},
    },
    apart={
        "warning": "it",
        "clear": 2,
        "signals": {
            "it": {"kind": "peer", "metric": "trainer/s", "ratio": 1.5, "floor": 1, "ranks": 2, "same": [3, 4]}
        },
    },
    grown={
        "warning": "it",
        "clear": 4,
        "signals": {"it": {"kind": "growth", "metric": "trainer/x", "size": 8, "window": 8}},
    },
)


def a_job(chance: random.Random) -> dict[str, bytes]:
    """The files of a job of one or two ranks, with rollbacks, restarts, and a reward worker on the same axis."""
    files: dict[str, bytes] = {}
    world, attempt, first, late = chance.choice((1, 2)), 0, 0, 0.0
    for attempt in range(chance.choice((1, 1, 2, 3))):
        count = chance.randrange(1, 40)
        back = {
            chance.randrange(first, first + count): chance.randrange(0, 12) for _ in range(chance.choice((0, 0, 1, 2)))
        }
        for rank in range(world):
            at, again = first, dict(back)
            records: list[dict[str, Any]] = [{"kind": "define", "m": {"s": {"per_rank": True}}}]
            clock, left = T0 + late, count + sum(back.values())
            if attempt == 0 and rank == 1 and chance.random() < 0.3:
                left //= 2  # it dies
            while left > 0:
                left -= 1
                wild = random.Random(f"{attempt} {at} {len(again)}").random() < 0.35
                x = 20.0 if wild else 1.0
                if chance.random() < 0.93:
                    # Rank 1 is apart for a while: its values are looked for in rows, also of what was done again.
                    records.append(log(at, x, clock, s=9.0 if rank and at % 16 < 8 else 1.0))
                records.append(barrier(at, clock))
                clock += 9.0 if random.Random(f"{at}").random() < 0.03 else 1.0
                if at in again:
                    steps_back = again.pop(at)
                    at = max(0, at - steps_back)
                    records.append(rollback(at))
                else:
                    at += 1
            if chance.random() < 0.7:
                records.append(CLOSE)
            files[f"t{attempt}-{rank}.jsonl"] = file(
                *records, id=f"t{attempt}-{rank}", rank=rank, world=world, attempt=attempt, t=T0 + late, beat=10
            )
        first = max(0, first + count - chance.randrange(0, 20))
        late += 200.0
    if chance.random() < 0.6:
        made = [log(at, None, T0 + at, y=chance.choice((1.0, 1.0, 20.0))) for at in range(first + 10)]
        files["r.jsonl"] = file(*made, id="r", actor="reward", world=1)
    if chance.random() < 0.5:
        hops = []
        for at in range(first + 10):
            group = {"kind": "ledger", "key": f"p{at}", "n": 2, "by": "tokens", "t": T0 + at}
            seen = [1, 2] if chance.random() < 0.8 else [3, 4]
            hops.append(group | {"hop": "generated", "d": {"tokens": [1, 2]}})
            hops.append(group | {"hop": "trained", "d": {"tokens": seen}, "step": at})
        files["l.jsonl"] = file(*hops, id="l", actor="buffer", world=1)
    return files


def pieces_of(files: dict[str, bytes], chance: random.Random) -> Iterable[tuple[str, bytes]]:
    """Pieces of lines of all files, in any order across files."""
    left = {name: data.splitlines(keepends=True) for name, data in files.items()}
    while left:
        name = chance.choice(sorted(left))
        count = chance.choice((1, 3, 10, 40))
        yield name, b"".join(left[name][:count])
        left[name] = left[name][count:]
        if not left[name]:
            del left[name]


@given(seed=st.integers(0, 2**32), at_once=st.sampled_from((3, 60, 4096)))
@settings(max_examples=25, deadline=None)
def test_live_equals_replay(seed: int, at_once: int) -> None:
    """Lines in any order, looks in between, kills at any time, bounded pieces: the verdicts are those over the stored
    rows, and those of a replay, which reads everything at once.
    """
    chance = random.Random(seed)
    files = a_job(chance)
    before, alert_book.AT_ONCE = alert_book.AT_ONCE, at_once
    try:
        with simulation(alerts=MANY) as live, simulation(alerts=MANY) as replayed:
            for name, data in pieces_of(files, chance):
                live.write(name, data)
                if chance.random() < 0.5:
                    live.tick()
                    live.wait(chance.choice((0.0, 1.0, 15.0, 70.0)))
                    if chance.random() < 0.2:
                        check(live, MANY)
                if chance.random() < 0.15:
                    live.restart()
            live.finish()
            for name, data in files.items():
                replayed.write(name, data)
            replayed.finish()
            check(live, MANY)
            check(replayed, MANY)
            assert verdicts(live) == verdicts(replayed)
    finally:
        alert_book.AT_ONCE = before


def test_a_kill_at_any_moment_keeps_each_episode_once() -> None:
    """Between any two statements of the store: the verdicts are those of a sidecar that nothing disturbs, each once."""
    chance = random.Random(9078246)
    order = []
    for name, data in a_job(chance).items():
        found = data.splitlines(keepends=True)
        third = len(found) // 3 + 1
        order += [(at, name, b"".join(found[at * third : (at + 1) * third])) for at in range(3)]
    order.sort()

    def run(fatal: int) -> dict[int, Row]:
        with pytest.MonkeyPatch.context() as patch, simulation(alerts=MANY) as sim:
            patch.setattr(Store, "connection_class", Fragile)
            sim.restart()
            FUSE.moments, FUSE.fatal = 0, fatal
            state = sim.directory / "rlship" / "state"
            FUSE.last_words = lambda: shutil.copytree(state, sim.directory / "snapshot")
            for _, name, data in order:
                sim.write(name, data)
                surviving(sim, sim.tick)
                sim.wait(15.0)
            surviving(sim, sim.finish)
            FUSE.fatal = -1
            check(sim, MANY)
            return verdicts(sim)

    expected = run(-1)
    moments = FUSE.moments
    assert len(expected) > 3 and moments > 150
    for fatal in chance.sample(range(1, moments + 1), 5):
        assert run(fatal) == expected, fatal
