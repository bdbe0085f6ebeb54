"""The rules that come with rlship: quiet over healthy runs, loud about each fault; files of rules with mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.alerts.episodes import Episode, start, step
from rlship_sidecar.alerts.episodes import episodes_of as going_on
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import check, line_of, merged, packaged, read_file, rules_of
from rlship_sidecar.config import CONFIG_FILE, load
from rlship_sidecar.errors import UsageProblem
from tests.alerts.healthy import GIB, healthy
from tests.guards.tree import ROOT
from tests.kit.cases import long

RULES = {rule.name: rule for rule in rules_of()}
FAULT_AT = 240


@cache
def run() -> tuple[StepFrame, ...]:
    """The frames of one healthy run."""
    return tuple(healthy(7001, 500))


def calm(count: int = 500) -> tuple[StepFrame, ...]:
    """The first of its frames."""
    return run()[:count]


def episodes_of(frames: Iterator[StepFrame] | list[StepFrame], *names: str) -> list[Episode]:
    """All episodes of these rules, or of all, in the order in which they end; those that go on last."""
    rules = {name: RULES[name] for name in names or RULES}
    states = {name: start(rule) for name, rule in rules.items()}
    found = []
    for frame in frames:
        for name, rule in rules.items():
            states[name], ended = step(rule, frame, states[name])
            found += ended
    return found + [one for name, rule in rules.items() for one in going_on(rule, states[name])]


@pytest.mark.parametrize("seed", [7001, 7002, *long(7000, *range(7003, 7010))])
def test_a_healthy_run_has_no_episode(seed: int) -> None:
    """2,000 frames of a run that no rule was fitted to: no rule fires. Every third, as 7002, restarts and goes back."""
    assert episodes_of(healthy(seed, 2000)) == []


def raised(frame: StepFrame, **factors: float) -> StepFrame:
    """A frame in which metrics are that many times as large."""
    by = {name.replace("__", "/"): factor for name, factor in factors.items()}
    return replace(frame, values={name: value * by.get(name, 1) for name, value in frame.values.items()})


def put(frame: StepFrame, values: dict[str, float]) -> StepFrame:
    return replace(frame, values={**frame.values, **values})


def scored(frame: StepFrame) -> StepFrame:
    """A frame with an evaluation, though the job may evaluate more rarely."""
    return put(frame, {"eval/score": 0.4 + 0.005 * (frame.index % 3)})


def slow_rank(frame: StepFrame, at: int) -> StepFrame:
    """Rank 3 takes twice as long."""
    active = frame.ranks["bal/rank_active_s"]
    slowed = tuple((place, value * (2 if place.endswith(".3") else 1)) for place, value in active)
    return replace(frame, ranks={**frame.ranks, "bal/rank_active_s": slowed})


FAULTS: dict[str, Callable[[StepFrame, int], StepFrame]] = {
    "divergence": lambda frame, at: raised(frame, train__kl_ref=20, train__grad_norm=40),
    "memory": lambda frame, at: put(
        frame, {"mem/reserved": (60 + min(at, 15)) * GIB, "mem/allocated": 45 * GIB, "mem/capacity": 80 * GIB}
    ),
    "allocation": lambda frame, at: put(frame, {"mem/alloc_retries": 2.0}),
    "dynamic_batch": lambda frame, at: raised(frame, data__step_tokens=2.5),
    "imbalance": slow_rank,
    "inference": lambda frame, at: put(frame, {"data/aborted_ratio": 0.2}),
    "mismatch": lambda frame, at: raised(frame, correctness__rollout_train_logp_diff=10),
    "stale_policy": lambda frame, at: put(frame, {"async/staleness": 20.0}),
    "reward_fault": lambda frame, at: put(frame, {"reward/total": 0.0}),
    "ledger_breach": lambda frame, at: put(frame, {"correctness/token_align_err": 3.0}),
    "kv_thrash": lambda frame, at: replace(
        put(frame, {"gen/kv_usage": 1.0, "gen/preemptions": 30.0, "gen/decode_tokens_per_s": 4000.0}), ranks={}
    ),
    "stall": lambda frame, at: replace(frame, t=frame.t + 3600),
    "lost_or_slow_place": lambda frame, at: replace(
        put(frame, {"coverage/missing": 1.0}), ranks={**frame.ranks, "coverage/missing": (("trainer/0.5", 1.0),)}
    ),
    "slow_step": lambda frame, at: replace(raised(frame, perf__step_s=1.4, upd__comm_s=9), t=frame.t + 8.0 * at),
    "entropy": lambda frame, at: put(
        raised(frame, train__entropy=0.96**at, train__grad_norm=0.97**at), {"reward/total": 0.5}
    ),
    "kl_runaway": lambda frame, at: raised(frame, train__kl_ref=1.06**at),
    "length_runaway": lambda frame, at: put(
        raised(frame, data__response_len=1.015**at), {"data/clip_ratio": 0.1 + 0.005 * at}
    ),
    "evaluation": lambda frame, at: put(frame, {"eval/score": 0.4 - 0.004 * at}),
    "host_memory": lambda frame, at: put(frame, {"node/host_mem_frac": min(0.94, 0.75 + 0.004 * at)}),
}
# Of rules about what goes wrong slowly: how long the fault lasts, and within how many frames the rule fires.
SLOW = {
    "slow_step": (60, 30),
    "entropy": (80, 80),
    "kl_runaway": (80, 60),
    "length_runaway": (80, 60),
    "evaluation": (80, 50),
    "host_memory": (40, 40),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_fires_on_its_fault(name: str) -> None:
    """At most ten frames after its fault begins (a slow rank, fragments: twenty; SLOW), not before; then it ends."""
    frames = [scored(frame) for frame in calm()]
    lasts, latest = SLOW.get(name, (30, 20 if name in ("imbalance", "memory") else 10))
    until = FAULT_AT + lasts
    faulty = [
        FAULTS[name](frame, at - FAULT_AT) if FAULT_AT <= at < until else frame for at, frame in enumerate(frames)
    ]
    (episode,) = episodes_of(faulty, name)
    assert FAULT_AT <= episode.first.step <= episode.fired.step <= FAULT_AT + latest
    assert episode.state == "resolved" and episode.ended is not None
    assert episode.evidence
    assert episode.place == {"imbalance": "trainer/0.3", "lost_or_slow_place": "trainer/0.5"}.get(name, "")


def test_a_pause_that_the_job_logs_is_no_stall() -> None:
    """An evaluation or checkpoint of which the step has the seconds is no stall; the rest of the same gap is one. In a
    step with an evaluation of unknown length only half an hour is.
    """
    frames = [scored(frame) for frame in calm()]

    def paused(logged: dict[str, float], seconds: float = 300.0) -> list[Episode]:
        late = [replace(frame, t=frame.t + seconds) if at >= FAULT_AT else frame for at, frame in enumerate(frames)]
        late[FAULT_AT] = put(late[FAULT_AT], logged)
        return episodes_of(late, "stall")

    assert len(paused({})) == 1
    assert paused({"perf/stage_s/eval": 190.0, "perf/stage_s/ckpt": 60.0}) == []
    assert len(paused({"perf/stage_s/eval": 20.0, "perf/stage_s/ckpt": 10.0})) == 1

    evaluated = {"eval/score/nonfinite": 0.0}  # as a frame has it beside the score
    assert paused(evaluated) == []
    assert len(paused(evaluated | {"perf/stage_s/eval": 20.0})) == 1
    assert len(paused(evaluated, 2000.0)) == 1


def test_an_evaluation_that_falls_with_the_reward_is_no_matter_of_the_evaluation() -> None:
    """Harder prompts lower both, the reward by less; that it does not fall is what the rule is about."""
    harder = [
        put(scored(frame), {"eval/score": 0.4 - 0.004 * at, "reward/total": 0.5 - 0.004 * at})
        for at, frame in enumerate(calm(81))
    ]
    assert episodes_of(harder, "evaluation") == []
    less = [put(frame, {"reward/total": 0.5 - 0.002 * at}) for at, frame in enumerate(harder)]
    assert episodes_of(less, "evaluation") == []
    assert len(episodes_of([put(frame, {"reward/total": 0.5}) for frame in harder], "evaluation")) == 1


def test_a_job_that_evaluates_every_tenth_step() -> None:
    """`need` counts evaluations: that the steps between them have no score says nothing."""
    frames = [
        put(frame, {"reward/total": 0.6, "eval/score": 0.5 - 0.004 * max(0, at - 120) + 0.005 * (at % 3)})
        if at % 10 == 9
        else replace(frame, values={name: one for name, one in frame.values.items() if name != "eval/score"})
        for at, frame in enumerate(calm(240))
    ]
    (one,) = episodes_of(frames, "evaluation")
    assert 120 < one.first.step < one.fired.step < 200


# Golden: severity, first, fired, last and end of what goes wrong slowly, and the signals that fired.
SLOW_EPISODES = {
    "slow_step": ("warning", 244, 250, 254, 264, "slower comm"),
    "entropy": ("warning", 273, 275, 324, 334, "collapses vanishing"),
    "kl_runaway": ("warning", 255, 257, 324, 334, "explodes climbs"),
    "length_runaway": ("warning", 284, 286, 326, 336, "longer cut"),
    "evaluation": ("warning", 263, 264, 316, 321, "slips_long widens_long"),
    "host_memory": ("warning", 255, 257, 279, 289, "high fills"),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_goes_wrong_slowly_has_this_episode(name: str) -> None:
    """The frames of its fault in test_each_rule_fires_on_its_fault give exactly this."""
    until = FAULT_AT + SLOW[name][0]
    frames = [
        FAULTS[name](scored(frame), at - FAULT_AT) if FAULT_AT <= at < until else scored(frame)
        for at, frame in enumerate(calm())
    ]
    (one,) = episodes_of(frames, name)
    assert one.ended is not None
    steps = (one.first.step, one.fired.step, one.last.step, one.ended.step)
    assert (one.severity, *steps, " ".join(name for name, _ in one.evidence)) == SLOW_EPISODES[name]


def slowed(frame: StepFrame, at: int, **factors: float) -> StepFrame:
    """Steps take 1.6 times as long, by their metric and by their times."""
    return replace(raised(frame, perf__step_s=1.6, **factors), t=frame.t + 12.0 * at) if at else frame


QUIET: dict[str, Callable[[StepFrame, int], StepFrame]] = {
    "slow_step with fewer ranks": lambda frame, at: put(slowed(frame, at), {"coverage/members": 20.0 if at else 22.0}),
    "slow_step with longer responses": lambda frame, at: slowed(frame, at, data__response_len=1.6),
    "slow_step with as much more tokens": lambda frame, at: slowed(frame, at, data__step_tokens=1.7),
    "entropy that falls while the reward rises": lambda frame, at: put(
        raised(frame, train__entropy=0.96**at, train__grad_norm=0.97**at), {"reward/total": 0.3 + 0.005 * at}
    ),
    "length_runaway that costs nothing": lambda frame, at: raised(frame, data__response_len=1.015**at),
    "evaluation that falls with the reward": lambda frame, at: put(
        frame, {"eval/score": 0.4 - 0.0015 * at, "reward/total": 0.5 - 0.0015 * at}
    ),
    "kl_runaway that flattens": lambda frame, at: put(frame, {"train/kl_ref": 0.3 - 0.3 * 0.97**frame.index}),
    "host_memory that stays": lambda frame, at: put(frame, {"node/host_mem_frac": 0.9 + 0.01 * (at % 2)}),
}


@pytest.mark.parametrize("case", QUIET)
def test_one_sign_alone_is_quiet(case: str) -> None:
    """What a healthy job does as well fires nothing: fewer ranks, longer responses, entropy spent for reward."""
    frames = [QUIET[case](frame, max(0, at - FAULT_AT)) for at, frame in enumerate(calm(330))]
    assert episodes_of(frames, case.partition(" ")[0]) == []


def test_a_replica_that_goes_on_differing() -> None:
    """One generator of six decodes at half the rate of the others in 8 of 10 frames: it is named."""

    def slow(frame: StepFrame) -> StepFrame:
        rates = [(one, value * (0.5 if "/2." in one else 1.0)) for one, value in frame.ranks["gen/decode_tokens_per_s"]]
        return replace(frame, ranks={**frame.ranks, "gen/decode_tokens_per_s": tuple(rates)})

    frames = [slow(frame) if at >= 100 else frame for at, frame in enumerate(calm(130))]
    (one,) = episodes_of(frames, "lost_or_slow_place")
    assert (one.place, one.first.step) == ("generator/2.0", 107)


def away(frame: StepFrame, *places: str) -> StepFrame:
    """Ranks of other actors than the lead are missing."""
    names = {"coverage/missing": float(len(places)), "coverage/missing/lead": 0.0}
    ranks = {**frame.ranks, "coverage/missing/others": tuple((one, 1.0) for one in places)}
    return replace(put(frame, {**names, "coverage/missing/others": float(len(places))}), ranks=ranks)


def test_a_replica_that_is_restarted_is_not_lost() -> None:
    """A generator that is away for six frames comes back by itself; one that stays away is named once it was so in 8
    of 10 frames, and of two that take turns neither is.
    """
    for lost, told in ((6, []), (30, [("generator/2.0", 107, 108)])):
        frames = [
            away(frame, *["generator/2.0"] * (100 <= at < 100 + lost), *["generator/1.0"] * (60 <= at < 66))
            for at, frame in enumerate(calm(150))
        ]
        found = episodes_of(frames, "lost_or_slow_place")
        assert [(one.place, one.first.step, one.fired.step) for one in found] == told
    turns = [away(frame, f"generator/{at // 5 % 2}.0") for at, frame in enumerate(calm(60))]
    assert episodes_of(turns, "lost_or_slow_place") == []


def test_tokens_spread_unevenly_though_the_slowest_rank_changes() -> None:
    """Another rank has half as many tokens again in each step: no rank goes on differing, and the spread does."""

    def uneven(frame: StepFrame, at: int) -> StepFrame:
        mean = frame.values["bal/rank_tokens/mean"]
        ranks = tuple(
            (one, mean * (1.5 if i == at % 8 else 1)) for i, (one, _) in enumerate(frame.ranks["bal/rank_tokens"])
        )
        return replace(put(frame, {"bal/rank_tokens/max": 1.5 * mean}), ranks={**frame.ranks, "bal/rank_tokens": ranks})

    frames = [uneven(frame, at) if at >= 100 else frame for at, frame in enumerate(calm(130))]
    (one,) = episodes_of(frames, "imbalance")
    assert (one.place, one.first.step, dict(one.evidence).keys()) == ("", 104, {"uneven", "spread"})


@pytest.mark.parametrize(
    ("total", "with_entropy", "fires"), [(0.22, False, True), (0.1, False, False), (0.1, True, True)]
)
def test_a_reward_that_falls_slowly(total: float, with_entropy: bool, fires: bool) -> None:
    """A fall by 0.2 that no break shows is enough alone; half of it needs another sign."""
    frames = []
    for at, frame in enumerate(calm(340)):
        way = min(1.0, max(0.0, (at - FAULT_AT) / 60))
        entropy = {"train/entropy": 1.0 - 0.6 * way * with_entropy}
        frames.append(
            put(
                frame,
                {"reward/zero_std_frac": 0.3, "reward/total": 0.6 - 1.5 * total * way + 0.01 * (at % 3), **entropy},
            )
        )
    assert [one.rule for one in episodes_of(frames, "reward_fault")] == ["reward_fault"] * fires


def test_nan_fires_at_once() -> None:
    """One loss that is not finite is critical in that very frame, without any window."""
    frames = [put(frame, {"train/loss/nonfinite": float(at == 3)}) for at, frame in enumerate(calm(30))]
    (episode,) = episodes_of(frames)
    assert (episode.rule, episode.severity, episode.fired.step) == ("divergence", "critical", 3)


UNLOGGED = ("train/kl_ref", "train/ppo_kl", "train/entropy", "train/grad_norm", "train/loss/nonfinite")


def tuned(nan_at: tuple[int, ...], count: int, *, silent: range = range(0)) -> list[Episode]:
    """The episodes of a job that logs its loss, but for silent steps, and neither KL, entropy nor gradient norm."""
    frames = []
    for at, frame in enumerate(healthy(7001, count)):
        values = {name: value for name, value in frame.values.items() if name not in UNLOGGED}
        loss = {} if at in silent else {"train/loss/nonfinite": float(at in nan_at)}
        frames.append(replace(frame, values=values | loss))
    return episodes_of(frames)


def test_what_is_not_logged_does_not_keep_an_episode() -> None:
    """One NaN is over after ten frames with a loss, in a job without KL and entropy too; a second NaN fires anew."""
    (episode,) = tuned((16,), 60)
    assert (episode.rule, episode.severity, episode.state) == ("divergence", "critical", "resolved")
    assert episode.ended is not None and (episode.last.step, episode.ended.step) == (16, 26)
    found = tuned((16, 40), 60)
    assert [(one.first.step, one.state) for one in found] == [(16, "resolved"), (40, "resolved")]
    assert len({one.id for one in found}) == 2
    assert [(one.first.step, one.last.step) for one in tuned((16, 20), 60)] == [(16, 20)]


def test_a_signal_that_fired_has_to_be_known_for_an_end() -> None:
    """Frames without the loss hold the episode that a NaN began; it is over after ten frames with one."""
    (episode,) = tuned((16,), 50, silent=range(17, 45))
    assert episode.state == "clearing"
    (episode,) = tuned((16,), 60, silent=range(17, 45))
    assert episode.ended is not None and episode.ended.step == 54


@pytest.mark.parametrize("name", RULES)
def test_a_metric_that_is_not_logged_neither_fires_nor_clears(name: str) -> None:
    """Without metrics nothing fires; once they are gone the signals that fired hold the rule where it is."""
    bare = [replace(frame, values={}, ranks={}) for frame in calm(50)]
    assert episodes_of(bare, name) == []
    if name in ("stall", "ledger_breach", "inference", "allocation") or name in SLOW:
        return  # times are never missing; the others go by signals that most jobs do not log, see docs/alerts.md
    faulty = [FAULTS[name](frame, at - 50) if at >= 50 else frame for at, frame in enumerate(calm(72))]
    gone = [replace(frame, index=frame.index + 72, values={}, ranks={}) for frame in calm(50)]
    (episode,) = episodes_of([*faulty, *gone], name)
    assert episode.state == "firing" and episode.last.step < 75


def test_rules_are_changed_key_by_key() -> None:
    """A key replaces a key, a signal's that of the signal; a new rule stands beside; one can be switched off."""
    over = {
        "divergence": {"clear": 3, "signals": {"kl": {"ratio": 9}}},
        "imbalance": {"enabled": False},
        "own": {"critical": "it", "signals": {"it": {"kind": "above", "metric": "trainer/mine", "high": 1}}},
    }
    rules = {rule.name: rule for rule in rules_of(over)}
    assert set(rules) == (set(RULES) | {"own"}) - {"imbalance"}
    kl = rules["divergence"].signals[0]
    assert (rules["divergence"].clear, kl.ratio, kl.z) == (3, 9, 4)
    assert packaged()["divergence"]["clear"] == 10
    assert merged(packaged(), {}) == packaged()


