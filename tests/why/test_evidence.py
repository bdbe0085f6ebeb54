"""When a sign shows, since when, how much and where; and the window of frames around an episode."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.report.terminal import clean
from rlship_sidecar.rows import ALIGNED, LEDGER, Lineage, Row, Unit
from rlship_sidecar.why import window
from rlship_sidecar.why.asking import NoFiles, Question, Reply, UnknownMetric, reply_to
from rlship_sidecar.why.detectors import INSIDE, RESTARTS, Detector, detectors_of, follow, standing_out
from rlship_sidecar.why.evidence import ABSENT, LATE, SHOWS, UNKNOWN, Evidence
from rlship_sidecar.why.graph import Sign, graph_of, read
from rlship_sidecar.why.text import Text, form
from tests.alerts.rows import T0, row
from tests.kit.cases import few

GRAPH = graph_of()
RULES = rules_of()
PLAIN = Question()


def sign_of(**given: Any) -> Sign:
    table = {"says": "it", "metric": "m"} | given
    return read({"sign": {"it": {key: value for key, value in table.items() if value is not None}}}).signs["it"]


def detector(**given: Any) -> Detector:
    (made,) = detectors_of(sign_of(**given))
    return made


def frames(values: Sequence[float | None], name: str = "m") -> list[StepFrame]:
    return [
        StepFrame((0, 0, 0), at, T0 + 10 * at, {} if value is None else {name: value})
        for at, value in enumerate(values)
    ]


def spans(one: Detector, values: Sequence[float | None], name: str = "m") -> list[tuple[int, int]]:
    return [stretch[:2] for stretch in follow(one, frames(values, name)).stretches]


CALM = [1.0, 1.1, 0.9, 1.05, 0.95] * 8  # 40 frames


@pytest.mark.parametrize(
    ("given", "values", "expected"),
    [
        ({"above": 2}, [0, 2, 3, 0], [(2, 2)]),
        ({"below": 2}, [3, 2, 1, 3], [(2, 2)]),
        ({"above": 2, "need": [2, 3]}, [0, 3, 0, 0, 0, 0, 0, 3, 0, 3, 0], [(7, 9)]),
        ({"change": "up", "size": 2}, [*CALM, 3, *CALM], []),
        ({"change": "up", "size": 2}, [*CALM, 3, 1, 3, 3, 3], [(40, 44)]),
        ({"change": "down", "size": 2}, [*CALM, 3, 3, 3], []),
        ({"change": "down", "size": 2}, [*CALM, 0.1, 0.1, 0.1], [(40, 42)]),
        ({"change": "both", "size": 2, "floor": 5}, [*CALM, 3, 3, 3], []),
        ({"grows": 0.7}, [at / 20 for at in range(40)], [(19, 39)]),
        ({"grows": 1}, [0.0] * 20 + [5.0] * 20, []),
        ({"falls": True}, [1, 2, 3, 1, 2], [(3, 3)]),
        ({"falls": True, "size": 3}, [1, 2, 3, 1, 2], []),
        ({"rises": 1}, [0, 0, 2, 2, 2.5], [(2, 2)]),
        ({"jumps": 1.5}, [1, 1.4, 2.2, 2.2, 1.5], [(2, 3)]),  # while it stays there
        ({"jumps": 1.5}, [1, *[2] * 60], [(1, 50)]),  # what lasts is no news
        ({"jumps": 1.5}, [0, 1, 1], []),
        ({"stuck": 3}, [1, 2, 2, 2, 2, 3], [(3, 4)]),
        ({"above": 0, "need": [3, 5]}, [1, None, None, 1, None, 1], [(0, 5)]),
    ],
)
def test_each_kind_of_sign(
    given: dict[str, Any], values: Sequence[float | None], expected: list[tuple[int, int]]
) -> None:
    """It shows from the first frame that counts to the last one; single frames of a level do not count."""
    assert spans(detector(**given), values) == expected


def test_a_change_that_is_slow_or_for_good() -> None:
    """With `lasting` a level that stays higher, and what goes far over many frames, show as well."""
    chance = random.Random(4)
    level = [1 + chance.gauss(0, 0.02) for _ in range(60)] + [1.2 + chance.gauss(0, 0.02) for _ in range(30)]
    stays, leaves = (detectors_of(sign_of(change="up", size=2, **more)) for more in ({"lasting": 1.15}, {}))
    assert [spans(one, level) for one in leaves] == [[]]
    assert [spans(one, level)[0][0] for one in stays if spans(one, level)] == [67, 65]  # the growth, and the shift
    creeps = [(1 + chance.gauss(0, 0.02)) * 1.01 ** max(0, at - 60) for at in range(130)]
    _, growth, shift = detectors_of(sign_of(change="up", size=2, lasting=1.3))
    assert spans(growth, creeps) and not spans(shift, creeps)
    sinks = [2 * 0.98**at + chance.gauss(0, 0.01) for at in range(120)]
    _, slow = detectors_of(sign_of(metric="train/entropy", change="down", size=0.1, lasting=2.0))
    assert spans(slow, sinks, "train/entropy") == [(59, 119)]


def test_steps_that_are_slow_for_good() -> None:
    """`slows` goes by the times of frames alone; a single long step does not show."""
    one = detector(metric=None, slows=1.15)
    ends = list(accumulate([10.0] * 40 + [60.0] + [10.0] * 20 + [13.0] * 30))
    made = [StepFrame((0, 0, 0), at, T0 + end, {}) for at, end in enumerate(ends)]
    assert [stretch[0] for stretch in follow(one, made).stretches] == [65]


def test_a_break_with_the_trend() -> None:
    """A curve that moves is no sign; one that breaks with its own trend by the catalogue's size is."""
    one = detector(metric="reward/total", change="down")
    chance = random.Random(3)
    rising = [0.2 + 0.004 * at + chance.gauss(0, 0.01) for at in range(60)]
    assert spans(one, rising, "reward/total") == []
    assert spans(one, [*rising, 0.2, 0.2, 0.2], "reward/total") == [(60, 62)]


