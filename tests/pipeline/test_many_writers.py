"""Which of many writers of a rank count, found by one look at each: as the definition says, and quickly."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.reading import read_open
from rlship_sidecar.align.lineage import Segment, Writer, counting, outgrows, side_by_side, still_in_world, submissions
from rlship_sidecar.align.roster import MAX_GENERATIONS, Roster
from rlship_sidecar.report.claims import CLOCK_SLACK_S, overlapping_of

MANY = 20_000


def writer(number: int, **fields: object) -> Writer:
    """A writer of rank 0; `lasts`: seconds from its open to its newest line."""
    lasts = fields.pop("lasts", 0.0)
    body = {"kind": "open", "rlship": 1, "id": f"w{number}", "actor": "a", "rank": 0, "t": 1000.0, **fields}
    made = Writer(f"f{number}", read_open(body))
    made.newest_t = made.open.t + float(str(lasts))
    return made


def writers_of(lives: list[dict[str, object]]) -> list[Writer]:
    """Writers of one rank, in their submissions."""
    made = [writer(number, **life) for number, life in enumerate(lives)]
    for one, number in submissions(made).items():
        one.submission = number
    return made


LIVES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from("abc"),
            "attempt": st.sampled_from((0, 0, 0, 1)),
            "t": st.sampled_from((1000.0, 1000.0, 1010.0, 1050.0, 1070.0, 1130.0)),
            "host": st.sampled_from(("", "x", "y")),
            "lasts": st.sampled_from((-5, 0, 10, 10.5, 11, 60, 61, 100, 300)),
        }
    ),
    min_size=1,
    max_size=6,
)


@given(LIVES, st.lists(st.booleans(), min_size=6, max_size=6))
def test_what_counts_is_what_nothing_newer_supersedes(lives: list[dict[str, object]], rolled: list[bool]) -> None:
    """Segment by segment against all others: newer, and not side by side."""
    writers = writers_of(lives)
    segments = [segment for one in writers for segment in one.segments]
    segments += [Segment(one, 1) for one, more in zip(writers, rolled) if more]
    expected = [
        one
        for one in segments
        if not any(other.age > one.age and not side_by_side(one.writer, other.writer) for other in segments)
    ]
    assert counting(segments) == expected


@given(LIVES)
def test_overlapping_writers_are_those_of_which_one_went_on_after_another_began(
    lives: list[dict[str, object]],
) -> None:
    """Pair by pair: of one attempt, begun at other times, with a second between hosts; or side by side."""

    def overlap(older: Writer, newer: Writer) -> bool:
        slack_s = 0.0 if older.open.host and older.open.host == newer.open.host else CLOCK_SLACK_S
        went_on = older.open.t < newer.open.t < older.newest_t - slack_s
        lives = [(one.submission, one.open.attempt) for one in (older, newer)]
        return side_by_side(older, newer) or (lives[0] == lives[1] and went_on)

    writers = writers_of(lives)
    expected = {one.file for one in writers if any(overlap(one, b) or overlap(b, one) for b in writers if b is not one)}
    assert overlapping_of(writers) == expected


def test_twenty_thousand_writers_of_one_rank_take_no_time() -> None:
    """Claims, restarts, chains and a ring of children: well under the minutes that pairs of them would take."""
    began = time.process_time()
    claims = [writer(number, t=1000.0, lasts=100.0) for number in range(MANY)]
    assert len(overlapping_of(claims)) == MANY
    assert len(counting([one.segments[0] for one in claims])) == MANY
    restarts = [writer(number, attempt=number) for number in range(MANY)]
    assert overlapping_of(restarts) == set()
    assert [one.writer.file for one in counting([one.segments[0] for one in restarts])] == [f"f{MANY - 1}"]
    for step in (1, -1):
        ring = Roster()
        for number in range(MANY // 10):
            ring.add(writer(number, parent=f"w{(number + step) % (MANY // 10)}"))
    assert time.process_time() - began < 20.0


def test_families_end_at_sixteen_generations() -> None:
    """Who has 16 ancestors counts for the first of them, who has more for itself, in whatever order the files come."""
    members = range(MAX_GENERATIONS + 3)
    for order in (members, reversed(members)):
        family = Roster()
        found = {}
        for number in order:
            parent = {} if number == 0 else {"parent": f"w{number - 1}"}
            found[number] = writer(number, **parent)
            family.add(found[number])
        roots = [found[number].root.file for number in members]
        assert roots == ["f0"] * (MAX_GENERATIONS + 1) + [f"f{MAX_GENERATIONS + 1}", f"f{MAX_GENERATIONS + 2}"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "replica": st.sampled_from("ab"),
                "attempt": st.integers(0, 2),
                "rank": st.integers(0, 4),
                "world": st.sampled_from((None, 1, 2, 3, 5)),
                "t": st.sampled_from((1000.0, 1000.0, 1010.0, 1070.5, 1200.0)),
                "lasts": st.sampled_from((0, 10, 70, 70.5, 300)),
            }
        ),
        min_size=1,
        max_size=7,
    )
)
def test_ranks_that_a_later_start_does_not_know_are_gone(lives: list[dict[str, object]]) -> None:
    """Segment by segment: no writer of the replica outgrows it. The roster numbers submissions as the definition."""
    made = Roster()
    writers = [writer(number, **life) for number, life in enumerate(lives)]
    for one in writers:
        made.add(one)
    for name in "ab":
        of_replica = [one for one in writers if one.open.replica == name]
        assert {one: one.submission for one in of_replica} == submissions(of_replica)
    segments = [one.segments[0] for one in writers]
    kept = [
        one
        for one in segments
        if not any(other.open.replica == one.writer.open.replica and outgrows(other, one.writer) for other in writers)
    ]
    assert still_in_world(segments) == kept
