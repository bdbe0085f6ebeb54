"""Under which names W&B, TensorBoard and the console show a row's keys."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlship_formats.values import Histogram
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit, axis
from rlship_sidecar.sinks import renamed
from rlship_sidecar.sinks.console import ConsoleSink, LineChoice, line
from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.names import REWARD_AND_LOSS, SinkNames, flatten, is_extra, names_of
from rlship_sidecar.sinks.tensorboard.sink import CHARTS, TensorBoardSink
from rlship_sidecar.sinks.tensorboard.sink import event as as_event
from rlship_sidecar.sinks.wandb.point import point
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.endtoend.sidecar import rlship
from tests.metrics.test_spread import rows_of
from tests.reference.building import CLOSE, barrier, file, log, stream
from tests.sinks.readback import run_folder, tensorboard_events
from tests.sinks.rows import make_row, make_rows, make_run

T = 1763600000.0
HISTOGRAM = Histogram((0.0, 1.0), (1,))
WHOLE = Coverage(("0.0",), 2, ("0.1",))
NOTHING_ADDED = SinkNames(REWARD_AND_LOSS, extras=False)


def of_stream(kind: str, *keys: str) -> Row:
    """A row of a generator's stream with these keys."""
    index, x = (7, {"global_step": 7}) if kind == "aligned" else (3, {"clock/elapsed_s": 30.0})
    unit = Unit("generator", kind, index, "9f" if kind == "point" else "")
    return Row(unit, T, dict(x), dict.fromkeys(keys, 0.5), WHOLE if kind != "point" else Coverage(("0.0",), 1))


def test_reward_and_loss_stand_first_and_coverage_last() -> None:
    """The job's metrics keep their keys, but reward and loss; what rlship says of the ranks is behind all of them."""
    row = make_row(12, values={"trainer/loss": 0.5, "trainer/reward": 0.25, "trainer/kl": 0.125})
    assert flatten(row, CHARTS) == {
        "aa_headline/trainer/loss": 0.5,
        "aa_headline/trainer/reward": 0.25,
        "trainer/kl": 0.125,
        "zz_rlship/trainer/ranks/in": 2,
        "zz_rlship/trainer/ranks/expected": 2,
        "zz_rlship/trainer/ranks/missing": 0,
        "zz_rlship/trainer/ranks/short": 0,
    }
    assert sorted(flatten(row, NOTHING_ADDED)) == [
        "aa_headline/trainer/loss",
        "aa_headline/trainer/reward",
        "trainer/kl",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "trainer/train/loss",  # torchrl-like
        "trainer/critic/rewards/mean",  # verl
        "trainer/actor/pg_loss",
        "trainer/reward/total",  # the catalogue
        "trainer/loss/mean",  # prime-rl
        "trainer/loss_metrics/global_avg_loss",  # TorchTitan
        "trainer/eval_reward",  # transformers and TRL
        "trainer/eval_loss",
    ],
)
def test_rewards_and_losses_of_frameworks_stand_first(key: str) -> None:
    """The names are those that the supported frameworks log."""
    assert f"aa_headline/{key}" in flatten(make_row(0, values={key: 1.0}), CHARTS)


def test_a_job_chooses_what_stands_first() -> None:
    """`first` replaces the patterns; it lifts what rlship adds, too. An empty list leaves all in place."""
    row = make_row(0, values={"trainer/loss": 0.5, "trainer/kl": 1.0, "trainer/kl/max": 2.0})
    chosen = names_of({"first": ["*/kl", "trainer/kl/max"], "extras": False})
    assert flatten(row, chosen) == {
        "trainer/loss": 0.5,
        "aa_headline/trainer/kl": 1.0,
        "aa_headline/trainer/kl/max": 2.0,
    }
    assert flatten(row, names_of({"first": [], "extras": False})) == {"trainer/loss": 0.5, "trainer/kl": 1.0}


