"""The panels on made data whose values are known, in an exported file that is opened from disk."""

from __future__ import annotations

import json
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.kit import tools
from tests.kit.chromium import NARROW, WIDE, Browser
from tests.page import made
from tests.page.seeing import (
    CARPET,
    LANES,
    MANY_SPANS_SHOWN,
    MOVED,
    charted,
    columns,
    each,
    many_spans,
    opened,
    saved,
    wholesome,
)

pytestmark = pytest.mark.toolchain
PANELS = (
    "overview",
    "stability",
    "metrics",
    "timeline",
    "ranks",
    "memory",
    "rollouts",
    "alerts",
    "ledger",
    "events",
    "rundata",
    "diff",
)
SERIOUS = """axe.run(document, {resultTypes: ["violations"]}).then((said) => said.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => [each.id, each.nodes.slice(0, 3).map((node) => [node.html.slice(0, 200), node.any[0]?.message])]))"""
AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(made.embedded(), tmp_path_factory.mktemp("made") / "page.html")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(made.embedded(hostile=True), tmp_path_factory.mktemp("hostile") / "page.html")


def test_the_heat_map_shows_how_far_a_rank_is_from_the_median(browser: Browser, url: str) -> None:
    """Colour and text come from (value - median) / median; the rank that stands out is named first, with its steps
    without a value. A missing value is hatched.
    """
    page = opened(browser, url, "panel=ranks&metric=r1")
    worst = columns(page, "Ranks that stand out")[0]
    assert worst[0] == "0.3" and worst[1] == "node000" and worst[4] == "3"
    panel = CARPET
    held = page.value(f"[{panel}.held.deviation[3 * 200 + 150], {panel}.held.said.median[150]]")
    slow = 8.0 * (1 + 0.03 * made.np.sin(3 * 1.7 + 150 / 9)) * 1.5
    assert held[0] == pytest.approx(slow / held[1] - 1, rel=1e-3)
    assert f"{(slow / held[1] - 1) * 100:.1f} %" in page.value(f"{panel}.read(3, 150)")
    assert page.value(f"{panel}.read(3, 51)").endswith("no value")
    # What the table says is drawn at the next frame.
    page.value("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    inks = page.value(
        f"""(() => {{
        const {{ context, node, height }} = {panel}.canvas;
        const wide = node.clientWidth;
        const ratio = node.width / wide;
        const gutter = {panel}.gutter(wide);
        const ink = (rank, step) => {{
            const x = gutter + (step + 0.5) / 200 * (wide - gutter);
            return [...context.getImageData(Math.round(x * ratio), Math.round((rank * 14 + 7) * ratio), 1, 1).data];
        }};
        return [ink(3, 150), ink(4, 150), height]; }})()"""
    )
    hot = [0xC2, 0x50, 0x0A]
    assert sum(abs(a - b) for a, b in zip(inks[0], hot)) < 60 < sum(abs(a - b) for a, b in zip(inks[1], hot))
    wholesome(page)


def test_a_thousand_ranks_fit(browser: Browser, tmp_path: Path) -> None:
    """Above 64 ranks each is a thin line; all of them are drawn."""
    page = opened(browser, saved(made.embedded(ranks=1024, steps=60, span_steps=1), tmp_path / "p.html"), "panel=ranks")
    page.wait("document.querySelector('canvas.carpet').dataset.ranks === '1024'")
    assert page.value("document.querySelector('canvas.carpet').clientHeight") >= 1024
    wholesome(page)


def test_stages_have_their_shares(browser: Browser, url: str) -> None:
    """The table below the timeline has each stage's mean seconds and share in the range; the rest is bubble."""
    page = opened(browser, url, "panel=timeline&from=184&to=190")
    assert columns(page, "Stages of")[0] == ["rollout", "4.5 s", "45 %"]
    assert columns(page, "Stages of")[-1] == ["(bubble)", "400 ms", "4 %"]
    wholesome(page)


