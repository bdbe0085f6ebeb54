"""How tests open the page and read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlship_sidecar.view import exported
from rlship_sidecar.view.contract import Embedded
from tests.kit.chromium import WIDE, Browser, Page
from tests.page import made

LANES, CARPET = (f"document.querySelector('canvas.{name}').rlshipPanel" for name in ("lanes", "carpet"))
MANY_SPANS_SHOWN = "panel=timeline&from=80&to=690"
# Moves over the timeline for 30 frames; the milliseconds of each, and how many spans there are.
MOVED = f"""(async () => {{ const panel = {LANES}; let frames = 0;
    const began = performance.now();
    while (frames < 30) {{
        panel.ctx.move({{ by: frames % 2 ? 0.01 : -0.01 }});
        await new Promise(requestAnimationFrame);
        frames += 1;
    }}
    const spans = panel.lines.reduce((sum, line) => sum + line.start.length, 0);
    return {{ ms: (performance.now() - began) / frames, spans }}; }})()"""
SHOWN = "document.querySelector('[data-shown={panel}]')"


def saved(held: Embedded, path: Path) -> str:
    """An exported file with these data, as an address."""
    path.write_bytes(exported.one_file(exported.packed_ranks(held)))
    return path.as_uri()


def many_spans(path: Path) -> str:
    """An exported file with 200,000 spans, as an address."""
    held = made.embedded(steps=700, ranks=64, span_steps=625)
    assert len(held["spans"]["spans"]["t"]) == 200_000
    return saved(held, path)


def opened(browser: Browser, url: str, view: str, size: tuple[int, int] = WIDE, *, dark: bool = False) -> Page:
    """A page that shows a view: a fragment such as `panel=ranks&at=3`."""
    page = browser.page(size, dark=dark)
    page.open(f"{url}#{view}")
    panel = view.partition("panel=")[2].partition("&")[0] or "overview"
    page.wait(SHOWN.format(panel=panel))
    return page


def charted(page: Page, metric: str) -> float:
    """The value beside a chart's title, unrounded: the one at the cursor, else the newest."""
    said = page.wait(f"document.querySelector('[data-metric={json.dumps(metric)}]')?.dataset.value")
    return float(said)


def columns(page: Page, caption: str) -> list[list[str]]:
    """The cells of a table, by the beginning of its caption."""
    found: Any = page.wait(
        f"""[...document.querySelectorAll("table")]
        .filter((each) => each.caption.textContent.startsWith({json.dumps(caption)}))
        .map((each) => [...each.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText)))[0]"""
    )
    return [[str(cell) for cell in row] for row in found]


def each(page: Page, selector: str, what: str = "innerText") -> list[str]:
    """A property of all elements that a selector finds."""
    found = page.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.{what})")
    return [str(one) for one in found]


def wholesome(page: Page) -> None:
    """The page threw nothing, was refused nothing, asked no other host, and is no wider than its window."""
    faults = page.faults()
    assert faults == [], faults
    assert page.value("window.hacked ?? null") is None
    local = ("file://", "data:", "http://127.0.0.1:", "http://localhost:")
    assert [url for url in page.requests() if not url.startswith(local)] == []
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
