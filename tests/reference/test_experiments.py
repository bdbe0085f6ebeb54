"""What must hold of the reference, and of the generator, on all experiments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlship_sidecar.rows import count_ranks
from tests.reference import snippets
from tests.reference.experiments import arrivals, configurations, experiments
from tests.reference.lines import read_file
from tests.reference.reduction import exactly, final_rows

QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(experiments(), configurations(), st.randoms(use_true_random=False))
def test_order_of_files_does_not_matter(
    files: dict[str, bytes], configuration: dict[str, list[str]], chance: Any
) -> None:
    """Neither the order of the files nor their names enter a row."""
    names = list(files)
    chance.shuffle(names)
    turned = {f"{position}.jsonl": files[name] for position, name in enumerate(names)}
    assert exactly(final_rows(turned, configuration)) == exactly(final_rows(files, configuration))


@QUICK
@given(experiments(), st.data())
def test_dead_and_unknown_lines_change_nothing(files: dict[str, bytes], data: st.DataObject) -> None:
    """A dead or unknown line put anywhere after the `open` leaves all rows as they were."""
    opened = sorted(name for name in files if read_file(name, files[name]).writer)
    assume(opened)
    name = data.draw(st.sampled_from(opened))
    *lines, tail = files[name].split(b"\n")
    place = data.draw(st.integers(1, len(lines)))
    before = b"".join(line + b"\n" for line in lines[:place])
    assume(read_file(name, before).writer)
    inert = data.draw(st.sampled_from((*snippets.DEAD_LINES, b'{"kind":"novelty","t":1763609999}', b"", b" \t")))
    changed = b"\n".join([*lines[:place], inert, *lines[place:], tail])
    assert exactly(final_rows(files | {name: changed})) == exactly(final_rows(files))


@QUICK
@given(experiments())
def test_rows_keep_their_own_rules(files: dict[str, bytes]) -> None:
    """Ranks are missing only if expected, never absent too; underivable keys have no figure; every figure is finite."""
    for unit, found in final_rows(files).items():
        cover = found.coverage
        assert found.unit == unit
        assert count_ranks(cover.missing) <= cover.expected
        assert not set(cover.missing) & set(cover.absent)
        assert not set(cover.underivable) & set(found.figures)
        assert all(abs(figure) <= 1.7976931348623157e308 for figure in found.figures.values())
        assert bool(cover.ranks) == bool(cover.attempts)


@QUICK
@given(experiments(), st.data())
def test_arrivals_end_in_everything(files: dict[str, bytes], data: st.DataObject) -> None:
    """What is visible never shrinks, never exceeds the file, and is everything at last."""
    course = data.draw(arrivals(files))
    assert course[-1] == {name: len(whole) for name, whole in files.items()}
    for earlier, later in pairwise(course):
        assert set(earlier) == set(files)
        assert all(0 <= earlier[name] <= later[name] for name in files)