BASE = """# rules
[alert.own]
warning = "it"

[alert.own.signals.it]
kind = "level"
metric = "train/loss"
ratio = 2
"""

CROSSED = '[alert.x]\nsignals.x = { kind = "above", metric = "m", low = 2, high = 1 }\nwarning = "x"'
MANY_SIGNALS = "[alert.many]\n[alert.many.signals]\n" + "\n".join(f"s{at} = {{}}" for at in range(21))


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "hint"),
    [
        ('"it"', '"itt"', 3, "there is no signal 'itt'", 'did you mean "it"? this rule has it'),
        ('"it"', '"it.x"', 3, "is not allowed in it", "allowed are names of signals"),
        ('"it"', "7", 3, "7 is not allowed", "allowed: a text"),
        ('warning = "it"', "", 2, "it has no condition", "write warning ="),
        ("warning", "waning", 3, "there is no key waning", 'did you mean "warning"?'),
        ('"level"', '"levle"', 6, "there is no kind of signal 'levle'", 'did you mean "level"?'),
        ('"level"', '["level"]', 6, "there is no kind of signal ['level']", 'did you mean "level"?'),
        ("# rules", CROSSED, 2, "low 2, high 1: every value is out", "low <= high"),
        ("ratio = 2", "ratio = 0.5", 8, "0.5 is not allowed", "a number >= 1"),
        ("ratio = 2", 'ratio = "2"', 8, "'2' is not allowed", "a finite number"),
        ("ratio = 2", "ratio = nan", 8, "nan is not allowed", "a finite number"),
        ("ratio = 2", "ratio = 2\nsize = 1", 9, "there is no key size", "a signal level takes"),
        ("ratio = 2", "ratio = 2\nwindow = 3", 5, "window 3, warmup 20", "warmup <= window"),
        ("ratio = 2", "ratio = 2\nwindow = 2000", 9, "2000 is not allowed", "0..1000"),
        ("ratio = 2", "ratio = 2\ndirection = 'left'", 9, "'left' is not allowed", "up, down, both"),
        ("ratio = 2", "", 5, "a signal level needs ratio", "it takes"),
        ('metric = "train/loss"\n', "", 5, "a signal level needs metric", "it takes"),
        ('"train/loss"', "[]\nx = 1", 8, "there is no key x", "a signal level takes"),
        ('"train/loss"', "[]", 7, "it is empty", "a metric's name"),
        ("[alert.own]", "[alert.memory]\nsignals = 3\n[alert.own]", 3, "3 is no table", "[alert.memory.signals.NAME]"),
        ('"train/loss"', "3", 7, "3 is not allowed", "a metric's name"),
        ("[alert.own]", "[alert.own]\nneed = [3, 2]", 3, "[3, 2] is not allowed", "k of the last n"),
        ("[alert.own]", "[alert.own]\nclear = 0", 3, "0 is not allowed", "1..1000"),
        ("alert.own]", "alert.'o w n']", 2, "'o w n' is no name of a rule", "letters, digits"),
        ("# rules", "x = 1", 1, "x is no rule", "tables [alert.NAME]"),
        ("# rules", "[alert.divergense]\nenabled = false", 1, "it has no signals", "did you mean [alert.divergence]?"),
        ("# rules", MANY_SIGNALS, 2, "it has 21 signals", "at most 20 are allowed"),
    ],
)
def test_a_mistake_is_refused_with_its_line(old: str, new: str, line: int, says: str, hint: str) -> None:
    """The message has the file, the line and the key; the hint what is allowed and the nearest right word."""
    with pytest.raises(UsageProblem) as caught:
        read_file(BASE.replace(old, new).encode(), "rules.toml")
    assert f"rules.toml, line {line}: " in caught.value.message
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_what_is_no_toml_is_refused() -> None:
    """The parser's own message has the line."""
    with pytest.raises(UsageProblem, match="line 2"):
        read_file(b"[alert.own]\nwarning = = 1", "rules.toml")
    assert read_file(BASE.encode(), "rules.toml")["own"]["warning"] == "it"


