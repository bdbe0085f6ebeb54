"""The panels of a run that a sidecar made rows of, served and as an exported file: they show what the store has."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chromium import Browser, Page
from tests.page.job import RLSHIP, SAMPLES, SLOW, WORLD, command, job, viewing
from tests.page.seeing import CARPET, LANES, charted, columns, each, wholesome

pytestmark = pytest.mark.toolchain
STEPS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of four ranks and 30 steps, watched to its end."""
    folder = tmp_path_factory.mktemp("outputs") / "grpo"
    with job(folder) as running:
        running.steps(0, STEPS - 1)
    subprocess.run([*RLSHIP, "watch", "--once", "--sink", "jsonl", os.fspath(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[int, dict[str, Any]]:
    """The rows of the trainer's steps, as the sidecar delivered them."""
    lines = (folder / "rlship" / "state" / "rows.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {row["index"]: row for row in found if (row["actor"], row["kind"]) == ("trainer", "step")}


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


def seen(browser: Browser, url: str, view: str) -> Page:
    """A page that shows a view of the run."""
    base, mark, token = url.partition("#")
    page = browser.page()
    page.open(f"{base}#{token}&{view}" if mark else f"{base}#{view}")
    page.wait(f"document.querySelector('[data-shown={view.partition('panel=')[2].partition('&')[0]}]')")
    return page


def identity(page: Page, key: str) -> str:
    """The id of a metric: of the card with its key."""
    found = page.wait(
        "[...document.querySelectorAll('.card')]"
        f".find((each) => each.querySelector('h3').textContent === {json.dumps(key)})?.dataset.metric"
    )
    return str(found)


def test_overview(browser: Browser, url: str, rows: dict[int, Any]) -> None:
    """State, steps and ranks are those of the status, and headline charts hold the rows' newest values."""
    page = seen(browser, url, "panel=overview")
    assert page.text("[data-fact=state]") == "Finished"
    assert page.text("[data-fact=step]") == str(STEPS - 1)
    assert page.text("[data-fact=ranks]") == f"{WORLD} of {WORLD}"
    newest = rows[STEPS - 1]["m"]["trainer/reward/total"]
    assert charted(page, identity(page, "trainer/reward/total")) == pytest.approx(newest, rel=1e-9)
    assert columns(page, "Actors and their ranks")[0][0] == "trainer (lead)"
    wholesome(page)


def test_stability(browser: Browser, url: str, rows: dict[int, Any]) -> None:
    """The value at the cursor is that of the row of its step, bit for bit as far as nine digits go."""
    page = seen(browser, url, "panel=stability&at=7")
    metric = identity(page, "trainer/train/grad_norm")
    assert charted(page, metric) == pytest.approx(rows[7]["m"]["trainer/train/grad_norm"], rel=1e-9) == 10.0
    page.press("ArrowRight")
    page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value !== '10'")
    assert charted(page, metric) == pytest.approx(rows[8]["m"]["trainer/train/grad_norm"], rel=1e-9)
    wholesome(page)


def test_metrics(browser: Browser, url: str, rows: dict[int, Any]) -> None:
    """The filter leaves the metrics whose key it finds, all of which are keys of rows."""
    page = seen(browser, url, "panel=metrics&filter=bal/")
    page.wait("document.querySelectorAll('.card').length")
    shown = each(page, ".card h3", "textContent")
    keys = {key for row in rows.values() for key in (*row["m"], *row.get("per_rank", ()))}
    assert shown and all("bal/" in key and key in keys for key in shown)
    wholesome(page)


def test_timeline(browser: Browser, url: str, folder: Path) -> None:
    """Every rank has a lane, the stages are the job's spans, and a span is as long as its line says."""
    page = seen(browser, url, "panel=timeline")
    page.wait(f"{LANES}.lines.length")
    lanes = page.value(f"{LANES}.spans.lanes.map((lane) => lane.rank)")
    assert lanes == [f"0.{rank}" for rank in range(WORLD)]
    assert {row[0] for row in columns(page, "Stages of")} == {"rollout", "reward", "update", "(bubble)"}
    shown = page.value(
        f"(({{ names, lanes, spans }}) => spans.t.map((t, at) => [lanes[spans.lane[at]].rank, names[spans.name[at]],"
        f" spans.step[at], spans.dur[at]]))({LANES}.spans)"
    )
    for rank in range(WORLD):
        (path,) = (folder / "rlship").glob(f"trainer-0-r{rank}-*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        spans = [one for one in lines if one.get("kind") == "span" and one["step"] == STEPS - 1]
        assert [one[1:] for one in shown if one[0] == f"0.{rank}" and one[2] == STEPS - 1] == [
            [one["name"], one["step"], pytest.approx(one["dur"], abs=1e-6)] for one in spans
        ]
    wholesome(page)


def test_ranks(browser: Browser, url: str, rows: dict[int, Any]) -> None:
    """The values of ranks are those of the rows, and the one that works longest stands out."""
    page = seen(browser, url, "panel=ranks")
    metric = page.wait(
        "[...document.querySelectorAll('#rank-metric option')]"
        ".find((each) => each.textContent === 'trainer/bal/rank_active_s')?.value"
    )
    page.click("nav [data-panel=ranks]")
    page = seen(browser, url, f"panel=ranks&metric={metric}")
    worst = columns(page, "Ranks that stand out")[0]
    assert worst[0] == f"0.{SLOW}" and worst[3] == "+100 %"
    at_step = f"[rank, {CARPET}.held.values[at * {CARPET}.held.columns + 3]]"
    values = page.value(f"{CARPET}.held.said.ranks.map((rank, at) => {at_step})")
    assert dict(values) == rows[3]["per_rank"]["trainer/bal/rank_active_s"]
    wholesome(page)


def test_memory(browser: Browser, url: str, rows: dict[int, Any]) -> None:
    """The median is that of the rows; the worst rank is the one that has most, beside the capacity; of what is reserved
    some is in no use.
    """
    page = seen(browser, url, "panel=memory")
    metric = identity(page, "trainer/mem/allocated")
    card = f"document.querySelector('[data-metric=\"{metric}\"]')"
    assert page.wait(f"{card}.dataset.worst") == f"0.{WORLD - 1}"
    of_ranks = rows[STEPS - 1]["per_rank"]["trainer/mem/allocated"].values()
    assert charted(page, metric) == pytest.approx(statistics.median(of_ranks))
    assert f"rank 0.{WORLD - 1} 19 GiB, of 64 GiB" in page.value(f"{card}.innerText")
    reserved = identity(page, "trainer/mem/reserved")
    assert charted(page, f"{reserved}/fragmentation") == pytest.approx(1 - 17.5 / 32, abs=1e-4)
    wholesome(page)


def test_rollouts(browser: Browser, url: str) -> None:
    """The samples of a step are those that the job logged, with their scores and tokens; the row's best and worst ones
    are marked, though several were logged at one time.
    """
    page = seen(browser, url, "panel=rollouts&at=29")
    page.wait("document.querySelectorAll('.sample').length === 24")
    scores = each(page, ".sample strong")
    assert sorted(scores) == sorted(f"Reward {n}" for n in range(SAMPLES))
    assert f"{SAMPLES} of {SAMPLES} samples" in page.text("main")
    assert page.value("document.querySelector('.token.masked').innerText") == "it"
    page = seen(browser, url, "panel=rollouts&at=20")
    page.wait("document.querySelectorAll('.sample').length === 24")
    marked = [text.split("\n") for text in each(page, ".sample > .tools")]
    assert {line[0] for line in marked if "top" in " ".join(line[1:])} >= {f"Reward {SAMPLES - 1}"}
    assert f"Reward {SAMPLES - 1}" not in {line[0] for line in marked if "bottom" in " ".join(line[1:])}
    wholesome(page)


def test_events_and_run_data(browser: Browser, url: str) -> None:
    """Events and the configuration are those that the job recorded; what looks like HTML is text."""
    page = seen(browser, url, "panel=events")
    found = columns(page, "Events, the newest first")
    assert found[0][1:] == [str(STEPS - 1), "trainer", "0.0", "saved", f"path: step-{STEPS - 1}"]
    # The range around step 0, which a press on it chooses, begins before all steps.
    page.click("[data-event=saved]:last-child button")
    page.wait("document.querySelector('[data-shown=timeline]')")
    page.click("nav [data-panel=events]")
    assert columns(page, "Events, the newest first")[-1][1] == "0"
    wholesome(page)
    page = seen(browser, url, "panel=rundata")
    said = {row[0]: row[1] for row in columns(page, "config")}
    assert said == {"lr": "0.000001", "note": "<b>bold</b>"}
    wholesome(page)


def test_alerts_and_ledger(browser: Browser, url: str) -> None:
    """The rank that works longest is an episode with its place, and the page asks why; the overview names it and leads
    there. Without a ledger the page says so.
    """
    page = seen(browser, url, "panel=alerts")
    found = {row[0].split()[0]: row[3] for row in columns(page, "1 episode")}
    assert found == {"imbalance": f"trainer/0.{SLOW}"}
    page.wait("document.querySelector('pre')?.innerText.includes('imbalance')")
    wholesome(page)
    page = seen(browser, url, "panel=overview")
    page.click("[data-alarm=imbalance] button")
    page.wait("document.querySelector('[data-shown=alerts] pre')?.innerText.includes('imbalance')")
    page.click("#link")
    assert "episode=" in page.wait("document.querySelector('#page').dataset.link")
    page = seen(browser, url, "panel=ledger")
    page.wait("document.querySelector('main').innerText.includes('The job records no ledger')")
    wholesome(page)


def test_a_server_that_was_started_again_is_opened_in_the_same_tab(browser: Browser, folder: Path) -> None:
    """Its address has another token: a page that still asks with the former one takes it, and asks for none."""
    page = browser.page()
    with viewing(folder) as link:
        page.open(f"{link}&panel=stability")
        page.wait("document.querySelector('[data-shown=stability]')")
        port = link.partition("/#")[0].rpartition(":")[2]
    page.wait("document.querySelector('.note.bad:not([hidden])')?.innerText.includes('does not answer')")
    with command("view", "--no-open", "--port", port, os.fspath(folder)) as again:
        assert again.stdout is not None
        other = again.stdout.readline().strip()
        page.value(f"location.href = {json.dumps(other + '&panel=memory')}; 0")
        page.wait("document.querySelector('[data-shown=memory]')")
        assert page.value("sessionStorage.getItem('rlship-token')") == other.partition("token=")[2]
        page.wait("document.querySelector('[role=alert]').hidden")
        assert page.value("document.querySelector('#token')") is None


def test_the_token_leaves_the_address_at_once(browser: Browser, folder: Path) -> None:
    """The token is in neither address nor history nor a copied link; a tab without it is asked for it, and takes the
    printed address.
    """
    with viewing(folder) as link:
        token = link.partition("token=")[2]
        page = browser.page()
        page.open(f"{link}&panel=stability&at=3")
        page.wait("document.querySelector('[data-shown=stability]')")
        assert token and token not in page.value("location.href")
        entries = page.ask("Page.getNavigationHistory")["entries"]
        assert not any(token in entry["url"] for entry in entries)
        assert page.value("sessionStorage.getItem('rlship-token')") == token
        assert not any(token in url for url in page.requests() if url != f"{link}&panel=stability&at=3")
        page.click("#link")
        shared = page.wait("document.querySelector('#page').dataset.link")
        assert token not in shared and "at=3" in shared
        other = browser.page()
        other.open(shared)
        other.wait("document.querySelector('#token')")
        other.write("wrong")
        other.press("Enter")
        other.wait("document.querySelector('[role=alert]')")
        other.value("document.querySelector('#token').focus()")
        other.write(link)
        other.press("Enter")
        other.wait("document.querySelector('[data-shown=stability]')")
        assert other.value("document.querySelector('#at').textContent") == "3"
        assert token not in other.value("location.href")
        wholesome(page)
