"""What must hold of the reference, and of the generator, on all experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, assume, given, seed, settings
from hypothesis import strategies as st

from rlship_sidecar.rows import Unit, count_ranks
from tests.kit.cases import statistical
from tests.reference import snippets
from tests.reference.experiments import arrivals, configurations, configured, experiments
from tests.reference.lines import read_file
from tests.reference.reduction import exactly, final_rows
from tests.reference.rows import ReferenceRow, differing
from tests.reference.settings import Settings

QUICK = statistical(60)


@QUICK
@given(experiments(), configurations(), configured(), st.randoms(use_true_random=False))
def test_order_of_files_does_not_matter(
    files: dict[str, bytes], overrides: dict[str, list[str]], settings: Settings, chance: Any
) -> None:
    """Neither the order of the files nor their names enter a row."""
    names = list(files)
    chance.shuffle(names)
    turned = {f"{position}.jsonl": files[name] for position, name in enumerate(names)}
    rows = final_rows(files, overrides, settings)
    again = final_rows(turned, overrides, settings)
    assert exactly(again) == exactly(rows)
    assert differing(rows, again) == []


@QUICK
@given(experiments(), st.data())
def test_dead_and_unknown_lines_change_nothing(files: dict[str, bytes], data: st.DataObject) -> None:
    """A dead or unknown line put anywhere after the `open` leaves all rows as they were, but for where points begin."""
    opened = sorted(name for name in files if read_file(name, files[name]).writer)
    assume(opened)
    name = data.draw(st.sampled_from(opened))
    *lines, tail = files[name].split(b"\n")
    place = data.draw(st.integers(1, len(lines)))
    before = b"".join(line + b"\n" for line in lines[:place])
    assume(read_file(name, before).writer)
    inert = data.draw(st.sampled_from((*snippets.DEAD_LINES, b'{"kind":"novelty","t":1763609999}', b"", b" \t")))
    changed = b"\n".join([*lines[:place], inert, *lines[place:], tail])
    assert numbered(final_rows(files | {name: changed})) == numbered(final_rows(files))


def numbered(rows: Mapping[Unit, ReferenceRow]) -> list[str]:
    """The rows as texts, without the places of points in their files."""
    in_file_order = sorted(rows, key=lambda unit: (unit.actor, unit.kind, unit.writer, unit.index))
    return [
        f"{unit.actor}/{unit.kind_on_disk} {text}"
        for unit in in_file_order
        for text in exactly({unit: rows[unit]}).values()
    ]


@QUICK
@given(experiments(), configurations(), configured())
def test_rows_keep_their_own_rules(
    files: dict[str, bytes], overrides: dict[str, list[str]], settings: Settings
) -> None:
    """Ranks are missing only if expected, never absent too; underivable keys have no figure; every figure is finite."""
    for unit, found in final_rows(files, overrides, settings).items():
        cover = found.coverage
        assert found.unit == unit
        assert count_ranks(cover.missing) <= cover.expected
        assert not set(cover.missing) & set(cover.absent)
        assert not set(cover.underivable) & {*found.values, *found.hists}
        assert not set(found.hists) & set(found.values)
        assert all(abs(figure) <= 1.7976931348623157e308 for figure in found.values.values())
        assert bool(cover.ranks) == bool(cover.attempts)
        assert all(list(hist.edges) == sorted(hist.edges) for hist in found.hists.values())
        assert all(len(chosen) <= 3 * settings.samples for chosen in found.samples.values())


@QUICK
@given(experiments(), st.data())
def test_arrivals_end_in_everything(files: dict[str, bytes], data: st.DataObject) -> None:
    """What is visible never shrinks, never exceeds the file, and is everything at last."""
    course = data.draw(arrivals(files))
    assert course[-1] == {name: len(whole) for name, whole in files.items()}
    for earlier, later in pairwise(course):
        assert set(earlier) == set(files)
        assert all(0 <= earlier[name] <= later[name] for name in files)


@pytest.mark.long
def test_everything_happens() -> None:
    """Some hundred random experiments have rows with everything that a row may hold."""
    seen: set[str] = set()

    @settings(max_examples=80, deadline=None, database=None, phases=[Phase.generate])
    @given(experiments(), configurations(), configured())
    def look(files: dict[str, bytes], overrides: dict[str, list[str]], settings: Settings) -> None:
        for unit, found in final_rows(files, overrides, settings).items():
            seen.update(traits(unit, found))

    for number in range(25):
        seed(number)(look)()
        if seen >= WHAT_HAPPENS:
            break
    assert WHAT_HAPPENS - seen == set()


WHAT_HAPPENS = {
    *("step", "aligned", "clock", "point", "hist", "aligned/hist", "ranks", "tags", "top", "bottom", "random"),
    "newest",
    *("spread_s", "last_rank", "last_replica", "argmax_rank", "argmax_replica", "gap", "missing", "event", "span"),
    *("step/policy_lag", "aligned/policy_lag", "clock/policy_lag", "step/rate", "aligned/rate", "clock/rate"),
    *("/aligned", "p50", "p99", "tests.recent", "tests.spread", "nonfinite", "underivable"),
}


def traits(unit: Unit, found: ReferenceRow) -> Iterator[str]:
    """What is worth counting in a row."""
    kind = unit.kind.partition(":")[0]
    yield kind
    for key in found.values:
        last = key.rpartition("/")[2]
        yield from (last, f"{kind}/{last}")
        if "/event/" in key:
            yield "event"
        if key.endswith("rollout_s"):
            yield "span"
        if "/aligned" in key:
            yield "/aligned"
    for sample in (sample for chosen in found.samples.values() for sample in chosen):
        yield from sample["why"]
    present = {
        "hist": found.hists,
        f"{kind}/hist": found.hists,
        "ranks": found.per_rank,
        "tags": found.tags,
        "underivable": found.coverage.underivable,
        "gap": found.coverage.gap if kind != "step" else 0,
        "missing": found.coverage.missing if kind != "step" else (),
    }
    yield from (what for what, there in present.items() if there)