def test_lines_of_nested_keys() -> None:
    """Dotted keys, quoted keys and inline tables: the line that sets the key, else that of the nearest table."""
    text = '[alert]\na.b = 1\n[alert."c d"]\nx = { y = 1 }\n'
    assert line_of(text, ("alert", "a", "b")) == 2
    assert line_of(text, ("alert", "c d", "x", "y")) == 4
    assert line_of(text, ("alert", "zzz")) == 1
    assert line_of("", ("alert",)) == 1


def test_settings_have_rules(tmp_path: Path) -> None:
    """`[alert.*]` of rlship.toml is checked when settings are read; that of an experiment lies over the folder's."""
    below = tmp_path / "run"
    below.mkdir()
    (tmp_path / CONFIG_FILE).write_text("[alert.divergence]\nclear = 4\nneed = [1, 1]\n")
    (below / CONFIG_FILE).write_text("[alert.divergence]\nclear = 5\n")
    found = load(tmp_path, {}, {}, experiment=below)
    assert found.alert == {"divergence": {"clear": 5, "need": [1, 1]}}
    (below / CONFIG_FILE).write_text("grace_s = 3\n[alert.divergence]\nclaer = 5\n")
    with pytest.raises(UsageProblem, match=r"rlship\.toml, line 3: alert\.divergence\.claer: there is no key claer"):
        load(tmp_path, {}, {}, experiment=below)


