"""One run of W&B's: what each of its calls becomes in the files of its axes."""

from __future__ import annotations

import os
import time
import weakref

from .. import endings, registry, threads
from ..guard import raised_by_signal
from ..hook.environment import is_named
from ..identity import detect
from ..notices import Notices
from ..steps import MAX_STEP, whole_step
from ..values import number
from . import ending
from . import values as kinds
from .axes import COUNTER, Router, flat
from .media import Copier, file_of
from .tables import Tables, column_names, score_of, step_in
from .told import Replaced, Tally, figures_in, is_figure, kept
from .track import Track

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .axes import Part

SOURCE = "wandb"
_QUIET_S = 10.0  # the sidecar's `implicit_s`
_MAX_KNOWN = 1 << 16
# How a metric is reduced by how it is logged. W&B keeps the last value of a key in a row.
_STEPPED, _STREAM, _SPREAD = "last", "stream", "spread"
_REDUCE = {
    _STEPPED: ["last"],
    _STREAM: ["mean", "min", "max", "hist"],
    _SPREAD: ["hist", "mean", "min", "max"],
}

# Of these W&B's client replaces the value of a key at the top.
_AT_TOP = ("config", "summary")

notices = Notices()
copier = Copier()
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Place:
    """Where a run is written. `opened` is Unix time; `start` is the first step of its own count."""

    __slots__ = ("actor", "folder", "opened", "replica", "resumed", "run_id", "shared", "start")

    def __init__(self, folder: str, actor: str, run_id: str, *, opened: float, start: int = 0) -> None:
        self.folder = folder
        self.actor = actor
        self.run_id = run_id
        self.opened = opened
        self.start = start
        self.replica: str | None = None
        self.resumed = False  # whether an earlier process wrote of the run that this one resumes
        self.shared = False


