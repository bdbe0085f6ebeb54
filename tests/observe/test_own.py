"""The sidecar's own figures, as the file has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.observe.own import AT_WORK_S, SelfMetrics, at_work
from rlship_sidecar.report.status import Status
from rlship_sidecar.tally import OWN_ACTOR, Shipping, Tally
from tests.cli.sample import a_sink, a_status, a_writer, an_actor


def records(experiment: Path) -> list[list[dict[str, Any]]]:
    """The records of each of its files, in the order of their making."""
    files = sorted((experiment / "rlship").glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
    return [[json.loads(line) for line in file.read_text().split("\n")[:-1]] for file in files]


def metrics(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["m"] for line in lines if "kind" not in line]


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment's folder."""
    (tmp_path / "rlship").mkdir()
    return tmp_path


def own(experiment: Path, every_s: float = 10.0) -> SelfMetrics:
    return SelfMetrics(experiment, every_s, attempt=3, used=iter([(n / 10, 1000 + n) for n in range(99)]).__next__)


def with_job(**changes: Any) -> Status:
    return a_status(**{"sinks": [a_sink(sent=119, trouble_s=1.5)]} | changes)


def test_it_needs_no_advice_about_steps(experiment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its records have no steps on purpose, however many come: nothing is said about that."""
    rows = own(experiment)
    for count in range(15):
        rows.log(with_job(), Tally(), 10.0 * count)
    rows.close()
    assert len(metrics(records(experiment)[0])) == 14
    assert "without a step" not in capfd.readouterr().err


def test_what_a_record_says(experiment: Path) -> None:
    """Counts are what came since the record before, lags and queues what is so, of the job's actors only; what was
    before this sidecar is not told as if it happened now.
    """
    rows, shipping = own(experiment), Shipping(errors=5)
    tally = Tally(rows={("trainer", "partial"): 7}, sinks={"wandb": shipping})
    rows.log(with_job(dead_letter_count=40), tally, 100.0)
    tally.rows = {("trainer", "partial"): 8, ("trainer", "revision"): 2, (OWN_ACTOR, "revision"): 90}
    shipping.errors = 6
    shipping.written.add(0.25)
    shipping.written.add(0.75)
    actors = [an_actor(missing=["0.1-3"]), an_actor(actor=OWN_ACTOR, lag_s=99.0, missing=["0.0"])]
    rows.log(with_job(dead_letter_count=43, actors=actors), tally, 110.0)
    rows.log(with_job(dead_letter_count=43), tally, 120.0)
    rows.close()
    (lines,) = records(experiment)
    assert (lines[0]["actor"], lines[0]["rank"], lines[0]["attempt"], lines[0]["world"]) == (OWN_ACTOR, 0, 3, 1)
    first, second = metrics(lines)
    assert first == {
        "lag_s": 0.84,
        "unread_bytes": 17,
        "missing_ranks": 3,
        "late_rows": 2,
        "partial_rows": 1,
        "dead_letters": 3,
        "dead_values": 0,
        "cpu_cores": pytest.approx(0.01),
        "rss_bytes": 1001,
        "sink/wandb/behind_rows": 1,
        "sink/wandb/trouble_s": 1.5,
        "sink/wandb/errors": 1,
        "sink/wandb/lag_s": [0.25, 0.75],
    }
    assert (second["dead_letters"], second["late_rows"], second["sink/wandb/errors"]) == (0, 0, 0)
    assert "sink/wandb/lag_s" not in second
    defined = {name: how for line in lines if line.get("kind") == "define" for name, how in line["m"].items()}
    assert defined.keys() == first.keys()
    assert defined["sink/wandb/lag_s"] == {"reduce": ["p50", "p99", "max"], "unit": "s"}
    assert lines[-1]["kind"] == "close"


def test_one_record_in_its_time(experiment: Path) -> None:
    """However often it is asked, there is one record every so many seconds, and it makes up for no record later."""
    rows = own(experiment)
    for second in range(35):
        rows.log(with_job(), Tally(), 100.0 + second)
    rows.log(with_job(), Tally(), 171.0)
    rows.log(with_job(), Tally(), 172.0)
    rows.close()
    (lines,) = records(experiment)
    assert len(metrics(lines)) == 4


def test_it_ends_with_the_job_and_goes_on_with_it(experiment: Path) -> None:
    """Once every writer of the job closed or has been silent for long, the file is closed; its own file keeps it from
    nothing. When the job goes on, another file is begun.
    """
    rows = own(experiment)
    mine = a_writer(actor=OWN_ACTOR, silent_s=0.0, observes=True)
    alive, silent, closed = a_writer(), a_writer(silent_s=AT_WORK_S), a_writer(closed=True)
    told = [[alive, mine]] * 2 + [[silent, closed, mine]] * 3 + [[alive, mine]] * 2
    for number, writers in enumerate(told):
        rows.log(with_job(writers=writers), Tally(), 100.0 + 10 * number)
    rows.close()
    first, second = records(experiment)
    assert [len(metrics(first)), len(metrics(second))] == [1, 2]
    assert first[-1]["kind"] == second[-1]["kind"] == "close"


def test_what_counts_as_work() -> None:
    """A file that is not understood yet is no writer of the job, nor is an agent that writes as long as others do."""
    assert at_work(a_status())
    assert not at_work(a_status(writers=[a_writer(actor="generator", observes=True)]))
    assert not at_work(a_status(writers=[a_writer(actor="")]))
    assert not at_work(a_status(writers=[]))


def test_it_writes_in_the_experiment_only(tmp_path: Path) -> None:
    """Where `rlship` is a link to elsewhere nothing is written, and the status says that there are no such rows."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    experiment = tmp_path / "job"
    experiment.mkdir()
    (experiment / "rlship").symlink_to(elsewhere)
    rows, status = own(experiment), with_job()
    rows.log(status, Tally(), 100.0)
    rows.log(status, Tally(), 110.0)
    rows.log(status, Tally(), 111.0)
    assert list(elsewhere.iterdir()) == []
    place = experiment / "rlship"
    assert status.notes == [
        f"{place} cannot be written by the sidecar: the run has no rows of the sidecar's own metrics"
    ]


def test_a_folder_that_goes_is_not_made_again(experiment: Path) -> None:
    """Neither by the first row nor by those after it: the job's folder stays where it was renamed to."""
    metrics = own(experiment / "job")
    (experiment / "job" / "rlship").mkdir(parents=True)
    metrics.log(with_job(), Tally(), 100.0)
    metrics.log(with_job(), Tally(), 110.0)
    (experiment / "job").rename(experiment / "renamed")
    shutil.rmtree(experiment / "renamed")
    metrics.log(with_job(), Tally(), 120.0)
    metrics.close()
    assert not (experiment / "job").exists()
