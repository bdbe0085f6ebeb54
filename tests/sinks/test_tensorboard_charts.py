"""What a person sees in TensorBoard after steps that were done again, late lines, restarts and crashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event, SessionLog

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run
from rlship_sidecar.sinks.delivery import Clocks, Delivery, Pace
from rlship_sidecar.sinks.tensorboard import again
from rlship_sidecar.sinks.tensorboard import events as tfevents
from rlship_sidecar.sinks.tensorboard.again import Again
from rlship_sidecar.sinks.tensorboard.curves import Curves
from rlship_sidecar.sinks.tensorboard.held import hold, release
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink, event
from tests.kit.board import Board, Points, board, default_charts, other_charts
from tests.kit.cases import long, statistical
from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until
from tests.pipeline.simulated import scratch
from tests.sinks.readback import run_folder, tensorboard_events
from tests.sinks.rows import MemorySource, make_row, make_rows, make_run

LOSS = "aa_headline/trainer/loss"


def newest(rows: Sequence[Row]) -> dict[str, Points]:
    """By tag the newest value of each step, in the order of steps: what a person should see."""
    charts: dict[str, dict[int, float]] = {}
    for row in rows:
        made = event(row)
        for value in made.summary.value:
            charts.setdefault(value.tag, {})[made.step] = value.simple_value
    return {tag: sorted(points.items()) for tag, points in charts.items()}


def again_row(no: int, step: int, loss: float, **values: float) -> Row:
    """Row `no`, a revision of a step."""
    found = {"trainer/loss": loss, **{f"trainer/{name}": value for name, value in values.items()}}
    return make_row(no, step=step, values=found, revision=1, changed=tuple(found))


def opened(run: Run, last: Row | None = None) -> TensorBoardSink:
    """A sink that is open, after the check that it holds its store's rows."""
    sink = TensorBoardSink()
    assert (sink.open(run) or 0) == (0 if last is None else last.row_number + 1)
    assert last is None or sink.ends_with(last)
    return sink


def rolled_back(folder: Path) -> list[Row]:
    """Ten steps, a rollback to step 4, of which three steps are done again."""
    rows = [*make_rows(0, 10), *(again_row(10 + no, 4 + no, 100.0 + no) for no in range(3))]
    sink = opened(make_run(folder))
    sink.write(rows)
    sink.close()
    return rows


def late_line(folder: Path) -> list[Row]:
    """A single revision of step 2 after ten steps, and a step after it; a metric that it does not change."""
    rows = [make_row(no, values={"trainer/loss": float(no), "trainer/kl": no / 8}) for no in range(10)]
    rows += [again_row(10, 2, 50.0), make_row(11, step=10)]
    sink = opened(make_run(folder))
    sink.write(rows)
    sink.flush()
    sink.abandon()  # nothing is left to do
    return rows


def restarted(folder: Path) -> list[Row]:
    """A rollback, of which one step is done before a restart and one after it; then a late line of the first step."""
    rows = [*make_rows(0, 10), again_row(10, 4, 104.0), again_row(11, 5, 105.0), again_row(12, 0, 7.0)]
    for first, end in ((0, 11), (11, 12), (12, 13)):
        sink = opened(make_run(folder), rows[first - 1] if first else None)
        sink.write(rows[first:end])
        sink.close()
    return rows


def killed(folder: Path) -> list[Row]:
    """A kill -9 between a step that was done again and the time at which its points would have come."""
    rows = [*make_rows(0, 10), again_row(10, 4, 104.0)]
    opened(make_run(folder)).write(rows)
    opened(make_run(folder), rows[-1]).close()
    return rows


def of_an_earlier_rlship(folder: Path) -> list[Row]:
    """Files in which an earlier rlship had appended what lies before the last point."""
    rows = [*make_rows(0, 10), again_row(10, 4, 104.0), make_row(11, step=10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlship_sidecar.sinks.tensorboard.curves.Curves.admit", lambda *_, many: True)
        sink = opened(make_run(folder))
        sink.write(rows)
        sink.abandon()
    (folder / "rlship/state/tensorboard-curves.json").unlink()
    opened(make_run(folder), rows[-1]).close()
    return rows


SCENES = (rolled_back, late_line, restarted, killed, of_an_earlier_rlship)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Row]]]:
    """A folder with an experiment for each scene, and its rows."""
    folder = tmp_path_factory.mktemp("scenes")
    return folder, {scene.__name__: scene(folder / scene.__name__) for scene in SCENES}


