"""The page of `rlship view` in a headless Chromium: its first chart, and its memory while a day's rows come."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

from benchmarks.files import T0
from benchmarks.report import Finding, median, percentile
from benchmarks.viewing import cpu_s, peak_mb, serving
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.store import Store
from tests.kit.chromium import Browser, Page, chromium
from tests.page.seeing import LANES, MANY_SPANS_SHOWN, MOVED, many_spans, opened

PARTS = ("page", "day")
METHOD = (
    "Page: a headless Chromium that runs already opens the link as soon as `rlship view` prints it; the time until "
    "the first chart is drawn, and the CPU of server and browser until then, medians of three starts with the rollup "
    "there. Row seen: {seen} rows, {every} s apart, from the end of the commit to the chart that shows it. Frames: 30 "
    "moves over an exported file with 64 lanes. Day: {rows} rows of steps with {metrics} metrics and {by_rank} by rank "
    "of {ranks} ranks, such as those of row seen, committed over {minutes:g} minutes under the open page, which turns "
    "from panel to panel; the greatest memory of its process and of the server."
)
ROUNDS = 3
DAY_ROWS, DAY_S, BATCHES_A_SECOND = 86_400, 600.0, 5
METRICS, BY_RANK, RANKS = 20, 2, 64
SEEN_ROWS, SEEN_EVERY_S = 200, 0.25
PANELS = ("overview", "stability", "metrics", "ranks", "memory")
PANEL_S = 20.0
CHART = "document.querySelector('.card .uplot canvas') && document.querySelector('.card')?.dataset.value"


def method(*, quick: bool) -> str:
    """How it is measured."""
    rows, seconds = day_of(quick=quick)
    size = {"metrics": METRICS, "by_rank": BY_RANK, "ranks": RANKS}
    return METHOD.format(seen=SEEN_ROWS, every=SEEN_EVERY_S, rows=rows, minutes=seconds / 60, **size)


def day_of(*, quick: bool) -> tuple[int, float]:
    """How many rows come, and in how many seconds."""
    return (1_000, 10.0) if quick else (DAY_ROWS, DAY_S)


def first_chart(home: Path, experiment: Path) -> list[Finding]:
    """From the start of `rlship view` to the first chart."""
    seconds, of_server, of_browser = [], [], []
    with chromium(home) as browser:
        for turn in range(ROUNDS + 1):
            page = browser.page()
            before = _cpu_of(browser)
            began = time.monotonic()
            with serving(experiment) as server:
                page.ask("Page.navigate", url=f"{server.base}/#token={server.token}")
                page.wait(CHART, 120)
                took, used = time.monotonic() - began, server.cpu_s()
                if turn:  # the first one made the rollup
                    seconds.append(took)
                    of_server.append(used)
                    of_browser.append(_cpu_of(browser) - before)
                page.wait("document.querySelector('progress') === null", 600)
            page.ask("Page.navigate", url="about:blank")
    first = median(seconds)
    return [
        Finding("first chart in Chromium, rollup there", first, "s", aim="<= 1.5", reached=first <= 1.5),
        Finding("CPU of the server until then", median(of_server), "s"),
        Finding("CPU of Chromium until then", median(of_browser), "s"),
    ]


def frames(folder: Path) -> list[Finding]:
    """Moving over a timeline with many spans."""
    with chromium(folder) as browser:
        page = opened(browser, many_spans(folder / "spans.html"), MANY_SPANS_SHOWN)
        page.wait(f"{LANES}.lines.length === 64")
        a_second = 1000 / page.value(f"{MOVED}.then((drawn) => drawn.ms)")
    figure = "frames while the timeline moves, 200,000 spans"
    return [Finding(figure, a_second, "a second", aim=">= 30", reached=a_second >= 30)]


# Notes when the first chart shows which value.
_WATCH = """(() => { const card = document.querySelector('.card'); window.seen = [];
    const now = () => performance.timeOrigin + performance.now();
    const note = () => window.seen.push([Number(card.dataset.value), now()]);
    new MutationObserver(note).observe(card, { attributes: true, attributeFilter: ['data-value'] }); })()"""


def seen(folder: Path, *, quick: bool) -> list[Finding]:
    """From the commit of a row to the chart that shows it."""
    experiment = folder / "seen"
    state = experiment / "rlship" / "state"
    state.mkdir(parents=True)
    names = [f"0.{rank}" for rank in range(RANKS)]
    committed = {}
    with closing(Store(state / "store.1.db", local=True)) as made:
        made.commit(Changes(rows=[_row(0, names)]))
        with serving(experiment) as server, chromium(folder) as browser:
            page = browser.page()
            page.open(f"{server.base}/#token={server.token}&panel=metrics&filter=m0$")
            page.wait(CHART, 120)
            page.value(_WATCH)
            for no in range(1, 1 + (20 if quick else SEEN_ROWS)):
                made.commit(Changes(rows=[_row(no, names)]))
                committed[no] = time.time()
                time.sleep(SEEN_EVERY_S)
            page.wait(f"window.seen.at(-1)?.[0] === {max(committed)}", 60)
            shown = page.value("window.seen")
    # A row that was committed just before another one is seen with it.
    late = [min(at / 1000 for value, at in shown if value >= no) - t for no, t in committed.items()]
    p99 = percentile(late, 0.99)
    return [Finding("row committed to seen on the page, p99", p99, "s", aim="< 0.7", reached=p99 < 0.7)]


def day(folder: Path, rows: int, seconds: float, ranks: int = RANKS) -> list[Finding]:
    """Memory under an open page while a day's rows come."""
    experiment = folder / "day"
    state = experiment / "rlship" / "state"
    state.mkdir(parents=True)
    names = [f"0.{rank}" for rank in range(ranks)]
    with closing(Store(state / "store.1.db", local=True)) as made:
        made.commit(Changes(rows=[_row(0, names)]))
        with serving(experiment) as server, chromium(folder) as browser:
            page = browser.page()
            page.open(f"{server.base}/#token={server.token}")
            page.wait(CHART, 120)
            before = _tab_mb(browser)
            _grow(made, page, names, rows, seconds)
            last = f"document.querySelector('[data-fact=rows]')?.innerText.replaceAll(',', '') === '{rows}'"
            page.ask("Runtime.evaluate", expression="document.querySelector('nav [data-panel=overview]').click()")
            page.wait(last, 120)
            faults = page.faults()
            assert faults == [], faults
            heap = page.ask("Runtime.getHeapUsage")["usedSize"] / 2**20
            tab, of_server = _tab_mb(browser), server.peak_mb()
    return [
        Finding("memory of the server, a day's rows", of_server, "MB", aim="< 200", reached=of_server < 200),
        Finding("memory of the tab, at most", tab, "MB", aim="< 400", reached=tab < 400),
        Finding("memory of the tab, before", before, "MB"),
        Finding("JavaScript's heap at the end", heap, "MB"),
    ]


