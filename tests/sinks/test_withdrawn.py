"""What a revision takes away is in no chart and not in the summary: sinks show the newest rows, and nothing else."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event

from rlship_formats.values import Histogram
from rlship_sidecar.rows import Arrival, Row, Sample
from rlship_sidecar.sinks.budget import KeyBudget
from rlship_sidecar.sinks.names import DEFAULT_NAMES
from rlship_sidecar.sinks.tensorboard import events as tfevents
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink, event
from rlship_sidecar.sinks.wandb.keeping import SummaryKeeper
from rlship_sidecar.sinks.wandb.point import point, whole
from tests.kit.board import Points, default_charts, other_charts
from tests.kit.cases import statistical
from tests.loopback.backend import LoopbackBackend
from tests.pipeline.simulated import scratch
from tests.sinks.readback import run_folder, tensorboard_events
from tests.sinks.rows import MemorySource, make_row, make_run
from tests.sinks.wandb_shipping import shipping

METRICS = ("loss", "loss/nonfinite", "rollout_s", "kl")  # a span has its greatest value beside it
Move = tuple[int, frozenset[str], str]  # a step, what its row has, and what becomes of the sink then

MOVES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.frozensets(st.sampled_from(METRICS)),
        st.sampled_from(["go on", "go on", "go on", "flush", "close", "crash", "forget"]),
    ),
    max_size=20,
)
ALL = frozenset(METRICS)
THE_WALK: list[Move] = [
    *((step, ALL, "go on") for step in range(6)),
    *((step, ALL, "flush") for step in (2, 3)),
    *((step, frozenset({"loss/nonfinite"}), "go on") for step in (4, 5)),
]
THE_FIRST_AND_ALL: list[Move] = [
    (0, ALL, "go on"),
    (1, ALL, "close"),
    (0, frozenset(), "crash"),
    (1, frozenset(), "flush"),
]


def revised(rows: Sequence[Row], made: Row) -> Row:
    """A row as the next one after `rows`: the first of its unit, or a revision."""
    before = next((row for row in reversed(rows) if row.unit == made.unit), None)
    if before is None:
        return made
    changed = made.differing(before)
    return replace(made, arrival=Arrival(len(rows), before.arrival.revision + 1, changed, "revision"))


def rows_of(moves: Sequence[Move]) -> list[tuple[Row, str]]:
    """The rows of moves, with what becomes of the sink after each. Half of the values differ from one to the next."""
    rows: list[Row] = []
    for at, (step, metrics, _) in enumerate(moves):
        values = {f"trainer/{name}": float(at // 2) for name in METRICS if name in metrics}
        values |= {f"{key}/max": value for key, value in values.items() if key.endswith("_s")}
        rows.append(revised(rows, make_row(at, step=step, values=values)))
    return [(row, what) for row, (_, _, what) in zip(rows, moves)]


def newest(rows: Sequence[Row]) -> list[Row]:
    """The newest row of each unit, whole."""
    return [whole(row) for row in {row.unit: row for row in rows}.values()]


def charts_of(rows: Sequence[Row]) -> dict[str, Points]:
    """By tag the points of rows, without what says how often they were revised."""
    charts: dict[str, Points] = {}
    for made in map(event, newest(rows)):
        for value in made.summary.value:
            charts.setdefault(value.tag, []).append((made.step, value.simple_value))
    return {tag: sorted(points) for tag, points in charts.items() if not tag.endswith("/revision")}


def seen(charts: dict[str, Points]) -> dict[str, Points]:
    """The same of what TensorBoard shows; NaN is no point."""
    points = {tag: [one for one in found if not math.isnan(one[1])] for tag, found in charts.items()}
    return {tag: found for tag, found in points.items() if found and not tag.endswith("/revision")}


def files(folder: Path) -> Path:
    return run_folder(folder / "rlship/state/tensorboard")


@statistical(200)
@given(MOVES)
@example(THE_WALK)
@example(THE_FIRST_AND_ALL)
def test_tensorboard_shows_the_newest_rows(moves: list[Move]) -> None:
    """After any order of rows, revisions, flushes, restarts and crashes, by either reader."""
    with scratch() as folder:
        rows: list[Row] = []
        sink = TensorBoardSink()
        sink.open(make_run(folder))
        for row, what in rows_of(moves):
            rows.append(row)
            sink.write([row])
            if what == "flush":
                sink.flush()
            elif what == "close":
                sink.close()
            elif what == "forget":
                sink.abandon()
                (folder / "rlship/state/tensorboard-curves.json").unlink(missing_ok=True)
            if what in ("close", "crash", "forget"):
                sink = TensorBoardSink()
                assert sink.open(make_run(folder)) == len(rows) and sink.ends_with(row)
        sink.close()
        if rows:
            assert seen(default_charts(files(folder))) == charts_of(rows)
            assert seen(other_charts(files(folder))) == charts_of(rows)


def test_a_point_that_is_taken_away_leaves_no_mark(tmp_path: Path) -> None:
    """The points before and behind it stay neighbours. Only the first point of a chart becomes NaN, because no earlier
    one can take it out.
    """
    rows = [row for row, _ in rows_of(THE_WALK)]
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path))
    sink.write(rows[:8])
    sink.flush()
    sink.write(rows[8:9])
    sink.close()
    loss = default_charts(files(tmp_path))["aa_headline/trainer/loss"]
    assert [step for step, _ in loss] == [0, 1, 2, 3, 5] and not any(math.isnan(value) for _, value in loss)

    rows = [row for row, _ in rows_of(THE_FIRST_AND_ALL)]
    sink.open(make_run(tmp_path / "first"))
    sink.write(rows)
    sink.close()
    ((step, value),) = [default_charts(files(tmp_path / "first"))["trainer/kl"][0]]
    assert step == 0 and math.isnan(value)


def test_histograms_tables_and_ranks_go_too(tmp_path: Path) -> None:
    """An empty histogram and an empty text stand where the first one was taken away; a single rank's value goes while
    another rank's stays.
    """
    first = replace(
        make_row(0, step=3),
        hists={"trainer/len": Histogram((0.0, 1.0), (4,))},
        samples={"rollouts": [Sample(("top",), "0.1", 1.0, 0.5, {"r": "hi"})]},
        per_rank={"trainer/loss": [("0.0", 0.5), ("0.1", 1.5)]},
    )
    bare = replace(make_row(1, step=3, values=first.values), per_rank={"trainer/loss": [("0.0", 0.5)]})
    second = revised([first], bare)
    assert second.arrival.changed == ("trainer/loss", "trainer/len", "trainer/samples/rollouts")
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path, ranks="per_rank_reduce"))
    sink.write([first, second])
    sink.close()
    (path,) = files(tmp_path).glob("*.again")
    found = {
        value.tag: value
        for frame in tfevents.frames(path)
        for value in Event.FromString(tfevents.read(path, frame)).summary.value
    }
    assert found["trainer/len"].HasField("histo") and not found["trainer/len"].histo.bucket
    assert list(found["trainer/samples/rollouts"].tensor.string_val) == [b""]
    ranks = [found[f"zz_rlship/trainer/loss/r0.{rank}"].simple_value for rank in (0, 1)]
    assert ranks[0] == 0.5 and math.isnan(ranks[1])
    assert len(tensorboard_events(tmp_path / "rlship/state/tensorboard")) == 2


@given(MOVES)
@example(THE_WALK)
@example(THE_FIRST_AND_ALL)
def test_wandb_has_the_newest_rows_and_their_summary(moves: list[Move]) -> None:
    """Of each step the last line that has a key decides, NaN is no value, and the summary has the value of the furthest
    step that still has one.
    """
    rows = [row for row, _ in rows_of(moves)]
    with scratch() as folder:
        run = replace(make_run(folder), stored=MemorySource(rows).read_rows)
        keeper = SummaryKeeper(run, None, 0)
        keeper.catch_up(DEFAULT_NAMES, lambda: None)
        history: dict[str, dict[int, float]] = {}
        shown: dict[str, float] = {}
        for row in rows:
            made = keeper.withdrawing(DEFAULT_NAMES, row, point(row))
            line = {**made.numbers, **dict.fromkeys(made.withdrawn, math.nan)}
            for key, value in line.items():
                history.setdefault(key, {})[row.unit.index] = value
            shown |= {**line, **keeper.add(DEFAULT_NAMES, row, made)}
        assert (of_wandb(history), of_summary(shown)) == expected(rows)
        # A start without what was saved comes to the same summary.
        assert of_summary({**SummaryKeeper(run, None, len(rows)).catch_up(DEFAULT_NAMES, lambda: None)}) == of_summary(
            shown
        )


Charts = dict[str, dict[int, float]]


def of_wandb(history: Charts) -> Charts:
    """What charts of keys show over their steps, without gaps and axes."""
    found = {key: {step: value for step, value in points.items() if value == value} for key, points in history.items()}
    return {key: points for key, points in found.items() if points and not key.endswith(("revision", "step"))}


def of_summary(shown: dict[str, float]) -> dict[str, float]:
    """The summary's numbers of metrics."""
    return {key: value for key, value in shown.items() if value == value and "/" in key and "/revision" not in key}