def test_a_metric_has_one_chart() -> None:
    """The spread that the catalogue adds, extremes over ranks and non-finite values are extras. Rates, quantiles and
    what a `define` asks for are the job's.
    """
    values = {
        "trainer/reward/total": 1.0,
        "trainer/reward/total/max": 1.0,
        "trainer/rollout_s": 1.0,
        "trainer/rollout_s/max": 1.0,
        "trainer/sync/push_s": 1.0,  # a name of the catalogue, which asks for no maximum beside it
        "trainer/sync/push_s/max": 1.0,
        "trainer/tok": 1.0,
        "trainer/tok/max": 1.0,  # a `define` asked for it
        "trainer/tok/rate": 2.0,
        "trainer/tok/p99": 3.0,
        "trainer/tok/nonfinite": 1.0,
        "trainer/len/mean": 4.0,  # no metric trainer/len: the job logged it under this name
        "trainer/barrier/spread_s": 0.1,
        "trainer/event/evicted": 1.0,
    }
    names = {name for name in flatten(make_row(0, values=values)) if not name.startswith("zz_rlship/")}
    assert names == {
        "trainer/reward/total",
        "trainer/rollout_s",
        "trainer/sync/push_s",
        "trainer/tok",
        "trainer/tok/max",
        "trainer/tok/rate",
        "trainer/tok/p99",
        "trainer/len/mean",
    }


def test_what_a_define_and_the_catalogue_ask_for_is_the_jobs() -> None:
    """The row says who asked: `max` keeps its key where a `define` or the configuration names it, and only there."""
    values = {"loss": [1.0, 2.0], "reward/total": [1.0, 3.0], "rollout_s": [1.0, 2.0]}
    lines = (log(1, **values), barrier(1))
    asked = {"reward/total": {"reduce": ["mean", "max"]}, "rollout_s": {"reduce": ["mean", "max"], "per_rank": True}}

    def shown(*more: dict[str, Any], **config: Any) -> set[str]:
        [row] = rows_of(file(*more, *lines), **config)
        return {key for key in row.values if not is_extra(row, key)}

    plain = {"trainer/loss", "trainer/reward/total", "trainer/rollout_s"}
    assert shown() == plain
    assert shown({"kind": "define", "m": asked}) == plain | {"trainer/reward/total/max", "trainer/rollout_s/max"}
    assert shown({"kind": "define", "m": {"reward/total": {"unit": "1"}}}) == plain
    assert shown(overrides={"reward/total": ("mean", "max")}) == plain | {"trainer/reward/total/max"}


def test_the_spread_of_a_histogram_is_an_extra() -> None:
    """The metric may be a histogram, or lack its first reduction in this row."""
    row = replace(make_row(0, values={"trainer/reward/max": 1.0}), hists={"trainer/reward": HISTOGRAM})
    assert "zz_rlship/trainer/reward/max" in flatten(row)
    underivable = replace(row, hists={}, coverage=replace(row.coverage, underivable=("trainer/reward",)))
    assert "zz_rlship/trainer/reward/max" in flatten(underivable)


def test_a_row_that_lacks_ranks_names_them() -> None:
    """Only a row with missing ranks has the text of their names, and it counts a range by its ranks."""
    flat = flatten(make_row(0, missing=("0.3", "0.5-7")))

    assert flat["zz_rlship/trainer/missing_ranks"] == "0.3 0.5-7"
    assert flat["zz_rlship/trainer/ranks/missing"] == 4


def test_a_revision_ships_what_changed() -> None:
    """A later version of a row holds its number, and the values that are new or changed."""
    flat = flatten(
        make_row(9, step=4, revision=2, values={"trainer/loss": 1.0, "trainer/kl": 2.0}, changed=("trainer/kl",))
    )

    assert flat["zz_rlship/trainer/revision"] == 2 and flat["trainer/kl"] == 2.0
    assert "aa_headline/trainer/loss" not in flat
    assert "zz_rlship/trainer/revision" not in flatten(make_row(9))


def test_a_job_that_logs_ranks_itself_keeps_them() -> None:
    """Two names do not meet."""
    flat = flatten(make_row(0, values={"trainer/ranks/in": 0.25, "trainer/revision": 7.5}, revision=0))

    assert (flat["trainer/ranks/in"], flat["trainer/revision"]) == (0.25, 7.5)
    assert flat["zz_rlship/trainer/ranks/in"] == 2


def test_axis_is_the_rows_own() -> None:
    """The first x key says where a row stands; a row without x stands at its unit's index."""
    row = Row(Unit("buffer", "clock", 3), 0.0, {}, {}, Coverage((), 0))

    assert axis(make_row(5, axis="env_step")) == ("env_step", 5)
    assert axis(row) == ("clock", 3)


def test_values_of_ranks_are_extras_that_were_asked_for() -> None:
    """What a sink shows of single ranks stands last, also where nothing else is added."""
    row = make_row(0, values={"trainer/loss": 1.0})
    flat = flatten(row, NOTHING_ADDED, {"trainer/loss/r0.0": 0.5})

    assert flat == {"aa_headline/trainer/loss": 1.0, "zz_rlship/trainer/loss/r0.0": 0.5}


