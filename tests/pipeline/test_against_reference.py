"""The pipeline against the slow reference, on random experiments that arrive in random pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.decode import bundles, governing, schemas
from rlship_sidecar.reduce import unit as reducing
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.rows import Row, Sample, Unit
from tests.kit.cases import statistical
from tests.pipeline.simulated import REMOTE, Simulation, simulation
from tests.reference.experiments import arrivals, configurations, experiments
from tests.reference.reduction import Settings, dead_letters, differing, exactly, final_rows

EACH = Settings(samples_every=1)
"""The settings of a simulation: rows of all units show samples, of which there are few."""

CASES = statistical(300)


@pytest.fixture(scope="module", autouse=True)
def few_lines_are_laid_together() -> Iterator[None]:
    """Two are enough, so that small examples have bundles and lines of loose schemas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "FEWEST", 2)
        patch.setattr(schemas, "OFTEN", 1)
        patch.setattr(governing, "OVERLAPPING", 2)
        patch.setattr(governing, "LEAST", 1)
        yield


def arrive(data: st.DataObject, sim: Simulation, files: dict[str, bytes], *, restarts: bool) -> None:
    """Let the files grow in random pieces, with ticks and random waits in between, until all is there."""
    visible = dict.fromkeys(files, 0)
    for lengths in data.draw(arrivals(files)):
        for name, length in lengths.items():
            if length > visible.get(name, 0):
                sim.write(name, files[name][visible.get(name, 0) : length])
                visible[name] = length
        sim.wait(data.draw(st.sampled_from((0.0, 0.02, 0.4, 3.0, 12.0, 40.0))))
        sim.tick()
        if restarts and data.draw(st.integers(0, 3)) == 0:
            sim.restart()


def as_the_reference(files: dict[str, bytes]) -> list[Row]:
    """The final rows of these files, once they were found to be those of the reference."""
    with simulation() as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        assert not differing(final_rows(files, {}, EACH), sim.final())
        return list(sim.final().values())


def check_numbering(rows: list[Row]) -> None:
    """Row numbers and revisions have no gaps, and what is shipped adds up to the newest row."""
    assert [row.arrival.row_number for row in rows] == list(range(len(rows)))
    revisions: dict[Unit, int] = {}
    shipped: dict[Unit, dict[str, float]] = {}
    tables: dict[Unit, dict[str, list[Sample]]] = {}
    for row in rows:
        assert row.arrival.revision == revisions.get(row.unit, -1) + 1
        revisions[row.unit] = row.arrival.revision
        shipped.setdefault(row.unit, {}).update(row.shipped)
        assert row.values.items() <= shipped[row.unit].items()
        tables.setdefault(row.unit, {}).update(row.shipped_samples)
        assert all(tables[row.unit][row.table_key(table)] == found for table, found in row.samples.items())


@pytest.mark.parametrize("restarts", [False, True], ids=["one sidecar", "restarts"])
@CASES
@given(data=st.data())
def test_live_equals_reference(restarts: bool, data: st.DataObject) -> None:
    """However the lines arrive, and however often the sidecar starts anew, the final rows are those of the files."""
    files = data.draw(experiments())
    overrides = data.draw(configurations())
    settings = data.draw(
        st.builds(
            Settings,
            samples=st.sampled_from((4, 1, 0)),
            samples_every=st.sampled_from((1, 2, 5)),
            short_window=st.sampled_from((20, 1, 2, 0)),
        )
    )
    choice = SampleChoice(settings.samples, settings.samples_every)
    hinted = data.draw(st.booleans())
    with simulation(overrides=overrides, samples=choice, short_window=settings.short_window, hinted=hinted) as sim:
        arrive(data, sim, files, restarts=restarts)
        sim.finish()
        assert not differing(final_rows(files, overrides, settings), sim.final())
        check_numbering(sim.rows())


