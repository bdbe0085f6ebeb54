"""Frames: names of the catalogue whatever the job called a metric, units of several actors, and lineages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.frames import FrameNames, Frames, StepFrame
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.rows import ALIGNED, CLOCK, LEDGER, Lineage, Row, Unit
from tests.alerts.rows import T0, row


def frames_of(rows: Iterable[Row], *names: str, lead: str = "trainer") -> dict[Lineage, dict[int, StepFrame]]:
    """The frames by lineage, as a reader of the changes has them."""
    found: dict[Lineage, dict[int, StepFrame]] = {}
    taker = Frames(FrameNames(names, lead), lead)
    for one in rows:
        for change in taker.take(one):
            if change.anew:
                found.clear()
            elif change.begins:
                before = next(reversed(found.values()), {})
                found[change.lineage] = {step: frame for step, frame in before.items() if step < change.index}
            elif change.frame is None:
                found[change.lineage].pop(change.index, None)
            else:
                found[change.lineage][change.index] = change.frame
    return found


def values_of(one: Row, *names: str) -> dict[str, float]:
    return dict(frames_of([one], *names)[0, 0, 0][one.unit.index].values)


def test_names_of_the_catalogue() -> None:
    """A metric is found under its own name, as `<actor>/<metric>`, under a framework's name and in its unit."""
    assert values_of(row(1, {"train/grad_norm": 2.0}), "train/grad_norm") == {"train/grad_norm": 2.0}
    assert values_of(row(1, {"actor/grad_norm": 2.0}), "train/grad_norm") == {"train/grad_norm": 2.0}
    assert values_of(row(1, {"perf/max_memory_reserved_gb": 2.0}), "mem/reserved") == {"mem/reserved": 2.0**31}
    assert values_of(row(1, {"critic/rewards/max": 7.0, "critic/rewards/mean": 1.0}), "reward/total") == {
        "reward/total": 1.0
    }
    assert values_of(row(1, {"critic/rewards/max": 7.0}), "reward/total/max") == {"reward/total/max": 7.0}
    assert values_of(row(1, {"rwd/latency_s/p99": 7.0}), "rwd/latency_s/p99", "rwd/latency_s") == {
        "rwd/latency_s/p99": 7.0
    }
    assert values_of(row(1, {"rewards/format/mean": 0.5}), "rwd/part/format") == {"rwd/part/format": 0.5}
    assert values_of(row(1, {"my/own": 3.0}), "trainer/my/own") == {"trainer/my/own": 3.0}


def test_bare_names_of_the_lead() -> None:
    """The loss of the lead is the catalogue's, whatever the lead is called; so are its reductions, its count of values
    that are not finite, and its ranks.
    """
    for lead in ("trainer", "learner"):
        one = row(
            1,
            {"loss": 1.0, "grad_norm/nonfinite": 2.0, "entropy/max": 3.0, "learning_rate": 4.0},
            actor=lead,
            per_rank={"loss": [("0.0", 0.5), ("0.1", 1.5)]},
        )
        wanted = ("train/loss", "train/loss/nonfinite", "train/grad_norm/nonfinite", "train/entropy/max", "train/lr")
        frame = frames_of([one], *wanted, lead=lead)[0, 0, 0][1]
        assert dict(frame.values) == dict(zip(wanted, (1.0, 0.0, 2.0, 3.0, 4.0)))
        assert frame.ranks == {"train/loss": ((f"{lead}/0.0", 0.5), (f"{lead}/0.1", 1.5))}


def test_bare_names_of_other_actors() -> None:
    """Of another actor they count if it is expected to write the metric: a reward model's loss is not the policy's. A
    part of a longer name counts nowhere.
    """
    for actor, values, found in (
        ("trainer", {"loss": 1.0}, {"train/loss": 1.0}),
        ("reward_model", {"loss": 1.0}, {}),
        ("critic", {"loss": 1.0, "grad_norm": 1.0, "entropy": 1.0}, {}),
        ("trainer", {"critic/loss": 1.0, "loss/aux": 1.0, "value_loss": 1.0}, {}),
    ):
        rows = [row(1, {"x": 1.0}, actor="learner"), row(1, values, actor=actor)]
        frame = frames_of(rows, "train/loss", "train/grad_norm", "train/entropy", lead="learner")[0, 0, 0][1]
        assert frame.values == found, actor