def test_beside_steps_stands_the_chart_of_a_stream() -> None:
    """Aligned rows have the stream's charts. What the actor logs with steps, too, has its chart there."""
    row = of_stream("aligned", "generator/x", "generator/reward", "generator/y/aligned", "generator/y/aligned/max")
    assert sorted(flatten(row, NOTHING_ADDED)) == ["aa_headline/generator/reward", "generator/x"]
    assert sorted(set(flatten(row, CHARTS)) - set(flatten(row, NOTHING_ADDED))) == [
        "zz_rlship/generator/aligned/missing_ranks",
        "zz_rlship/generator/aligned/ranks/expected",
        "zz_rlship/generator/aligned/ranks/in",
        "zz_rlship/generator/aligned/ranks/missing",
        "zz_rlship/generator/y/aligned",
        "zz_rlship/generator/y/aligned/max",
    ]
    assert (point(row).actor, point(row).axis) == ("generator", "global_step")
    assert line(row) == "generator global_step=7  [1 of 2 ranks, missing r1]  reward=0.5  x=0.5"


def test_over_time_stands_a_chart_only_without_steps() -> None:
    """Clock rows repeat the aligned ones, so they are extras, the reward too. Without a lead they have the charts."""
    row = of_stream("clock", "clock/generator/x", "clock/generator/reward", "clock/generator/x/max")
    assert flatten(row, NOTHING_ADDED) == {}
    assert flatten(row)["zz_rlship/clock/generator/reward"] == 0.5
    assert flatten(row)["zz_rlship/clock/generator/ranks/missing"] == 1
    assert (point(row).actor, point(row).axis) == ("clock/generator", "clock/elapsed_s")
    assert line(row) == ""
    without = SinkNames(REWARD_AND_LOSS, extras=False, over_time=True)
    assert sorted(flatten(row, without)) == [
        "aa_headline/clock/generator/reward",
        "clock/generator/x",
        "clock/generator/x/max",
    ]
    shown = line(row, LineChoice(over_time=True))
    assert shown == "generator clock/elapsed_s=30  [1 of 2 ranks, missing r1]  reward=0.5  x=0.5  x/max=0.5"
    lifted = names_of({"first": ["clock/*/reward"], "extras": False})
    assert list(flatten(row, lifted)) == ["aa_headline/clock/generator/reward"]


def test_points_are_extras() -> None:
    """A single line repeats what the row of its step has, and says nothing of ranks."""
    row = of_stream("point", "point/generator/loss")
    assert flatten(row) == {"zz_rlship/point/generator/loss": 0.5}
    assert (point(row).actor, point(row).axis) == ("point/generator", "clock/elapsed_s")


def test_the_sidecars_own_values_are_extras() -> None:
    """Those of the actor rlship, beside steps and over time."""
    unit, x = Unit("rlship", "aligned", 3), {"global_step": 3}
    row = Row(unit, T, {**x}, {"rlship/lag_s": 0.5, "rlship/loss": 1.0}, Coverage(("0.0",), 1))
    assert all(name.startswith("zz_rlship/rlship/") for name in flatten(row, names_of({"first": []})))
    assert flatten(row, names_of({"first": [], "extras": False})) == {}


@pytest.mark.parametrize("sink", [WandbSink, TensorBoardSink])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": "*/loss"}, r"first is '\*/loss'; allowed: a list of patterns"),
        ({"first": [3]}, "first is"),
        ({"extras": "no"}, "extras is 'no'; allowed: true, false"),
    ],
)
def test_wrong_options_are_refused(sink: type[Any], options: dict[str, Any], message: str) -> None:
    """The error says what is allowed."""
    sink.check_options({"first": [], "extras": False})
    with pytest.raises(SinkRefused, match=message):
        sink.check_options(options)


def test_the_console_shows_what_was_chosen() -> None:
    """`metrics` are patterns of keys in the order of the line; a row without any has no line."""
    values = {"kl": 1.0, "loss": 2.0, "reward": 5.0, "reward/max": 3.0, "x": 4.0}
    row = make_row(12, values={f"trainer/{metric}": value for metric, value in values.items()})
    assert line(row, LineChoice(("*/x", "*/rew*"))) == "trainer global_step=12  x=4  reward=5  reward/max=3"
    assert line(row, LineChoice(("*/other",))) == ""
    assert line(row, LineChoice(extras=True)) == "trainer global_step=12  reward=5  loss=2  kl=1  x=4  reward/max=3"
    ConsoleSink.check_options({"metrics": ["*/loss"], "extras": True})
    for wrong in ({"metrics": "*/loss"}, {"metrics": [""]}, {"extras": 1.5}):
        with pytest.raises(SinkRefused, match="allowed"):
            ConsoleSink.check_options(wrong)