@pytest.fixture(scope="module", params=[(), *long(("--load_fast", "false"))], ids=["default", "load_fast false"])
def server(request: pytest.FixtureRequest, scenes: tuple[Path, dict[str, list[Row]]]) -> Iterator[Board]:
    """TensorBoard on all of them, by one of its two readers."""
    with board(scenes[0], *request.param) as found:
        runs = len(SCENES)
        wait_until(lambda: len(found.tags()) == runs, lambda: f"{runs} runs: {found.tags()}")
        yield found


@pytest.mark.parametrize("name", [scene.__name__ for scene in SCENES])
def test_a_chart_has_the_newest_value_of_each_step(
    server: Board, scenes: tuple[Path, dict[str, list[Row]]], name: str
) -> None:
    """TensorBoard itself says over HTTP that its charts have each step once, in order, with its newest value."""
    should = newest(scenes[1][name])
    run = f"{name}/rlship/state/tensorboard/grpo"
    wait_until(lambda: server.charts().get(run) == should, lambda: f"{should}, but {server.charts().get(run)}")


def test_how_the_default_reader_takes_steps_that_go_back(tmp_path: Path) -> None:
    """It drops a tag's points from the step on; it looks at neither file versions nor session logs, and at each tag
    alone. Other tests of this module rely on this model of it.
    """
    rows = [*map(event, make_rows(0, 6)), event(make_row(6, actor="other", step=1))]
    back = event(make_row(7, step=2))
    starts = [Event(wall_time=1.0, step=step, session_log=SessionLog(status=SessionLog.START)) for step in (0, 2)]
    for name, version, found in (
        ("one", 1, [*rows, back]),
        ("two", 2, [*rows, back]),
        ("session", 2, [starts[0], *rows, starts[1], back]),
    ):
        (tmp_path / name).mkdir()
        events = [Event(wall_time=1.0, file_version=f"brain.Event:{version}"), *found]
        data = b"".join(tfevents.encode(one.SerializeToString()) for one in events)
        (tmp_path / name / "events.out.tfevents.1").write_bytes(data)
    should = {name: default_charts(tmp_path / name) for name in ("one", "two", "session")}
    assert [charts[LOSS] for charts in should.values()] == [[(0, 0.0), (1, 1.0), (2, 7.0)]] * 3
    assert [len(charts["aa_headline/other/loss"]) for charts in should.values()] == [1, 1, 1]
    with board(tmp_path) as server:
        wait_until(lambda: server.charts() == should, lambda: f"{should}, but {server.charts()}")


def test_a_person_who_watches_sees_no_gap(tmp_path: Path) -> None:
    """While the server looks on, a late line changes one point of the chart, and the others stay."""
    sink = opened(make_run(tmp_path))
    sink.write(make_rows(0, 10))
    sink.flush()
    rows = make_rows(0, 10)
    run = "grpo"
    with board(Path(sink.where)) as server:

        def sees(should: Points) -> None:
            wait_until(lambda: run in server.tags() and server.points(run, LOSS) == should, lambda: f"{should}")

        sees([(no, float(no)) for no in range(10)])
        for no, step in enumerate((3, 4, 8), start=10):
            rows.append(again_row(no, step, float(no)))
            sink.write(rows[-1:])
            assert len(server.points(run, LOSS)) == 10
            wait_until(lambda: sink.flush_due_s == 0.0)
            sink.flush()
            sees(newest(rows)[LOSS])
    sink.close()


def files(folder: Path) -> Path:
    return run_folder(folder / "rlship/state/tensorboard")


ROWS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
        st.sampled_from(["go on", "go on", "go on", "flush", "close", "crash", "forget"]),
    ),
    max_size=30,
)