def _grow(made: Store, page: Page, names: list[str], rows: int, seconds: float) -> None:
    """Commit rows at an even pace, and turn to the next panel now and then."""
    began = time.monotonic()
    turned, at = 0.0, 1
    while at < rows:
        now = time.monotonic() - began
        due = min(rows, int(rows * now / seconds) + 1)
        if due > at:
            made.commit(Changes(rows=[_row(no, names) for no in range(at, due)]))
            at = due
        if now - turned >= PANEL_S * min(1.0, seconds / DAY_S):
            turned = now
            chosen = PANELS[int(now / PANEL_S) % len(PANELS)]
            press = f"document.querySelector({json.dumps(f'nav [data-panel={chosen}]')}).click()"
            page.ask("Runtime.evaluate", expression=press)
        time.sleep(1 / BATCHES_A_SECOND)


def _row(no: int, names: list[str]) -> Row:
    plain = ("reward/total", "train/loss", "train/grad_norm", "train/entropy")
    values = {f"trainer/{name}": 1 + (no * (at + 3) % 101) / 101 for at, name in enumerate(plain)}
    values |= {f"trainer/m{at}": no + at / 8 for at in range(METRICS - len(plain))}
    by_rank = {
        f"trainer/{key}": [(name, 1e9 + (no + at) % 997) for at, name in enumerate(names)]
        for key in ("mem/allocated", "bal/rank_tokens")
    }
    whole = Coverage((f"0.0-{len(names) - 1}",), len(names), attempts=(0,))
    where = Unit("trainer", "step", no)
    return Row(where, T0 + no, {"global_step": no}, values, whole, Arrival(no, 0, (), "complete"), per_rank=by_rank)


def _processes(browser: Browser) -> dict[int, str]:
    """The browser's processes: its group."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdecimal() and os.getpgid(int(entry)) == browser.process.pid:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def _cpu_of(browser: Browser) -> float:
    return sum(cpu_s(pid) for pid in _processes(browser))


def _tab_mb(browser: Browser) -> float:
    """The greatest memory that the process of a tab has had."""
    return max(peak_mb(pid) for pid, command in _processes(browser).items() if "--type=renderer" in command)