def test_the_catalogue_says_how_a_metric_changes() -> None:
    """An invariant by its bound, a level by its ratio, a curve by its break; the sign's own size wins."""
    bound = detector(metric="rwd/timeouts", change="up").signal
    assert bound is not None and (bound.kind, bound.high) == ("invariant", 0)
    assert detector(metric="correctness/k3_kl", change="up").signal.ratio == 2  # type: ignore[union-attr]
    assert detector(metric="train/kl_ref", change="up").signal.kind == "break"  # type: ignore[union-attr]
    own = detector(metric="rwd/timeouts", change="up", size=3).signal
    assert own is not None and (own.kind, own.ratio) == ("level", 3)


def test_differences_shares_and_two_metrics() -> None:
    """A sign may be about (metric - less) / of, or about two metrics that should be equal."""
    one = detector(metric="a", less="b", of="c", above=0.5)
    both = [StepFrame((0, 0, 0), at, T0, {"a": 4.0, "b": 2.0, "c": of}) for at, of in enumerate((8.0, 3.0, 0.0))]
    assert [stretch[:2] for stretch in follow(one, both).stretches] == [(1, 1)]
    assert follow(one, both).known == (0, 1)
    two = detector(metric="a", differs="b")
    assert [stretch[:2] for stretch in follow(two, both).stretches] == [(0, 2)]