@statistical(300)
@given(ROWS)
def test_any_order_of_steps_flushes_restarts_and_crashes(moves: list[tuple[int, set[str], str]]) -> None:
    """After each flush no step that a chart ever showed is missing; after the last close charts have the newest value
    of each step, by either reader, and every row has its event.
    """
    with scratch() as folder:
        rows: list[Row] = []
        seen: dict[str, set[int]] = {}
        sink = opened(make_run(folder))
        for step, metrics, what in moves:
            values = {f"trainer/{name}": float(len(rows)) for name in metrics}
            rows.append(make_row(len(rows), step=step, values=values))
            sink.write(rows[-1:])
            if what == "go on":
                continue
            if what == "flush":
                sink.flush()
            elif what == "close":
                sink.close()
            if what == "forget":
                sink.abandon()
                (folder / "rlship/state/tensorboard-curves.json").unlink()
            if what != "flush":
                sink = opened(make_run(folder), rows[-1])
            for tag, points in default_charts(files(folder)).items():
                steps = {at for at, _ in points}
                assert steps >= seen.get(tag, set())
                seen[tag] = steps
        sink.close()
        if rows:
            should = newest(rows)
            assert default_charts(files(folder)) == should
            assert other_charts(files(folder)) == should
            assert tensorboard_events(files(folder)) == [event(row) for row in rows]


def test_a_revision_writes_again_only_what_it_changes(tmp_path: Path) -> None:
    """A late line of one metric leaves the points of the others where they are."""
    late_line(tmp_path)
    (path,) = files(tmp_path).glob("*.again")
    assert b"trainer/loss" in path.read_bytes() and b"trainer/kl" not in path.read_bytes()