def test_rules_of_others_do_not_count(tmp_path: Path) -> None:
    """A file that other users can write may not have rules, as it may not say where rows go."""
    file = tmp_path / CONFIG_FILE
    file.write_text("[alert.divergence]\nclear = 4\n")
    file.chmod(0o666)
    with pytest.raises(UsageProblem, match="can be written by other users"):
        load(tmp_path, {}, {})


@pytest.mark.parametrize("tables", [3, {"a": 3}, {"a": {"signals": 3}}, {"a": {"signals": {"s": 3}, "warning": "s"}}])
def test_anything_else_is_refused(tables: Any) -> None:
    """Numbers where tables belong are mistakes like any other."""
    with pytest.raises(UsageProblem):
        check(tables, "rules.toml", "")


@pytest.mark.parametrize("page", ["README.md", "docs/why.md"])
def test_answers_in_documents_have_the_words_of_the_rules(page: str) -> None:
    """What a rule is about stands below its name in the answers of `rlship why` that documents show."""
    shown = re.findall(
        r"^[\w-]+: (\w+), (?:critical|warning), .*\n((?:  .*\n)+?)(?=  with it|\d\. )", read(page), re.MULTILINE
    )
    assert shown
    for rule, about in shown:
        assert " ".join(about.split()).startswith(RULES[rule].about)


def read(page: str) -> str:
    """A document."""
    return (ROOT / page).read_text(encoding="utf-8")
