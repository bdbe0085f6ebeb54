"""What a hostile job writes: names and texts that look like code, turn the direction of writing, or are very long."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chromium import Browser
from tests.kit.files import CLOSE, T0, barrier, event, file, log, sample, span
from tests.page.job import RLSHIP, viewing
from tests.page.made import HOSTILE
from tests.page.seeing import wholesome
from tests.page.test_made import PANELS
from tests.page.test_run import seen
from tests.view.serving import watched

pytestmark = pytest.mark.toolchain
NAMES = (
    "<script>window.hacked=1</script>",
    "\"'><svg onload=window.hacked=1>",
    "__proto__",
    "constructor",
    "\u202egnp.exe",
    "a\0b",
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
)
STEPS = 6


def rank(number: int) -> bytes:
    """A rank whose every name and text is hostile."""
    records: list[dict[str, Any]] = [
        {"kind": "run", "config": dict.fromkeys(NAMES, HOSTILE), "notes": HOSTILE, "tags": list(NAMES[:2])},
        {"kind": "define", "m": {name: {"reduce": ["mean"], "per_rank": True} for name in NAMES}},
    ]
    for step in range(STEPS):
        at = 10.0 * step
        records.append(log(step, **{name: float(step + number) for name in NAMES}) | {"t": T0 + at + 8})
        records += [span(name, 0.5, at + nth, step=step) for nth, name in enumerate(NAMES)]
        records.append(event(NAMES[0], step=step, attrs=dict.fromkeys(NAMES, HOSTILE)))
        turn = [{"role": HOSTILE, "content": HOSTILE, "tool_calls": [{"function": {"name": HOSTILE}}]}]
        row = {
            **dict.fromkeys(NAMES, HOSTILE),
            "prompt": turn,
            "response": "\u05d0\u202e<b>" * 20_000,
            "group": HOSTILE,
        }
        records.append(sample(1.0, step=step, row=row, t=T0 + at, table=NAMES[0]))
        records.append(barrier(step, at + 9))
    records.append({"kind": NAMES[0], "what": HOSTILE})
    return file(*records, CLOSE, id=f"r{number}", rank=number, world=2, host=NAMES[0], actor="trainer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of two such ranks, whose folder has a hostile name too."""
    files = {f"r{number}.jsonl": rank(number) for number in range(2)}
    return watched(tmp_path_factory.mktemp("outputs") / "<img src=x onerror=alert(1)>", files)


@pytest.fixture(scope="module", params=["served", "exported"])
def url(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page's address: on a server with its token, or of a file."""
    if request.param == "served":
        with viewing(folder) as link:
            yield link
        return
    target = tmp_path_factory.mktemp("exported") / "page.html"
    subprocess.run([*RLSHIP, "view", "--export", os.fspath(target), os.fspath(folder)], check=True, capture_output=True)
    yield target.as_uri()


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_of_it_runs(browser: Browser, url: str, panel: str) -> None:
    """On each panel, served and exported: no script ran, no element was made of a text, no error was thrown, nothing
    is wider than the window, and the policy refused nothing because nothing was tried.
    """
    page = seen(browser, url, f"panel={panel}&at=2")
    page.wait("!document.querySelector('main').innerText.includes('Loading')")
    wholesome(page)
    assert page.value("document.querySelectorAll('main :is(script, img, iframe, object, embed, svg)').length") == 0
    assert page.value("document.querySelectorAll('main a').length") == 0


def test_it_can_be_read(browser: Browser, url: str) -> None:
    """The hostile names are there as a person can read them."""
    page = seen(browser, url, "panel=metrics")
    for name in ("trainer/<script>window.hacked=1</script>", "trainer/__proto__", "⟨U+202E⟩gnp.exe", "a⟨U+0000⟩b"):
        page.wait(f"[...document.querySelectorAll('.card h3')].some((each) => each.textContent.includes({name!r}))")
    page = seen(browser, url, "panel=rundata")
    page.wait("document.querySelector('main').innerText.includes('<img src=x onerror=')")
    wholesome(page)
