"""What a status looks like to people."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from rlship_sidecar.decode.lines import MAX_REPORTED_CHARS
from rlship_sidecar.report import terminal
from rlship_sidecar.report.status import (
    AlertStatus,
    ClockStatus,
    LackingStatus,
    NonFiniteStatus,
    ShortSpan,
    ShortStatus,
    Status,
    StreamStatus,
)
from tests.cli.sample import a_dead_letter, a_sink, a_status, a_writer, an_actor

NASTY = "tr\x1b[2J\u202eainer\n[red]"


def test_columns_are_aligned_and_complete() -> None:
    """The plain table shows actor, ranks in the newest row, steps, lag, missing and note, then what is incomplete."""
    status = a_status(
        actors=[an_actor(missing=["0.3", "0.7"], note="slow"), an_actor(actor="buffer", step=None, open_units=0)],
        dead_letters=[a_dead_letter()],
        dead_letter_count=3,
        dead_value_count=1,
        notes=["clock skew"],
        lacking=[LackingStatus("trainer", 40, 20, 59)],
        streams=[
            StreamStatus("generator", 12, 1763600010.0, 3.2, "0.1", 22.0, ["1.0"], 18.0),
            StreamStatus("reward", None, None, 0.0),
        ],
        clocks=[ClockStatus("n07", -0.031, 0.012, 4.0)],
        running=True,
    )
    assert terminal.columns(status) == [
        "/outputs/grpo-7b",
        "actor    ranks  row step  log step  lag    missing  note",
        "trainer  2/4    12        13        0.8 s  r3, r7   slow",
        "buffer   4/4    -         13        -      -",
        "rows 120, row function 1",
        "sink wandb: shipping, confirmed 118 rows -> wandb/x",
        "stream generator: rows up to step 12 and 22.0 s after the start, 3.2 s behind its newest line, waits for "
        "rep 0 r1, missing rep 1 r0 (silent for 18 s, did not close)",
        "stream reward: rows not yet",
        "clock of n07: 0.031 s behind ± 0.012 s, 4.0 s ago",
        "trainer: 40 rows lack ranks, steps 20..59",
        "3 dead letters, 1 dead value",
        "  dead: not JSON (3 times), reward.jsonl byte 812: {oops",
        "note: clock skew",
    ]


def test_a_narrow_terminal_keeps_the_values() -> None:
    """Where the table is too wide, what is missing and the note have lines of their own, and no line is cut."""
    note = "step 191 has waited 9 s for r1; goes on without it after 30 s of silence"
    where = "wandb sync " + "/long/path" * 20
    status = a_status(
        actors=[an_actor(missing=["0.1"], note=note), an_actor(actor="reward")],
        sinks=[a_sink(where=where)],
        running=True,
    )
    assert terminal.columns(status, 80)[1:8] == [
        "actor    ranks  row step  log step  lag",
        "trainer  3/4    12        13        0.8 s",
        "  missing r1",
        f"  {note}",
        "reward   4/4    12        13        0.8 s",
        "rows 120, row function 1",
        f"sink wandb: shipping, confirmed 118 rows -> {where}",
    ]
    assert terminal.columns(status, 200) == terminal.columns(status)


def test_no_note_is_cut() -> None:
    """Of an actor, a writer or the experiment; the terminal wraps it, and a file has it whole."""
    note = "step 191 has waited 9 s for r1 (a-long-host-name-0001 pid 4121); goes on without it after 30 s of silence"
    status = a_status(actors=[an_actor(note=note)], writers=[a_writer(note=note)], notes=[note * 3], claims=[note * 3])
    found = terminal.columns(status)
    assert found[2].endswith(note) and f"note: {note * 3}" in found and note * 3 in found
    assert terminal.writer_columns(status.writers)[1].endswith(note)


def test_the_versions_are_shown() -> None:
    """The sidecar's version, and each one that wrote files, stand beside the row function."""
    writers = [a_writer(writer=name) for name in ("python/0.1.0", "go/0.1.0\x1b[2J", "python/0.1.0", "")]
    status = a_status(version="0.1.1", writers=writers)
    (line,) = [line for line in terminal.footer(status, terminal.RankNames(status)) if line.startswith("rows")]
    assert line == "rows 120, row function 1, rlship 0.1.1, files by go/0.1.0\\x1b[2J, python/0.1.0"


