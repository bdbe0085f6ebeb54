"""What the run's summary shows of the rows: the furthest place in the newest lineage, whatever the order of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Lineage, Row, Unit
from rlship_sidecar.sinks.wandb import keeping
from rlship_sidecar.sinks.wandb import summary as wandb_summary
from rlship_sidecar.sinks.wandb.keeping import SUMMARY_FILE
from rlship_sidecar.sinks.wandb.summary import Standing, Summary, follows, standing
from tests.endtoend.sidecar import rlship, watching
from tests.kit.files import barrier, file, lines, log
from tests.loopback.backend import LoopbackBackend
from tests.loopback.runs import Run
from tests.sinks.rows import T0, MemorySource, make_row
from tests.sinks.wandb_shipping import Shipping, shipping

LINEAGES: Sequence[Lineage] = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]


class Line(NamedTuple):
    """One row of a job: which start it is of, at which step, and with which loss."""

    lineage: Lineage
    step: int
    loss: float | None = None
    revision: int = 0
    actor: str = "trainer"
    t: float = 0.0


def row(number: int, line: Line) -> Row:
    """The row of a line, which came as the store's row `number`; its time is that unless the line has one."""
    values = {f"{line.actor}/loss": float(number) if line.loss is None else line.loss}
    made = make_row(number, actor=line.actor, step=line.step, values=values, revision=line.revision)
    made = replace(made, arrival=replace(made.arrival, changed=tuple(values) if line.revision else ()))
    return replace(made, t=T0 + (line.t or number), coverage=replace(made.coverage, lineage=line.lineage))


def add(summary: Summary, row: Row) -> dict[str, float]:
    """Add a row as the sink does; returns what W&B has to learn behind the line."""
    numbers = dict(row.values)
    return summary.add(standing(row), "global_step", numbers, {**numbers, **row.x})


def rows_of_a_job() -> st.SearchStrategy[list[Row]]:
    """Rows whose times grow as a job's do: within a lineage with the step, and from one lineage to the next."""

    @st.composite
    def job(draw: st.DrawFn) -> list[Row]:
        t, found = 0, []
        for lineage in LINEAGES[: draw(st.integers(1, 4))]:
            first = draw(st.integers(0, 5))
            for step in range(first, first + draw(st.integers(1, 6))):
                t += 1
                found.append((lineage, step, t))
        order = draw(st.permutations(found))
        return [row(number, Line(lineage, step, t=t)) for number, (lineage, step, t) in enumerate(order)]

    return job()


@given(rows_of_a_job())
def test_it_has_the_furthest_step_of_the_newest_lineage(rows: list[Row]) -> None:
    """In whatever order the rows come, so live and in a replay; and W&B, which shows each line and then what
    comes behind it, has the same after every row.
    """
    summary, shown = Summary(), dict[str, float]()
    for at, one in enumerate(rows):
        told = add(summary, one)
        shown |= {**one.values, **one.x, **told}
        assert shown == summary.all(), at
    last = max(rows, key=lambda one: (one.coverage.lineage, one.x["global_step"]))
    assert summary.all() == {**last.values, **last.x}


@given(rows_of_a_job(), st.data())
def test_a_copy_goes_on_where_it_was_saved(rows: list[Row], data: st.DataObject) -> None:
    """A summary from its file ends as one that saw all rows."""
    at = data.draw(st.integers(0, len(rows)))
    whole, first = Summary(), Summary()
    for one in rows:
        add(whole, one)
    for one in rows[:at]:
        add(first, one)
    second = Summary.from_json(first.to_json("names"), "names")
    for one in rows[at:]:
        add(second, one)
    assert (second.all(), second.rows) == (whole.all(), whole.rows)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"rows": 3}', Summary().to_json("others")])
def test_a_damaged_file_or_one_of_other_settings_counts_as_none(data: bytes) -> None:
    """The numbers come back from the store's rows."""
    found = Summary.from_json(data, "names")
    assert (found.rows, found.all()) == (0, {})


def test_a_step_that_was_done_again_with_an_equal_value_is_said() -> None:
    """A revision ships only what changed. After a rollback the value of the earlier lineage must not stay, though the
    step that was done again has the same one as before.
    """
    summary = Summary()
    add(summary, row(0, Line((0, 0, 0), 5, 0.5)))
    add(summary, row(1, Line((0, 0, 0), 9, 0.1)))
    again = row(2, Line((0, 0, 1), 5, 0.5, revision=1))
    assert summary.add(standing(again), "global_step", again.values, again.x) == {"trainer/loss": 0.5}


def test_a_rank_that_was_restarted_and_left_holds_nothing_back() -> None:
    """Its attempt makes the rows that it has a part in newer. Rows without it that are further on and later count."""
    with_it, without, late = (
        standing(row(0, Line((0, 1, 0), 9, t=9))),
        standing(row(1, Line((0, 0, 0), 10, t=10))),
        standing(row(2, Line((0, 0, 0), 30, t=3))),
    )
    assert follows(without, with_it) and not follows(with_it, without)
    assert follows(with_it, late) and not follows(late, with_it)


def test_actors_on_one_axis_do_not_hide_each_other() -> None:
    """`global_step` is the furthest of all, whichever lineage each actor is in. A name that two actors have shows the
    newest of their furthest rows.
    """
    summary = Summary()
    lines = [
        Line((0, 0, 0), 900, actor="trainer"),
        Line((0, 1, 0), 100, actor="eval"),
        Line((0, 0, 0), 3, actor="trainer"),
    ]
    for number, line in enumerate(lines):
        one = row(number, line)
        summary.add(standing(one), "global_step", {"loss": float(number)}, {"loss": float(number), **one.x})
    assert summary.all() == {"loss": 1.0, "global_step": 900}


