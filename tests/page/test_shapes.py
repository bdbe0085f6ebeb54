"""What the page makes of answers before it draws anything: plain data to plain data, in a browser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlship_sidecar.view import exported, joined
from tests.kit.chromium import Browser, Page

pytestmark = pytest.mark.toolchain
PURE = (
    "vendor/uplot/uPlot.esm.js",
    "numbers.js",
    "colours.js",
    "dom.js",
    "state.js",
    "shape/curves.js",
    "chart.js",
    "packed.js",
    "shape/steps.js",
    "shape/lanes.js",
    "shape/carpet.js",
    "shape/memory.js",
    "shape/samples.js",
    "shape/episodes.js",
    "grid.js",
    "panels/metrics.js",
)


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """An empty page with the pure modules."""
    found = browser.page()
    script = joined.join({name: exported.text_of(name) for name in PURE}, PURE)
    found.value(f"{script.replace('const $modules', 'globalThis.$modules')}; null")
    return found


def call(page: Page, module: str, function: str, *given: Any) -> Any:
    """What a function of a module gives for plain data."""
    return page.value(f"$modules['{module}'].{function}({', '.join(map(json.dumps, given))})")


def test_a_value_is_alone_between_two_gaps(page: Page) -> None:
    """Or between a gap and an end. A step of other lines only is no gap."""
    assert call(page, "shape/curves.js", "alone", [1, None, 2, 3, None, 4, None, 5, 6, 7, None, None, 8]) == [0, 5, 12]
    assert call(page, "shape/curves.js", "alone", [None, 4, 5]) == call(page, "shape/curves.js", "alone", []) == []
    assert page.value("$modules['shape/curves.js'].alone([1, undefined, 2, null, undefined, 3, undefined])") == [5]


def test_a_fragment_restores_the_view_and_gives_up_the_token(page: Page) -> None:
    """The token is read apart from the view, and never written; what is no number or no range is left out."""
    said = "#panel=ranks&token=secret&at=12&from=3.25&to=40&actor=trainer&rank=0.3&other=x"
    found = call(page, "state.js", "readFragment", said)
    assert found["token"] == "secret"
    view = {"panel": "ranks", "at": 12, "from": 3.25, "to": 40, "actor": "trainer", "rank": "0.3"}
    assert found["view"] == view
    written = call(page, "state.js", "writeFragment", found["view"])
    assert "secret" not in written and "token" not in written
    assert call(page, "state.js", "readFragment", written)["view"] == view
    assert call(page, "state.js", "readFragment", "#at=NaN&from=5&to=5&panel=")["view"] == {}
    assert call(page, "state.js", "readFragment", "#from=9&to=2")["view"] == {}


def test_a_range_stays_within_the_run(page: Page) -> None:
    """Moving stops at the ends and keeps the length; a zoom keeps the place around which it is."""
    assert call(page, "state.js", "moved", [10, 20], [0, 100], {"by": 0.5}) == [15, 25]
    assert call(page, "state.js", "moved", [85, 95], [0, 100], {"by": 2}) == [90, 100]
    assert call(page, "state.js", "moved", [10, 20], [0, 100], {"zoom": 0.5, "around": 12}) == [11, 16]
    assert call(page, "state.js", "moved", [10, 20], [0, 100], {"zoom": 50}) == [0, 100]


def test_live_rows_join_a_line(page: Page) -> None:
    """A new row is appended, a revision replaces the row that it revises, a row that comes late goes to its place, and
    a row of another actor or kind is not taken.
    """
    line = {
        "id": "m",
        "actor": "trainer",
        "kind": "step",
        "axis": "step",
        "width": 1,
        "added": 0,
        "x": [0, 2],
        "t": [1, 3],
        "mean": [5, 7],
        "min": [5, 7],
        "max": [5, 7],
        "partial": [0, 0],
    }
    rows = [
        {"actor": "trainer", "kind": "step", "x": 3, "t": 4, "m": {"m": 8}, "partial": True},
        {"actor": "trainer", "kind": "step", "x": 2, "t": 3, "m": {"m": 7.5}, "partial": False},
        {"actor": "trainer", "kind": "step", "x": 1, "t": 2, "m": {}, "partial": False},
        {"actor": "generator", "kind": "step", "x": 4, "t": 5, "m": {"m": 1}, "partial": False},
        {"actor": "trainer", "kind": "aligned", "x": 4, "t": 5, "m": {"m": 1}, "partial": False},
    ]
    found = page.value(
        f"(() => {{ const line = {json.dumps(line)};"
        f"const taken = {json.dumps(rows)}.map((row) => $modules['shape/curves.js'].addRow(line, row, null));"
        "return [taken, line]; })()"
    )
    assert found[0] == [True, True, True, False, False]
    assert (found[1]["x"], found[1]["mean"], found[1]["partial"]) == ([0, 1, 2, 3], [5, None, 7.5, 8], [0, 0, 0, 1])


def test_an_older_value_is_told_with_its_step(page: Page) -> None:
    """Where newer rows have no value, as of a loss that is NaN or an evaluation, the page says of which step it is."""
    line = {"axis": "step", "x": [1, 2, 3]}
    for mean, wanted in (
        ([5, 6, 7], {"value": 7, "since": None}),
        ([5, 6, None], {"value": 6, "since": 2}),
        ([None, None, None], {"value": None, "since": None}),
    ):
        assert call(page, "shape/curves.js", "newestOf", {**line, "mean": mean}) == wanted
    assert call(page, "shape/curves.js", "newestOf", {**line, "axis": "time", "mean": [5, None, None]})["since"] is None


def test_the_gist_of_a_line_is_its_newest_value_and_its_extremes(page: Page) -> None:
    """Extremes are those of bands where values were put together; a line without values has no gist."""
    found = call(page, "shape/curves.js", "gist", [1, 2, 3, 4], [5, 4, None, 6], [5, 1, None, 6], [9, 4, None, 6])
    assert found == {
        "newest": {"value": 6, "step": 4},
        "least": {"value": 1, "step": 2},
        "greatest": {"value": 9, "step": 1},
    }
    assert call(page, "shape/curves.js", "gist", [1], [None]) is None
    assert call(page, "shape/curves.js", "rowsOf", [[1, 2, 3], [4, None, 6]], 2, 9) == [[2, None], [3, 6]]


def test_a_lane_was_busy_with_its_outermost_spans(page: Page) -> None:
    """Within a range of time; the longest span has its whole length."""
    spans = {
        "lanes": [{"actor": "trainer", "rank": "0.0", "host": "a", "name": ""}],
        "spans": {"lane": [0, 0, 0], "name": [0, 1, 0], "t": [0, 1, 6], "dur": [5, 2, 9], "depth": [0, 1, 0]},
    }
    lanes = "$modules['shape/lanes.js']"
    found = page.value(f"{lanes}.busyLanes({lanes}.lines({json.dumps(spans)}), 2, 8)")
    assert found == [{"lane": 0, "spans": 3, "busy": 5, "longest": {"name": 0, "seconds": 9}}]


def test_a_filter_that_could_take_for_ever_is_a_text(page: Page) -> None:
    """A filter comes from a link too: one with repeats of groups or many repeats is no regular expression here."""
    metrics = [{"key": "trainer/loss"}, {"key": f"{'a' * 60}(a+)+$b"}]
    for text, keys, wrong in (
        ("l.ss", ["trainer/loss"], False),
        ("(a+)+$", [metrics[1]["key"]], True),
        ("a*a*a*a*b", [], True),
        ("[", [], True),
        ("x" * 201, [], True),
    ):
        found = call(page, "panels/metrics.js", "matching", metrics, text)
        assert ([one["key"] for one in found["found"]], found["wrong"]) == (keys, wrong)


def test_neighbours_on_an_axis_have_other_words(page: Page) -> None:
    """However small the differences are beside the values."""
    assert call(page, "numbers.js", "apart", [2.5615, 2.562, 2.5625, 2.563]) == ["2.5615", "2.562", "2.5625", "2.563"]
    assert call(page, "numbers.js", "apart", [0, 0.25, 0.5]) == ["0", "0.25", "0.5"]
    assert call(page, "numbers.js", "apart", [1002.5, 1005, 1007.5]) == ["1,002.5", "1,005", "1,007.5"]
    assert call(page, "numbers.js", "apart", [3]) == ["3"]


def test_a_problem_and_the_way_out_are_sentences(page: Page) -> None:
    """What is wrong and the hint are a sentence each; names stay as they are."""
    given = {"error": "the folder /x is gone", "hint": "rlship status says more"}
    assert call(page, "dom.js", "problem", given) == "The folder /x is gone. rlship status says more."
    assert call(page, "dom.js", "problem", {"message": "Away!", "hint": ""}) == "Away!"


def test_places_along_an_axis_end_at_any_size(page: Page) -> None:
    """Where steps are so large that adding one changes nothing, there are no more places than were wanted twice."""
    assert call(page, "numbers.js", "ticks", 0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert call(page, "numbers.js", "ticks", -5, 5, 3) == [-5, 0, 5]
    for low, high in ((2**53 - 2, 2**53 - 1), (2**60, 2**60 + 512), (-1e308, 1e308), (1e300, 2e300)):
        assert len(call(page, "numbers.js", "ticks", low, high, 12)) <= 26


def test_steps_and_times_are_one_axis(page: Page) -> None:
    """A step ended at its row's time; between steps and beyond the ends the axis is straight. Steps
    of one time are steps too. A step that ended after the last one was done again, and with it go those after it.
    """
    clock = "new $modules['shape/steps.js'].StepClock([10, 11, 13], [100, 110, 150])"
    assert page.value(f"[{clock}.step(105), {clock}.time(12), {clock}.step(150)]") == [10.5, 130, 13]
    assert page.value(f"{clock}.time({clock}.step(400))") == pytest.approx(400)
    assert page.value("new $modules['shape/steps.js'].StepClock([], [], 50).step(80)") == 30
    back = page.value(
        f"(() => {{ const its = {clock}; its.add(11, 140); its.add(11, 200); return [its.x, its.t]; }})()"
    )
    assert back == [[10, 11], [100, 200]]
    one = "new $modules['shape/steps.js'].StepClock([7, 8, 9], [100, 100, 100], 50)"
    assert page.value(f"[{one}.known, {one}.paced, {one}.step(100), {one}.time({one}.step(130))]") == [
        True,
        False,
        7,
        130,
    ]


def test_a_span_is_found_and_painted_where_it_is(page: Page) -> None:
    """Lines hold the spans of a lane and depth in order of time. A span wider than a pixel is never hidden by one that
    is narrower than it.
    """
    spans = {
        "lanes": [{"actor": "trainer", "rank": "0.0", "host": "a", "name": ""}],
        "spans": {
            "lane": [0, 0, 0],
            "name": [1, 0, 0],
            "t": [5, 0, 1],
            "dur": [0.001, 5, 2],
            "step": [0, 0, 0],
            "depth": [0, 0, 1],
        },
    }
    found = page.value(
        f"""(() => {{ const {{ lines, paint, spanAt }} = $modules['shape/lanes.js'];
        const made = lines({json.dumps(spans)}); const pixels = new Uint32Array(20);
        made.forEach((line, row) => paint(line, pixels, row * 10, 10, 0, 10, [7, 9]));
        return [made.map((line) => [...line.index]), [...pixels], spanAt(made[1], 2), spanAt(made[1], 4)]; }})()"""
    )
    assert found == [[[1, 0], [2]], [7] * 5 + [9] + [0] * 4 + [0, 7, 7] + [0] * 7, 2, -1]


def test_memory_has_its_worst_rank_and_what_is_reserved_for_nothing(page: Page) -> None:
    """The worst rank is the one with the greatest value of all; fragmentation is of steps that both metrics have."""
    assert call(page, "shape/memory.js", "worstRank", {"high": [3, None, 9, 5], "high_rank": [0, -1, 2, 1]}) == 2
    assert call(page, "shape/memory.js", "worstRank", {"high": [None], "high_rank": [-1]}) == -1
    lines = [{"x": [1, 2], "median": [30, 40]}, {"x": [1, 2, 3], "median": [40, 50, 60]}]
    assert call(page, "shape/memory.js", "fragmentation", *lines) == [0.25, 0.2, None]


def test_a_histogram_bin_leaves_its_samples(page: Page) -> None:
    """A bin has its lower edge and not its upper one, but for the last one; samples without a score are in none."""
    table = {
        "rewards": {"edges": [0, 0.5, 1], "counts": [1, 2]},
        "samples": [{"score": score, "prompt": "Ask", "response": str(score)} for score in (0, 0.5, 1, None)],
    }
    chosen = [
        call(page, "shape/samples.js", "chosenSamples", table, said)
        for said in ({"bin": 0}, {"bin": 1}, {}, {"text": "0.5"})
    ]
    assert chosen == [[0], [1, 2], [0, 1, 2, 3], [1]]


@pytest.mark.parametrize(
    ("said", "turns"),
    [
        ("text", [["assistant", "text", []]]),
        (None, []),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}],
            [["user", 'a\n[image] {"type":"image"}', []]],
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
                }
            ],
            [["assistant", "", ['f({"x":1})']]],
        ),
        ([{"no": "role"}], [["assistant", '{\n "no": "role"\n}', []]]),
        (7, [["assistant", "7", []]]),
    ],
)
def test_turns_of_any_shape(page: Page, said: Any, turns: list[Any]) -> None:
    """A text is one turn; messages are a turn each, with parts and tool calls; what has no known shape is JSON."""
    found = call(page, "shape/samples.js", "turns", said, "assistant")
    assert [[turn["role"], turn["text"], turn["calls"]] for turn in found] == turns


def test_texts_show_what_cannot_be_seen(page: Page) -> None:
    """Controls, marks of direction and lone surrogates are spelled out; a long text ends with its length."""
    assert call(page, "dom.js", "plain", "a\0b\u202ec\u200b\ufeff\td\n") == "a⟨U+0000⟩b⟨U+202E⟩c⟨U+200B⟩⟨U+FEFF⟩\td\n"
    # Joiners stay where a script or emoji needs them, and are spelled where they would hide in a name.
    assert call(page, "dom.js", "plain", "می\u200cخواهم 👩\u200d👧") == "می\u200cخواهم 👩\u200d👧"
    assert call(page, "dom.js", "plain", "lo\u200dss \u200cx") == "lo⟨U+200D⟩ss ⟨U+200C⟩x"
    # Marks upon marks would reach over other lines of the page.
    assert call(page, "dom.js", "plain", f"Z{chr(0x301) * 300}y") == f"Z{chr(0x301) * 6}…y"
    assert page.value("$modules['dom.js'].plain('x\\ud800y')") == "x\ufffdy"
    assert call(page, "dom.js", "plain", "y" * 5000, 10) == "y" * 10 + "… (5,000 characters in all)"
    assert call(page, "dom.js", "plain", "\u05e9\u05dc\u05d5\u05dd") == "\u05e9\u05dc\u05d5\u05dd"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (0.000123456, "0.0001235"),
        (1e-7, "1e-7"),
        (1.05e16, "1.05e16"),
        (None, "–"),
        (-3.14159, "-3.142"),
    ],
)
def test_numbers_are_short(page: Page, value: float | None, text: str) -> None:
    """Four significant digits, thousands apart; what is not there is a dash."""
    assert call(page, "numbers.js", "number", value) == text


def test_steps_have_all_of_their_digits(page: Page) -> None:
    """Also those that count tokens: neighbours beyond 1e9 differ in words, and in a link."""
    assert call(page, "numbers.js", "full", 2_000_000_029) == "2,000,000,029"
    assert call(page, "numbers.js", "full", 0.1 + 0.2) == "0.3"
    written = call(page, "state.js", "writeFragment", {"from": 2e9 + 0.25, "to": 2e9 + 30})
    assert written == "from=2000000000.25&to=2000000030"


def test_stages_that_overlap_share_what_they_take_together(page: Page) -> None:
    """Where stages of several actors take longer together than the step, no shares add up to more than the whole."""
    stages = {
        "t": [0, 10],
        "dur": [10, 10],
        "names": ["rollout", "update"],
        "seconds": [[9, 5], [6, 3]],
        "bubble": [0, 2],
    }
    found = {one["name"]: one["share"] for one in call(page, "shape/lanes.js", "stageShares", stages, 0, 20)}
    assert found == {
        "rollout": pytest.approx(14 / 25),
        "update": pytest.approx(9 / 25),
        "(bubble)": pytest.approx(2 / 25),
    }
