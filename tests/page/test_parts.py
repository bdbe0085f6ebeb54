"""Parts of the page by themselves, as the server sends them: a chart, the range of the timeline, values that differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.chromium import Browser, Page
from tests.kit.files import CLOSE, T0, barrier, file, log, sample
from tests.page.job import viewing
from tests.page.seeing import wholesome
from tests.view.serving import watched

pytestmark = pytest.mark.toolchain
MANY = 300  # samples of a step, of which the first answer has some


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run with one step of many samples, of which the last ones alone have a reward."""
    samples = [
        sample(float(n >= MANY - 2), step=1, t=T0 + n, row={"prompt": f"p{n}", "response": "r"}) for n in range(MANY)
    ]
    records = [log(0, reward=0.5), barrier(0, 1), *samples, log(1, reward=0.5), barrier(1, MANY), CLOSE]
    with viewing(watched(tmp_path_factory.mktemp("outputs") / "run", {"a.jsonl": file(*records)})) as link:
        yield link


@pytest.fixture(scope="module")
def page(browser: Browser, link: str) -> Page:
    """The page's own modules may be imported here."""
    found = browser.page()
    found.open(link)
    found.wait("document.querySelector('[data-shown=overview]')")
    return found


def call(page: Page, module: str, expression: str) -> Any:
    """What an expression gives that takes names from a module."""
    return page.value(f"import('/{module}').then(async (its) => {expression})")


def test_the_axis_has_room_for_its_labels(page: Page) -> None:
    """Millions of tokens a second are not cut to hundreds of thousands: the axis is as wide as its longest label."""
    room, widest = call(
        page,
        "chart.js",
        """{
        const host = document.createElement("div");
        host.style.width = "400px";
        document.querySelector("main").append(host);
        const shared = { view: {}, listen: () => () => undefined, set: () => undefined };
        const said = { title: "a", axis: () => "step", lines: [{ label: "a", colour: "c0" }] };
        const chart = new its.Chart(host, shared, said);
        chart.update([[0, 1, 2], [15600000, 15700000, 15900000]]);
        await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        const context = document.createElement("canvas").getContext("2d");
        context.font = "11px system-ui";
        const axis = chart.plot.axes[1];
        const widths = axis._values.filter(Boolean).map((label) => context.measureText(label).width);
        chart.close();
        host.remove();
        return [axis._size, Math.max(...widths)];
    }""",
    )
    assert widest > 55 and room >= widest + 7


@pytest.mark.parametrize("count", [300, 10_000])
def test_a_value_without_neighbours_is_a_dot(page: Page, count: int) -> None:
    """What is logged every so many steps is seen at any number of rows, with gaps between, and what each step has is a
    line without dots.
    """
    sparse, between, dense = call(
        page,
        "chart.js",
        f"""{{
        const drawn = async (count, every) => {{
            const host = document.createElement("div");
            host.style.width = "400px";
            document.querySelector("main").append(host);
            const shared = {{ view: {{}}, listen: () => () => undefined, set: () => undefined }};
            const said = {{ title: "a", axis: () => "step", lines: [{{ label: "a", colour: "c0", band: true }}] }};
            const chart = new its.Chart(host, shared, said);
            const steps = Array.from({{ length: count }}, (_, at) => at);
            const values = steps.map((at) => (at % every ? null : 1));
            chart.update([steps, values, values, values]);
            await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
            const {{ ctx, bbox }} = chart.plot;
            // How many pixels of a column are of the line's colour, at a step.
            const high = (step) => {{
                const x = Math.round(chart.plot.valToPos(step, "x", true));
                const {{ data }} = ctx.getImageData(x, bbox.top, 1, bbox.height);
                let found = 0;
                for (let at = 0; at < data.length; at += 4) {{
                    const rgb = data.slice(at, at + 3);
                    if (Math.max(...rgb) - Math.min(...rgb) > 60 && data[at + 3] > 120) found += 1;
                }}
                return found;
            }};
            const found = [high(every * 3), high(every * 3.5)];
            chart.close();
            host.remove();
            return found;
        }};
        const [sparse, between] = await drawn({count}, {count // 10});
        return [sparse, between, (await drawn({count}, 1))[0]];
    }}""",
    )
    assert sparse >= 4 and between == 0 and 1 <= dense < sparse