def test_rows_without_lineage_count_by_time() -> None:
    """Of streams: steps of the lead that are done again cover later times."""

    def aligned(number: int, step: int, t: float) -> Standing:
        return standing(replace(make_row(number, step=step), unit=Unit("gen", "aligned", step), t=T0 + t))

    assert follows(aligned(1, 5, 20.0), aligned(0, 9, 10.0))
    assert not follows(aligned(1, 5, 4.0), aligned(0, 9, 10.0))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys beyond the limit, the newest line's value stays in the summary."""
    monkeypatch.setattr(wandb_summary, "MAX_KEYS", 2)
    summary = Summary()
    for step in (9, 3):
        numbers = {"a": float(step), "b": float(step), "c": float(step)}
        told = summary.add(standing(make_row(9 - step, step=step)), "global_step", numbers, numbers)
    assert told == {"a": 9.0, "b": 9.0}


# At the server


def shown(run: Run) -> dict[str, float]:
    """What the run's summary has of loss and step."""
    return {key: run.summary[key] for key in ("trainer/loss", "global_step")}


def ship(sent: Shipping, *lines: Line) -> None:
    """Commit rows of these lines, and wait until W&B confirmed them, in one go."""
    first = sent.source.row_count()
    sent.source.append([row(first + at, line) for at, line in enumerate(lines)])
    sent.shipper.wake()
    assert sent.shipper.drain(60.0), sent.shipper.status()


def test_the_summary_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a late line, a rollback, a restart, a second submission and late lines of what was before,
    `run.summary` has the furthest step of the newest lineage as soon as the sink confirmed the rows. What the job set
    itself stays. Where an earlier rlship left {"max": 900}, the next start repairs it without a new row.
    """
    monkeypatch.setattr(keeping, "SAVE_ROWS", 3)
    source = MemorySource()
    with LoopbackBackend() as backend:
        with shipping(tmp_path, backend, source=source) as sent:
            source.say(summary={"best": 7.0})
            ship(sent, Line((0, 0, 0), 2), Line((0, 0, 0), 900, 0.9), Line((0, 0, 0), 3, 0.3))
            run = backend.run("rlship", "store1")
            assert shown(run) == {"trainer/loss": 0.9, "global_step": 900}
            ship(sent, Line((0, 0, 1), 500, 0.5), Line((0, 0, 0), 901, 0.7, t=1))
            assert shown(run) == {"trainer/loss": 0.5, "global_step": 500}
        saved = orjson.loads((tmp_path / "rlship" / "state" / SUMMARY_FILE).read_bytes())
        assert saved["rows"] == 3
        run.summary.update({"global_step": {"max": 900}, "best": 0.0})
        source.cursors.clear()
        with shipping(tmp_path, backend, source=source) as sent:
            assert sent.shipper.drain(60.0), sent.shipper.status()
            assert (run.summary["best"], shown(run)) == (7.0, {"trainer/loss": 0.5, "global_step": 500})
            ship(sent, Line((1, 0, 0), 0, 1.0), Line((0, 0, 1), 500, 0.6, 1, t=4))
            assert shown(run) == {"trainer/loss": 1.0, "global_step": 0}
        assert run.summary["best"] == 7.0 and run.overwritten() == []


def test_a_sidecar_that_is_killed_before_the_summary_arrived(tmp_path: Path) -> None:
    """kill -9 when W&B has every row and not yet the summary, neither the job's own value nor those behind a late line.
    The next start repairs it though there is no new row; the one after that has nothing to do, and opens no client.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    (experiment / "rlship").mkdir(parents=True)
    said = {"kind": "run", "t": T0 + 1, "summary": {"trainer/kl": 42.0}}
    steps = log(0, loss=1.0, kl=0.1), barrier(0, 1.0), log(5, loss=0.5, kl=0.1), barrier(5, 2.0)
    with LoopbackBackend() as backend:
        settings = {**backend.environment(home), "RLSHIP_LEASE_TTL_S": "1"}
        with watching(experiment, "wandb", home=home, settings=settings) as sidecar:
            path = experiment / "rlship" / "t.jsonl"
            path.write_bytes(file(said, *steps, id="t"))
            sidecar.until(lambda: confirmed(sidecar.until_status(bool)) == 2)
            (run,) = backend.runs.values()
            backend.keeps_summaries = False
            with open(path, "ab") as more:
                more.write(lines(log(0, loss=3.0, kl=0.3)))
            sidecar.until(lambda: len(run.history) == 3 and asked_for_summary(backend) > 1)
            assert confirmed(sidecar.until_status(bool)) == 2
            sidecar.kill()
        assert (run.summary["trainer/kl"], shown(run)) == (0.2, {"trainer/loss": 2.0, "global_step": 0})
        backend.keeps_summaries = True
        for repaired in (True, False):
            before = len(backend.requests)
            done = rlship(home, "watch", "--once", experiment, "--sink", "wandb", settings=settings)
            assert done.returncode == 0, done.stderr
            assert (run.summary["trainer/kl"], shown(run)) == (42.0, {"trainer/loss": 0.5, "global_step": 5})
            assert (len(backend.requests) > before) == repaired
        assert len(run.history) == 3


def confirmed(status: Status) -> int:
    """How many rows W&B confirmed, as the sidecar says."""
    (sink,) = status.sinks
    return sink.next_row


def asked_for_summary(backend: LoopbackBackend) -> int:
    """How often the sidecar asked the server what the summary is."""
    return sum(request.operation == "RlshipSummary" for request in backend.sent("graphql"))