def test_events() -> None:
    """A new attempt, a rollback, and another actor whose attempt rises or whose rank has another life."""
    made: list[StepFrame] = []
    lineages: list[Lineage] = [(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    for at, lineage in enumerate(lineages):
        starts = {f"{RESTARTS}generator": 1000.0 if at >= 3 else 0.0, f"{RESTARTS}reward": 1.0 if at == 1 else 0.0}
        made.append(StepFrame(lineage, at, T0, starts))

    def told(event: str) -> list[tuple[int, str]]:
        stretches = follow(detector(metric=None, event=event), made).stretches
        return [(stretch.first, stretch.place) for stretch in stretches]

    assert told("rollback") == [(2, "")]
    assert told("job_restart") == [(3, "")]
    assert told("restart") == [(1, "reward")]


def test_a_rank_that_stands_apart() -> None:
    """In three of five frames, from the first of them; other ranks in single frames are noise."""
    one = detector(apart="up", size=1.5, floor=0.5)

    def at(frame: int) -> StepFrame:
        slow = {2: frame in (3, 5, 6), 0: frame == 1}
        ranks = tuple((f"t/0.{rank}", 3.0 if slow.get(rank) else 1.0) for rank in range(4))
        return StepFrame((0, 0, 0), frame, T0, {}, {one.key: standing_out(one, ranks)})

    course = follow(one, [at(frame) for frame in range(10)])
    assert [stretch[:3] for stretch in course.stretches] == [(3, 6, "t/0.2")] and len(course.known) == 10
    assert standing_out(one, (("t/0.0", 1.0), ("t/0.1", 9.0))) == ()  # two are no peers
    many = tuple((f"t/0.{rank}", 9.0 if rank % 3 == 0 else 1.0) for rank in range(3000))
    assert len(standing_out(one, many)) <= 9


# From rows ------------------------------------------------------------------------------------------------------------


def noisy(at: int, usual: float, seed: int = 0) -> float:
    return usual * (1 + 0.04 * random.Random(at * 7 + seed).gauss(0, 1))


def rows(count: int = 140, fault: Callable[[int, dict[str, float]], None] | None = None) -> list[Row]:
    """Rows of a trainer; a fault changes the values of a step."""
    made: list[Row] = []
    for at in range(count):
        values = {
            "reward/total": 0.5 + 0.02 * random.Random(at).gauss(0, 1),
            "rwd/latency_s/p99": noisy(at, 1.0, 1),
            "rwd/timeouts": 0.0,
            "train/grad_norm": noisy(at, 0.5, 2),
        }
        if fault is not None:
            fault(at, values)
        made.append(row(at, values, t=T0 + 10 * at, number=len(made)))
    return made


def timeouts(at: int, values: dict[str, float]) -> None:
    """Scoring slows down at step 100, and is given up at 102."""
    if at >= 100:
        values["rwd/latency_s/p99"] = 8.0
    if at >= 102:
        values |= {"rwd/timeouts": 5.0, "reward/total": 0.1}


def ask(made: Sequence[Row], question: Question = PLAIN, **more: Any) -> Reply:
    return reply_to(question, lambda: iter(made), "trainer", RULES, GRAPH, **more)


def evidence(made: Sequence[Row], question: Question = PLAIN) -> dict[str, Evidence]:
    found = ask(made, question).answer
    assert found is not None
    return dict(found.evidence)


def test_evidence_says_what_it_is_made_of() -> None:
    """The metric, its first and last step, the number of its first row, and the change against what was usual."""
    found = evidence(rows(fault=timeouts))
    slow = found["reward_slow"]
    assert (slow.state, slow.metric, slow.actor, slow.kind) == (SHOWS, "rwd/latency_s/p99", "trainer", "step")
    assert slow.onset is not None and (slow.onset.step, slow.onset.t, slow.row) == (100, T0 + 1000, 100)
    assert slow.size is not None and slow.size.value == 8.0
    assert slow.size.usual == pytest.approx(1.0, rel=0.1) and slow.size.ratio == pytest.approx(8.0, rel=0.1)
    assert found["reward_timeouts"].onset is not None and found["reward_timeouts"].onset.step == 102
    assert found["grad_up"].state == ABSENT and found["kv_full"].state == UNKNOWN


def test_late_and_before() -> None:
    """What begins behind the episode is late; what was so long before says nothing of it."""

    def fault(at: int, values: dict[str, float]) -> None:
        timeouts(at, values)
        values["gen/kv_usage"] = 1.0
        if at >= 112:
            values["train/grad_norm"] = 9.0

    found = evidence(rows(fault=fault))
    assert (found["grad_up"].state, found["kv_full"].state) == (LATE, "before")


def test_what_comes_and_goes_anyway_says_nothing() -> None:
    """A cache that was full now and then before the episode is no sign of it; one that was once is."""

    def full(*steps: int) -> Callable[[int, dict[str, float]], None]:
        def fault(at: int, values: dict[str, float]) -> None:
            timeouts(at, values)
            values["gen/kv_usage"] = 1.0 if at in steps or at in (98, 99) else 0.5

        return fault

    habit = [at + more for at in (20, 40, 60) for more in (0, 1)]
    assert evidence(rows(fault=full(*habit)))["kv_full"].state == "before"
    assert evidence(rows(fault=full(20, 21)))["kv_full"].state == SHOWS


def test_a_sign_that_ended_long_ago_does_not_count() -> None:
    """One that was over 50 steps before the episode is absent; one that was so 10 steps before shows."""

    def spike(first: int) -> Callable[[int, dict[str, float]], None]:
        def fault(at: int, values: dict[str, float]) -> None:
            timeouts(at, values)
            if first <= at < first + 4:
                values["train/grad_norm"] = 9.0

        return fault

    assert evidence(rows(fault=spike(40)))["grad_up"].state == ABSENT
    assert evidence(rows(fault=spike(90)))["grad_up"].state == SHOWS


def test_other_actors_and_the_ledger_are_in_the_frames() -> None:
    """Rows that are aligned with the trainer's steps, and the ledger's, count at their step."""
    made = rows(fault=timeouts)
    for at in range(140):
        made.append(row(at, {"gen/kv_usage": 0.5}, actor="rollout", kind=ALIGNED, t=T0 + 10 * at, number=1000 + at))
        differs = {"zz_rlship/ledger/reward_differs": float(at >= 99)}
        made.append(replace(row(at, {}, number=2000 + at), unit=Unit("", LEDGER, at), values=differs))
    found = evidence(made)
    one = found["reward_differs"]
    assert one.onset is not None and (one.onset.step, one.kind, one.row) == (99, LEDGER, 2099)
    assert found["kv_full"].state == ABSENT and found["kv_full"].actor == "rollout"


def test_names_that_the_job_chooses() -> None:
    """Each part of the reward is looked at, whatever it is called."""

    def fault(at: int, values: dict[str, float]) -> None:
        timeouts(at, values)
        values["rwd/part/format"] = 0.9 if at < 102 else 0.2
        values["rwd/part/length"] = 0.5

    one = evidence(rows(fault=fault))["parts_down"]
    assert (one.state, one.metric) == (SHOWS, "rwd/part/format")
    assert set(one.metrics) == {"rwd/part/format", "rwd/part/length"}


def test_signs_of_the_beginning() -> None:
    """A sign with `start` counts in the first frames of the run or of an attempt alone."""

    def nan(first: int) -> Callable[[int, dict[str, float]], None]:
        def fault(at: int, values: dict[str, float]) -> None:
            values["train/grad_norm/nonfinite"] = float(at >= first)

        return fault

    assert evidence(rows(fault=nan(1)))["nonfinite_at_start"].state == SHOWS
    assert evidence(rows(fault=nan(100)))["nonfinite_at_start"].state == ABSENT
    again = [
        replace(one, coverage=replace(one.coverage, lineage=(0, 1, 0))) if one.unit.index >= 99 else one
        for one in rows(fault=nan(100))
    ]
    assert evidence(again)["nonfinite_at_start"].state == SHOWS


def test_the_window_bounds_what_is_kept() -> None:
    """200 steps before the episode and 60 after it are looked at; the answer is the same as of these alone."""

    def fault(at: int, values: dict[str, float]) -> None:
        timeouts(at - 400, values)

    made = rows(700, fault)
    found = ask(made).answer
    assert found is not None and found.episode.first.step == 502
    alone = ask(made[302:565]).answer
    assert alone is not None
    assert [(c.cause, c.weight) for c in alone.candidates] == [(c.cause, c.weight) for c in found.candidates]


def test_rows_outside_the_window_cost_nothing_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reading takes the values of 261 steps of 700. With those of all rows the answer is the same."""

    def fault(at: int, values: dict[str, float]) -> None:
        timeouts(at - 400, values)

    made = rows(700, fault)
    made += [replace(one, unit=Unit("probe", "step", one.unit.index), values={"probe/x": 1.0}) for one in made]
    found = ask(made)
    assert found.answer is not None
    taken = list(window._relevant(made, "trainer", 302, 562))
    assert sum(bool(one.values) for one in taken if one.unit.actor == "trainer") == 261
    assert [one.unit.index for one in taken if one.unit.actor == "trainer"] == list(range(700))
    assert [one.unit.index for one in taken if one.unit.actor == "probe"] == list(range(302, 563))
    monkeypatch.setattr(window, "_relevant", lambda rows, lead, low, high: map(window.joined, rows))
    assert ask(made) == found


def test_memory_does_not_grow_with_ranks() -> None:
    """Of hundreds of ranks a frame keeps those that stand apart."""
    made = rows(fault=timeouts)
    for one in made:
        one.per_rank["trainer/bal/rank_active_s"] = [(f"0.{rank}", 1.0 + (rank == 7)) for rank in range(300)]
    answer = ask(made).answer
    assert answer is not None
    assert answer.evidence["slow_rank"].state in ("before", SHOWS)
    assert answer.evidence["slow_rank"].rank == "trainer/0.7"


# Which episode --------------------------------------------------------------------------------------------------------


def test_which_episode_is_meant() -> None:
    """The one that goes on; the one at a step, or nearest to it; one within a range."""

    def fault(at: int, values: dict[str, float]) -> None:
        if 60 <= at < 66:
            values["rwd/timeouts"] = values["correctness/nonfinite_count"] = 1.0
        timeouts(at, values)
        values.setdefault("correctness/nonfinite_count", 0.0)
        values |= {"train/kl_ref": 0.01, "train/entropy": 1.0}

    made = rows(120, fault)

    def asked(**question: Any) -> tuple[str, int] | None:
        said = ask(made, Question(**question)).answer
        return None if said is None else (said.episode.rule, said.episode.first.step)

    assert asked() == ("reward_fault", 102)
    assert asked(step=62) == asked(step=20) == asked(last=90) == ("divergence", 60)
    assert asked(step=118) == asked(first=90) == ("reward_fault", 102)
    assert asked(first=10, last=50) is None
    assert "in steps 10..50" in ask(made, Question(first=10, last=50)).note


def test_a_metric_is_a_symptom_too() -> None:
    """By the key of a row or the catalogue's name, by its kind of evidence; one that is calm is called so."""
    made = rows(fault=timeouts)
    for name in ("trainer/reward/total", "reward/total"):
        said = ask(made, Question(name)).answer
        assert said is not None and said.candidates[0].cause is not None
        assert said.candidates[0].cause.name == "reward_times_out" and said.symptoms == ("reward_down",)
    said = ask(made, Question("trainer/rwd/timeouts")).answer
    assert said is not None and said.episode.first.step == 102
    assert "trainer/train/grad_norm did not leave" in ask(made, Question("trainer/train/grad_norm")).note
    with pytest.raises(UnknownMetric) as raised:
        ask(made, Question("trainer/reward/totl"))
    assert raised.value.near[0] == "trainer/reward/total"


def test_a_metric_that_was_not_finite() -> None:
    """By a row's key or the catalogue's name why says at which steps it was not, also of one that never was finite."""

    def fault(at: int, values: dict[str, float]) -> None:
        values |= {"never/nonfinite": 1.0, "stream/mean": 1.0, "stream/nonfinite": float(at == 80)}
        if at in (50, 70):
            values["reward/total/nonfinite"] = 2.0
        if at == 60:
            del values["train/grad_norm"]
        values["train/grad_norm/nonfinite"] = float(at == 60)

    made, usual = rows(fault=fault), "otherwise did not leave its usual range"
    for name, when, rest in (
        ("trainer/train/grad_norm", "at step 60", usual),
        ("train/grad_norm", "at step 60", usual),
        ("trainer/reward/total", "first at step 50 and last at step 70", usual),
        ("trainer/stream/mean", "at step 80", usual),
        ("trainer/never", "first at step 0 and last at step 139", "had no finite value"),
    ):
        assert ask(made, Question(name)).note == f"{name} was not finite {when}, and {rest}"


def test_a_name_without_its_actor() -> None:
    """As status and query show it: the lead's metric, else that of the only actor. A part of a name has suggestions."""

    def fault(at: int, values: dict[str, float]) -> None:
        values |= {"train/reward": 1.0, "loss/own": 1.0}

    made = rows(fault=fault)
    for actor in ("probe", "worker"):
        values = {f"{actor}/train/reward": 1.0, f"{actor}/pace": 1.0, f"{actor}/only_{actor}": 1.0}
        made += [replace(one, unit=replace(one.unit, actor=actor), values=values) for one in made[:140]]
    assert ask(made, Question("train/reward")).note == "trainer/train/reward did not leave its usual range"
    assert ask(made, Question("only_probe")).note == "probe/only_probe did not leave its usual range"
    for name, near in (
        ("pace", ("probe/pace", "worker/pace")),
        ("loss", ("trainer/loss/own",)),
        ("reward", ("probe/train/reward", "worker/train/reward", "trainer/train/reward")),
    ):
        with pytest.raises(UnknownMetric) as raised:
            ask(made, Question(name))
        assert raised.value.near == near


def test_a_bare_name_counts_as_the_rules_take_it() -> None:
    """The lead's `entropy` is judged as the policy's, whose curve counts by 0.3 nats; that of another actor is not."""

    def fault(at: int, values: dict[str, float]) -> None:
        values["entropy"] = 1.5 if at >= 100 else 2.0

    made = rows(fault=fault)
    for name in ("trainer/entropy", "train/entropy"):
        said = ask(made, Question(name)).answer
        assert said is not None and said.episode.first.step == 100, name
    others = [
        replace(one, unit=replace(one.unit, actor="probe"), values={"probe/entropy": one.values["trainer/entropy"]})
        for one in made
    ]
    assert "probe/entropy did not leave" in ask([*made, *others], Question("probe/entropy")).note
    with pytest.raises(UnknownMetric) as raised:
        ask(made, Question("train/entrpy"))
    assert raised.value.near[0] == "train/entropy"


def test_without_steps_there_is_nothing_to_explain() -> None:
    """No row of the lead, and no episode."""
    assert "no step of the lead" in ask([]).note
    assert ask(rows()).note == "no rule fired"


def test_the_order_of_keys_changes_nothing() -> None:
    """Rows whose values come in another order give the same answer, bit for bit."""
    made = rows(fault=timeouts)
    turned = [replace(one, values=dict(reversed(one.values.items()))) for one in made]
    first, second = ask(made).answer, ask(turned).answer
    assert first is not None and second is not None
    assert first.candidates == second.candidates


def test_ranks_are_looked_up_once() -> None:
    """The hosts of the ranks that stand out are asked for, no others."""
    made = rows(fault=timeouts)
    for one in made:
        slow = 3.0 if one.unit.index >= 101 else 1.0
        one.per_rank["trainer/rwd/latency_s"] = [("0.0", 1.0), ("0.1", slow), ("0.2", 1.0)]
    asked: list[set[str]] = []

    class Seen(NoFiles):
        def hosts(self, ranks: set[str]) -> dict[str, str]:
            asked.append(ranks)
            return {"trainer/0.1": "n7"}

    said = ask(made, files=Seen())
    assert len(asked) == 1 and "trainer/0.1" in asked[0]
    assert said.hosts == {"trainer/0.1": "n7"}
    assert INSIDE not in "".join(asked[0])


EXTREME = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, 1e-300, 40.0, 1e17])
NAMES = ("reward/total", "rwd/timeouts", "train/kl_ref", "mem/reserved", "mem/capacity", "policy_version", "train/lr")


