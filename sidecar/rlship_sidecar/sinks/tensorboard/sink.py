"""TensorBoard event files, one Event for each row, so that the files themselves show how many rows they hold.

The event of a row whose step lies before points of its tags holds its values back: appended, they would hide these
points. They come into the charts by a file that writes the points again (`again`).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlship_formats.values import Histogram
from rlship_sidecar.plainfiles import make_folder, make_plain
from rlship_sidecar.rows import CLOCK, POINT, Row, axis
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks import budget, names, renamed
from rlship_sidecar.sinks.claim import Claim
from rlship_sidecar.sinks.contract import Sink, SinkContext, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.names import (
    REWARD_AND_LOSS,
    SinkNames,
    check_names_options,
    flatten,
    key_of,
    named,
    names_of,
    names_withdrawn,
    rank_keys,
)
from rlship_sidecar.sinks.options import check_names, check_text
from rlship_sidecar.sinks.tables import markdown, tables
from rlship_sidecar.sinks.tensorboard.again import Again, Damaged, event_of
from rlship_sidecar.sinks.tensorboard.config import RunTexts, is_run_data, text_value
from rlship_sidecar.sinks.tensorboard.curves import Curves
from rlship_sidecar.sinks.tensorboard.events import HEADER_BYTES, encode, frames, read
from rlship_sidecar.sinks.tensorboard.held import hold, is_held, take_away, takes_away
from rlship_sidecar.sinks.tensorboard.parts import Chain, aside_name, chain, find_again, find_parts, part_name

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import HistogramProto, Summary

logger = logging.getLogger("rlship.sinks.tensorboard")

OPTIONS = ("dir", *names.OPTIONS, *budget.OPTIONS)
_NO_RANKS: Mapping[str, float] = {}
_MARK = re.compile(r"rlship\..*\.(claim|owner)|events\.out\.tfevents\.\d{8,}\.rlship\..*")
CHARTS = SinkNames(REWARD_AND_LOSS)  # TensorBoard sorts its sections by name and offers no other order
PART_BYTES = 16 << 20  # a part that an earlier sidecar may still write to is copied, so a part has to stay small


class TensorBoardSink(Sink):
    """Writes below `<state_dir>/tensorboard`, or into the option `dir` (relative to the experiment), for `tensorboard
    --logdir`.

    Options `first` and `extras`: see `names`; `ranks` and `max_keys`: see `budget`. Every `open` begins a new part, and
    so does every 16 MiB. Parts that do not fit together, or that cannot be read, are written again from where they go
    wrong. The sink leaves files of other writers in the folder alone; parts of another store make it refuse. What the
    job said of the run comes with the next row, or in a file without rows if no row follows. Points that lie before
    others of their tag come with the next `flush` at which it is time to write these again, at the latest when the sink
    closes.
    """

    def __init__(self) -> None:
        self.where = ""
        self._folder = Path()
        self._run: SinkContext | None = None
        self._claim: Claim | None = None
        self._part = Path()
        self._budget: budget.KeyBudget | None = None
        self._texts: RunTexts | None = None
        self._again: Again | None = None
        self._sound = False
        """Whether the last call succeeded and what the files hold is known to be this store's."""
        self._rows = self._step = self._asides = 0
        self._fd: int | None = None
        self._last_event = b""
        self._end = 0

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("tensorboard", options, OPTIONS)
        if options.get("dir") is not None:
            check_text("tensorboard", "dir", options["dir"], "a folder, relative to the experiment or absolute")
        check_names_options("tensorboard", options)
        budget.check_budget("tensorboard", options)

    def open(self, run: SinkContext) -> int | None:
        """Count the rows in this store's parts, in order; cut the rest."""
        self.check_options(run.options)
        self._sound = False
        self.where = str(_logdir(run))
        self._run = run
        with _outages(self.where):
            folder = self._folder = _folder(run)
            make_folder(folder, run.state_dir, run.experiment)
            self._budget = budget.budget("tensorboard", run.state_dir, run.options)
            self.note = ""
            _refuse_other_stores(folder, run)
            claim = self._claim = Claim("tensorboard", folder, folder / "rlship", run)
            fence = claim.take(occupied=False)
            # Listed only now, so that parts that an earlier sidecar still published are among them.
            found = chain(find_parts(folder))
            if found.problem:
                logger.warning(
                    "sink tensorboard: %s: written again from the store, from row %d on", found.problem, found.rows
                )
            for part in found.unfit:
                part.path.unlink()
            if found.kept and (fence or found.end < found.size):
                claim.copy(found.kept[-1].path, found.end)
            if fence:
                claim.fenced()
            with self._cutting_damage():
                self._again = Again(folder, run.store_id, _curves(folder, run, found))
            self._texts = RunTexts(run.state_dir, found.rows)
            self._rows = found.rows
            self._last_event = b"" if found.last is None else read(found.kept[-1].path, found.last)
            renamed.tell_once("tensorboard", run.state_dir, found.rows, names_of(run.options, first=CHARTS.first))
        return found.rows

    def ends_with(self, row: Row) -> bool:
        """Whether the last event is this row's.

        The names of keys and the choice of what is shown may have changed since, and an earlier rlship wrote the axes
        too. So whatever the event holds has to be the row's, but the row may have more.
        """
        try:
            held = event_of(self._last_event)
        except ValueError:
            return False
        self._step = held.step
        made = event(row, everything=True)
        allowed = _by_key(made.summary.value)
        ranks = {key for key, _ in rank_keys(row)}
        self._sound = bool(
            (held.step, held.wall_time) == (made.step, made.wall_time)
            and all(
                key in ranks or key in row.x or allowed.get(key) == value
                for key, value in _by_key(filter(_is_content, held.summary.value)).items()
            )
        )
        return self._sound

    def describe(self, run: RunData) -> None:
        """Show it as texts and hyper-parameters, unless they are there."""
        assert self._texts is not None
        self._texts.take(run)

    def write(self, rows: Sequence[Row]) -> None:
        """Append one Event for each row. A part is made with its first row, so that restarts leave no empty files."""
        with self._at_work():
            assert self._run is not None
            if self._fd is None or self._end >= PART_BYTES:
                self._begin(rows[0])
            events = self._events(rows)
            assert self._texts is not None
            texts = self._texts.due()
            bearer = next((number for number, made in enumerate(events) if not is_held(made)), None)
            if texts and bearer is not None:
                events[bearer].summary.value.extend(texts)
            data = memoryview(b"".join(encode(made.SerializeToString(deterministic=True)) for made in events))
            assert self._fd is not None
            self._check_place()
            while data:
                written = os.pwrite(self._fd, data, self._end)
                self._end += written
                data = data[written:]
            self._rows, self._step = rows[-1].row_number + 1, events[-1].step
            if texts and bearer is not None:
                self._texts.shown(rows[bearer].row_number)

    def _events(self, rows: Sequence[Row]) -> list[Event]:
        """The events of the rows, held back where points of their tags have come further."""
        assert self._run is not None and self._again is not None
        shown = names_of(self._run.options, first=CHARTS.first, over_time=self._run.over_time())
        events = []
        for row in rows:
            made = event(row, shown, self._budget.admit(row) if self._budget is not None else {})
            ranks = self._budget.withdrawn(row) if self._budget is not None else []
            gone = names_withdrawn(row, shown, ranks) & self._again.curves.points.keys()
            take_away(made, gone.difference(value.tag for value in made.summary.value))
            # Whole seconds are the steps of rows over time.
            many = row.unit.kind in (CLOCK, POINT) and row.arrival.revision == 0
            events.append(made if self._again.curves.admit(made, many=many) else hold(made))
        if self._budget is not None:
            self._budget.save()
            self.note = self._budget.note
        return events

    @property
    def flush_due_s(self) -> float | None:
        """The seconds until points should be written again, if any have to be."""
        return self._again.wait_s() if self._again is not None and self._sound else None

    def flush(self) -> None:
        """Sync the part to the disk, and what no row brought of the run's data; write points again if it is time."""
        assert self._texts is not None
        with self._at_work():
            self._sync()
            if values := self._texts.due():
                self._write_aside(values)
                self._texts.shown(self._rows - 1)
            assert self._again is not None
            if self._again.wait_s() == 0.0:
                self._write_again()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._sound = False
        with _outages(self.where):
            yield
        self._sound = True

    def _sync(self) -> None:
        if self._fd is not None:
            os.fsync(self._fd)
            self._check_place()

    def close(self) -> None:
        """Write points again if any have to be, and close the part."""
        sound, self._sound = self._sound, False
        try:
            if sound and self._again is not None:
                with _outages(self.where):
                    if self._again.curves.lacking:
                        self._write_again()
                    self._again.curves.save(self._rows)
        finally:
            self._close_part()
            if self._budget is not None:
                self._budget.end()

    def abandon(self) -> None:
        """Close the part."""
        self._sound = False
        self.close()

    def _close_part(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _write_aside(self, values: Sequence[Summary.Value]) -> None:
        """Write a file of these values alone. Further rows go into a part of their own, because TensorBoard looks no
        more at a file once there is a later one.
        """
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        assert self._claim is not None
        self._close_part()
        now = time.time()
        held = Event(wall_time=now, step=self._step, summary=Summary(value=values))
        scratch = self._claim.scratch("aside")
        with open(make_plain(scratch), "wb") as file:
            file.write(encode(_file_version(now)) + encode(held.SerializeToString(deterministic=True)))
            file.flush()
            os.fsync(file.fileno())
        self._publish_aside(scratch)

    def _write_again(self) -> None:
        """Write the points of all curves that lack any, from there on. Further rows go into a part of their own."""
        assert self._claim is not None and self._again is not None
        self._sync()
        self._close_part()
        scratch = self._claim.scratch("again")
        with self._cutting_damage():
            self._again.write(scratch, self._rows)
        self._publish_aside(scratch, again=True)
        self._again.curves.written_again()

    @contextmanager
    def _cutting_damage(self) -> Iterator[None]:
        """Cut a part where it is damaged: after the next `open` the rows from there on come again from the store."""
        assert self._claim is not None
        try:
            yield
        except Damaged as damage:
            if damage.whole_to is not None:
                self._claim.copy(damage.path, damage.whole_to)
                logger.warning("sink tensorboard: %s: cut there", damage)
            raise SinkUnavailable(
                f"sink tensorboard: {damage}: once the sink is open again, at the latest with the next `rlship watch`, "
                "the rows from there on are written again from the store"
            ) from damage

    def _publish_aside(self, scratch: Path, *, again: bool = False) -> None:
        assert self._run is not None and self._claim is not None
        while True:
            target = self._folder / aside_name(
                self._rows, self._run.store_id, self._run.generation, self._asides, again=again
            )
            self._asides += 1
            if not target.exists():
                break
        self._claim.publish(scratch, target)

    def _begin(self, row: Row) -> None:
        """Begin a part with this row, once the one before it is durable."""
        assert self._run is not None and self._claim is not None and self._again is not None
        self._sync()
        self._close_part()
        self._again.curves.save(row.row_number)  # so that the next start reads no earlier part
        scratch = self._claim.scratch("part")
        self._fd = make_plain(scratch)
        self._end = 0
        data = encode(_file_version(row.t or time.time()))
        while self._end < len(data):
            self._end += os.pwrite(self._fd, data[self._end :], self._end)
        os.fsync(self._fd)
        self._part = self._folder / part_name(row.row_number, self._run.store_id, self._run.generation)
        self._claim.publish(scratch, self._part)

    def _check_place(self) -> None:
        """Make sure that the part is still in its place and has its last length, and that the folder is still ours."""
        assert self._fd is not None and self._claim is not None
        self._claim.verify()
        ours, there = os.fstat(self._fd), os.stat(self._part)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) or there.st_size != self._end:
            raise SinkUnavailable(f"sink tensorboard: another program changed {self._part}: opening the sink again")