def test_ranks_are_no_decimals() -> None:
    """A rank is r5, with its host and process where three or fewer are named, and `rep 1 r5` beside other replicas."""
    one = a_status(writers=[a_writer(rank=17, host="n07", pid=4121), a_writer(rank=3)])
    names = terminal.RankNames(one)
    assert names.places("trainer", ["0.3", "0.17"]) == "r3, r17 (n07 pid 4121)"
    assert names.places("trainer", ["0.3", "0.17", "0.20-23", "0.30"]) == "r3, r17, r20-23, r30"
    assert names.words("trainer", [f"0.{i}" for i in range(0, 20, 2)]) == "r0, r2, r4, r6, r8, r10 +4"
    several = terminal.RankNames(a_status(writers=[a_writer(), a_writer(replica="1")]))
    assert several.words("trainer", ["0.17", "1.3-7"]) == "rep 0 r17, rep 1 r3-7"
    assert names.words("trainer", ["10.0.0.7:8000.0"]) == "rep 10.0.0.7:8000 r0"


def test_names_are_in_natural_order() -> None:
    """A number within a name sorts by its value."""
    assert sorted(["r10", "r2", "r1", "a2b10", "a2b9", "٣"], key=terminal.natural) == [
        *("a2b9", "a2b10", "r1", "r2", "r10", "٣"),
    ]


def test_a_date_says_the_day() -> None:
    """A time has its date; one that no calendar has is left out."""
    assert terminal.date(1763600000.0, time.gmtime) == "2025-11-20 00:53:20"
    assert terminal.date(1e300) == ""


def test_control_characters_of_names_never_reach_the_terminal() -> None:
    """Escape codes, line breaks, direction marks and rich markup in names are spelled out everywhere."""
    status = a_status(
        experiment=NASTY,
        filesystem=NASTY,
        actors=[an_actor(actor=NASTY, missing=[NASTY], absent=[NASTY], note=NASTY)],
        writers=[a_writer(file=NASTY, actor=NASTY, replica=NASTY, note=NASTY)],
        sinks=[a_sink(name=NASTY, where=NASTY, state="waiting", error=NASTY)],
        dead_letters=[a_dead_letter(file=NASTY, reason=NASTY, excerpt=NASTY)],
        dead_letter_count=1,
        notes=[NASTY],
    )
    told = [
        *terminal.columns(status),
        *terminal.writer_columns(status.writers),
        *terminal.lines(None, status),
        terminal.progress(status),
    ]
    for line in told:
        assert line.isprintable(), line
    assert "tr\\x1b[2J\\u202eainer\\n[red]" in told[0]


def test_clean_cuts_and_survives_any_text() -> None:
    """Lone surrogates are spelled out and long names are cut."""
    assert terminal.clean("a\udc80b") == "a\\udc80b"
    assert terminal.clean("größe 日本") == "größe 日本"
    assert terminal.clean("x" * 300) == "x" * 199 + "…"


def test_durations() -> None:
    """Times are shown in the unit that suits them."""
    told = [terminal.duration(s) for s in (0, 0.84, 9.94, 42, 119, 210, 7199, 9000)]
    assert told == ["0.0 s", "0.8 s", "9.9 s", "42 s", "119 s", "3.5 min", "120.0 min", "2.5 h"]


