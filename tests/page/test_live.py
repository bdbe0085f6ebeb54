"""The page of a run that goes on: steps, killed ranks and new stores appear without a reload."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.chromium import Browser, Page
from tests.page.job import Job, command, job, viewing
from tests.page.seeing import CARPET, charted, wholesome
from tests.page.test_run import identity, seen
from tests.page.tunnel import Tunnel

pytestmark = pytest.mark.toolchain
KILLED = 3
# Answers about curves are held back until `letGo` is called.
HOLD_BACK = """(() => { const ask = window.fetch; const held = new Promise((done) => { window.letGo = done; });
    window.fetch = async (url, ...given) => { const answer = await ask(url, ...given);
        if (url.includes("/series")) { window.isHeld = true; await held; }
        return answer; }; })()"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for an experiment, in which a silent rank is soon left out."""
    folder = tmp_path / "grpo"
    folder.mkdir()
    (folder / "rlship.toml").write_text("grace_s = 1.0\n")
    return folder


@pytest.fixture
def running(folder: Path) -> Iterator[Job]:
    """A job that has done three steps, under a sidecar."""
    with job(folder) as found:
        found.steps(0, 2)
        with command("watch", os.fspath(folder), "--sink", "jsonl"):
            yield found


def at_step(page: Page, step: int) -> None:
    """Wait until the overview shows a step."""
    page.wait(f"document.querySelector('[data-fact=step]')?.innerText === '{step}'")


def test_steps_and_a_killed_rank_appear(browser: Browser, folder: Path, running: Job) -> None:
    """A step is seen on overview and charts once it is a row; a rank that is killed is missing from the next step, by
    name. The page asked once for what it shows, and heard of the rest. A table that was opened stays open. A row that
    overtakes the answer about a chart is in the chart.
    """
    with viewing(folder) as link:
        page = seen(browser, link, "panel=overview")
        at_step(page, 2)
        metric = identity(page, "trainer/train/kl_ref")
        assert charted(page, metric) == pytest.approx(0.002)
        asked = sum("/series" in url for url in page.requests())
        page.value("document.querySelector('main details summary').click()")
        running.steps(3, 6)
        page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value === '0.006'")
        at_step(page, 6)
        assert sum("/series" in url for url in page.requests()) == asked
        page.value(HOLD_BACK)
        page.click("nav [data-panel=stability]")
        page.wait("window.isHeld")
        running.steps(7, 7)
        page.wait("document.querySelector('#to').value === '7'")
        page.value("window.letGo()")
        page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value === '0.007'")
        page.click("nav [data-panel=overview]")
        page.value("document.querySelector('main details summary').click()")
        running.kill(KILLED)
        running.steps(8, 9)
        page.wait(f"document.querySelector('[data-actor=trainer]')?.closest('tr').innerText.includes('0.{KILLED}')")
        page.wait("document.querySelector('[data-fact=ranks]').innerText === '3 of 4'")
        assert page.value("document.querySelector('main details').open")
        page.click("nav [data-panel=ranks]")
        page.wait("document.querySelector('canvas.carpet')?.rlshipPanel.held?.columns === 10")
        missing = page.value(f"{CARPET}.held.values[{KILLED} * {CARPET}.held.columns + 9]")
        assert missing is None or missing != missing
        wholesome(page)


def test_a_page_goes_on_after_the_server_was_away(browser: Browser, folder: Path, running: Job) -> None:
    """While no server answers the page says so; rows that came meanwhile are there once it is back, each once."""
    with viewing(folder) as link, Tunnel(port_of(link)) as tunnel:
        page = seen(browser, link.replace(f":{port_of(link)}/", f":{tunnel.port}/"), "panel=metrics&filter=kl_ref$")
        metric = identity(page, "trainer/train/kl_ref")
        page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value === '0.002'")
        tunnel.cut()
        page.wait("document.querySelector('[role=alert]:not([hidden])')?.innerText.includes('does not answer')")
        running.steps(3, 5)
        tunnel.mend()
        page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value === '0.005'")
        page.wait("document.querySelector('[role=alert]').hidden")
        x = page.value(f"document.querySelector('[data-metric=\"{metric}\"]').rlshipCard.lines[0].x")
        assert x == [0, 1, 2, 3, 4, 5]


def test_a_server_that_started_again_asks_for_its_token(browser: Browser, folder: Path, running: Job) -> None:
    """Each start has a token of its own: the page asks for it, and shows the same view once it has it."""
    with viewing(folder) as link, Tunnel(port_of(link)) as tunnel:
        page = seen(browser, link.replace(f":{port_of(link)}/", f":{tunnel.port}/"), "panel=stability&at=1")
        tunnel.cut()
        with viewing(folder) as other:
            tunnel.mend(port_of(other))
            page.wait("document.querySelector('#token')")
            page.value("document.querySelector('#token').focus()")
            page.write(other)
            page.press("Enter")
            page.wait("document.querySelector('[data-shown=stability]')")
            assert page.value("document.querySelector('#at').textContent") == "1"


def port_of(link: str) -> int:
    """The port of a link."""
    return int(link.partition("127.0.0.1:")[2].partition("/")[0])


def test_a_new_store_begins_the_page_anew(browser: Browser, folder: Path) -> None:
    """When the state was removed and the rows were made again, the page shows those of the new store."""
    with job(folder) as found:
        found.steps(0, 2)
        with command("watch", os.fspath(folder), "--sink", "jsonl"), viewing(folder) as link:
            page = seen(browser, link, "panel=overview")
            at_step(page, 2)
            store = page.wait("document.querySelector('#page').dataset.store")
            found.steps(3, 4)
            at_step(page, 4)
    with viewing(folder) as link:
        page = seen(browser, link, "panel=overview")
        at_step(page, 4)
        shutil.rmtree(folder / "rlship" / "state")
        with command("watch", os.fspath(folder), "--sink", "jsonl"):
            page.wait(f"document.querySelector('#page').dataset.store !== '{store}'")
            at_step(page, 4)