def test_a_bare_name_comes_last() -> None:
    """A name of the catalogue and one of a framework come before it, in whatever order they are logged."""
    every = {"entropy": 1.0, "actor/entropy": 2.0, "train/entropy": 3.0}
    for left in (3.0, 2.0, 1.0):
        assert values_of(row(1, every), "train/entropy") == {"train/entropy": left}
        every = {name: value for name, value in every.items() if value != left}
    assert values_of(row(1, {"approx_kl": 1.0, "kl": 2.0}), "train/kl_ref") == {"train/kl_ref": 2.0}


def test_a_standard_deviation_is_no_mean() -> None:
    """TRL's `reward_std` is not taken for the reward, in whatever order they are logged."""
    both = {"reward_std": 0.1, "reward": 0.7}
    assert values_of(row(1, both), "reward/total") == {"reward/total": 0.7}
    assert values_of(row(1, {"reward_std": 0.1}), "reward/total") == {}
    assert values_of(row(1, both), "reward/total/std") == {"reward/total/std": 0.1}


def test_the_own_name_comes_before_a_foreign_one() -> None:
    """Of two keys of one metric the catalogue's own counts, else the first by its text."""
    both = {"critic/score/mean": 1.0, "reward/total": 2.0, "critic/rewards/mean": 3.0}
    assert values_of(row(1, both), "reward/total") == {"reward/total": 2.0}
    del both["reward/total"]
    assert values_of(row(1, both), "reward/total") == {"reward/total": 3.0}


def test_values_that_are_not_finite() -> None:
    """Their count is 0 where the metric has a value only, and known where it has none."""
    name = "train/loss/nonfinite"
    assert values_of(row(1, {"train/loss": 1.0}), name)[name] == 0
    assert values_of(row(1, {"train/loss/nonfinite": 3.0}), name)[name] == 3
    assert name not in values_of(row(1, {"other": 3.0}), name)


def test_ranks_coverage_and_tags() -> None:
    """Ranks have places with their actor; ranks that are missing or short and tags are values."""
    one = row(
        4,
        {},
        per_rank={"bal/rank_active_s": [("0.0", 1.0), ("0.1", 2.0)]},
        coverage={"missing": ("0.2-3",), "short": {"trainer/loss": ("0.1",), "trainer/x": ("0.0-1",)}},
        tags=["eval"],
    )
    frame = frames_of([one], "bal/rank_active_s", "coverage/missing", "coverage/short", "tag/eval", "tag/x")[0, 0, 0][4]
    assert frame.ranks["bal/rank_active_s"] == (("trainer/0.0", 1.0), ("trainer/0.1", 2.0))
    assert frame.ranks["coverage/missing"] == (("trainer/0.2", 1.0), ("trainer/0.3", 1.0))
    assert frame.ranks["coverage/short"] == (("trainer/0.0", 1.0), ("trainer/0.1", 1.0))  # of any metric
    assert frame.values == {"coverage/missing": 2.0, "coverage/short": 2.0, "tag/eval": 1.0, "tag/x": 0.0}


def test_a_row_that_is_read_for_frames_alone_says_the_same() -> None:
    """Without arrival, histograms and samples, and with values of ranks that are read late, a frame is bit for bit that
    of the whole row; so is what differs from it.
    """
    whole = row(
        4,
        {"loss": 0.1 + 0.2, "grad_norm": 5e-324},
        per_rank={"rwd/latency_s": [("0.0", 1 / 3), ("0.1", -0.0)], "bal/rank_active_s": [("0.0", 1e300)]},
        coverage={"missing": ("0.2-3",), "short": {"trainer/loss": ("0.1",)}},
        lineage=(1, 2, 3),
        tags=["eval"],
    )
    names = ("train/loss", "train/grad_norm", "rwd/latency_s", "bal/rank_active_s", "coverage/missing", "tag/eval")
    part, of_figures = (
        FrameNames(names, "trainer").part(read(whole.to_json())) for read in (Row.from_json, Row.figures_from_json)
    )
    assert of_figures == part and repr(of_figures.values) == repr(part.values)
    assert [list(map(repr, one)) for one in of_figures.ranks.values()] == [
        list(map(repr, one)) for one in part.ranks.values()
    ]
    other = FrameNames(names, "trainer").part(
        replace(whole, per_rank={**whole.per_rank, "trainer/rwd/latency_s": [("0.0", 9.0)]})
    )
    assert other != of_figures and len(of_figures.ranks["rwd/latency_s"]) == 2