def test_metrics_that_ranks_left_out_are_named() -> None:
    """The footer names rank and metric, by ranks; a line says once which are new."""
    short = {"trainer/grad": ["0.3"], "trainer/kl": ["0.1-2"], "trainer/loss": ["0.3"]}
    status = a_status(short=[ShortStatus("trainer", 7, 20, 59, short, of_last=short)])
    assert "trainer: 7 rows lack a metric of a rank, steps 20..59: r3 left out grad, loss; r1-2 left out kl" in (
        terminal.columns(status)
    )
    loss = {"trainer/loss": ["0.3"]}
    one = a_status(short=[ShortStatus("trainer", 1, 20, 20, loss, of_last=loss)])
    assert "trainer: 1 row lacks a metric of a rank, step 20: r3 left out loss" in terminal.columns(one)
    assert terminal.lines(a_status(), one) == ["trainer step 20: r3 left out loss"]
    newest = a_status(short=[ShortStatus("trainer", 79, 1, 79, {"trainer/loss": ["0.3"]}, of_newest=20)])
    assert (
        "trainer: 79 rows lack a metric of a rank, steps 1..79; of the newest 20: r3 left out loss"
        in terminal.columns(newest)
    )
    assert terminal.lines(one, one) == []
    assert terminal.lines(one, status) == ["trainer step 59: r3 left out grad; r1-2 left out kl"]
    metrics = {f"trainer/m{i}": [f"0.{i // 6}"] for i in range(36)}
    many = a_status(short=[ShortStatus("trainer", 1, 20, 20, metrics, of_last=metrics)])
    assert terminal.lines(a_status(), many)[0].endswith("r3 left out m18, m19, m20, m21 and 2 more; and 2 more")


def test_a_rank_is_named_at_the_step_at_which_it_left_a_metric_out() -> None:
    """Another rank that did so at an earlier step is not named there; the rows together lack `some of` the ranks."""

    def short(rows: int, first: int, last: int, ranks: list[str], of_last: list[str], *varied: str) -> Status:
        one = ShortStatus("trainer", rows, first, last, {"trainer/aux": ranks}, varied=list(varied))
        one.of_last = {"trainer/aux": of_last}
        one.spans = {"trainer/aux": [ShortSpan(["0.1"], 3, 5), ShortSpan(["0.2"], 9, 9)]} if varied else {}
        return a_status(short=[one])

    first, both = short(1, 3, 3, ["0.1"], ["0.1"]), short(2, 3, 9, ["0.1-2"], ["0.2"], "trainer/aux")
    assert terminal.lines(first, both) == ["trainer step 9: r2 left out aux"]
    assert terminal.lines(a_status(), both) == [
        "trainer step 9: r2 left out aux",
        "trainer steps 3..5: r1 left out aux",
    ]
    assert terminal.lines(both, short(3, 3, 12, ["0.1-2"], ["0.1"], "trainer/aux")) == []
    assert "trainer: 2 rows lack a metric of a rank, steps 3..9: some of r1-2 left out aux" in terminal.columns(both)


def test_lines_of_the_first_status() -> None:
    """The first status tells what is watched, each actor and where each sink delivers to."""
    assert terminal.lines(None, a_status()) == [
        "watching /outputs/grpo-7b on ext4",
        "trainer: 4/4 ranks",
        "sink wandb -> wandb/x",
    ]


def test_nothing_is_told_when_only_figures_moved() -> None:
    """Steps, rows, lag and a sink between shipping and idle are no change of substance."""
    before = a_status()
    after = a_status(
        rows=500, actors=[an_actor(step=13, lag_s=3.0, open_units=2)], sinks=[a_sink(state="idle", next_row=500)]
    )
    assert terminal.lines(before, after) == []


def test_ranks_lost_and_found_are_told() -> None:
    """A rank that is missing, absent, back, or the last to come is reported once each."""
    fresh = a_status(actors=[an_actor(ranks_seen=2, step=None)])
    full = a_status()
    lost = a_status(actors=[an_actor(missing=["0.2", "0.3"])])
    never = a_status(actors=[an_actor(absent=["0.7"])])
    many = a_status(actors=[an_actor(ranks_expected=8, absent=["0.4-7"])])
    assert terminal.lines(fresh, full) == ["trainer: all 4 ranks"]
    assert terminal.lines(full, lost) == ["trainer step 12: missing r2, r3"]
    assert terminal.lines(lost, lost) == []
    assert terminal.lines(lost, full) == ["trainer step 12: r2, r3 no longer missing"]
    assert terminal.lines(full, never) == ["trainer: r7 has logged no step; not waited for"]
    assert terminal.lines(full, many) == ["trainer: r4-7 have logged no step; not waited for"]


def test_new_actors_are_told() -> None:
    """An actor that appears later gets its line."""
    both = a_status(actors=[an_actor(), an_actor(actor="reward", ranks_seen=1, ranks_expected=1)])
    assert terminal.lines(a_status(), both) == ["reward: 1/1 ranks"]