class Recorder:
    """Records one run. Every public method may be called from any thread, and may raise: its caller must not.

    The files are opened at the first call that has something to write: a rank that never logs has none, and a child
    that is forked before is no child of a file. `about` keeps what is said of the run before, and the end writes it.
    """

    def __init__(self, place: Place, module: Any, *, clock: Callable[[], float] = time.time) -> None:
        self.place = place
        self.active = True
        self.clock = clock
        self.router = Router(place.start)
        self._module = module
        self._pid = os.getpid()
        self._lock = threads.reentrant_lock()
        self._tracks: dict[str, Track] = {}
        self._main: Track | None = None
        self._teller: Track | None = None  # the file that says what the run is: the run's own, once there is one
        self._said: dict[str, Any] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._tables = Tables()
        self._tallies: dict[str, Tally] = {}
        self._wanted: dict[str, tuple[str, ...] | None] = {}
        self._final: dict[str, Any] = {}  # what began to be logged after the last step
        self._own: set[str] = set()  # the keys of the summary that the job set itself
        self._replaced = Replaced()
        _recorders.add(self)
        ending.watch(_end_all)

    # What W&B's calls become

    def log(self, data: Mapping[str, Any], step: int | None, commit: bool | None) -> bool:
        """Write the values of one call of `log`. Returns whether the summary takes them: no earlier row's."""
        t = self.clock()
        if step is not None and not (type(step) is int and 0 <= step <= MAX_STEP):
            step = self._whole(step)
        values = data if kinds.is_plain(data) else flat(data, kinds.is_group)
        with self._lock:
            parts, ends = self.router.route(values, step, commit, counts=os.getpid() == self._pid)
            for part in parts:
                track = self._track(part.axis)
                self._note_final(track, part)
                self._write(track, part, t)
                if ends and part.axis == COUNTER:
                    track.complete(part.step)
            if self._wanted:
                self._tally(values)
            return not self.router.counter.late

    def _note_final(self, track: Track, part: Part) -> None:
        """Keep the metrics that begin after the last step of the run's axis, such as those of a test at the end: no row
        of a step will have them, so the summary does.
        """
        if part.step is not None:
            if self._final and track is self._main:
                self._final.clear()
        elif os.getpid() == self._pid:
            known, axis = self._known, track.axis
            new = [key for key in part.values if key in self._final or (axis, key) not in known]
            self._final.update((key, part.values[key]) for key in new)

    @staticmethod
    def _whole(step: Any) -> int | None:
        try:
            return whole_step(step)
        except ValueError as error:
            notices.once("step", f"wandb.log: {error}; the call counts as one without a step")
            return None

    def summarized(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of a call as the run's summary has them: those figures for which the job asked."""
        if not self._tallies:
            return data
        with self._lock:
            asked = {key: self._tallies[key] for key in data if key in self._tallies and key not in self._own}
            figures = {key: tally.shown() for key, tally in asked.items()}
        left_out = {key for key, tally in asked.items() if not tally.names}
        return {
            key: figures.get(key) or value  # what is no number has no figure
            for key, value in data.items()
            if key not in left_out
        }

    def times(self) -> dict[str, Any]:
        """What the client adds to each row."""
        t = self.clock()
        return {"_step": self.router.counter.row, "_timestamp": t, "_runtime": t - self.place.opened}

    def define(self, name: str, options: Mapping[str, Any]) -> None:
        """Take one call of `define_metric`. Rows cannot show all of it, so the run's facts have it too."""
        axis, summary = options.get("step_metric"), options.get("summary")
        with self._lock:
            self.router.definitions.define(name, axis, bool(options.get("overwrite")))
            if summary:
                self._wanted[name] = figures_in(str(summary))
            given = {key: value for key, value in options.items() if value is not None}
            self.about(facts={"define_metric": {name: given}})

    def tell(self, name: str, /, **attrs: Any) -> None:
        """Write an event of the run, at the time of the call."""
        with self._lock:
            track = self._track(None)
            track.tell(name, attrs, None, self.clock())

    def about(self, **members: Any) -> None:
        """Write facts about the run: config, summary, name, tags and so on. Before the first file is open they wait."""
        with self._lock:
            if members.get("summary"):
                self._set_summary(members["summary"])
                members["summary"] = self._without_tables(members["summary"])
            if self._teller is not None:
                if not self._teller.closed:
                    emptied = self._emptied(members)
                    if emptied:
                        self._teller.run_data(**emptied)
                    self._teller.run_data(**members)
                return
            self._emptied(members)
            for name, value in members.items():
                old = self._said.get(name)
                self._said[name] = {**(old or {}), **value} if name in _AT_TOP else merged(old, value)

    def _emptied(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """What to write before these members, so that their objects replace those of before."""
        given = {name: self._replaced.emptied(name, members[name]) for name in _AT_TOP if members.get(name)}
        return {name: values for name, values in given.items() if values}

    def _set_summary(self, values: Mapping[str, Any]) -> None:
        """Note which keys are the job's own: no figure of theirs replaces them. One that is gone begins anew."""
        for key, value in values.items():
            if value is None:
                self._own.discard(key)
                self._tallies.pop(key, None)
            else:
                self._own.add(key)

    def _without_tables(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a summary but for tables and files, which are written as those of `log` are."""
        kept = dict(values)
        for key in [key for key, value in values.items() if kinds.is_file_or_table(value)]:
            found = kinds.sort({key: kept[key]}, self._module)
            if found.tables or found.files:
                del kept[key]
                track, t = self._track(None), self.clock()
                for name, table in found.tables.items():
                    self._write_table(track, name, table, None, t)
                for name, value in found.files:
                    track.tell("media", self.keep_file(name, value, track, None, t), None, t)
        return kept

    def keep_file(self, key: str, value: Any, track: Track, step: int | None, t: float) -> dict[str, Any]:
        """Copy the file of a media object into the experiment. Returns the facts about it."""
        facts: dict[str, Any] = {"key": key, "type": type(value).__name__}
        caption = getattr(value, "_caption", None)
        if isinstance(caption, str):
            facts["caption"] = caption
        file = file_of(value, self.place.folder, lambda: track.lose(step))
        if file is None:
            return {**facts, "text": str(value)[:1000]}
        facts.update(path=f"media/{file.name}", size=file.size)
        why = copier.put(file)
        if why is not None:
            track.lose(step)
            facts["dropped"] = why
        return facts

    def finish(self, exit_code: int | None) -> None:
        """End all steps and close the files. Without a code, the run ends as the program does.

        With the code of a failure the files end with the error that the job deals with at this call, because they are
        closed before it ends the process.
        """
        error = endings.error_at_hand() if exit_code else ""
        with self._lock:
            if not self.active:
                return
            self.active = False
            self._say_code(ending.exit_code() if exit_code is None else exit_code)
            self.open()
            for track in self._tracks.values():
                track.close_at_exit(None, error)

    def _say_code(self, code: int) -> None:
        """Say how the run ended, unless the process shares it, or was forked from the one that made it."""
        if not self.place.shared and os.getpid() == self._pid:
            self.about(exit_code=max(-255, min(255, int(code))))

    def open(self) -> None:
        """Open the run's own file if no call has, for what was said of the run.

        Only rank 0 does: the others are absent from rows that they have no part in.
        """
        with self._lock:
            if self._teller is None and self._said:
                identity = detect(self.place.actor, self.place.replica, warn=lambda message: None)
                if identity.rank == 0:
                    self._track(None)

    def end(self, *, last: bool) -> None:
        """As the process ends, before its files are closed: write what was said; the `last` time, record no more."""
        with self._lock:
            if self.active:
                self.active = not last
                if code := ending.exit_code():
                    self._say_code(code)
                self.open()

    def flush(self) -> None:
        """Wait until what was recorded is in the files."""
        for track in list(self._tracks.values()):
            if not track.closed:
                track.flush()

    def stop(self) -> None:
        """Record nothing more, because the process logs by itself."""
        with self._lock:
            self.active = False
            for track in self._tracks.values():
                track.close(0.5)

    def after_fork(self) -> None:
        """In a forked child: no other thread holds the lock, and what is said of the run is the parent's."""
        self._lock = threads.reentrant_lock()
        self._said = {}

    # Files

    def _track(self, axis: str | None) -> Track:
        """The file of an axis; None: the run's own."""
        main = self.router.main or COUNTER
        if axis is None:
            axis = main
        known = self._tracks.get(axis)
        if known is not None:
            return known
        place = self.place
        own = axis == main
        actor = place.actor if own else f"{place.actor}.{axis}"
        identity = detect(
            actor, place.replica, warn=lambda message: notices.once(message, f"{actor}: {message}") and None
        )
        labels = {"source": SOURCE, "wandb_id": place.run_id}
        before = self._main if own else None
        if before is not None:
            before.close()  # the run's own axis is another one from here on
        opened = self.clock() if self._tracks else place.opened
        track = Track(place.folder, identity, axis=axis, labels=labels, opened=opened, quiet_s=quiet_s())
        registry.look_after(track)
        self._tracks[axis] = track
        if own:
            self._main = track
        if self._teller is None or own:
            self._teller = track
            self._begin(track, identity.rank)
        if own and self.active:  # once for the run, and not for each axis; nor at its end
            registry.start_sampling(track, None, lambda message: notices.once(message, f"{actor}: {message}"))
        return track

    def _begin(self, track: Track, rank: int) -> None:
        """Write into the first file what was said of the run before."""
        if track.start() and rank == 0 and not is_named(self.place.folder):
            notices.once(f"folder {self.place.folder}", f"W&B's calls are written to {self.place.folder}/rlship")
        track.before_close = self._before_close
        said, self._said = self._said, {}
        try:
            if said:
                track.run_data(**said)
        except Exception as error:  # noqa: BLE001 - the values of the call at hand are still written
            fault("about", error)

    def _before_close(self) -> None:
        """Wait for files that are being copied, and write the summary that the job asked for."""
        copier.wait()
        shown = {key: found for key, value in self._final.items() if is_figure(found := kept(value))}
        shown.update((key, tally.shown()) for key, tally in self._tallies.items())
        shown = {key: value for key, value in shown.items() if key not in self._own and value != {}}
        if self._teller is not None and shown:
            self._teller.run_data(summary=shown)

    # Values

    def _write(self, track: Track, part: Part, t: float) -> None:
        step = part.step
        if kinds.is_plain(part.values):
            self._declare(track, part.values, _STREAM if step is None else _STEPPED)
            track.put(part.values, step, t)
            return
        found = kinds.sort(part.values, self._module)
        metrics = found.numbers
        self._declare(track, metrics, _STREAM if step is None else _STEPPED)
        if found.arrays:
            self._declare(track, found.arrays, _SPREAD)
            metrics = {**metrics, **found.arrays}
        if found.histograms:
            self._declare(track, found.histograms, _SPREAD)
            metrics = {**metrics, **found.histograms}
        if metrics or (step is not None and not part.values):
            track.put(metrics, step, t)
        for key, (edges, heights) in found.densities.items():
            track.tell("histogram", {"key": key, "edges": edges, "heights": heights}, step, t)
        if found.texts:
            track.tell("texts", found.texts, step, t)
        for key, table in found.tables.items():
            self._write_table(track, key, table, step, t)
        for key, value in found.files:
            track.tell("media", self.keep_file(key, value, track, step, t), step, t)

    def _write_table(self, track: Track, key: str, table: Any, step: int | None, t: float) -> None:
        names = column_names(table)
        rows = self._tables.new_rows(key, table, step)
        # TRL logs the completions of a step right after its metrics, without a step: their time is in the next one.
        if step is None and step_in(names, rows) == track.newest:
            step = track.newest
        for cells in rows:
            row = {
                name: self.keep_file(key, cell, track, step, t) if kinds.is_ours(cell) else cell
                for name, cell in zip(names, cells)
            }
            score = score_of(row)
            track.offer(key, row, None if score is None else number(score), step, t)

    def _declare(self, track: Track, names: Mapping[str, Any], kind: str) -> None:
        """Declare the reductions of metrics that are new, or that are logged in another way than before."""
        known, new = self._known, {}
        for name in names:
            place = (track.axis, name)
            if known.get(place) == kind:
                continue
            if len(known) < _MAX_KNOWN:
                known[place] = kind
            # Several processes of one actor: which value is the last one says nothing, so their mean counts.
            if kind != _STEPPED or (track.world in (None, 1) and track.replica == "0" and not self.place.shared):
                new[name] = {"reduce": _REDUCE[kind]}
        if new:
            track.declare(new)

    def _tally(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            tally = self._tallies.get(key)
            if tally is None:
                names = self._wanted.get(key)
                if names is None:
                    start = max(
                        (one for one in self._wanted if one.endswith("*") and key.startswith(one[:-1])),
                        key=len,
                        default="",
                    )
                    names = self._wanted.get(start)
                if names is None:
                    continue
                tally = self._tallies[key] = Tally(names)
            tally.add(value)


def fault(where: str, error: Exception) -> None:
    """Say once that something could not be recorded. Raises only what a signal handler of the job raised."""
    if raised_by_signal(error):
        raise error
    notices.once(
        "facade",
        f"W&B's calls cannot be recorded as they should, the job goes on: {where}: {type(error).__name__}: {error}",
    )


def merged(old: Any, new: Any) -> Any:
    """`new` over `old`, key by key where both are objects."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def quiet_s() -> float:
    """After how many seconds without a call a step ends: as the sidecar has it."""
    try:
        found = float(os.environ.get("RLSHIP_IMPLICIT_S") or _QUIET_S)
    except ValueError:
        return _QUIET_S
    return found if 0 < found < 86400 else _QUIET_S


def _end_all(last: bool) -> None:
    for recorder in list(_recorders):
        try:
            recorder.end(last=last)
        except Exception as error:  # noqa: BLE001 - the process ends as it would without rlship
            fault("end", error)


def _after_fork() -> None:
    for recorder in list(_recorders):
        try:
            recorder.after_fork()
        except Exception as error:
            if raised_by_signal(error):
                raise


os.register_at_fork(after_in_child=_after_fork)
