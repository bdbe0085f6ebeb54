"""On which line of the picture a span is drawn."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.export.lanes import SLACK_US, Lanes, Line, Placed
from tests.counting import calls

Given = tuple[str, int, int]  # lane, start, end

SPANS = st.lists(
    st.tuples(
        st.sampled_from(["main", "loader", "Task-1", "Task-2", "Task-3"]), st.integers(0, 400), st.integers(0, 200)
    ),
    max_size=40,
)


def draw(spans: list[Given]) -> list[tuple[Given, Placed]]:
    """Place spans by start, the longer ones first."""
    lanes = Lanes()
    return [(span, lanes.place(*span)) for span in sorted(spans, key=lambda span: (span[1], -span[2]))]


def lines_of(drawn: list[tuple[Given, Placed]]) -> dict[Line, list[tuple[Given, Placed]]]:
    lines: dict[Line, list[tuple[Given, Placed]]] = {}
    for span, placed in drawn:
        lines.setdefault(placed.line, []).append((span, placed))
    return lines


@st.composite
def stacks(draw_from: st.DrawFn) -> list[Given]:
    """What one thread leaves behind: whatever was entered last is left first."""
    now, entered, spans = 0, list[int](), list[Given]()
    for is_entry, step in draw_from(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=60)):
        now += step
        if is_entry:
            entered.append(now)
        elif entered:
            spans.append(("main", entered.pop(), now))
    return spans + [("main", start, now) for start in entered]


@given(spans=SPANS)
def test_lines_nest(spans: list[tuple[str, int, int]]) -> None:
    """Whatever overlaps how, on each line starts ascend and no span crosses the end of another."""
    for drawn in lines_of(draw([(lane, start, start + dur) for lane, start, dur in spans])).values():
        ends: list[int] = []
        for _, placed in drawn:
            while ends and ends[-1] <= placed.start:
                ends.pop()
            assert not ends or placed.end <= ends[-1]
            ends.append(placed.end)
        assert all(before[1].start <= after[1].start for before, after in pairwise(drawn))


@given(spans=SPANS)
def test_nothing_is_moved_far(spans: list[tuple[str, int, int]]) -> None:
    """Each span is drawn once, at most the slack from where it was."""
    drawn = draw([(lane, start, start + dur) for lane, start, dur in spans])
    assert len(drawn) == len(spans)
    for (_, start, end), placed in drawn:
        assert 0 <= placed.start - start <= SLACK_US
        assert abs(placed.end - end) <= SLACK_US
        assert placed.start <= placed.end


@given(spans=stacks())
def test_what_nests_in_a_lane_stays_on_one_line(spans: list[Given]) -> None:
    """A lane whose spans nest has one line, with the lane's name, and each span its own times."""
    drawn = draw(spans)
    assert {placed.line.name for _, placed in drawn} <= {"main"}
    assert all((placed.start, placed.end) == span[1:] for span, placed in drawn)


@given(spans=SPANS)
def test_lines_belong_to_one_lane(spans: list[tuple[str, int, int]]) -> None:
    """A line has spans of one lane; tasks that share one do so one after the other, never one inside the other."""
    for line, drawn in lines_of(draw([(lane, start, start + dur) for lane, start, dur in spans])).items():
        lanes = {span[0] for span, _ in drawn}
        name = line.name.partition(" (")[0]
        assert lanes == {name} or (name == "Task" and all(lane.startswith("Task-") for lane in lanes))
        for (mine, inner), (other, outer) in ((a, b) for a in drawn for b in drawn):
            if mine[0] != other[0]:
                assert inner.end <= outer.start or outer.end <= inner.start


def test_overlaps_get_lines_of_their_own() -> None:
    """A span that crosses the end of another is drawn on the lane's second line, what is inside it with it."""
    spans = [("main", 0, 100), ("main", 50, 150), ("main", 60, 140), ("main", 70, 90), ("main", 200, 300)]
    assert [placed.line.name for _, placed in draw(spans)] == ["main", "main (2)", "main (2)", "main", "main"]


def test_rounding_makes_no_lines() -> None:
    """A few microseconds over the end of what it is in, or before the end of the one before, are fitted."""
    assert [placed[1:] for _, placed in draw([("main", 0, 100), ("main", 40, 103), ("main", 98, 250)])] == [
        (0, 100),
        (40, 100),
        (100, 250),
    ]


def test_ten_thousand_tasks_have_few_lines() -> None:
    """Numbered tasks give their line to the next one: there are as many lines as tasks at one time."""
    spans = [(f"Task-{number}", number * 100, number * 100 + 250) for number in range(10_000)]
    drawn = draw(spans)
    assert sorted({placed.line.name for _, placed in drawn}) == ["Task", "Task (2)", "Task (3)"]


def test_names_that_people_gave_are_kept() -> None:
    """Only names that asyncio made are shared."""
    names = [placed.line.name for _, placed in draw([("Task-A", 0, 1), ("Task-12", 0, 1), ("worker-3", 0, 1)])]
    assert names == ["Task-A", "Task", "worker-3"]


def test_the_work_grows_with_the_spans() -> None:
    """Twice as many spans that all cross one another are about twice the work, also where lines are given back."""

    def crossing(count: int) -> list[Given]:
        return [("main", start * 100, (start + count + start % 7) * 100) for start in range(2 * count)]

    few, many = (calls(draw, crossing(count)) for count in (200, 400))
    assert many < 3 * few