def test_sink_states_are_told() -> None:
    """A sink that waits, recovers, refuses or closes is reported once, with the reason and what that means."""
    up = a_status()
    down = a_status(sinks=[a_sink(state="waiting", error="connection refused", trouble_s=11.0)])
    longer = a_status(sinks=[a_sink(state="waiting", error="no route", trouble_s=300.0)])
    back = a_status(sinks=[a_sink(next_row=120)])
    refused = a_status(sinks=[a_sink(state="refused", error="another store")])
    closed = a_status(sinks=[a_sink(state="closed", next_row=120)])
    assert terminal.lines(up, down) == [
        "sink wandb: cannot deliver for 11 s now, tries again: connection refused; "
        "rows from 118 on are kept in the store"
    ]
    assert terminal.lines(down, longer) == []
    assert terminal.lines(longer, back) == ["sink wandb: delivers again from row 118 on -> wandb/x"]
    assert terminal.lines(up, refused) == ["sink wandb: refused: another store"]
    assert terminal.lines(up, closed) == ["sink wandb: closed, holds 120 rows -> wandb/x"]


def test_a_sink_that_is_soon_well_again_is_not_told() -> None:
    """Trouble of ten seconds or less makes no line, neither when it comes nor when it is over."""
    brief = a_status(sinks=[a_sink(state="waiting", error="its process ended", trouble_s=9.0)])
    assert terminal.lines(a_status(), brief) == terminal.lines(brief, a_status()) == []


def test_a_refusal_is_shown_to_its_end() -> None:
    """The way out stands at the end of a long error, and is not cut off."""
    long = "x" * 300 + ": move it away"
    refused = a_status(sinks=[a_sink(state="refused", error=long)])
    assert any(long in line for line in terminal.columns(refused))
    assert any(long in line for line in terminal.lines(None, refused))


def test_dead_letters_are_told_by_file_and_reason() -> None:
    """A new kind of dead letter is reported; more of a known one is not."""
    one = a_status(dead_letters=[a_dead_letter(count=1)], dead_letter_count=1)
    more = a_status(dead_letters=[a_dead_letter(count=9)], dead_letter_count=9)
    assert terminal.lines(a_status(), one) == ["dead: not JSON, reward.jsonl byte 812: {oops"]
    assert terminal.lines(one, more) == []


def test_notes_are_told_once() -> None:
    """Notes of the experiment, an actor and a writer are reported when they appear."""
    noted = a_status(notes=["a"], actors=[an_actor(note="b")], writers=[a_writer(file="f", note="c")])
    assert terminal.lines(a_status(), noted) == ["note: a", "note: trainer: b", "note: f: c"]
    assert terminal.lines(noted, noted) == []


def test_a_note_that_counts_files_is_told_once() -> None:
    """A trainer writes another file of completions at each step; a further framework's files are news."""

    def reading(*notes: str) -> Status:
        return a_status(notes=[f"reads {note}" for note in notes])

    before = reading("1 file of trl-completions", "2 files of trainer_state")
    after = reading("20 files of trl-completions", "3 files of trainer_state", "1 file of verl")
    assert terminal.lines(before, after) == ["note: reads 1 file of verl"]


def test_ranks_that_are_claimed_twice_are_told() -> None:
    """When it is seen, in the status, and at the end among what is incomplete."""
    claimed = a_status(claims=["16 writers claim trainer/0/r0 at one time: set rank or replica"])
    assert terminal.lines(a_status(), claimed) == [f"note: {claimed.claims[0]}"]
    assert terminal.shortcomings(claimed) == claimed.claims
    assert claimed.claims[0] in terminal.columns(claimed)


def test_a_flood_of_changes_is_cut() -> None:
    """However much changes at once, the lines are few and say how much they leave out."""
    flood = a_status(dead_letters=[a_dead_letter(file=f"f{i}") for i in range(500)], dead_letter_count=500)
    told = terminal.lines(a_status(), flood)
    assert len(told) == terminal.MAX_LINES
    assert told[-1] == "and 481 more changes: see `rlship status`"