def expected(rows: Sequence[Row]) -> tuple[Charts, dict[str, float]]:
    """Charts and summary of the newest rows."""
    charts: Charts = {}
    for row in newest(rows):
        for key, value in point(row).numbers.items():
            charts.setdefault(key, {})[row.unit.index] = value
    charts = of_wandb(charts)
    return charts, {key: points[max(points)] for key, points in charts.items()}


def test_the_real_client_sends_a_gap(tmp_path: Path) -> None:
    """W&B's client and a server: what the history has last of each key and step, and the summary, are the newest
    rows'; each line that takes a number away has NaN there.
    """
    chosen = random.Random(7)
    moves = [*THE_WALK, *((chosen.randrange(8), frozenset(chosen.sample(METRICS, 2)), "") for _ in range(30))]
    source = MemorySource([row for row, _ in rows_of(moves)])
    with LoopbackBackend() as backend, shipping(tmp_path, backend, source=source) as sent:
        assert sent.shipper.drain(60.0), sent.shipper.status()
        run = backend.run("rlship", "store1")
        history: Charts = {}
        for line in run.rows():
            for key, value in line.items():
                if "/" in key and isinstance(value, (int, float)):
                    history.setdefault(key, {})[line["global_step"]] = value
        assert (of_wandb(history), of_summary(run.summary)) == expected(source.rows)
        assert any(math.isnan(value) for points in history.values() for value in points.values())