@CASES
@given(data=st.data())
def test_dead_letters_equal_reference(data: st.DataObject) -> None:
    """Exactly the unusable lines and values are dead letters, each once, wherever the file was cut while it grew."""
    files = data.draw(experiments())
    with simulation(filesystem=REMOTE) as sim:
        arrive(data, sim, files, restarts=False)
        sim.finish()
        assert sorted(sim.dead(), key=str) == sorted(dead_letters(files), key=str)


@CASES
@given(files=experiments(), overrides=configurations())
def test_fast_path_equals_general_path(files: dict[str, bytes], overrides: dict[str, list[str]]) -> None:
    """Reducing whole blocks of plain numbers gives the same bits as merging partials one by one."""
    with simulation(overrides=overrides) as fast:
        for name, data in files.items():
            fast.write(name, data)
        fast.finish()
        rows = fast.final()
    with pytest.MonkeyPatch.context() as patch, simulation(overrides=overrides) as slow:
        patch.setattr(reducing, "reduce_blocks", lambda *arguments, **alone: None)
        for name, data in files.items():
            slow.write(name, data)
        slow.finish()
        assert exactly(rows) == exactly(slow.final())


@CASES
@given(files=experiments(), overrides=configurations())
def test_lines_of_varied_metrics_say_the_same_together(
    files: dict[str, bytes], overrides: dict[str, list[str]]
) -> None:
    """Whether such lines share a schema or each has its own, rows are the same, whose values were not finite too."""
    found = []
    for sets in (2, 1 << 30):
        with pytest.MonkeyPatch.context() as patch, simulation(overrides=overrides) as sim:
            patch.setattr(governing, "OVERLAPPING", sets)
            for name, data in files.items():
                sim.write(name, data)
            sim.finish()
            rows = sim.final()
            found.append((exactly(rows), {unit: (row.nonfinite, row.coverage, row.tags) for unit, row in rows.items()}))
    assert found[0] == found[1]


def test_a_superseded_number_beside_a_summary_with_bins_has_no_part_in_the_time() -> None:
    """A later attempt's summary cannot be taken in columns. The time of the row is not that of the number that it
    supersedes, though a clock that was set back gives that the greater one.
    """
    opens = '{"kind":"open","rlship":1,"id":"%s","actor":"a","attempt":%d,"t":%d,"world":1}\n'
    line = '{"t":%d,"step":2,"m":{"loss":%s}}\n'
    bins = '{"n":3,"sum":1,"edges":[0,0.5,2],"counts":[1,2]}'
    files = {
        "first.jsonl": (opens % ("w0", 0, 1763600000) + line % (1763600005, "1.0")).encode(),
        "second.jsonl": (opens % ("w1", 2, 1763599995) + line % (1763599997, bins)).encode(),
        "other.jsonl": (opens % ("w2", 2, 1763599995)).replace('"world"', '"replica":"1","world"').encode()
        + (line % (1763599997, "2.0")).replace("loss", "x").encode(),
    }
    (row,) = as_the_reference(files)
    assert row.t == 1763599997


def test_a_superseded_span_beside_a_summary_with_bins_has_no_part_in_the_time() -> None:
    """Spans that stand together share a line, whose time is that of the last. Where a later attempt's summary
    supersedes that one, the time is that of those that count.
    """
    opens = '{"kind":"open","rlship":1,"id":"%s","actor":"a","attempt":%d,"t":%d,"world":1}\n'
    span = '{"kind":"span","t":%d,"dur":1.0,"step":2,"name":"%s"}\n'
    spans = "".join(span % (1763600010 + place, name) for place, name in enumerate("pqx"))
    bins = '{"t":1763599997,"step":2,"m":{"x_s":{"n":3,"sum":1,"edges":[0,0.5,2],"counts":[1,2]}}}\n'
    files = {
        "first.jsonl": (opens % ("w0", 0, 1763600000) + spans).encode(),
        "second.jsonl": (opens % ("w1", 2, 1763599995) + bins).encode(),
    }
    (row,) = as_the_reference(files)
    assert row.t == 1763600012