def test_progress_is_one_line() -> None:
    """The line of progress has actors, rows, sinks that lack some, and dead letters."""
    status = a_status(
        actors=[an_actor(ranks_expected=16, missing=[f"0.{i}" for i in range(8)])],
        sinks=[a_sink(), a_sink(name="jsonl", next_row=120)],
        dead_letter_count=1,
    )
    assert terminal.progress(status) == (
        "trainer step 12, ranks 8/16, lag 0.8 s, missing r0, r1, r2, r3, r4, r5 +2; rows 120; wandb 118 (shipping); "
        "1 dead letter"
    )


def test_writers_are_listed() -> None:
    """A writer's line has who, attempt, step, barrier, silence, bytes unread and its file."""
    heading, first, second = terminal.writer_columns([a_writer(), a_writer(rank=12, closed=True, note="superseded")])
    assert heading.split() == list(terminal.WRITER_COLUMNS)
    assert first.split() == ["trainer/0/r0", "0", "13", "12", "0.2", "s", "17", "B", "trainer-0-r0-n07-4121-9f2c.jsonl"]
    assert "trainer/0/r12" in second
    assert "closed" in second
    assert second.endswith("superseded")


def test_sent_rows_are_no_backlog() -> None:
    """Rows that a sink took but has not confirmed are reported in the status, and are no backlog in the progress."""
    status = a_status(rows=150, sinks=[a_sink(next_row=118, sent=150)], running=True)
    assert "wandb" not in terminal.progress(status)
    told = "sink wandb: shipping, written 150 rows, 118 of them confirmed, the rest within 30 s -> wandb/x"
    assert told in terminal.columns(status)


def test_what_was_not_finite_is_reported_once() -> None:
    """When it is found, and again when it is so of another rank; not while the same goes on."""
    one = NonFiniteStatus("trainer", "step", ["trainer/loss"], ["0.1"], 1, 5, 5)
    before, after = a_status(), a_status(nonfinite=[one])
    assert terminal.lines(before, after) == ["trainer: loss was not finite: r1, step 5"]
    later = a_status(nonfinite=[replace(one, rows=2, last=6)])
    assert terminal.lines(after, later) == []
    more = a_status(nonfinite=[replace(one, ranks=["0.0-1"], rows=3, last=7)])
    assert terminal.lines(later, more) == ["trainer: loss was not finite: r0-1, 3 rows, steps 5..7"]


def test_episodes_are_reported_when_they_begin_get_worse_and_end() -> None:
    """First of all, with rule, place and values; and on top of the table while they go on. Hostile text is escaped."""
    one = AlertStatus("i", "imbalance", "warning", "firing", "trainer/0.3\x1b", 5, 7, 0.0, 9, {"slow": 41.7})
    before, after = a_status(), a_status(alerts=[one], episodes=1)
    words = "warning imbalance at trainer/0.3\\x1b since step 5: slow 41.7"
    assert terminal.lines(before, after) == [f"alert: {words}"]
    assert terminal.lines(after, a_status(alerts=[replace(one, last_step=10)])) == []
    assert terminal.lines(after, before) == [f"over: {words}"]
    assert terminal.columns(after)[1] == f"alert: {words}"
    critical = a_status(alerts=[replace(one, severity="critical")])
    assert terminal.lines(after, critical) == [f"worse: {words.replace('warning', 'critical')}"]
    assert terminal.lines(critical, critical) == [] == terminal.lines(critical, after)
    calm = replace(one, state="clearing")
    assert terminal.alert(calm) == words.replace("step 5", "step 5, calm since step 9")


def test_without_a_sidecar_nothing_is_said_to_go_on() -> None:
    """No sink ships, no step is waited for, and there is no lag; a refusal stays, and so does what a sink has."""
    waits = an_actor(missing=["0.1"], note="step 13 has waited 9 s for r1", waiting="0.1")
    streams = [StreamStatus("generator", 12, 1763600010.0, 3.2, "0.1", 22.0)]
    sinks = [a_sink(sent=150), a_sink(name="jsonl", state="waiting", error="disk full"), a_sink(state="refused")]
    status = a_status(actors=[waits], rows=150, sinks=sinks, streams=streams)
    found = "\n".join(terminal.columns(status))
    assert "0.8 s" not in found and "waited" not in found and "waits" not in found and "30 s" not in found
    assert (
        "sink wandb: stopped, written 150 rows, 118 of them confirmed, the rest by the next sidecar -> wandb/x\n"
        "sink jsonl: stopped: disk full; confirmed 118 rows -> wandb/x\n"
        "sink wandb: refused, confirmed 118 rows"
    ) in found