def test_what_a_revision_takes_away_is_among_what_it_changed() -> None:
    """`changed` names it, and the row's other keys say that it is gone. A row of an earlier rlship, which did not name
    it, is read and takes nothing away.
    """
    first = make_row(0, values={"trainer/loss": 0.5, "trainer/kl": 0.1})
    second = revised([first], make_row(1, step=0, values={"trainer/kl": 0.1}))
    again = Row.from_json(second.to_json())
    assert (again.arrival.changed, again.withdrawn, again.shipped) == (("trainer/loss",), ("trainer/loss",), {})
    old = Row.from_json(second.to_json().replace(b'"changed":["trainer/loss"]', b'"changed":[]'))
    assert old == again and (old.withdrawn, old.shipped) == ((), {})
    assert first.withdrawn == ()


def test_keys_of_ranks_that_were_shown_before(tmp_path: Path) -> None:
    """A sink knows them from its budget of keys."""
    budget = KeyBudget("wandb", tmp_path / "keys.json", 10)
    first = replace(make_row(0), per_rank={"trainer/loss": [("0.0", 0.5), ("0.1", 1.5)]})
    assert budget.admit(first) and budget.withdrawn(first) == []
    second = revised([first], replace(make_row(1, step=0, values={}), per_rank={}))
    assert budget.withdrawn(second) == ["trainer/loss/r0.0", "trainer/loss/r0.1"]


def test_a_rate_is_no_value_of_a_rank(tmp_path: Path) -> None:
    """A revision that changes `tokens` takes away ranks of it, but not `tokens/rate`, nor a metric that is called like
    a rank's.
    """
    key = "trainer/tokens"
    values = {key: 4.0, f"{key}/rate": 2.0, f"{key}/r0.7": 1.0}
    first = replace(make_row(0, values=values), per_rank={key: [("0.0", 1.0), ("0.1", 3.0)]})
    changed = {**values, key: 5.0}
    of_ranks = {key: [("0.0", 5.0)]}
    second = replace(make_row(0, values=changed), per_rank=of_ranks, arrival=Arrival(1, 1, (key,), "revision"))
    budget = KeyBudget("wandb", tmp_path / "keys.json", 100)
    budget.admit(first)
    assert budget.withdrawn(second) == [f"{key}/r0.1"]