def test_lanes_can_be_chosen(browser: Browser, url: str) -> None:
    """Words of the filter choose lanes by rank, node and each n-th; the link keeps them."""
    page = opened(browser, url, "panel=timeline&lanes=rank:2-5+every:2")
    panel = LANES
    shown = f"{panel}.spans && {panel}.lines.map((line) => {panel}.spans.lanes[line.lane].rank)"
    assert page.wait(shown) == ["0.2", "0.4"]
    page.value("document.querySelector('#lane-filter').focus(); document.querySelector('#lane-filter').select()")
    page.write("node:node001")
    assert page.value(shown) == [f"0.{rank}" for rank in range(8, 16)]
    wholesome(page)


def test_a_span_can_be_pointed_at(browser: Browser, url: str) -> None:
    """Under the pointer stand the lane, the span, its length and its step."""
    page = opened(browser, url, "panel=timeline&from=186&to=188")
    page.wait("document.querySelector('canvas.lanes').rlshipPanel.lines.length")
    page.click("canvas.lanes", x=0.2, y=0.2)
    page.wait("document.querySelector('.tip').textContent.includes('rollout: 4.5 s, step 187')")
    wholesome(page)


def test_two_hundred_thousand_spans_pan_smoothly(browser: Browser, tmp_path: Path) -> None:
    """Moving over 200,000 spans draws all of them again at each frame. `python -m benchmarks view:page` measures it."""
    page = opened(browser, many_spans(tmp_path / "p.html"), MANY_SPANS_SHOWN)
    page.wait(f"{LANES}.lines.length === 64")
    assert page.value(f"{MOVED}.then((drawn) => drawn.spans)") == 200_000
    # As many steps as spans: more values than a function takes arguments.
    page.value(f"{LANES}.spans.stages.bubble = Array(200_000).fill(1); {LANES}.bubbles.now()")
    # A table of more steps than a browser lays out at once has the newest.
    step = (
        f"{{ step: [...Array(3000).keys()], t: Array(3000).fill({LANES}.range()[0]), dur: [], names: [], seconds: [] }}"
    )
    page.value(f"{LANES}.spans.stages = {{ ...{step}, bubble: [] }}")
    rows = page.value(
        f"[...{LANES}.stepTable().querySelectorAll('caption, tbody td:first-child')].map((at) => at.textContent)"
    )
    assert rows[:2] == ["Seconds of the newest 2,000 of 3,000 steps in the range", "1,000"] and len(rows) == 2001
    wholesome(page)


def test_rollouts_are_grouped_and_told_apart(browser: Browser, url: str) -> None:
    """Groups, turns, tool calls and tokens of a step; "n of N" where the job kept some only; a bar of the histogram and
    a search leave what they should; two stand side by side.
    """
    page = opened(browser, url, "panel=rollouts&at=12")
    page.wait("document.querySelectorAll('.sample').length === 8")
    assert "Step 12 has none; step 10 is the nearest. Step 10: 8 of 8 samples; the job kept 8 of 64" in page.text(
        "main"
    )
    assert page.value("document.querySelectorAll('details.group').length") == 2
    assert page.value("[...document.querySelectorAll('.call code')].map((each) => each.innerText)[0]") == "add({})"
    masked = page.value(
        "[...document.querySelectorAll('.sample .token')].slice(0, 3)"
        ".map((each) => [each.innerText, each.classList.contains('masked'), each.title])"
    )
    assert masked[0] == ["It", True, "logp difference: 0, masked"] and masked[2][2] == "logp difference: -1.2"
    page.click("[data-bin='3']")
    page.wait("document.querySelectorAll('.sample').length === 2")
    assert [text[:12] for text in each(page, ".sample strong")] == ["Reward 0.75", "Reward 0.875"]
    page.click("[data-bin='3']")
    page.wait("document.querySelectorAll('.sample').length === 8")
    page.value("document.querySelector('#rollout-search').focus()")
    page.write("It is 7.")
    page.wait("document.querySelectorAll('.sample').length === 1")
    link = opened(browser, url, "panel=rollouts&at=10&left=10-0&right=10-7")
    link.wait("document.querySelectorAll('[data-pair] .sample').length === 2")
    assert "Reward 0\n" in link.text("[data-pair]") and "Reward 0.875" in link.text("[data-pair]")
    wholesome(page)
    wholesome(link)


