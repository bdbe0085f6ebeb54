"""The page of a folder of experiments: the list, and the diff of two of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.kit.chromium import NARROW, Browser
from tests.page.job import RLSHIP, job, viewing
from tests.page.seeing import columns, each, wholesome

pytestmark = pytest.mark.toolchain
PARTS = 5


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of two runs that part at step 5, and of a folder that holds another thing."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "notes").mkdir()
    for name, parts in (("first", 10**9), ("second", PARTS)):
        with job(folder / name, parts) as running:
            running.steps(0, 9)
    subprocess.run([*RLSHIP, "watch", "--once", "--sink", "jsonl", os.fspath(folder)], check=True, capture_output=True)
    with viewing(folder) as found:
        yield found


def test_the_list_has_each_experiment_with_its_health(browser: Browser, link: str) -> None:
    """Each experiment has a line with its state, its newest step, its ranks and sparklines; a filter leaves those whose
    name holds a text, a press opens one, and Back leads to the list.
    """
    page = browser.page()
    page.open(link)
    rows = columns(page, "2 of 2 experiments")
    assert [row[0] for row in rows] == ["first", "second"]
    assert all(row[1:4] == ["Finished", "9", "4 of 4"] for row in rows)
    assert page.value("document.querySelectorAll('tr[data-experiment=first] svg polyline').length") > 0
    told = each(page, "tr[data-experiment=first] .spark .unseen", "textContent")
    assert told[0].startswith(" at step 9; from step 0 on between ")
    assert "token" not in page.value("location.href")
    page.value("document.querySelector('#list-filter').focus()")
    page.write("sec")
    page.wait("document.querySelectorAll('tr[data-experiment]').length === 1")
    page.click("tr[data-experiment=second] button")
    page.wait("document.querySelector('[data-shown=overview] [data-fact=step]').innerText === '9'")
    wholesome(page)
    page.wait("location.hash.includes('run=')")
    page.value("setTimeout(() => history.back())")
    page.wait("document.querySelectorAll('tr[data-experiment]').length")
    page.resize(NARROW)
    wholesome(page)


def test_the_diff_names_the_first_step_at_which_two_runs_part(browser: Browser, link: str) -> None:
    """Bitwise by default, and by tolerance; run data that differ are named with both values."""
    page = browser.page()
    page.open(link)
    page.click("tr[data-experiment=first] button")
    page.wait("document.querySelector('[data-shown=overview]')")
    page.click("nav [data-panel=diff]")
    page.wait("document.querySelector('#diff-with').value")
    page.click("[data-shown=diff] form button")
    parted = {row[0]: row[1:4] for row in columns(page, "Metrics that part")}
    assert parted["trainer/train/kl_ref"] == [str(PARTS), "0.005", "0.505"]
    assert "trainer/reward/total" not in parted
    said = page.text("[data-shown=diff] [role=status] .note")
    assert re.fullmatch(r"\d+ metrics part and \d+ are equal, in [\d,]+ rows that both runs have\.", said), said
    assert ["config.lr", "0.000001", "0.000002"] in columns(page, "Run data")
    page.value("document.querySelector('#diff-atol').value = '0.6'")
    page.click("[data-shown=diff] form button")
    page.wait("!document.querySelector('[data-parted=\"trainer/train/kl_ref\"]')")
    wholesome(page)