def test_rows_with_other_keys_are_read_as_if_they_were_the_first() -> None:
    """What is remembered of the keys of one row says nothing of those of another one, whatever order they come in."""
    names = ("train/loss", "train/loss/nonfinite", "train/grad_norm", "bal/rank_active_s", "trainer/own")
    taker = FrameNames(names, "trainer")
    keys = ("loss", "actor/loss", "train/loss", "trainer/train/loss", "grad_norm", "own", "trainer/own", "unknown")
    for chosen in [*combinations(keys, 3), *combinations(reversed(keys), 3), *combinations(keys, 2)]:
        given = row(1, dict(zip(chosen, (1.0, 2.0, 3.0))), per_rank={chosen[0]: [("0.0", 1.0)]})
        assert taker.part(given) == FrameNames(names, "trainer").part(given)


def test_missing_ranks_of_the_lead_and_of_others() -> None:
    """`coverage/missing/lead` and `coverage/missing/others` tell them apart. Without other actors both are known."""
    names = ("coverage/missing", "coverage/missing/lead", "coverage/missing/others")
    rows = [
        row(1, {"loss": 1.0}, coverage={"missing": ("0.1",)}),
        row(1, {"kv": 0.5}, actor="generator", kind=ALIGNED, coverage={"missing": ("2.0", "3.0")}),
        row(1, {"x": 0.5}, actor="reward", coverage={"missing": ("0.0",)}),
        row(2, {"loss": 1.0}),
    ]
    for given in (rows, rows[::-1]):
        (frames,) = frames_of(given, *names).values()
        assert frames[1].values == dict(zip(names, (4.0, 1.0, 3.0)))
        assert frames[1].ranks["coverage/missing/lead"] == (("trainer/0.1", 1.0),)
        assert [place for place, _ in frames[1].ranks["coverage/missing/others"]] == [
            "generator/2.0",
            "generator/3.0",
            "reward/0.0",
        ]
        assert frames[2].values == dict.fromkeys(names, 0.0)


def test_expected_ranks_add_up() -> None:
    """`coverage/expected` counts the ranks of all actors of a frame."""
    rows = [row(1, {"loss": 1.0}), row(1, {"kv": 0.5}, actor="generator", kind=ALIGNED, coverage={"expected": 6})]
    (frames,) = frames_of(rows, "coverage/expected").values()
    assert frames[1].values == {"coverage/expected": 7.0}


def test_members_are_the_ranks_that_log_or_should() -> None:
    """Of a step's ranks `coverage/members` leaves out those that have ended: they neither log nor are missing. Other
    units expect no such rank.
    """
    ended = {"expected": 4, "ranks": ("0.0", "2.0")}
    rows = [
        row(1, {"loss": 1.0}),
        row(1, {"x": 0.5}, actor="generator", coverage=ended),
        row(1, {"kv": 0.5}, actor="node", kind=ALIGNED, coverage={"expected": 6}),
        row(2, {"loss": 1.0}),
        row(2, {"x": 0.5}, actor="generator", coverage=ended | {"missing": ("2.0", "3.0")}),
    ]
    (frames,) = frames_of(rows, "coverage/members").values()
    assert [one.values for one in frames.values()] == [{"coverage/members": 9.0}, {"coverage/members": 4.0}]


def test_other_actors_join_by_their_unit() -> None:
    """Aligned units and steps on the lead's axis are part of a frame, in any order; windows and other axes are not."""
    rows = [
        row(1, {"kv": 0.5}, actor="generator", kind=ALIGNED),
        row(1, {"other": 1.0}, actor="reward", axis="version"),
        row(1, {"w": 1.0}, actor="generator", kind=CLOCK),
        row(1, {"loss": 1.0}),
        row(1, {"score": 2.0}, actor="reward"),
        row(2, {"score": 3.0}, actor="reward"),
    ]
    wanted = ("generator/kv", "reward/other", "reward/score", "generator/w", "trainer/loss")
    (frames,) = frames_of(rows, *wanted).values()
    assert frames[1].values == {"trainer/loss": 1.0, "generator/kv": 0.5, "reward/score": 2.0}
    assert list(frames) == [1]  # nothing is a frame without the lead
    assert frames[1].t == T0 + 1


def test_the_lead_comes_first_where_two_actors_log_one_metric() -> None:
    """The lead's reward counts, else that of the first actor; missing ranks add up."""
    rows = [
        row(1, {"reward/total": 3.0}, actor="b", coverage={"missing": ("0.0",)}),
        row(1, {"reward/total": 2.0}, actor="a"),
        row(1, {"loss": 1.0}, coverage={"missing": ("0.1",)}),
    ]
    (frames,) = frames_of(rows, "reward/total", "coverage/missing").values()
    assert frames[1].values == {"reward/total": 2.0, "coverage/missing": 2.0}
    rows.append(row(1, {"reward/total": 9.0}))
    (frames,) = frames_of(rows, "reward/total").values()
    assert frames[1].values == {"reward/total": 9.0}