def under_row_keys(row: Row) -> Any:
    """The event that an earlier rlship wrote: the row's own keys, and the axis among them."""
    made = as_event(row)
    for value in made.summary.value:
        value.tag = value.tag.removeprefix("aa_headline/").removeprefix("zz_rlship/")
    made.summary.value.add(tag="global_step", simple_value=row.x["global_step"])
    return made


def test_a_board_of_other_names_goes_on_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An event of the row's own keys, in the folder of an earlier release, is known as that row's. The next row gets
    the new names, which is said once.
    """
    run = make_run(tmp_path, rows=3)
    logdir = run.state_dir / "tensorboard"
    with monkeypatch.context() as patch:
        patch.setattr("rlship_sidecar.sinks.tensorboard.sink.event", lambda row, *_: under_row_keys(row))
        patch.setattr("rlship_sidecar.sinks.tensorboard.sink._folder", lambda run: logdir)
        fill(run, make_rows(0, 2))
    (run.state_dir / renamed.NAMES_FILE).unlink()

    sink = TensorBoardSink()
    assert sink.open(run) == 2
    assert sink.ends_with(make_row(1)) and not sink.ends_with(make_row(1, values={"trainer/loss": 7.0}))
    sink.write([make_row(2)])
    sink.close()
    assert run_folder(logdir) == logdir
    assert [event.summary.value[-1].tag for event in tensorboard_events(logdir)] == [
        "global_step",
        "global_step",
        "aa_headline/trainer/loss",
    ]
    fill(run, [])
    (said,) = caplog.messages
    assert "from row 2 on the metrics of `first` (reward and loss, unless you set it) stand under aa_headline/" in said
    assert "what rlship adds stands under zz_rlship/" in said


def test_what_is_shown_may_change_between_two_starts(tmp_path: Path) -> None:
    """The last event is known again by what it holds, with fewer keys than the row and with more than are shown now."""
    for extras in (True, False, True):
        sink = TensorBoardSink()
        held = sink.open(make_run(tmp_path, extras=extras)) or 0
        assert not held or sink.ends_with(make_row(held - 1))
        sink.write([make_row(held)])
        sink.close()
    assert not sink.ends_with(make_row(0))


def test_the_run_has_the_experiments_name(tmp_path: Path) -> None:
    """TensorBoard calls a run by its folder. A folder that was begun under another name goes on."""
    run = make_run(tmp_path)
    fill(run, make_rows(0, 1))
    logdir = run.state_dir / "tensorboard"
    assert run_folder(logdir) == logdir / run.name
    fill(replace(run, name="renamed"), make_rows(1, 2))
    assert run_folder(logdir) == logdir / run.name
    assert len(tensorboard_events(logdir)) == 2


@pytest.mark.parametrize("name", ["..", ".", "", "a/b"])
def test_no_name_leads_out_of_the_logdir(tmp_path: Path, name: str) -> None:
    """The folder is one below the logdir, whatever the experiment is called."""
    run = replace(make_run(tmp_path), name=name)
    fill(run, make_rows(0, 1))
    assert run_folder(run.state_dir / "tensorboard").parent == run.state_dir / "tensorboard"


def test_a_new_run_says_nothing_of_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only for a run that has rows the log says that it goes on under other names. A torn note is no reason to fail."""
    caplog.set_level(logging.INFO)
    renamed.tell_once("wandb", tmp_path, 0, SinkNames())
    renamed.tell_once("wandb", tmp_path, 5, SinkNames())
    assert caplog.messages == []
    (tmp_path / renamed.NAMES_FILE).write_bytes(b"{")
    renamed.tell_once("wandb", tmp_path, 5, SinkNames())
    renamed.tell_once("wandb", tmp_path, 6, SinkNames())
    assert len(caplog.messages) == 1


def fill(run: Any, rows: list[Row]) -> None:
    """One life of the sink."""
    sink = TensorBoardSink()
    sink.open(run)
    if rows:
        sink.write(rows)
    sink.close()