def test_bands_that_overlap_are_as_pale_as_one(page: Page) -> None:
    """Where many alerts fire at a time, the line upon the bands is as visible as where one does."""
    one, many = call(
        page,
        "chart.js",
        """{
        const colour = async (marks) => {
            const host = document.createElement("div");
            host.style.width = "400px";
            document.querySelector("main").append(host);
            const shared = { view: {}, listen: () => () => undefined, set: () => undefined };
            const said = { title: "a", axis: () => "step", lines: [{ label: "a", colour: "c0" }] };
            const chart = new its.Chart(host, shared, said);
            chart.update([[0, 50, 100], [1, 1, 1]], marks);
            await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
            const { left, top, width } = chart.plot.bbox;
            const found = [...chart.plot.ctx.getImageData(left + Math.round(width * 0.77), top + 3, 1, 1).data];
            chart.close();
            host.remove();
            return found;
        };
        return [await colour([{ from: 50, to: 100 }]), await colour([40, 50, 60].map((from) => ({ from, to: 100 })))];
    }""",
    )
    assert one == many and one[3] > 0


def test_a_band_ends_with_the_last_breach(page: Page) -> None:
    """As `rlship alerts` says it: neither what is calm while an episode clears nor its end is in the band."""
    first, last, ended = ({"step": step, "t": None} for step in (80, 82, 100))
    fires = {"rule": "a", "state": "firing", "first": first, "last": None, "ended": None}
    clears, over = {**fires, "state": "clearing", "last": last}, {**fires, "state": "resolved", "last": last}
    given = json.dumps([fires, clears, over | {"ended": ended}])
    found = call(page, "shape/episodes.js", f"its.bands({given}, 120)")
    assert [(one["from"], one["to"]) for one in found] == [(80, 120), (80, 82), (80, 82)]


def test_the_timeline_shows_the_steps_though_a_clock_is_wrong(page: Page) -> None:
    """Spans of a host whose clock is at 1970 do not stretch the first view over decades; others stay in it."""

    def shown(low: float, high: float) -> Any:
        said = {"found": [low, high], "stages": {"step": [10, 11, 12]}}
        clock = "{ paced: true, time: (step) => 1e9 + 10 * step }"
        return call(page, "panels/timeline.js", f"its.near({json.dumps(said)}, {clock})")

    assert shown(1e9 + 50, 1e9 + 130) == [1e9 + 50, 1e9 + 130]
    assert shown(0, 1e9 + 121) == [1e9 + 90 - 120, 1e9 + 121]
    assert shown(1e9 + 90, 4e9) == [1e9 + 90, 1e9 + 120 + 120]


def test_long_values_begin_shortly_before_the_place_where_they_differ(page: Page) -> None:
    """As `rlship diff` says them; short ones are whole. Numbers have as many digits as tell them apart."""
    assert call(page, "panels/diff.js", "its.parting('1e-5', '3e-5')") == ["1e-5", "3e-5"]
    left, right = call(page, "panels/diff.js", "its.parting('x'.repeat(900) + 'left', 'x'.repeat(900) + 'right')")
    assert call(page, "panels/diff.js", "its.told({ a: 0.1 + 0.2, b: 0.3 }, 8)") == ["0.30000000000000004", "0.3"]
    assert call(page, "panels/diff.js", "its.told({ a: 0.5, b: 0.25 }, 8)") == ["0.5", "0.25"]
    assert left == "…" + "x" * 40 + "left" and right == "…" + "x" * 40 + "right"


def test_a_bar_has_all_of_its_samples(browser: Browser, link: str) -> None:
    """A histogram counts all samples of the step: those of a chosen bar are shown, loaded before or not."""
    page = browser.page()
    page.open(f"{link}&panel=rollouts&at=1")
    page.wait("document.querySelector('[data-load]')")
    assert page.value("document.querySelectorAll('.bars button').length") == 4
    page.click(".bars [data-bin='3']")
    page.wait("document.querySelectorAll('.sample').length === 2")
    assert page.value("document.querySelector('[data-load]')") is None
    wholesome(page)


def test_what_lacks_ranks_stands_before_a_bound(page: Page) -> None:
    """Of thousands of actors the overview draws some: the lead first, then those that lack ranks."""
    first, second, rows, title = call(
        page,
        "panels/overview.js",
        """{
        const actor = (at) => ({
            actor: `a${at}`, lead: at === 700, ranks: at === 900 ? 0 : 1, expected: 1, missing: [], absent: [],
        });
        const drawn = its.actors({ actors: Array.from({ length: 1000 }, (_, at) => actor(at)) });
        const cells = [...drawn.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent);
        return [cells[0], cells[1], cells.length, drawn.querySelector("caption").textContent];
    }""",
    )
    assert (first, second, rows, title) == ("a700 (lead)", "a900", 200, "Actors and their ranks: 200 of 1,000")


def test_a_choice_among_rollouts_holds_their_step(browser: Browser, link: str) -> None:
    """Without a step the newest one is shown; a sample of it that was chosen stays, and a copied link has its step."""
    page = browser.page()
    page.open(f"{link}&panel=rollouts")
    page.click(".sample button")
    page.wait("document.querySelector('[data-pair] .sample')")
    page.click("#link")
    shared = page.wait("document.querySelector('#page').dataset.link")
    assert "at=1" in shared and "left=" in shared
    wholesome(page)