def test_tokens_have_a_colour_for_their_value(browser: Browser, url: str) -> None:
    """Below what says "the same" a token is cold and above it hot, by logp difference or importance ratio; one of the
    same value has no colour.
    """
    page = opened(browser, url, "panel=rollouts&at=10")
    page.wait("document.querySelectorAll('.sample').length === 8")
    for column, title, wanted in (
        ("logp_diff", "logp difference", {0.0: "", -1.2: "cold"}),
        ("importance_ratio", "importance ratio", {1.0: "", 0.3: "cold", 1.5: "hot"}),
    ):
        choice = "document.querySelector('#token-colour')"
        page.value(f"{choice}.value = '{column}'; {choice}.dispatchEvent(new Event('change'))")
        tokens = page.value(
            "[...document.querySelector('.sample').querySelectorAll('.token')]"
            ".map((each) => [each.title, each.style.backgroundColor])"
        )
        found = {title.removesuffix(", masked"): ink for title, ink in tokens}
        for value, ink in wanted.items():
            shown = found[f"{title}: {value:g}"]
            assert f"var(--{ink})" in shown if ink else shown == ""


def test_charts_are_told_in_words_and_as_tables(browser: Browser, url: str) -> None:
    """Who cannot see a chart hears its newest, least and greatest value, and opens a table of the values in the range;
    so it is with the strips and lanes of the timeline, with the map of ranks, and with memory.
    """

    def table(name: str, caption: str) -> list[list[str]]:
        page.wait(f"document.querySelector('{name} summary')")
        page.value(f"document.querySelector('{name} summary').focus()")
        page.press("Enter")  # a picture that is drawn moves what stands below it: the mouse could miss it
        return columns(page, caption)

    page = opened(browser, url, "panel=stability&from=118&to=122")
    told = "document.querySelector('[data-metric=m3] .plot').getAttribute('aria-label')"
    page.wait(f"{told}?.includes('greatest')")
    norm = made.ROWS[3][3]
    assert page.value(told).startswith("Chart of trainer/actor/grad_norm over steps. value: newest")
    assert f"newest {norm(199):.4g} at step 199, least" in page.value(told)
    assert page.value(told).endswith(f"greatest {norm(120):.4g} at step 120.")
    rows = table("[data-metric=m3]", "Values of trainer/actor/grad_norm")
    assert [row[0] for row in rows] == ["118", "119", "120", "121", "122"] and rows[2][1:] == [f"{norm(120):.4g}"]
    wholesome(page)
    page = opened(browser, url, "panel=timeline&from=184&to=186")
    page.wait(f"{LANES}.lines.length")
    rows = table("details.values", "Seconds of each step")
    assert rows[-1][1:] == ["4.5 s", "1 s", "1.5 s", "2.2 s", "400 ms", "400 ms"]
    rows = table("details.values + details.values", "Lanes in the range")
    assert len(rows) == 16 and rows[3] == ["trainer 0.3 on node000", "10", "19.2 s", "rollout: 4.5 s"]
    wholesome(page)
    page = opened(browser, url, "panel=ranks&metric=r1")
    rows = table("details.values", "All ranks")
    assert [row[0] for row in rows] == [f"0.{rank}" for rank in range(16)] and rows[3][4] == "3"
    wholesome(page)
    page = opened(browser, url, "panel=memory")
    page.wait("document.querySelector('[data-metric=r2]')?.dataset.worst")
    rows = table("[data-metric=r2]", "Values of trainer/mem/allocated")
    assert len(rows) == 200 and len(rows[0]) == 5  # step, median, least, greatest, the worst rank
    wholesome(page)