def test_a_rollback_opens_a_lineage_at_its_first_step() -> None:
    """The frames of the steps that were done again stay those of the former lineage; what is below is common."""
    rows = [row(step, {"loss": 1.0 + step}) for step in range(6)]
    rows += [row(step, {"loss": 100.0 + step}, lineage=(0, 0, 1)) for step in (3, 4)]
    rows.append(row(1, {"loss": 50.0}))  # a late line below it
    found = frames_of(rows, "trainer/loss")
    old, new = found[0, 0, 0], found[0, 0, 1]
    assert {step: frame.values["trainer/loss"] for step, frame in old.items()} == {0: 1, 1: 50, 2: 3, 3: 4, 4: 5, 5: 6}
    assert {step: frame.values["trainer/loss"] for step, frame in new.items()} == {0: 1, 1: 50, 2: 3, 3: 103, 4: 104}
    assert [new[step].lineage for step in (2, 3)] == [(0, 0, 0), (0, 0, 1)]


def test_a_restart_opens_a_lineage() -> None:
    """A higher attempt does; so does a later submission, whose attempts are lower."""
    rows = [row(step, {"loss": 1.0}, attempts=[3]) for step in range(3)]
    rows += [row(2, {"loss": 2.0}, attempts=[3, 4])]
    rows += [row(1, {"loss": 3.0}, attempts=[0], lineage=(1, 0, 0))]
    found = frames_of(rows, "trainer/loss")
    assert {key: sorted(frames) for key, frames in found.items()} == {
        (0, 3, 0): [0, 1, 2],
        (0, 4, 0): [0, 1, 2],
        (1, 0, 0): [0, 1],
    }


def test_other_actors_go_to_the_newest_lineage() -> None:
    """What a generator logged for a step that is done again belongs to the lineage that does it again, even if its row
    came before: nothing depends on the order of rows.
    """
    rows = [row(step, {"loss": 1.0}) for step in range(4)]
    rows += [row(step, {"kv": 0.1}, actor="generator", kind=ALIGNED) for step in range(4)]
    rows += [row(2, {"loss": 2.0}, lineage=(0, 0, 1))]
    rows += [row(step, {"kv": 0.9}, actor="generator", kind=ALIGNED) for step in (1, 2)]
    found = frames_of(rows, "generator/kv")
    assert [found[0, 0, 0][step].values.get("generator/kv") for step in range(4)] == [0.1, 0.9, None, None]
    assert [frame.values["generator/kv"] for _, frame in sorted(found[0, 0, 1].items())] == [0.1, 0.9, 0.9]


def test_a_lineage_may_begin_earlier_than_it_seemed() -> None:
    """If its first row comes behind a later one, the steps in between that it did not do again are not its own."""
    rows = [row(step, {"loss": 1.0}) for step in range(6)]
    rows += [row(5, {"loss": 2.0}, lineage=(0, 0, 1)), row(2, {"loss": 2.0}, lineage=(0, 0, 1))]
    found = frames_of(rows, "trainer/loss")
    assert sorted(found[0, 0, 1]) == [0, 1, 2, 5]
    assert sorted(found[0, 0, 0]) == [0, 1, 2, 3, 4, 5]


def test_the_ledger_joins_the_step_of_its_row() -> None:
    """What the ledger counts at step N is in the lead's frame N, whether its row comes before or after the lead's."""
    key = "zz_rlship/ledger/sign_wrong"
    counted = [replace(row(step, {}), unit=Unit("", LEDGER, step), values={key: float(step)}) for step in (1, 2)]
    rows = [counted[0], row(1, {"x": 1.0}), row(2, {"x": 1.0}), counted[1]]
    found = frames_of(rows, key)[0, 0, 0]
    assert {step: frame.values for step, frame in found.items()} == {1: {key: 1.0}, 2: {key: 2.0}}


def test_a_wrong_sign_in_the_ledger_fires_at_once() -> None:
    """One group with a wrong sign of its advantages is an episode of the rule `ledger_breach` at its step."""
    history = History(rules_of(), "trainer")
    for step in range(5):
        values = {"zz_rlship/ledger/sign_wrong": float(step == 3), "zz_rlship/ledger/groups": 2.0}
        history.take([row(step, {"x": 1.0}), replace(row(step, {}), unit=Unit("", LEDGER, step), values=values)])
    history.settle()
    assert [(one.rule, one.fired.step, one.evidence) for one in history.episodes()] == [
        ("ledger_breach", 3, (("signs", 1.0),))
    ]