def test_an_actor_without_steps_is_told_by_its_streams() -> None:
    """Its rows' place is a step of the lead and a time; the rank that died is named, in the table and when it is
    noticed, and that it is silent is no line a second.
    """
    stream = StreamStatus("generator", 57, 1763600010.0, 0.0, "", 22.0)
    lost = StreamStatus("generator", 57, 1763600010.0, 0.0, "", 22.0, ["1.0"], 18.0)
    longer = StreamStatus("generator", 57, 1763600010.0, 0.0, "", 22.0, ["1.0"], 19.0)
    facts: dict[str, Any] = {"ranks_seen": 2, "ranks_expected": 2, "step": None, "open_step": None, "open_units": 0}
    before = a_status(actors=[an_actor(actor="generator", **facts)], streams=[stream])
    after = a_status(actors=[an_actor(actor="generator", **facts, missing=["1.0"])], streams=[lost])
    assert terminal.columns(before)[2].split() == ["generator", "2/2", *"----", "see", "stream"]
    assert any(line.startswith("stream generator: ") for line in terminal.columns(before))
    assert terminal.columns(after)[2].split()[:2] == ["generator", "1/2"]
    assert terminal.columns(after)[2].endswith("rep 1 r0  silent for 18 s, did not close")
    assert terminal.lines(before, after) == ["generator up to step 57 and 22.0 s after the start: missing rep 1 r0"]
    assert terminal.lines(after, a_status(actors=after.actors, streams=[longer])) == []
    told = "generator up to step 57 and 22.0 s after the start, ranks 1/2, missing rep 1 r0; rows"
    assert terminal.progress(after).startswith(told)


def test_windows_that_lack_ranks_are_told_by_their_time() -> None:
    """Rows over time are named as charts have them, in seconds since the experiment began; aligned ones by steps."""
    lacking = [
        LackingStatus("generator", 3, 359050717, 359050720, "clock", 40.0, 70.0),
        LackingStatus("generator", 1, 359050717, 359050717, "clock", 40.0, 40.0),
        LackingStatus("generator", 48, 22, 69, "aligned"),
    ]
    assert terminal.shortcomings(a_status(lacking=lacking)) == [
        "generator: 3 rows lack ranks, over time, 40.0..70.0 s after the start",
        "generator: 1 row lacks ranks, over time, 40.0 s after the start",
        "generator: 48 rows lack ranks, beside steps 22..69",
    ]


def test_errors_and_places_of_sinks_stay_apart() -> None:
    """What went wrong with a sink stands before what it holds, and where it delivers to stands behind an arrow."""
    waiting = a_sink(state="waiting", next_row=1, error="no route", where="wandb sync /o/run")
    status = a_status(sinks=[waiting], running=True)
    assert "sink wandb: waiting: no route; confirmed 1 row -> wandb sync /o/run" in terminal.columns(status)


def test_absent_ranks_stand_in_the_note() -> None:
    """Ranks that logged no step are named in the table where there is no other note, and do not count as present."""
    absent = an_actor(ranks_expected=6, absent=["0.4-5"])
    assert terminal.columns(a_status(actors=[absent]))[2].endswith("  r4-5 have logged no step")
    assert " 4/6 " in terminal.columns(a_status(actors=[absent]))[2]
    absent.note = "step 12 waits for r1"
    assert terminal.columns(a_status(actors=[absent]))[2].endswith("step 12 waits for r1")


def test_the_newest_logged_step_is_shown_when_nothing_is_open() -> None:
    """With every step closed the newest logged step is that of the newest row."""
    assert terminal.columns(a_status(actors=[an_actor(open_step=None, open_units=0)]))[2].split()[2:4] == ["12", "12"]


