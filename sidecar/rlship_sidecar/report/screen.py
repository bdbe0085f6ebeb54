"""What `watch` and `status` show of a folder on a terminal: lines that fit it. Pure; `cli/live.py` draws them.

An experiment that runs, still delivers, or fell silent or lost its sidecar lately, has a line with details below it:
missing ranks and trouble, its metrics, actors and sinks. So has an only experiment. Any other one has one line. Where
the terminal is too low, the least important details are left out before any experiment is. Where the experiments' own
lines and trouble are too many, the last line counts the experiments that have none.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os.path import basename, dirname
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from rlship_sidecar.report.ended import SILENT_S, EndedProcesses, FileEnds, ended_processes, is_held_back, patience_s
from rlship_sidecar.report.status import (
    ActorStatus,
    AlertStatus,
    NonFiniteStatus,
    ShortStatus,
    SinkStatus,
    Status,
    TrendStatus,
    WriterStatus,
)
from rlship_sidecar.report.terminal import (
    CRITICAL,
    MAX_ERROR_CHARS,
    REPORT_AFTER_S,
    RankNames,
    alert,
    clean,
    counted,
    date,
    dead_totals,
    duration,
    failures,
    finished,
    gone_writers,
    is_of_misuse,
    is_stopped,
    lacking_rows,
    left_out,
    natural,
    nonfinite,
    not_read,
    present,
    where_of,
)
from rlship_sidecar.report.trends import evenly
from rlship_sidecar.rows import ALIGNED, CLOCK
from rlship_sidecar.tally import OWN_ACTOR

FIRING = "firing"
BARS = "▁▂▃▄▅▆▇█"
LATELY_SILENT_S = 3600.0  # for so long an experiment without news has details, because it may hang or go on
LATELY_WRONG = 100  # for so many steps a metric that a rank left out, or that was not finite, is trouble; then a note
NEWLY_WRONG = 20  # for so many steps the experiment's own line has it before the values
WINDOW_S = 10.0  # of rows over time, this counts as a step
MAX_FAILURES = 3  # lines about processes that an error ended
LATELY_MISUSED_S = 600.0  # for so long a wrong call of the job is trouble; then it is a note
MISUSED_S = 3600.0  # for so long it is on the screen at all
MIN_WRAPPED = 20  # cells of a terminal below which nothing is wrapped
MAX_NAME = 24  # cells of a name that is too long for its terminal, and of an actor's
BESIDE_NAME = 56  # cells that an experiment's own line needs beside a longer name
MAX_METRIC = 28
_RUNNING, _SILENT, _UNWATCHED, _FINISHED = range(4)
_CRASHED, _NOT_CLOSED = "crashed", "ended without a close"
_STATES = ("running", "silent", "not watched", "finished")
_COUNTED = ("running", _CRASHED, _NOT_CLOSED, *_STATES[1:])
_INDENT = "  "
# Which details stay when there is little room.
_TROUBLE, _TREND, _ACTORS, _MORE_TRENDS, _SINKS, _NOTES = range(6)


class StyledLine(NamedTuple):
    """One line of the screen, and its style: "", "bold", "dim", "yellow" or "red".

    `goes_on`: the next line belongs to the same text. The terminal wraps it by itself, so that a person can copy a
    command or a path in one piece.
    """

    text: str
    style: str = ""
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything that the lines depend on.

    `t` is the present in Unix seconds, and `local` makes it a local time. `watched`: this process is the sidecar;
    otherwise each status says whether one runs. `silent_s` maps experiments to the present silence of their files,
    where that is known better than by the status.
    """

    title: str
    statuses: Sequence[Status]
    t: float
    watched: bool = True
    local: Callable[[float], time.struct_time] = time.localtime
    silent_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def lines(screen: Screen, width: int, height: int) -> list[StyledLine]:
    """At most `height` lines, none of them wider than `width` cells."""
    called = short_names(names_of(screen.statuses), max(MAX_NAME, width - BESIDE_NAME))
    views = sorted((_View(*one, screen) for one in zip(screen.statuses, called)), key=lambda view: view.order)
    active = [view for view in views if view.has_details]
    details = [view.details(width) for view in active]
    room = max(0, height - 1)
    fitting = room - sum(rank == _TROUBLE for one in details for rank, _ in one)
    if len(views) > fitting:  # a last line counts the rest
        # Not all fit anyway. Then trouble and curves get up to two thirds of what their experiments' own lines leave.
        important = sum(rank <= _TREND for one in details for rank, _ in one)
        fitting = room - min(important, max(0, (room - len(active)) * 2 // 3))
        fitting = max(0, max(fitting, min(len(active) + 1, room)) - 1)
    shown, rest = views[:fitting], views[fitting:]
    kept = _kept(details[:fitting], room - len(shown) - bool(rest))
    names = max((cell_len(view.name) for view in shown), default=0)
    found = [StyledLine(_header(screen, views, width), "bold")]
    labels = _common([view for view in shown if not view.has_details])
    table = _table([view for view in shown if not (view.has_details or view.is_odd)], labels, names, width)
    for place, view in enumerate(shown):
        found.append(view.line(names, width, table.get(view.order), labels[:1]))
        found += kept[place] if place < len(kept) else []
    if rest and room:
        found.append(StyledLine(f"and {len(rest)} more: {_tally(rest)}", "dim"))
    return _wrapped(found[: max(0, height)], width, height)


def _wrapped(found: Sequence[StyledLine], width: int, height: int) -> list[StyledLine]:
    """Make lines no wider than `width`. Details take more rows where some are free, trouble first; others are cut."""
    free = height - len(found)
    rows = [[StyledLine(fit(line.text.rstrip(), width), line.style)] for line in found]
    wide = [at for at, line in enumerate(found) if line.text.startswith(_INDENT) and rows[at][0].text.endswith("…")]
    for at in sorted(wide, key=lambda at: (found[at].style not in ("red", "yellow"), at)):
        split = _split(found[at], width)
        if len(split) - 1 <= free:
            free -= len(split) - 1
            rows[at] = split
    return [line for split in rows for line in split]


def _split(line: StyledLine, width: int) -> list[StyledLine]:
    """A wide line as several rows. One that goes on breaks at the last cell, any other before a word if possible."""
    rest, rows = line.text.rstrip(), []
    while width >= MIN_WRAPPED and cell_len(rest) > width:
        begin = chop_cells(rest, width)[0]
        space = -1 if line.goes_on else rest.rfind(" ", len(_INDENT) * 2, len(begin) + 1)
        if space >= 0:
            begin = rest[:space]
        rows.append(StyledLine(begin if line.goes_on else begin.rstrip(), line.style, line.goes_on))
        rest = rest[len(begin) :] if line.goes_on else _INDENT * 2 + rest[len(begin) :].lstrip()
    return [*rows, StyledLine(fit(rest, width), line.style)]


def newest_values(status: Status, t: float, width: int, *, curves: bool = True) -> list[str]:
    """The metrics of one experiment with their curves, a line each, and while it runs the rate of its steps."""
    view = _View(status, "", Screen("", [status], t, watched=False))
    return view.newest_values(width if curves else 0)


class ExperimentGlance(NamedTuple):
    """An experiment in few words: "running", "silent", "not watched" or "finished", and since when. `ended`: no process
    goes on, though some did not close. `trouble`: what is wrong, the worst first.
    """

    state: str
    words: str
    ended: bool
    trouble: list[str]


def glance(status: Status, t: float, silent_s: Mapping[str, float]) -> ExperimentGlance:
    """What the line of an experiment is made of. `t` and `silent_s` are those of a `Screen`."""
    view = _View(status, "", Screen("", [status], t, watched=False, silent_s={status.experiment: silent_s}))
    words = "" if view.state == _RUNNING else view.state_forms[0]
    return ExperimentGlance(_STATES[view.state], words, view._has_ended, view.trouble_words)


def fit(text: str, width: int) -> str:
    """Cut a text to `width` cells; a cut one ends with an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def names_of(statuses: Sequence[Status]) -> list[str]:
    """The names of experiments: those of their folders, and where several share one, that of the folder above too."""
    paths = [status.experiment for status in statuses]
    last = [basename(path) or path for path in paths]
    above = [f"{basename(dirname(path))}/{name}" for path, name in zip(paths, last)]
    return [clean(more if last.count(name) > 1 else name) for name, more in zip(last, above)]


def short_names(names: Sequence[str], room: int) -> list[str]:
    """The names in at most `room` cells each. The middle of a longer one is left out, or, where that makes two alike,
    what all have in common.
    """
    cut = [_cut_middle(name, room) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    # Whole words only: of seed1 and seed10 the number is no part of what they have in common.
    before = _words_begun(names)
    after = _words_begun([name[len(before) :][::-1] for name in names])
    bare = [
        _cut_middle(("…" if before else "") + name[len(before) : len(name) - len(after)] + ("…" if after else ""), room)
        for name in names
    ]
    return bare if len(set(bare)) > len(set(cut)) else cut


def _words_begun(names: Sequence[str]) -> str:
    """The whole words with which all names begin."""
    least, greatest = min(names), max(names)
    alike = next((at for at, (a, b) in enumerate(zip(least, greatest)) if a != b), len(least))
    return re.sub(r"[^-_./]*$", "", least[:alike])


def _cut_middle(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    end = set_cell_size(text[::-1], room // 2)[::-1]
    return set_cell_size(text, room - 1 - room // 2) + "…" + end


def sparkline(points: Sequence[float | None], width: int) -> str:
    """The points as bars between their least and greatest value, at most `width` of them, evenly chosen; a blank for
    one that is not finite.
    """
    points = evenly(points, width) if width > 0 else []
    known = [point for point in points if point is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    # Halved, because the difference of two finite numbers may be infinite.
    span = high / 2 - low / 2

    def bar(point: float) -> str:
        return BARS[min(7, int((point / 2 - low / 2) / span * 8))] if span > 0 else BARS[3]

    return "".join(" " if point is None else bar(point) for point in points)


def number(value: float | None, digits: int = 4) -> str:
    """A value in at most nine characters: `0.0312`, `1204`, `18.2k`, `1.5e-06`, `nan`."""
    if value is None:
        return "nan"
    size = abs(value)
    if size >= 1e15 or (0 < size < 1e-4):
        return f"{value:.2e}"
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{_rounded(value / (limit if limit > 1e4 else 1e3), digits)}{suffix}"
    return _rounded(value, digits)


def _rounded(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text else text


def span(seconds: float) -> str:
    """A length of time in two units: `42 s`, `3 min 05 s`, `1 h 12 min`, `3 d 04 h`."""
    if not 0 <= seconds < math.inf:
        return "-"
    whole = int(seconds)
    for size, name, part, least in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // part:02} {least}"
    return f"{whole} s"


def _common(views: Sequence[_View]) -> list[str]:
    """The metrics of experiments, those first that most have. Experiments with many metrics know their order."""
    by_number = sorted(views, key=lambda one: -len(one.values))
    labels = dict.fromkeys(label for view in by_number for label in view.values)
    return sorted(labels, key=lambda label: -sum(label in view.values for view in views))


def _table(views: Sequence[_View], labels: Sequence[str], names: int, width: int) -> dict[tuple[object, ...], str]:
    """The text after the names of experiments that have one line, with each metric in a column of its own.

    States are as long as that leaves each experiment a metric. Without columns if no form of them does.
    """
    for form in range(max((len(view.state_forms) for view in views), default=0)):
        states = [view.state_forms[min(form, len(view.state_forms) - 1)] for view in views]
        about = [[view.step_words, *(view.values.get(label, "") for label in labels)] for view in views]
        rows = [[state, *row] for state, row in zip(states, about)]
        widths = [max(map(cell_len, column)) for column in zip(*rows)]
        columns = sum(names + sum(widths[: place + 1]) + 2 * (place + 1) <= width for place in range(len(widths)))
        if all(any(row[2:columns]) for row in rows if any(row[2:])):
            cells = ([set_cell_size(text, size) for text, size in zip(row[:columns], widths)] for row in rows)
            return {view.order: "  ".join(row).rstrip() for view, row in zip(views, cells)}
    return {}


def _kept(details: list[list[tuple[int, StyledLine]]], room: int) -> list[list[StyledLine]]:
    """Of the details of each experiment the most important ones, at most `room` of all; each list keeps its order."""
    ranked = sorted((rank, nth, place) for place, one in enumerate(details) for nth, (rank, _) in enumerate(one))
    chosen = {(place, nth) for _, nth, place in ranked[: max(0, room)]}
    return [[line for nth, (_, line) in enumerate(one) if (place, nth) in chosen] for place, one in enumerate(details)]


def _header(screen: Screen, views: Sequence[_View], width: int) -> str:
    title, counts = clean(screen.title), _tally(views) or "no experiment yet"
    now = date(screen.t, screen.local)
    rests = [f"  {now}  {counts}", f"  {now[11:]}  {counts}", f"  {counts}"]
    least = min(8, cell_len(title))
    rest = next((rest for rest in rests if least + cell_len(rest) <= width), rests[-1])
    room = max(8, width - cell_len(rest))
    if cell_len(title) > room:  # the end of a path says more than its beginning
        title = "…" + fit(title[::-1], room)[:-1][::-1]
    return title + rest


def _tally(views: Sequence[_View]) -> str:
    counts = Counter(view.counted_as for view in views)
    return ", ".join(f"{counts[word]} {word}" for word in _COUNTED if counts[word])


class _View:
    """One experiment on the screen."""

    def __init__(self, status: Status, name: str, screen: Screen) -> None:
        self._status = status
        self._screen = screen
        self._ranks = RankNames(status)
        self.name = name
        self.has_details = self.state == _RUNNING or len(screen.statuses) == 1
        if self.state == _FINISHED:
            self.has_details = self.has_details or not finished(status)
        else:
            self.has_details = self.has_details or self._quiet_s < LATELY_SILENT_S
        self.order = self.state, not self.has_details, natural(status.experiment)

    @cached_property
    def state(self) -> int:
        # A job that has ended does not run because a sink still lacks rows of it.
        if finished(self._status) or (self._is_watched and self._status.finished):
            return _FINISHED
        if not self._is_watched:
            return _UNWATCHED
        if self._has_ended:
            return _SILENT
        longest_s = max(map(patience_s, self._writers), default=SILENT_S)
        return _SILENT if self._silent_s >= longest_s else _RUNNING

    @property
    def counted_as(self) -> str:
        """What the header and the last line count it as."""
        if self.state == _SILENT and self._has_ended:
            return _CRASHED if any(writer.failure for writer in self._ended.writers) else _NOT_CLOSED
        return _STATES[self.state]

    @property
    def _is_watched(self) -> bool:
        """True if a sidecar works on it now; else what the status says of the present is old."""
        return self._screen.watched or self._status.running

    @cached_property
    def _writers(self) -> list[WriterStatus]:
        """The writers of the job that have not closed."""
        writers = (writer for writer in self._status.writers if writer.actor and not writer.observes)
        return [writer for writer in writers if writer.unread or not writer.closed]

    @cached_property
    def _silent_s(self) -> float:
        """For how long no process of the job has written. Those that closed count: their last lines may be newest."""
        job = (writer.silent_s for writer in self._status.writers if writer.actor and not writer.observes)
        return min(job, default=0.0) + self._since_s

    @property
    def _quiet_s(self) -> float:
        """For how long there has been no news: of the job, or of its sidecar where none runs."""
        return self._since_s if self.state == _UNWATCHED else self._silent_s

    @property
    def _since_s(self) -> float:
        """The age of the status."""
        return max(0.0, self._screen.t - self._status.t)

    @cached_property
    def _ended(self) -> EndedProcesses:
        silent_s = self._screen.silent_s.get(self._status.experiment)
        if silent_s is None:
            silent_s = {writer.file: writer.silent_s + self._since_s for writer in self._status.writers}
        return ended_processes(self._status, silent_s, FileEnds())

    @cached_property
    def _has_ended(self) -> bool:
        """True if processes ended without a close or with an error, and no other one goes on.

        Of a process that only fell silent, and is not known to be gone, this is known once another one closed.
        """
        certain = any(writer.failure or writer.gone for writer in self._ended.writers)
        return bool(self._ended.writers) and self._ended.all and (certain or self._have_others_closed)

    @cached_property
    def _have_others_closed(self) -> bool:
        ended = {(writer.actor, writer.replica, writer.rank) for writer in self._ended.writers}
        return any(
            writer.closed and not writer.observes and (writer.actor, writer.replica, writer.rank) not in ended
            for writer in self._status.writers
        )

    @cached_property
    def _ended_words(self) -> str:
        """The ranks that ended without a close or with an error, by actor; "" where each process goes on or closed."""
        failed = [writer for writer in self._ended.writers if writer.failure]
        others = [writer for writer in self._ended.writers if not writer.failure]
        named = [(self._by_actor(others), "ended without a close"), (self._by_actor(failed), "ended with an error")]
        return ", ".join(f"{who} {how}" for who, how in named if who)

    @cached_property
    def _gone_words(self) -> str:
        """The ranks of a job that goes on whose processes are gone without a close; "" without any."""
        gone = [] if self._has_ended or self.state != _RUNNING else gone_writers(self._status)
        return f"{self._by_actor(gone)} ended without a close" if gone else ""

    def _by_actor(self, writers: Sequence[WriterStatus]) -> str:
        ranks: dict[str, dict[str, None]] = {}
        for writer in writers:
            ranks.setdefault(writer.actor, {})[f"{writer.replica}.{writer.rank}"] = None
        named = [
            f"{clean(actor, MAX_NAME)} {self._ranks.words(actor, list(ranks[actor]), 3)}" for actor in sorted(ranks)
        ]
        more = f" and {len(named) - 3} more actors" if len(named) > 3 else ""
        return ", ".join(named[:3]) + more

    @cached_property
    def _actors(self) -> list[ActorStatus]:
        """The job's actors: the lead, then those with the highest steps."""
        actors = [actor for actor in self._status.actors if actor.actor != OWN_ACTOR]
        return sorted(actors, key=lambda one: (one.actor != self._status.lead, -(one.step or 0), natural(one.actor)))

    def line(self, names: int, width: int, in_columns: str | None, compared: Sequence[str]) -> StyledLine:
        """The experiment in one line; its name takes `names` cells. `in_columns` is what follows it in a table.
        `compared` are the metrics that it shares with others of one line.
        """
        name = set_cell_size(self.name, names)
        if in_columns is not None:
            style = "yellow" if self.state in (_SILENT, _UNWATCHED) else "dim" if self.state == _FINISHED else ""
            return StyledLine(f"{name}  {in_columns}", style)
        # Where details follow, they have what is wrong.
        wrong = self._firing if self.has_details else self.trouble_words
        shared = [] if self.has_details else [self.values[label] for label in compared if label in self.values]
        texts = [f"{name}  {', '.join([*begin, *wrong])}" for begin in self._begins]
        # When an experiment finished says less than a metric that can be compared.
        spare = sum(cell_len(f", {value}") for value in shared) if self.state == _FINISHED else 0
        text = next((text for room in (width - spare, width) for text in texts if cell_len(text) <= room), texts[-1])
        # Other words that do not fit are left out. What is wrong stands before the values.
        for word in dict.fromkeys([*self.trouble_words[len(wrong) :], *shared, *self._further]):
            if cell_len(f"{text}, {word}") <= width:
                text = f"{text}, {word}"
        doubtful = self.trouble_words or self.state in (_SILENT, _UNWATCHED)
        return StyledLine(text, "yellow" if doubtful else "dim" if self.state == _FINISHED else "")

    @property
    def _begins(self) -> list[list[str]]:
        """What begins the experiment's own line, the longest first: its state and its step."""
        crash = [self._ended_words] if self.state == _UNWATCHED and self._ended_words else []
        step = [self.step_words] if self.step_words else []
        forms = self.state_forms
        found = [[*crash, form, *step] for form in forms] + [[*crash, forms[-1]]]
        return [*found, crash] if crash else found

    @property
    def _further(self) -> list[str]:
        """What follows on the experiment's own line as far as there is room."""
        if self.state == _RUNNING and not self._actors:
            return ["no lines yet"]
        unread = list(filter(None, [not_read(self._status)]))
        steps_per_s = self._actors[0].steps_per_s if self.state == _RUNNING else None
        return [*unread, *([_rate(steps_per_s)] if steps_per_s else []), *self.values.values()]

    @property
    def is_odd(self) -> bool:
        """True if the experiment's own line says what no column of a table has room for."""
        return bool(self.trouble_words or (self.state in (_SILENT, _UNWATCHED) and self._ended_words))

    def newest_values(self, width: int) -> list[str]:
        """A line for each metric, and while the experiment runs one for the rate of its steps."""
        found = [self._trend(trend, width).rstrip() for trend in self._status.trends]
        if self.state == _RUNNING and self._actors and self._actors[0].steps_per_s:
            found.append(f"{_INDENT}{_rate(self._actors[0].steps_per_s)}")
        return found

    @property
    def state_forms(self) -> list[str]:
        """The state of the experiment and since when, the longest form first."""
        status = self._status
        if self.state == _RUNNING:
            return [*([f"running {span(self._screen.t - status.began)}"] if status.began else []), "running"]
        if self.state == _SILENT and self._has_ended:
            return [self._ended_words + (", the others finished" if self._have_others_closed else "")]
        if self.state == _SILENT:
            return [f"silent for {span(self._silent_s)}"]
        if self.state == _UNWATCHED:
            return [f"no sidecar since {date(status.t, self._screen.local)[:16]}"]
        if not status.newest_t:
            return ["finished"]
        ended = f"finished {date(status.newest_t, self._screen.local)[:16]}".rstrip()
        took = [f"{ended} in {span(status.newest_t - status.began)}"] if status.began else []
        return [*took, ended, "finished"]

    @property
    def step_words(self) -> str:
        """The newest step of the first actor; "" without any."""
        step = self._actors[0].step if self._actors else None
        return "" if step is None else f"step {step}"

    @cached_property
    def values(self) -> dict[str, str]:
        """The newest values, each with its name, by name."""
        labels = ((self._label(trend), trend) for trend in self._status.trends[:3])
        return {label: f"{label} {number(trend.value, 3)}{_left_out_of(trend)}" for label, trend in labels}

    @property
    def _firing(self) -> list[str]:
        alerts = self._status.alerts
        return [f"{clean(one.rule, MAX_NAME)} {one.state}" for one in alerts if one.state == FIRING][:3]

    @cached_property
    def trouble_words(self) -> list[str]:
        """What is wrong, in a few words."""
        status = self._status
        found = [*self._firing]
        found += [
            f"{clean(actor.actor, MAX_NAME)} lacks {self._ranks.words(actor.actor, actor.missing, 3)}"
            for actor in self._actors
            if actor.missing
        ]
        found += [
            f"{clean(actor.actor, MAX_NAME)} {clean(actor.note.partition(';')[0])}"
            for actor in self._actors
            if not actor.missing and self._waits_long(actor)
        ]
        found += failures(status)[:1]
        found += [self._gone_words] if self._gone_words else []
        found += [self._not_finite(one, 1) for one in status.nonfinite if self._steps_since(one) < NEWLY_WRONG]
        found += [self._left_out(short, 1) for short in status.short if self._steps_since(short) < NEWLY_WRONG]
        found += [f"{clean(sink.name)} {self._sink_state(sink)}" for sink in status.sinks if self._is_trouble(sink)]
        found += [counted(len(status.claims), "claim")] if status.claims else []
        found += [_unreadable(status)] if _unreadable(status) else []
        if (rows := sum(lacking.rows for lacking in status.lacking)) and not any(one.missing for one in self._actors):
            found.append(f"{counted(rows, 'row')} {'lacks' if rows == 1 else 'lack'} ranks")
        return [*found, *([dead_totals(status)] if dead_totals(status) else [])]

    def details(self, width: int) -> list[tuple[int, StyledLine]]:
        """The lines below the experiment's own, each with its importance: 0 is kept longest."""
        status = self._status
        found = [self._alert(one) for one in status.alerts]
        for nth, trend in enumerate(status.trends):
            found.append((_TREND if nth < 2 else _MORE_TRENDS, StyledLine(self._trend(trend, width))))
        for actor in self._actors:
            is_trouble = bool(actor.missing or self._waits_long(actor))
            line = StyledLine(self._actor(actor, width), "yellow" if is_trouble else "")
            found.append((_TROUBLE if is_trouble else _ACTORS, line))
        for sink in status.sinks:
            is_trouble = self._is_trouble(sink)
            style = "red" if sink.state == "refused" else "yellow" if is_trouble else "dim"
            line = StyledLine(_INDENT + self._sink(sink), style, goes_on=bool(sink.where))
            found.append((_TROUBLE if is_trouble else _SINKS, line))
        wrong = [*failures(status, MAX_FAILURES), *(clean(claim) for claim in status.claims)]
        wrong += [self._gone_words] if self._gone_words else []
        wrong += [f"{clean(one.file)}: {clean(one.note)}" for one in status.writers if one.unreadable][:MAX_FAILURES]
        wrong += lacking_rows(status)[:MAX_FAILURES]
        wrong += [dead_totals(status)] if dead_totals(status) else []
        notes = [clean(note) for note in status.notes if not (status.misuse and is_of_misuse(note))]
        for one in status.nonfinite:
            is_recent = self._steps_since(one) < LATELY_WRONG
            (wrong if is_recent else notes).append(f"{self._not_finite(one, 3)} ({where_of(one)})")
        for short in status.short:
            steps = f"step {short.last}" if short.rows == 1 else f"{short.rows:,} rows up to step {short.last}"
            is_recent = self._steps_since(short) < LATELY_WRONG
            (wrong if is_recent else notes).append(f"{self._left_out(short, 3)} ({steps})")
        if status.misuse and (age_s := self._misused_s) < MISUSED_S:
            (wrong if age_s < LATELY_MISUSED_S else notes).append(_misuse(status.misuse, status.misuse_t))
        found += [(_TROUBLE, StyledLine(_INDENT + line, "yellow")) for line in wrong]
        return [*found, *((_NOTES, StyledLine(_INDENT + note, "dim")) for note in notes)]

    def _alert(self, one: AlertStatus) -> tuple[int, StyledLine]:
        """An episode with what to do about it. One that is calm by now is no trouble any more."""
        if one.state != FIRING:
            return _NOTES, StyledLine(_INDENT + alert(one), "dim")
        look = f"; look at {clean(one.look)}" if one.look else ""
        return _TROUBLE, StyledLine(_INDENT + alert(one) + look, "red" if one.severity == CRITICAL else "yellow")

    @property
    def _misused_s(self) -> float:
        """How long ago a writer last reported a wrong call; infinite if no present sidecar read that."""
        return self._screen.t - max(self._status.misuse_t.values(), default=-math.inf)

    def _left_out(self, short: ShortStatus, most: int) -> str:
        return f"{clean(short.actor, MAX_NAME)} {left_out(short.actor, short.metrics, self._ranks, most, short.varied)}"

    def _not_finite(self, found: NonFiniteStatus, most: int) -> str:
        return f"{clean(found.actor, MAX_NAME)} {nonfinite(found, self._ranks, most)}"

    def _steps_since(self, found: ShortStatus | NonFiniteStatus) -> float:
        """How many steps ago it was so last: of the actor, of the lead, or as many windows of time."""
        if isinstance(found, NonFiniteStatus) and found.last_s is not None:
            return (self._status.newest_t - self._status.began - found.last_s) / WINDOW_S
        of = self._status.lead if isinstance(found, NonFiniteStatus) and found.kind == ALIGNED else found.actor
        step = next((actor.step for actor in self._actors if actor.actor == of), None)
        return 0 if step is None else step - found.last

    def _waits_long(self, actor: ActorStatus) -> bool:
        """True if ranks have held back an actor's rows for so long that it is no slow step."""
        return self._is_watched and is_held_back(actor)

    def _is_trouble(self, sink: SinkStatus) -> bool:
        lasts = sink.state == "waiting" and sink.trouble_s > REPORT_AFTER_S
        return sink.state == "refused" or (lasts and self._is_watched)

    def _sink_state(self, sink: SinkStatus) -> str:
        if is_stopped(sink, is_watched=self._is_watched):
            return "stopped"
        return f"waits for {span(sink.trouble_s)}" if sink.state == "waiting" else sink.state

    def _sink(self, sink: SinkStatus) -> str:
        has = f"{sink.sent:,} of {self._status.rows:,} rows"
        error = f": {clean(sink.error, MAX_ERROR_CHARS)}" if sink.error and self._is_trouble(sink) else ""
        where = f" -> {clean(sink.where, MAX_ERROR_CHARS)}" if sink.where else ""
        return f"{clean(sink.name)} {self._sink_state(sink)}, {has}{error}{where}"

    def _trend(self, trend: TrendStatus, width: int) -> str:
        names = max(cell_len(self._label(one)) for one in self._status.trends)
        label = self._label(trend)
        begin = f"{_INDENT}{label}{' ' * (names - cell_len(label))}  {number(trend.value):>9}  "
        marks = _left_out_of(trend)
        of = "window" if trend.kind == CLOCK else "step"
        if trend.finite is not None:
            marks += f"  last finite {number(trend.finite)} at {of} {trend.finite_index}"
        if trend.first is not None and trend.kind != CLOCK and len(trend.points) > 1:
            marks += f"  steps {trend.first}..{trend.index}"  # windows have numbers that say nothing to people
        elif trend.rows_since:
            marks += f"  {of} {trend.index}"
        return begin + sparkline(trend.points, min(48, width - cell_len(begin) - cell_len(marks))) + marks

    def _label(self, trend: TrendStatus) -> str:
        """A metric's name, with its actor where two metrics of the screen share the name."""
        short = [one.key.removeprefix("clock/").removeprefix(f"{one.actor}/") for one in self._status.trends]
        name = trend.key.removeprefix("clock/").removeprefix(f"{trend.actor}/")
        return fit(clean(name if short.count(name) < 2 else f"{trend.actor}/{name}"), MAX_METRIC)

    def _actor(self, actor: ActorStatus, width: int) -> str:
        """An actor with its ranks in one line, which names the missing as far as there is room."""
        stream = next((one for one in self._status.streams if one.actor == actor.actor), None)
        here, expected = present(actor), actor.ranks_expected
        begin = f"{_INDENT}{clean(actor.actor, MAX_NAME)}  {here:,}/{expected:,} rank{'s' * (expected != 1)}"
        if actor.step is not None:
            begin += f", step {actor.step}"
        elif stream is not None and stream.step is not None:
            begin += f", up to step {stream.step}"
        lags = self._is_watched and actor.open_units and actor.lag_s >= 2.0
        begin += f", lag {duration(actor.lag_s)}" if lags else ""
        if actor.missing:
            forms = [self._ranks.places(actor.actor, actor.missing)]
            forms += [self._ranks.words(actor.actor, actor.missing, most) for most in range(12, 0, -1)]
            fitting = (form for form in forms if cell_len(f"{begin}, missing {form}") <= width)
            begin += f", missing {next(fitting, forms[-1])}"
        note = (actor.note if self._is_watched or not actor.waiting else "") or (
            f"{self._ranks.words(actor.actor, actor.absent, 3)} logged no step" if actor.absent else ""
        )
        return f"{begin}, {clean(note, MAX_ERROR_CHARS)}" if note else begin


def _misuse(reported: Mapping[str, int], at: Mapping[str, float]) -> str:
    """What writers reported last, and how many other texts there are."""
    newest = max(reported, key=lambda text: at.get(text, 0.0))
    more = f" (and {len(reported) - 1} more)" if len(reported) > 1 else ""
    return f"reported to the job{more}: {clean(newest)}"


def _rate(steps_per_s: float) -> str:
    return f"{number(steps_per_s)} steps/s" if steps_per_s >= 0.1 else f"{number(1 / steps_per_s)} s/step"


def _left_out_of(trend: TrendStatus) -> str:
    """How many observations of the newest row are left out of its value because they are not finite."""
    return f" ({trend.nonfinite} not finite)" if trend.nonfinite and trend.value is not None else ""


def _unreadable(status: Status) -> str:
    count = sum(writer.unreadable for writer in status.writers)
    return f"{counted(count, 'file')} cannot be read" if count else ""


def texts(found: Iterable[StyledLine]) -> list[str]:
    """The lines without their styles."""
    return [line.text for line in found]