def test_what_is_under_way_and_what_was_refused_is_said(browser: Browser, tmp_path: Path) -> None:
    """How far the history is read; lines that could not be used, with where and why; ranks that are missing, of all
    actors together and of each; the process that ended without a close, for which a step waits.
    """
    held = made.embedded(steps=60, ranks=4)
    held["overview"] |= {"progress": 0.25, "doing": "the history is read"}
    trainer = held["overview"]["actors"][0]
    other = {**trainer, "lead": False}
    held["overview"]["actors"] += [
        {**other, "actor": "generator", "ranks": 1, "expected": 2},
        {**other, "actor": "reward", "ranks": 1, "expected": 1},
    ]
    trainer |= {"ranks": 3, "missing": ["0.3"], "absent": ["0.2"]}
    held["overview"]["entry"] |= {"state": "held"}
    killed = {"file": "r3.jsonl", "actor": "trainer", "rank": "0.3", "attempt": 0, "host": "n07", "pid": 4121}
    held["overview"]["writers"] = [killed | {"step": 9, "silent_s": 80.0, "state": "silent", "note": ""}]
    page = opened(browser, saved(held, tmp_path / "p.html"), "panel=overview")
    assert "the history is read: 25 %" in " ".join(page.text("main").split())
    assert page.value("document.querySelector('progress').value") == 0.25
    (row,) = columns(page, "Refused: 2 in all")
    assert row[:4] == ["lines", "trainer-0-r1.jsonl", "no JSON", "2"] and "window.hacked" in row[4]
    actor, *others = columns(page, "Actors and their ranks")
    assert actor[5:8] == ["3 of 4", "0.3", "0.2"] and [one[5] for one in others] == ["1 of 2", "1 of 1"]
    assert page.text("[data-fact=ranks]") == "5 of 7"
    assert page.text("[data-fact=state]") == "Held up"
    assert page.value("document.querySelector('[data-fact=state]').className") == "bad"
    assert page.text("[data-fact=ended]") == "trainer 0.3 (n07 pid 4121)"
    assert page.text("[data-more=Ranks]") == "trainer 3 of 4, generator 1 of 2"
    wholesome(page)


def test_no_alert_is_said_with_the_steps_that_were_looked_at(browser: Browser, tmp_path: Path) -> None:
    """And with the rules that say less as long as there are few steps: no alert is no verdict."""
    held = made.embedded(steps=60, ranks=4)
    held["overview"]["entry"] |= {"firing": 0, "episodes": 0}
    held["overview"]["lead_steps"] = 12
    held["alerts"]["episodes"] = []
    page = opened(browser, saved(held, tmp_path / "p.html"), "panel=overview")
    assert (page.text("[data-fact=alerts]"), page.text("[data-more=Alerts]")) == ("none so far", "in 12 steps")
    page.click("nav [data-panel=alerts]")
    page.wait("document.querySelector('[data-none]')")
    few = "Rules that also compare with earlier steps, of which there are too few yet: 2 of 3."
    assert page.text("[data-none]") == f"No alert so far, in 12 steps. {few}"
    page.click("nav [data-panel=stability]")
    page.wait("document.querySelector('[data-shown=stability] p')")
    assert page.text("[data-shown=stability] p").startswith("No alert so far, in 12 steps.")
    wholesome(page)


def test_memory_names_the_worst_rank(browser: Browser, url: str) -> None:
    """A band from the least to the greatest rank, the rank that had most, and what is reserved for nothing."""
    page = opened(browser, url, "panel=memory")
    assert page.wait("document.querySelector('[data-metric=r2]')?.dataset.worst") == "0.3"
    assert charted(page, "r3/fragmentation") == pytest.approx(1 / 3, abs=1e-4)
    wholesome(page)