def test_a_metric_called_like_tags_supersedes_those_of_older_attempts() -> None:
    """It counts like any other, so a step that a later attempt did with it has no tag of the earlier one."""
    opens = '{"kind":"open","rlship":1,"id":"%s","actor":"a","attempt":%d,"t":%d,"world":1}\n'
    tag = '{"kind":"event","t":1763600001.0,"step":1,"name":"step_tag","attrs":{"tag":"eval"}}\n'
    line = '{"t":1763600301.0,"step":1,"m":{"event/step_tag":1.0}}\n'
    files = {
        "first.jsonl": (opens % ("w0", 0, 1763600000) + tag).encode(),
        "second.jsonl": (opens % ("w1", 1, 1763600300) + line).encode(),
    }
    assert [row.tags for row in as_the_reference(files)] == [()]


def test_a_barrier_behind_its_file_counts_no_more_once_the_parent_is_known() -> None:
    """A child's barrier of step 0, after its line of step 1, counts until its parent's file is there. Then the row of
    step 0 is made again without it.
    """
    opens = '{"kind":"open","rlship":1,"id":"%s","actor":"a","rank":%d,"attempt":%d,"t":%d,"world":%d%s}\n'
    line, barrier = '{"t":%d,"step":%d,"m":{"x":1}}\n', '{"kind":"barrier","step":%d,"t":%d}\n'
    ends = '{"kind":"close","reason":"exit"}\n'
    first = opens % ("a", 0, 0, 1000, 1, "") + line % (1001, 0) + barrier % (0, 1002) + line % (1003, 1) + ends
    parent = opens % ("b", 1, 1, 1200, 2, "") + line % (1201, 1) + barrier % (1, 1202) + ends
    child = opens % ("c", 1, 1, 1200, 2, ',"parent":"b"') + line % (1201, 1) + barrier % (1, 1202)
    child += barrier % (0, 1203) + ends
    files = {"a-0-r0-n-1-a.jsonl": first, "a-0-r1-n-3-c.jsonl": child, "a-0-r1-n-2-b.jsonl": parent}
    with simulation() as sim:
        for name, text in files.items():
            sim.write(name, text.encode())
            sim.wait(3.0)
            sim.tick()
        sim.wait(12.0)
        sim.finish()
        assert not differing(final_rows({n: t.encode() for n, t in files.items()}, settings=EACH), sim.final())


@pytest.mark.parametrize("whole", [True, False], ids=["in one look", "line by line"])
def test_a_define_behind_lines_of_varied_metrics_leaves_them_their_names(whole: bool) -> None:
    """Keys of an aligned unit say that a metric is also one of steps, though a define right behind the lines with a
    step ends what they share.
    """
    metrics = ('"a":1.0,"b":1.0', '"b":1.0,"c":1.0', '"c":1.0,"a":1.0', '"a":1.0,"once":1.0')
    lines = ['{"kind":"open","rlship":1,"id":"w","actor":"trainer","t":1763600000,"world":1}']
    for step, some in enumerate(metrics):
        t = 1763600001 + step
        lines += [f'{{"t":{t}.0,"step":{step},"m":{{{some}}}}}', f'{{"kind":"barrier","step":{step},"t":{t}.5}}']
    lines += ['{"kind":"define","m":{"a":{"reduce":["max"]}}}', '{"t":1763600004.0,"m":{"once":2.0}}']
    files = {"w.jsonl": "".join(f"{line}\n" for line in lines).encode()}
    with simulation() as sim:
        for piece in [files["w.jsonl"]] if whole else files["w.jsonl"].splitlines(keepends=True):
            sim.write("w.jsonl", piece)
            sim.tick()
        sim.finish()
        assert not differing(final_rows(files, {}, EACH), sim.final())
        assert sim.final()[Unit("trainer", "aligned", 3)].values == {"trainer/once/aligned": 2.0}