def test_of_a_long_curve_some_points_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than `MAX_POINTS` of a tag, and about so many, are written again, the last one among them; of a tag with
    few points all.
    """
    monkeypatch.setattr(again, "MAX_POINTS", 10)
    rare = {"trainer/rare": 1.0}
    rows = [make_row(no, values={"trainer/loss": float(no), **(rare if no % 10 == 7 else {})}) for no in range(95)]
    rows.append(again_row(95, 0, 8.0, rare=2.0))
    sink = opened(make_run(tmp_path))
    sink.write(rows)
    sink.close()
    charts = default_charts(files(tmp_path))
    assert charts == other_charts(files(tmp_path))
    assert charts["trainer/rare"] == [(0, 2.0), *((no, 1.0) for no in range(7, 95, 10))]
    steps = [step for step, _ in charts[LOSS]]
    assert 10 <= len(steps) <= 11 and steps[0] == 0 and steps[-1] == 94 and steps == sorted(steps)
    assert set(charts[LOSS]) <= set(newest(rows)[LOSS])


class Times:
    """How often points were written again, in a delivery with a clock of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, took_s: float) -> None:
        self.clock = Clock()
        self.written = 0
        self.source = MemorySource()
        patch.setattr(again.time, "monotonic", self.clock)
        write = Again.write

        def slow(this: Again, path: Path, rows: int) -> None:
            self.written += 1
            patch.setattr(again.os, "fsync", lambda fd: self.clock.sleep(took_s))
            write(this, path, rows)

        patch.setattr(Again, "write", slow)
        pace = Pace(idle_close_s=None)
        run = make_run(folder)
        clocks = Clocks(self.clock, jitter=lambda: 0.5)
        self.delivery = Delivery("tensorboard", TensorBoardSink, run, self.source, pace=pace, clocks=clocks)

    def wait(self, seconds: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            wait = self.delivery.advance()
            self.clock.sleep(end - self.clock() if wait is None else min(wait, end - self.clock()))


def test_it_takes_a_hundredth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where points take a second to be written again, they come every 100 s, without rows after them, too."""
    times = Times(tmp_path, monkeypatch, took_s=1.0)
    times.source.append(make_rows(0, 10))
    for no in range(10, 30):
        times.source.append([again_row(no, no % 5, float(no))])
        times.wait(10.0)
    assert times.written == 2
    times.wait(200.0)
    assert times.written == 3
    assert default_charts(files(tmp_path)) == newest(times.source.rows)
    times.wait(1000.0)
    assert times.written == 3


def test_more_files_come_ever_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard keeps all files of a run open, so the time between two that write points again grows with the square
    of their number.
    """
    times = Times(tmp_path, monkeypatch, took_s=0.0)
    times.source.append(make_rows(0, 10))
    times.wait(10.0)
    for no in range(38):
        (files(tmp_path) / f"events.out.tfevents.0.{no}").write_bytes(b"")
    for no in range(10, 110):
        times.source.append([again_row(no, 0, float(no))])
        times.wait(10.0)
    assert 10 < times.written < 1000 / 40
    times.delivery.close()


def test_it_takes_a_bounded_multiple_of_the_rows_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `MAX_TIMES` the bytes of the rows, and what is free, points are written again when the sink closes."""
    monkeypatch.setattr(again, "FREE_BYTES", 0)
    monkeypatch.setattr(again, "MAX_TIMES", 1)
    times = Times(tmp_path, monkeypatch, took_s=0.0)
    times.source.append(make_rows(0, 100))
    for no in range(100, 130):
        times.source.append([again_row(no, 0, float(no))])
        times.wait(10.0)
    assert 1 <= times.written < 5
    sizes = [sum(path.stat().st_size for path in files(tmp_path).glob(f"events*{end}")) for end in (".again", ".0")]
    assert sizes[0] < 2 * sizes[1]
    times.delivery.close()
    assert default_charts(files(tmp_path)) == newest(times.source.rows)


HELD = b"\t\x00\x00\xc0\xa0\x99G\xdaA\x10\x012.\x12,Ch8KGGFhX2hlYWRsaW5lL3RyYWluZXIvbG9zcxUAAAA/"


def test_a_held_row_is_pinned() -> None:
    """An event without points: its values stand in base64 in its `log_message`, and come out of it unchanged."""
    made = event(make_row(3, step=1, values={"trainer/loss": 0.5}))
    del made.summary.value[:-1]
    assert hold(made).SerializeToString(deterministic=True) == HELD
    assert release(Event.FromString(HELD)) == made


CURVES = (
    '{"store":"store1","generation":4,"rows":2,"last":{"aa_headline/trainer/loss":3},'
    '"points":{"aa_headline/trainer/loss":2},"lacking":{"aa_headline/trainer/loss":1}}\n'
)


def test_what_is_known_of_curves_is_pinned(tmp_path: Path) -> None:
    """The file in the state directory is JSON, and is read again; another store's is not, nor one of more rows, nor one
    of a sidecar before the last that wrote rows.
    """
    curves = Curves(tmp_path, "store1", 4)
    for no, step in enumerate((3, 1)):
        made = event(make_row(no, step=step))
        del made.summary.value[:-1]
        assert curves.admit(made, many=False) == (no == 0)
    curves.save(2)
    assert (tmp_path / "tensorboard-curves.json").read_text() == CURVES
    for store, rows, shown_below, since, known, lacking in (
        ("store1", 2, 0, 4, 2, {LOSS: 1}),
        ("store1", 5, 2, 0, 2, {}),
        ("store1", 1, 0, 4, 0, {}),
        ("store1", 2, 0, 5, 0, {}),
        ("store2", 2, 0, 4, 0, {}),
    ):
        found = Curves(tmp_path, store, 7)
        assert (found.load(rows, shown_below, since=since), found.lacking) == (known, lacking)


@pytest.mark.parametrize("text", ["[]", "{", "", "7", CURVES.replace("2", '"2"'), CURVES.replace("lacking", "else")])
def test_a_strange_file_of_curves_is_not_taken(tmp_path: Path, text: str) -> None:
    """The rows are read again."""
    (tmp_path / "tensorboard-curves.json").write_text(text)
    assert Curves(tmp_path, "store1", 7).load(5, 0, since=0) == 0


def test_a_file_that_writes_points_again_is_pinned(tmp_path: Path) -> None:
    """Its name sorts behind the parts before it. It is of version 1, and an event without points with a very high step
    stands before the first point of a tag.
    """
    sink = opened(make_run(tmp_path))
    sink.write([*make_rows(0, 3), again_row(3, 1, 0.5)])
    sink.close()
    (path,) = files(tmp_path).glob("*.again")
    assert path.name == "events.out.tfevents.00000004.rlship-run.store1.0.000000.again"
    found = [Event.FromString(path.read_bytes()[one.start : one.start + one.size]) for one in tfevents.frames(path)]
    assert [(one.file_version, one.step, len(one.summary.value)) for one in found[:3]] == [
        ("brain.Event:1", 0, 0),
        ("", 4611686018427387904, 0),
        ("", 1, 6),
    ]
    assert [(one.step, [value.tag for value in one.summary.value].count(LOSS)) for one in found[3:]] == [(2, 1)]