def test_a_damaged_file_says_so(browser: Browser, url: str, tmp_path: Path) -> None:
    """A file whose data were changed on their way shows a message and what to do, not an empty page."""
    text = Path(url.removeprefix("file://")).read_text()
    damaged = tmp_path / "damaged.html"
    damaged.write_text(text.replace('{"z":"', '{"z":"AAAA', 1))
    page = browser.page()
    page.open(damaged.as_uri())
    page.wait("document.querySelector('[role=alert]')?.innerText.includes('rlship view --export')")
    assert page.faults() == []


class _Sandbox(SimpleHTTPRequestHandler):
    """Sends files as a build server sends the results of builds: with scripts, without an origin."""

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "sandbox allow-scripts")
        super().end_headers()


def test_a_file_is_shown_where_nothing_is_kept(browser: Browser, url: str) -> None:
    """In a sandbox the browser refuses storage to the page: it shows all the same, and its theme turns."""
    path = Path(url.removeprefix("file://"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Sandbox, directory=path.parent)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            page = opened(browser, f"http://127.0.0.1:{server.server_port}/{path.name}", "panel=stability")
        finally:
            server.shutdown()
            thread.join()
    assert charted(page, "m0") > 0.9
    page.click("#theme")
    page.wait("document.documentElement.dataset.theme === 'dark'")
    wholesome(page)


def test_a_chosen_rank_is_chosen_on_all_panels(browser: Browser, url: str) -> None:
    """A rank that was chosen in the heat map is marked in the timeline and drawn in the charts of memory, and a press
    on its name chooses no rank again.
    """
    page = opened(browser, url, "panel=ranks")
    page.wait("document.querySelector('button[data-rank=\"0.13\"]')")
    page.click("button[data-rank='0.13']")
    page.wait("document.querySelector('#rank').innerText === 'Rank trainer 0.13 ×'")
    page.click("nav [data-panel=memory]")
    assert page.wait("document.querySelector('[data-metric=r2]')?.dataset.worst") == "0.13"
    page.click("nav [data-panel=timeline]")
    page.wait(f"{LANES}?.lines.length")
    page.click("canvas.lanes", x=0.5, y=0.1)
    page.wait("document.querySelector('#rank').innerText === 'Rank trainer 0.1 ×'")
    page.click("#rank")
    page.wait("document.querySelector('#rank').hidden")
    page.click("nav [data-panel=memory]")
    assert page.wait("document.querySelector('[data-metric=r2]')?.dataset.worst") == "0.3"
    wholesome(page)


def test_cursor_and_range_are_shared_and_in_the_link(browser: Browser, url: str) -> None:
    """What is chosen on one panel holds on the others; another page that opens the link shows it too."""
    page = opened(browser, url, "panel=stability&at=120&from=100&to=140")
    assert charted(page, "m3") == made.ROWS[3][3](120)
    page.wait("document.querySelector('#at').textContent === '120'")
    page.press("ArrowRight")
    page.wait(f"Number(document.querySelector('[data-metric=m3]').dataset.value) === {made.ROWS[3][3](121)}")
    page.press("w")
    page.wait("document.querySelector('#page').dataset.range !== '100 140'")
    page.click("nav [data-panel=timeline]")
    page.wait("document.querySelector('[data-shown=timeline]')")
    page.value("window.copied = document.querySelector('#link').click()")
    link = page.value("document.querySelector('#page').dataset.link")
    assert "at=121" in link and "panel=timeline" in link and "token" not in link
    again = browser.page()
    again.open(link)
    again.wait("document.querySelector('[data-shown=timeline]')")
    for what in ("document.querySelector('#page').dataset.range", "document.querySelector('#at').textContent"):
        assert again.value(what) == page.value(what)
    wholesome(page)


def test_a_drag_over_a_chart_chooses_a_range_and_a_click_its_rollouts(browser: Browser, url: str) -> None:
    """Dragging over a chart is the range of all charts; a click opens the rollouts of that step."""
    page = opened(browser, url, "panel=stability")
    page.wait("document.querySelector('[data-metric=m0] .u-over')")
    box = page.value(
        "(({ left, top, width, height }) => [left, top, width, height])"
        "(document.querySelector('[data-metric=m0] .u-over').getBoundingClientRect())"
    )
    middle = box[1] + box[3] / 2
    page.mouse("mouseMoved", box[0] + box[2] * 0.25, middle)
    page.mouse("mousePressed", box[0] + box[2] * 0.25, middle, button="left", clickCount=1)
    page.mouse("mouseMoved", box[0] + box[2] * 0.5, middle, button="left")
    page.mouse("mouseReleased", box[0] + box[2] * 0.5, middle, button="left", clickCount=1)
    chosen = page.wait("document.querySelector('#page').dataset.range")
    low, high = map(float, chosen.split())
    assert low == pytest.approx(50, abs=3) and high == pytest.approx(100, abs=3)
    page.press("0")
    page.wait("document.querySelector('#page').dataset.range === ''")
    page.wait("document.querySelector('[data-metric=m0] .u-over')")
    page.click("[data-metric=m0] .u-over", x=10 / 200)
    page.wait("document.querySelector('[data-shown=rollouts]')")
    page.wait("document.querySelectorAll('.sample').length === 8")
    wholesome(page)


def test_everything_can_be_reached_by_keyboard(browser: Browser, url: str) -> None:
    """Figures open panels, letters move the range, "/" goes to a filter, "?" shows the keys, and Escape closes them;
    Tab goes on to what can be pressed, and what has the focus is seen. Charts of the metrics have bands of alerts.
    """
    page = opened(browser, url, "panel=overview")
    for number, panel in enumerate(PANELS[:9], 1):
        page.press(str(number))
        page.wait(f"document.querySelector('[data-shown={panel}]')")
    page.press("3")
    page.wait("document.querySelector('[data-shown=metrics]')")
    page.press("/")
    assert page.value("document.activeElement.id") == "metric-filter"
    page.write("grad|entropy")
    page.wait("document.querySelectorAll('.card').length === 2")
    page.wait("document.querySelector('[data-metric=m3]').rlshipCard.chart.plot")
    (band,) = page.value("document.querySelector('[data-metric=m3]').rlshipCard.chart.marks")
    assert (band["from"], band["to"]) == (118, 199)
    page.value("document.activeElement.blur()")
    page.press("?")
    page.wait("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    page.press("d")
    page.press("w")
    page.wait("document.querySelector('#page').dataset.range")
    page.value("document.querySelector('#keys').focus()")
    page.press("Tab")
    assert page.value("document.activeElement.dataset.panel") == "overview"
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    wholesome(page)


def test_hostile_texts_are_shown_as_text(browser: Browser, hostile: str) -> None:
    """`<script>`, marks that turn the direction of writing, NUL and line separators are letters on every panel."""
    for panel in PANELS:
        page = opened(browser, hostile, f"panel={panel}&at=10")
        wholesome(page)
    page = opened(browser, hostile, "panel=rundata")
    text = page.wait(
        "document.querySelector('main').innerText.includes('<script>') && document.querySelector('main').innerText"
    )
    assert "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>⟨U+202E⟩abc⟨U+0000⟩ ⟨U+2028⟩" in text
    assert page.value("document.querySelectorAll('img, main script').length") == 0


def test_advantages_are_not_called_rewards(browser: Browser, tmp_path: Path) -> None:
    """Of completions without a reward the page names the advantage, and beside it what the reward functions gave."""
    held = made.embedded(steps=60, ranks=4)
    (table,) = held["rollouts"]["10"]["tables"]
    table["measure"] = "advantage"
    table["samples"][0]["row"] = {"right": 0.25, "note": "x"}
    page = opened(browser, saved(held, tmp_path / "p.html"), "panel=rollouts&at=10")
    page.wait("document.querySelectorAll('.sample').length === 8")
    said = page.text("main")
    assert "Advantages of the step: a bar chooses its samples" in said and "mean advantage 0." in said
    assert "Reward" not in said and "reward" not in said
    assert page.text("[data-sample='10-0'] .tools").split("\n")[:2] == ["Advantage 0", "right 0.25"]
    wholesome(page)


def test_a_step_of_two_thousand_is_typed_or_reached_by_keys(browser: Browser, tmp_path: Path) -> None:
    """A typed step without rollouts leads to the nearest one; arrows and buttons go on by one each, however fast. An
    empty bar of rewards is empty, and cannot be chosen.
    """
    held = made.embedded(steps=60, ranks=4)
    said = held["rollouts"]["10"]
    (table,) = said["tables"]
    table |= {"samples": table["samples"][:1], "groups": [[0]], "rewards": {"edges": [0, 1, 2, 3], "counts": [1, 0, 1]}}
    held["rollouts"] = {str(10 * n): {**said, "step": 10 * n} for n in range(2_000)}
    page = opened(browser, saved(held, tmp_path / "p.html"), "panel=rollouts")
    page.wait("document.querySelector('.sample')")
    assert "the nearest 2,000 steps: 0 to 19,990" in page.text("main .tools")
    field = "document.querySelector('#rollout-step')"
    page.value(f"{field}.focus(); {field}.select()")
    page.write("1234")
    page.press("Enter")
    page.wait("document.querySelector('main').innerText.includes('Step 1,234 has none; step 1,230 is the nearest')")
    assert page.value(f"{field}.value") == "1230"
    for _ in range(3):
        page.press("ArrowUp")
    page.press("ArrowDown")
    page.wait("document.querySelector('main').innerText.includes('Step 1250: ')")
    assert page.value(f"{field}.value") == "1250" and page.value("document.querySelector('#at').textContent") == "1,250"
    bars = "[...document.querySelectorAll('.bars button')].map((each) => [each.clientHeight, each.disabled])"
    (first, chosen), empty, _ = page.value(bars)
    assert first > 100 and not chosen and empty == [0, True]
    wholesome(page)


def test_a_megabyte_of_text_is_bounded(browser: Browser, tmp_path: Path) -> None:
    """A text of 1 MB is shown in part, with its length, and whole once a person wants it."""
    held = made.embedded(steps=60, ranks=4)
    sample = held["rollouts"]["10"]["tables"][0]["samples"][1]
    sample["response"] = "\u05d0\u202e<b>" * 250_000
    page = opened(browser, saved(held, tmp_path / "p.html"), "panel=rollouts&at=10")
    page.wait("document.querySelectorAll('.sample').length === 8")
    assert page.value("document.querySelectorAll('.sample')[1].innerText.length") < 200_000
    assert "characters in all" in page.text("[data-sample='10-1']")
    wholesome(page)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["390", "1600"])
def test_every_panel_is_readable(browser: Browser, url: str, size: tuple[int, int], *, dark: bool) -> None:
    """axe-core finds nothing serious on any panel, in both schemes and widths; nothing is wider than the window."""
    if not AXE.exists():
        tools.without("axe-core")
    script = AXE.read_text(encoding="utf-8")
    page = opened(browser, url, "panel=overview&at=10", size, dark=dark)
    assert page.value("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.value(script + "; null")
    for panel in PANELS:
        page.click(f"nav [data-panel={panel}]")
        page.wait(f"document.querySelector('[data-shown={panel}]')")
        if panel == "rollouts":
            page.wait("document.querySelector('.sample')")
        # Tables that a person opens are part of the panel, also of a chart that comes later than the others.
        page.wait(
            "[...document.querySelectorAll('details.values')]"
            ".map((each) => { each.open = true; return each.querySelector('table'); }).every(Boolean)"
        )
        found = page.value(SERIOUS)
        assert found == [], f"{panel}: {json.dumps(found, indent=1)}"
        assert page.value("document.documentElement.scrollWidth <= innerWidth"), panel