@st.composite
def odd_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of any values, of ranks too, that come and go, with restarts, rollbacks and actors beside the trainer."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    wild = draw(st.lists(EXTREME, min_size=1, max_size=6))
    made, lineage, step = [], (0, 0, 0), 0
    for at in range(draw(st.integers(1, 70))):
        step += chance.choice((1, 1, 1, 5))
        if chance.random() < 0.05:
            lineage, step = (0, lineage[1] + 1, chance.randrange(2)), max(0, step - chance.randrange(20))
        values = {name: chance.choice(wild) if at > 40 else 1.0 for name in NAMES if chance.random() < 0.95}
        ranks = [(f"0.{rank}", chance.choice(wild)) for rank in range(chance.randrange(5))]
        actor = chance.choice(("trainer", "trainer", "trainer", "generator"))
        kind = "step" if actor == "trainer" else ALIGNED
        more: dict[str, Any] = {"lineage": lineage, "number": at, "per_rank": {"bal/rank_active_s": ranks}}
        more["coverage"] = {"missing": ("0.1",), "gap": 3} if chance.random() < 0.1 else {}
        made.append(row(step, values, actor=actor, kind=kind, t=T0 + 10 * at, **more))
    return made


@given(odd_rows(), st.sampled_from([PLAIN, Question(step=30), Question("train/lr"), Question(first=10, last=60)]))
@settings(max_examples=few(60), deadline=None)
def test_whatever_the_rows_hold_there_is_an_answer(made: list[Row], question: Question) -> None:
    """As lines of at most 80 characters and as JSON, the same each time."""
    try:
        said = ask(made, question)
    except UnknownMetric:
        assert question.metric
        return
    lines = list(Text("run", GRAPH, clean, lambda t: "").lines(said))
    assert lines and max(map(len, lines)) <= 80 and len(lines) <= 24
    text = json.dumps(form("run", said, GRAPH), allow_nan=False)
    assert json.dumps(form("run", ask(made, question), GRAPH), allow_nan=False) == text
