"""The page of runs of other kinds: with a ledger, of another framework, and with a store that is damaged under it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rlship_sidecar.store.store import Changes
from tests.kit.chromium import Browser
from tests.kit.files import barrier, experiment, file, log
from tests.page.job import viewing
from tests.page.seeing import charted, columns, wholesome
from tests.page.test_run import identity, seen
from tests.tabular.stores import row, store
from tests.view.serving import trainer_state, watched, with_a_ledger

pytestmark = pytest.mark.toolchain
LINE = "document.querySelector('.card').rlshipCard.lines[0]"


def test_the_ledger_says_what_should_be_0(browser: Browser, tmp_path: Path) -> None:
    """Totals of the run, and a chart of each that is not 0 throughout; what is wrong is named."""
    with viewing(watched(tmp_path / "run", {"a.jsonl": with_a_ledger()})) as link:
        page = seen(browser, link, "panel=ledger")
        totals = {cells[0]: cells[1:] for cells in columns(page, "Totals of the run")}
        assert totals["groups"] == ["3", ""] and totals["twice"] == ["1", "should be 0"]
        told = page.wait(
            "[...document.querySelectorAll('.plot')].map((each) => each.getAttribute('aria-label'))"
            ".find((each) => each.startsWith('Chart of twice'))"
        )
        assert "greatest 1 at step 1" in told
        wholesome(page)


def test_logs_of_another_framework(browser: Browser, tmp_path: Path) -> None:
    """Rows are made of them while the page is open, and are what their files say. They lie at their steps, though the
    files say of all of them one time.
    """
    with viewing(trainer_state(tmp_path / "trl")) as link:
        page = seen(browser, link, "panel=stability&at=2")
        key = page.wait(
            "[...document.querySelectorAll('.card h3')].map((each) => each.textContent)"
            ".find((each) => each.endsWith('loss'))"
        )
        assert charted(page, identity(page, key)) == 0.5
        assert page.wait(f"{LINE}.x.length > 1 && {LINE}.x")[:2] == [1, 2]
        assert page.value("document.querySelector('#from').value") == "1"
        wholesome(page)


def test_a_metric_that_is_new_appears_in_its_panel(browser: Browser, tmp_path: Path) -> None:
    """Which panel it belongs to, the server says after the row is there. Its rows lie at their steps from the first
    one on, which is the only one at first.
    """
    made = store(tmp_path / "run", [row(0, values={"trainer/colour": 1.0})])
    with viewing(tmp_path / "run") as link:
        page = seen(browser, link, "panel=stability")
        made.commit(Changes(rows=[row(1, values={"trainer/loss": 2.0})]))
        assert charted(page, identity(page, "trainer/loss")) == 2.0
        assert page.wait(f"{LINE}.x") == [0, 1]
        made.commit(Changes(rows=[row(2, values={"trainer/train/kl_ref": 3.0})]))
        assert charted(page, identity(page, "trainer/train/kl_ref")) == 3.0
        wholesome(page)
    made.close()


def test_a_run_of_times_begins_under_an_open_page(browser: Browser, tmp_path: Path) -> None:
    """Where no row has a step, places are seconds since the first row, also on a page that was open before it."""
    made = store(tmp_path / "run")
    with viewing(tmp_path / "run") as link:
        page = seen(browser, link, "panel=metrics")
        for no in range(2):
            made.commit(Changes(rows=[row(no, kind="clock", actor="generator", values={"clock/generator/x": 1.0})]))
        assert page.wait(f"{LINE}.x.length === 2 && {LINE}.x[1] < 2 && {LINE}.x") == [0, 1]
        wholesome(page)
    made.close()


def test_run_data_that_change_appear(browser: Browser, tmp_path: Path) -> None:
    """A value that the job gives later is there without a reload, though no row came with it."""
    records = ({"kind": "run", "config": {"lr": 1}}, log(0, loss=1.0), barrier(0, 1.0))
    made = experiment(tmp_path / "run", {"a.jsonl": file(*records)})
    with viewing(made) as link:
        page = seen(browser, link, "panel=rundata")
        page.wait("document.querySelector('[data-key=\"config.lr\"]')")
        assert ["lr", "1"] in columns(page, "config")
        with (made / "rlship" / "a.jsonl").open("ab") as opened:
            opened.write(file({"kind": "run", "config": {"lr": 2, "seed": 3}}).partition(b"\n")[2])
        page.wait("document.querySelector('[data-key=\"config.seed\"]')")
        assert ["lr", "2"] in columns(page, "config")
        wholesome(page)


def test_a_damaged_store_is_said_on_the_page_and_it_goes_on(browser: Browser, tmp_path: Path) -> None:
    """The page names the store while it cannot be read, and shows the rows of a good one once that is there."""
    made = store(tmp_path / "run", [row(no) for no in range(3)])
    with viewing(tmp_path / "run") as link:
        page = seen(browser, link, "panel=metrics")
        metric = identity(page, "trainer/loss")
        assert charted(page, metric) == 2.1
        made.close()
        made.path.write_bytes(b"SQLite format 3\0" + os.urandom(5000))
        page.wait(f"document.querySelector('[role=alert]:not([hidden])')?.innerText.includes('{made.path}')")
        shutil.rmtree(made.path.parent)
        again = store(tmp_path / "run", [row(no) for no in range(6)])
        page.wait(f"document.querySelector('[data-metric=\"{metric}\"]').dataset.value === '5.1'")
        page.wait("document.querySelector('[role=alert]').hidden")
        again.close()