def test_what_is_incomplete_is_told_in_words() -> None:
    """Rows that lack ranks and dead letters each have a line, one of a kind in the singular."""
    status = a_status(
        lacking=[LackingStatus("trainer", 1, 7, 7), LackingStatus(NASTY, 2, 0, 9)],
        dead_letters=[a_dead_letter()],
        dead_letter_count=1,
    )
    told = terminal.shortcomings(status)
    assert [told[0], *told[2:]] == [
        "trainer: 1 row lacks ranks, step 7",
        "1 dead letter",
        "  dead: not JSON (3 times), reward.jsonl byte 812: {oops",
    ]
    assert told[1].isprintable() and told[1].endswith(": 2 rows lack ranks, steps 0..9")
    assert terminal.shortcomings(a_status()) == []


def test_a_report_of_a_wrong_call_is_cut_to_a_line() -> None:
    """On a terminal, unless all is asked for; elsewhere all that is kept of it is shown, the way out at its end too.
    Other notes and paths stay whole.
    """
    notes = [
        "reported to the job by 1 process: value: " + "x" * (MAX_REPORTED_CHARS - 7) + "!",
        "reads 2 files of " + "y" * 90,
    ]
    status = a_status(notes=notes)
    (wrong, other) = terminal.columns(status, 80, whole=False)[-2:]
    assert (
        wrong.startswith("note: reported to the job by 1 process: value: xxx")
        and wrong.endswith("…")
        and len(wrong) == 80
    )
    assert other == f"note: {notes[1]}"
    for found in (terminal.columns(status, 80), terminal.columns(status)):
        assert found[-2:] == [f"note: {note}" for note in notes]
    assert terminal.lines(a_status(), status) == [f"note: {note}" for note in notes]


def test_a_process_that_an_error_ended_is_reported_once() -> None:
    """With the error and the step; not if its rank was started again."""
    failed = a_writer(rank=1, step=20, awaited=True, failure="RuntimeError: CUDA out of memory")
    now = a_status(writers=[failed])
    assert terminal.lines(a_status(), now) == ["trainer r1 ended with RuntimeError: CUDA out of memory at step 20"]
    assert terminal.lines(now, now) == []
    assert terminal.lines(a_status(), a_status(writers=[a_writer(rank=1, failure="RuntimeError")])) == []


def test_a_process_that_is_gone_is_reported_once() -> None:
    """With its step, as soon as the status has it; one more at the same step says nothing of the first again."""
    gone = [
        a_writer(file=f"r{rank}", rank=rank, host="n07", pid=11, step=9, awaited=True, gone=True) for rank in (6, 7)
    ]
    before, now = a_status(writers=[gone[0], replace(gone[1], gone=False)]), a_status(writers=gone)
    line = "ended without a close: trainer r6 (n07 pid 11) at step 9, its process is gone"
    assert terminal.lines(a_status(), before) == [line]
    assert terminal.lines(before, now) == [line.replace("r6", "r7")]
    assert terminal.lines(now, now) == []
    (both,) = terminal.lines(a_status(), now)
    assert both == "ended without a close: trainer r6 (n07 pid 11), r7 (n07 pid 11) at step 9, their processes are gone"


def test_the_process_of_the_error_is_named_and_no_other_of_its_rank() -> None:
    """A rank that was started again in its folder without another attempt has files of both processes, in any order,
    and perhaps a framework's, which names no process.
    """
    killed = a_writer(host="n07", pid=11, awaited=False, silent_s=90.0)
    failed = a_writer(host="n07", pid=12, step=20, awaited=True, failure="RuntimeError: nan", silent_s=40.0)
    foreign = a_writer(format="trainer_state", closed=True, silent_s=0.0)
    lacking = an_actor(actor=failed.actor, missing=["0.0"])
    for order in ([killed, failed, foreign], [foreign, failed, killed], [failed, foreign, killed]):
        status = a_status(writers=order, actors=[lacking])
        assert terminal.failures(status) == ["trainer r0 (n07 pid 12) ended with RuntimeError: nan at step 20"]
        assert terminal.RankNames(status).places("trainer", ["0.0"]) == "r0 (n07 pid 12)"


def test_processes_that_claim_one_rank_keep_their_own_errors() -> None:
    """Each error has the process that it ended."""
    failed = [a_writer(host="n07", pid=pid, awaited=True, failure=f"OSError: {pid}") for pid in (11, 12)]
    assert sorted(line.split(" ended")[0] for line in terminal.failures(a_status(writers=failed))) == [
        "trainer r0 (n07 pid 11)",
        "trainer r0 (n07 pid 12)",
    ]