def test_a_revision_of_what_is_not_shown_is_a_point_all_the_same() -> None:
    """Rows, lines and events stay in step, though nothing of a row is shown."""
    row = replace(of_stream("clock", "clock/generator/x"), arrival=Arrival(4, 1, ("clock/generator/x",), "revision"))
    assert point(row, NOTHING_ADDED).data == b'{"clock/elapsed_s":30.0,"_timestamp":1763600000.0}'
    assert list(as_event(row, NOTHING_ADDED).summary.value) == []


@pytest.mark.parametrize("lead", [False, True])
def test_a_job_without_a_lead_has_its_charts_over_time(tmp_path: Path, lead: bool) -> None:
    """What `rlship watch` makes of a generator's stream: its windows of time have the charts if no step ends."""
    folder = tmp_path / "job" / "rlship"
    folder.mkdir(parents=True)
    lines = [stream(t, reward=t, tokens=1) for t in (1, 12, 23)]
    (folder / "g.jsonl").write_bytes(file(*lines, CLOSE, actor="generator", id="g"))
    if lead:
        steps = [event for n in range(2) for event in (log(n, loss=1), barrier(n, 11 * (n + 1)))]
        (folder / "t.jsonl").write_bytes(file(*steps, CLOSE, actor="trainer", id="t"))
    done = rlship(tmp_path, "watch", tmp_path / "job", "--once", "--sink", "tensorboard")
    assert done.returncode == 0, done.stderr
    events = tensorboard_events(folder / "state" / "tensorboard")
    names = {value.tag for event in events for value in event.summary.value if not value.tag.startswith("zz_rlship/")}
    beside = {"aa_headline/generator/reward", "aa_headline/trainer/loss", "generator/tokens"}
    assert names == (beside if lead else {"aa_headline/clock/generator/reward", "clock/generator/tokens"})


def test_a_lead_of_a_facade_keeps_the_jobs_own_names() -> None:
    """First reductions of the lead, on all of its axes, have the names that the job gave them; further reductions, what
    rlship adds, windows of time and other actors keep theirs.
    """
    own = SinkNames(own=("trainer",))
    values = {
        "trainer/train/loss": 0.5,
        "trainer/p": 1.0,
        "trainer/p/max": 2.0,
        "trainer/policy_version": 3.0,
        "trainer/policy_lag": 1.0,
        "trainer/event/x": 1.0,
        "trainer/zz_rlship/y": 1.0,
    }
    row = replace(make_row(1, values=values), asked=("trainer/p/max",))
    assert {name for name in flatten(row, own) if "/ranks/" not in name} == {
        "train/loss",
        "p",
        "trainer/p/max",
        "policy_version",
        "trainer/policy_lag",
        "zz_rlship/trainer/event/x",
        "trainer/zz_rlship/y",
    }
    further = make_row(1, actor="trainer.eval/step", values={"trainer.eval/step/eval/acc": 0.5})
    assert "eval/acc" in flatten(further, own)
    assert "generator/reward" in flatten(make_row(1, actor="generator", values={"generator/reward": 0.5}), own)
    assert "trainers/x" in flatten(make_row(1, actor="trainers", values={"trainers/x": 0.5}), own)
    clock = Row(Unit("trainer", "clock", 3), T, {"clock/elapsed_s": 30.0}, {"clock/trainer/x": 0.5}, WHOLE)
    assert "clock/trainer/x" in flatten(clock, SinkNames(own=("trainer",), over_time=True))
    aligned = Row(Unit("trainer", "aligned", 3), T, {"s": 3}, {"trainer/x": 0.5, "trainer/y/aligned": 1.0}, WHOLE)
    assert {"x", "zz_rlship/trainer/y/aligned"} <= flatten(aligned, own).keys()
    several = SinkNames(own=("trainer", "worker"))
    assert "reward" in flatten(make_row(1, actor="worker", values={"worker/reward": 0.5}), several)


def test_points_name_what_begins_with_no_actor() -> None:
    """W&B charts such a name by itself; a name that W&B reserves is not among them."""
    row = make_row(1, values={"trainer/b": 1.0, "trainer/a": 1.0, "trainer/_step": 2.0}, axis="train/step")
    made = point(row, SinkNames(own=("trainer",)))
    assert (made.actor, made.axis, made.names) == ("trainer", "train/step", ("a", "b"))
    assert b'"zz_rlship/_step":2.0' in made.data
    assert point(row).names == ()