@contextmanager
def _outages(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkUnavailable(f"sink tensorboard: {where}: {error.strerror}") from error


def _refuse_other_stores(folder: Path, run: SinkContext) -> None:
    for part in find_parts(folder):
        if part.store_id != run.store_id:
            raise SinkRefused(
                f"sink tensorboard: {part.path} was written by another store ({part.store_id}), not by this one "
                f"({run.store_id}): move the folder away, or set [sink.tensorboard] dir to another one"
            )


def event(
    row: Row, shown: SinkNames = CHARTS, ranks: Mapping[str, float] = _NO_RANKS, *, everything: bool = False
) -> Event:
    """The row as one Event: `step` is its position on its own axis, `wall_time` the records' time, or now without one.

    Every number and every value in `ranks` is a scalar, every histogram a histogram, every table of samples a text.
    The axes are left out, because `step` and `wall_time` are what TensorBoard draws over. `everything`: even what
    `shown` leaves out.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    shown = replace(shown, extras=True) if everything else shown
    hists = named(row, row.shipped_hists, shown)
    flat = {name: value for name, value in flatten(row, shown, ranks).items() if name not in hists}
    values = [Summary.Value(tag=name, simple_value=value) for name, value in flat.items() if not isinstance(value, str)]
    values += [Summary.Value(tag=name, histo=_histogram(hist)) for name, hist in hists.items()]
    values += [text_value(name, markdown(samples)) for name, samples in named(row, tables(row), shown).items()]
    _, at = axis(row)
    return Event(wall_time=row.t or time.time(), step=int(at), summary=Summary(value=values))


def _is_content(value: Summary.Value) -> bool:
    """Whether a value of an event is one of its row's."""
    return not (is_run_data(value) or takes_away(value))


def _by_key(values: Iterable[Summary.Value]) -> dict[str, bytes]:
    """What stands under each key of a row, whatever its name is."""
    found = {}
    for value in values:
        key = key_of(value.tag)
        bare = type(value)()
        bare.CopyFrom(value)
        bare.tag = key
        found[key] = bare.SerializeToString(deterministic=True)
    return found


def _histogram(hist: Histogram) -> HistogramProto:
    from tensorboardX.proto.summary_pb2 import HistogramProto

    # `sum` and `sum_squares` are not known from a histogram, and nothing shows them.
    return HistogramProto(
        min=hist.edges[0],
        max=hist.edges[-1],
        num=sum(hist.counts),
        bucket_limit=hist.edges[1:],
        bucket=hist.counts,
    )


def _curves(folder: Path, run: SinkContext, found: Chain) -> Curves:
    """How far the rows in the parts have come. Removes what wrote points of rows again that are to be written anew.
    Raises Damaged for an event that cannot be read.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
    from tensorboardX.proto.event_pb2 import Event

    shown_below = 0
    for one in find_again(folder, run.store_id):
        if one.first <= found.rows:
            shown_below = max(shown_below, one.first)
        elif one.generation <= run.generation:  # never what a later sidecar wrote, if this one was frozen
            one.path.unlink()
    curves = Curves(run.state_dir, run.store_id, run.generation)
    first = curves.load(found.rows, shown_below, since=max((part.generation for part in found.kept), default=0))
    for part, following in zip(found.kept, [*(part.first for part in found.kept[1:]), found.rows]):
        if following <= first:
            continue
        with open(part.path, "rb") as file:
            for number, frame in zip(range(part.first - 1, following), frames(part.path, checked_tail=0)):
                if number >= max(part.first, first):
                    try:
                        held = Event.FromString(os.pread(file.fileno(), frame.size, frame.start))
                        curves.read(held, shown=number < shown_below)
                    except (DecodeError, ValueError) as error:
                        problem = f"is damaged at byte {frame.start}: no event can be read there"
                        raise Damaged(part.path, problem, frame.start - HEADER_BYTES) from error
    return curves


def _file_version(t: float) -> bytes:
    """The first Event of every file. TensorBoard's reader of `--load_fast false` keeps all points of such a file, in
    the order in which they were written. Its data server does not look at it.
    """
    from tensorboardX.proto.event_pb2 import Event

    return bytes(Event(wall_time=t, file_version="brain.Event:2").SerializeToString())


def _logdir(run: SinkContext) -> Path:
    """The folder to give to `tensorboard --logdir`."""
    given = run.options.get("dir")
    return run.state_dir / "tensorboard" if given is None else run.experiment / given


def _folder(run: SinkContext) -> Path:
    """The folder of the parts. TensorBoard calls a run by its folder, so it has the experiment's name.

    The option `dir` is the folder itself. Parts that were begun elsewhere go on there: an earlier rlship wrote them
    into the logdir, and the experiment may have had another name.
    """
    logdir = _logdir(run)
    if run.options.get("dir") is not None:
        return logdir
    try:
        below = sorted(entry.path for entry in os.scandir(logdir) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        below = []
    for folder in (*map(Path, below), logdir):
        if folder.is_dir() and any(_MARK.match(path.name) for path in folder.iterdir()):
            return folder
    name = run.name.replace("/", "_").replace("\0", "_")
    return logdir / (name if name.strip(".") else "run")
