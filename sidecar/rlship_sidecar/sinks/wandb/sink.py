"""One W&B run, online or offline: row number == `_step` == history line, so that no row is lost or doubled."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from rlship_sidecar import state_file
from rlship_sidecar.plainfiles import make_folder
from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.scratch import remove_left_behind
from rlship_sidecar.sinks import budget, names, renamed
from rlship_sidecar.sinks.contract import Sink, SinkContext, SinkInterrupted, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.names import (
    SinkNames,
    check_names_options,
    names_of,
)
from rlship_sidecar.sinks.options import WrongOption, check_names, check_text
from rlship_sidecar.sinks.wandb.access import asked_mode, expected_mode, server_of
from rlship_sidecar.sinks.wandb.alerts import SEVERITIES, AlertWords, NewEpisodes
from rlship_sidecar.sinks.wandb.described import described
from rlship_sidecar.sinks.wandb.keeping import SummaryKeeper
from rlship_sidecar.sinks.wandb.link import ChildLink, environment
from rlship_sidecar.sinks.wandb.offline import sync_command
from rlship_sidecar.sinks.wandb.place import AXES_FILE, place_of, remember
from rlship_sidecar.sinks.wandb.point import Point, point
from rlship_sidecar.sinks.wandb.protocol import NO_SERVER, OpenRequest, Rejected

logger = logging.getLogger("rlship.sinks.wandb")

WINDOW_ROWS = 5000
WINDOW_BYTES = 2 << 20
# Rows in one request arrive together or not at all, and a request may take no longer than 30 s. So the window of rows
# begins small and doubles as rows are acknowledged: over a slow link each client delivers at least the first window.
FIRST_WINDOW_BYTES = 512 << 10
# A client at a server that answers opens a run in two or three seconds; one without a network tries for minutes.
OPENS_WITHIN_S = 5.0
_SCRATCH = "rlship-wandb-"
NAMES_FILE = "wandb-names.json"
MODES = ("auto", "online", "offline")
OPTIONS = (
    "project",
    "entity",
    "mode",
    "name",
    "group",
    "run_id",
    "dir",
    "base_url",
    "tags",
    "transmit_interval",
    "alerts_from",
    *names.OPTIONS,
    *budget.OPTIONS,
)
# State directories whose run this process has opened: if the server rejects us there later, that may pass by itself.
_accepted: set[Path] = set()

NO_KEY = (
    "no W&B API key: runs are written offline. To send them, run `wandb login` or set WANDB_API_KEY and start again; "
    'to keep them offline, set mode = "offline" in [sink.wandb]. `rlship status` shows the command that uploads them'
)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a child is given up, and how long it may take.

    `stall_s`: seconds that an answering server may take no row before the child is replaced. `silent_s`: seconds
    without a sign of life after which it is replaced. `init_s`: seconds that the client may take to make or resume the
    run. `finish_s`: seconds that `close` may take to finish it. `max_file_bytes`: the size that the client's own file
    of an online run may reach before a new child begins a new one. The file holds all rows since the client started.
    """

    stall_s: float = 60.0
    silent_s: float = 30.0
    init_s: float = 60.0
    finish_s: float = 15.0
    max_file_bytes: int = 256 << 20


class Axes:
    """The axes over which each actor's metrics are charted: the pairs (actor, axis) in the order of appearance, in a
    file. Another file has the pairs (name, axis) of metrics without an actor.

    The client forgets a run's metric definitions when it resumes the run, and would send the server a run without them.
    So they are made again at every `open`, also those of actors that log no more.
    """

    def __init__(self, state_dir: Path, file: str = AXES_FILE) -> None:
        self._path = state_dir / file
        try:
            self.pairs = [(actor, axis) for actor, axis in json.loads(self._path.read_bytes())]
        except (FileNotFoundError, ValueError):  # axes come back with their next rows
            self.pairs = []
        self._known = set(self.pairs)

    def add(self, axis: str, *names: str) -> list[str]:
        """Add pairs of one axis; new ones are saved at once. Returns the names of the new ones."""
        new = [name for name in names if (name, axis) not in self._known]
        if new:
            self._known.update((name, axis) for name in new)
            self.pairs += [(name, axis) for name in new]
            state_file.replace(self._path, json.dumps(self.pairs).encode() + b"\n")
        return new


class SendWindow:
    """The rows on their way, `pending` with their numbers and sizes, `bytes` in all, and how many may be."""

    def __init__(self) -> None:
        self.pending: deque[tuple[int, int]] = deque()
        self.bytes = 0
        self._most = FIRST_WINDOW_BYTES

    def sent(self, row_number: int, size: int) -> None:
        """A row was sent."""
        self.pending.append((row_number, size))
        self.bytes += size

    def await_room(self, link: ChildLink, size: int) -> None:
        """Wait until a row of this size may be sent."""

        def room() -> bool:
            while self.pending and self.pending[0][0] < link.acked:
                self.bytes -= self.pending.popleft()[1]
            return not self.pending or (len(self.pending) < WINDOW_ROWS and self.bytes + size <= self._most)

        if not room():
            link.begin_flush()
            link.wait(room)
            self._most = min(2 * self._most, WINDOW_BYTES)


@dataclass(slots=True)
class _BesideRows:
    """What the run shows beside rows: what the job said of it, by its digest, and alerts about `episodes`."""

    digest: str = ""
    episodes: NewEpisodes | None = None


class WandbSink(Sink):
    """Ships rows to W&B through a child process.

    Options:

    - `project` (default: WANDB_PROJECT, otherwise what the job said, otherwise "rlship"), `entity`, `group`, `tags`.
    - `mode`: "auto" is online with an API key, otherwise offline.
    - `name` (default: what the job said, otherwise the experiment's) and `run_id` (default: the store's id).
    - `dir`: where an offline run is written (default: the state directory). An online run keeps its files there while
      it is open (default: the temporary folder).
    - `base_url`, `transmit_interval` (seconds, at least 1).
    - `alerts_from`: "warning" or "critical" to have W&B tell people of episodes of rules that are so grave.
    - `first` and `extras`: see `names`.
    - `ranks` ("global_reduce", or "per_rank_reduce" to add values of single ranks) and `max_keys` (default 2000; see
      `budget`).
    """

    def __init__(self, *, limits: Limits | None = None, env: Mapping[str, str] | None = None) -> None:
        """`env`: the child's variables (default: this process's)."""
        self.where = ""
        self._limits = limits or Limits()
        self._env = env
        self._opened_mode = ""
        self._opening: tuple[float, str] | None = None  # since when (monotonic), and at which server
        self._run: SinkContext | None = None
        self._link: ChildLink | None = None
        self._scratch: Path | None = None
        self._axes: tuple[Axes, Axes] | None = None  # of actors, and of names without an actor
        self._budget: budget.KeyBudget | None = None
        self._next = 0
        self._beside = _BesideRows()
        self._window = SendWindow()
        self._keeper: SummaryKeeper | None = None

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("wandb", options, OPTIONS)
        for name, value in options.items():
            if value is not None:
                _check_option(name, value)
        check_names_options("wandb", options)
        budget.check_budget("wandb", options)

    @staticmethod
    def foresee(options: Mapping[str, Any]) -> str:
        """That there is no API key, if no mode is set."""
        try:
            env = environment()
            mode = asked_mode(_options(options).get("mode", "auto"), env)
        except SinkRefused:  # the first `open` says why
            return ""
        return NO_KEY if mode == "auto" and expected_mode(mode, env) == "offline" else ""

    @property
    def trouble(self) -> str:  # type: ignore[override]  # a property here, because it is read and never set
        """The child's last report about the server, or that it does not answer the first request; "" if it answers."""
        link, opening = self._link, self._opening
        if link is None:
            return ""
        if opening is None or time.monotonic() - opening[0] < OPENS_WITHIN_S:
            return link.trouble
        return f"sink wandb: {opening[1]} did not open the run within {OPENS_WITHIN_S:g} s: {NO_SERVER}"

    @property
    def named_after_s(self) -> float:  # type: ignore[override]  # as above
        """While the run is being opened, the time for which a slow server is no trouble yet."""
        return 0.0 if self._opening is None else OPENS_WITHIN_S

    @property
    def child_pid(self) -> int | None:
        """The child's process id while the sink is open."""
        return None if self._link is None else self._link.pid

    def destination(self, run: SinkContext) -> str:
        """A name of the run that `open` leads to. (`open` starts a client.)

        Once the run is open, `opened` decides whether it is online; before that, the presence of an API key does.
        """
        env = dict(self._env) if self._env is not None else environment()
        options = _options(run.options)
        mode = self._opened_mode or expected_mode(asked_mode(options.get("mode", "auto"), env), env)
        server = options.get("base_url") or env.get("WANDB_BASE_URL") or ""
        project, entity = place_of(run, options, env)
        place = "" if mode == "online" else str(options.get("dir") or "")
        name = options.get("run_id") or run_id(run.store_id)
        words = "\0".join((mode, server, project, entity or "", place, name))
        return f"{mode} {hashlib.sha256(words.encode()).hexdigest()[:16]}"

    def open(self, run: SinkContext) -> int | None:
        """Start the child. The answer is the server's count of history lines; offline it is 0 unless one folder holds
        every row.
        """
        self._run = run
        env = dict(self._env) if self._env is not None else environment()
        options = _options(run.options)
        options["mode"] = asked_mode(options.get("mode", "auto"), env)
        state_dir = run.state_dir.absolute()  # the child's own working directory is the scratch folder
        folder = run.experiment.absolute() / options["dir"] if options.get("dir") else None
        if folder is not None:
            make_folder(folder, run.state_dir.absolute(), run.experiment.absolute())
        self._scratch = scratch = _scratch(run.state_dir, folder)
        axes, bare = self._axes = Axes(run.state_dir), Axes(run.state_dir, NAMES_FILE)
        self._budget = budget.budget("wandb", state_dir, options)
        if options.get("alerts_from") and self._beside.episodes is None and not run.is_replay:
            self._beside.episodes = NewEpisodes(options["alerts_from"])
        self.note = self.advice = ""
        remember(run)
        request = _open_request(run, options, env, self._limits, scratch, folder, axes=(axes.pairs, bare.pairs))
        link = self._link = ChildLink(
            request, env, scratch, run.state_dir / "wandb-child.log", silent_s=self._limits.silent_s
        )
        if expected_mode(options["mode"], env) == "online":
            server = server_of(options, env)
            self._opening = time.monotonic(), server
        try:
            opened = link.wait_opened()
        except Rejected as rejection:
            if state_dir in _accepted:
                raise SinkUnavailable(str(rejection)) from rejection
            raise
        finally:
            self._opening = None
        for note in opened["notes"]:
            logger.warning("%s", note)
        self._next = int(opened["opened"])
        renamed.tell_once("wandb", state_dir, self._next, names_of(options))
        self._beside.digest = ""
        self._window = SendWindow()
        self._keeper = SummaryKeeper(run, self._budget, self._next)
        self.where = str(opened["where"])
        self._opened_mode = str(opened["mode"])
        if opened["mode"] == "online":
            _accepted.add(state_dir)
        else:
            # An earlier complete run stays as it is. A new row makes the next child write it again: advise then.
            if options["mode"] == "auto" and self._next == 0:
                self.advice = NO_KEY
            self.where = sync_command(folder or state_dir, Path(self.where), shared=folder is not None)
        return self._next

    def describe(self, run: RunData) -> None:
        """Make it the run's config, summary, name and so on."""
        assert self._link is not None and self._run is not None
        env = os.environ if self._env is None else self._env
        found = described(replace(self._run, run_data=run), _options(self._run.options), env)
        self._beside.digest = found["digest"]
        self._link.send({"describe": found})

    def write(self, rows: Sequence[Row]) -> None:
        """Give the rows to the client; waits while 5,000 rows or 2 MiB are on their way."""
        assert self._link is not None and self._axes is not None and self._keeper is not None
        shown = self._catch_up(self._link, self._keeper)
        for row in rows:
            if row.row_number != self._next:
                raise ValueError(f"sink wandb: row {row.row_number} does not follow on row {self._next - 1}")
            new = self._keeper.withdrawing(shown, row, point(row, shown, self._admitted(row)))
            axes, bare = self._axes
            axes.add(new.axis, new.actor)
            episodes = self._beside.episodes
            alerts = [] if episodes is None else episodes.of(row, time.time())
            self._send(self._link, new, bare.add(new.axis, *new.names), self._keeper.add(shown, row, new), alerts)
        self._link.check()

    def flush(self) -> None:
        """Return once the server confirms the rows, the run's data and its summary; offline, once they are in the file
        and synced to the disk.
        """
        link, keeper, last, digest = self._link, self._keeper, self._next, self._beside.digest
        assert link is not None and keeper is not None
        self._catch_up(link, keeper)
        # Sent for confirmed rows, too: only a flush makes the client say the job's own summary again after rows.
        flush = link.begin_flush()
        link.wait(lambda: link.acked >= last and link.described == digest and link.settled >= flush)
        link.check()
        keeper.confirmed()

    def _catch_up(self, link: ChildLink, keeper: SummaryKeeper) -> SinkNames:
        """Repair the run's summary once after each `open`; returns the names that the run shows."""
        assert self._run is not None
        shown = names_of(self._run.options, over_time=self._run.over_time(), own=self._run.own_names())
        if found := keeper.catch_up(shown, link.check):
            link.send({"summary": dict(found)})
        return shown

    def interrupt(self) -> None:
        """From any thread: end a call that waits for the server now, with SinkUnavailable."""
        link = self._link
        if link is not None:
            trouble = self.trouble
            stopped = SinkInterrupted("sink wandb: stopped before W&B confirmed the last rows")
            link.interrupt(SinkUnavailable(trouble) if trouble else stopped)

    def close(self) -> None:
        """Finish the run unless it failed, and make sure that no process is left."""
        # While the server does not answer, the run cannot be finished either.
        self._close(0.0 if self.trouble else self._limits.finish_s + 5.0)

    def abandon(self) -> None:
        """Like `close`, but rows on their way are not sent any more."""
        self._close(0.0)

    def _close(self, timeout_s: float) -> None:
        link, self._link = self._link, None
        if self._budget is not None:
            self._budget.end()
        try:
            if link is not None:
                link.close(timeout_s)
        finally:
            if self._scratch is not None:
                scratch, self._scratch = self._scratch, None
                shutil.rmtree(scratch, ignore_errors=True)

    def _admitted(self, row: Row) -> Mapping[str, float]:
        if self._budget is None:
            return {}
        shown = self._budget.admit(row)
        self._budget.save()
        self.note = self._budget.note
        return shown

    def _send(
        self,
        link: ChildLink,
        point: Point,
        names: Sequence[str],
        summary: Mapping[str, float],
        alerts: Sequence[AlertWords],
    ) -> None:
        size = len(point.data) + len(point.tables)
        self._window.await_room(link, size)
        head = orjson.dumps(
            {
                "row_number": point.row_number,
                "actor": point.actor,
                "axis": point.axis,
                "names": names,
                "hists": point.hists,
                "withdrawn": point.withdrawn,
                "summary": summary,
                "tables_bytes": len(point.tables),
                "alerts": alerts,
            }
        )
        link.send_line(b'%b,"tables":%b,"values":%b}' % (head[:-1], point.tables, point.data))
        self._window.sent(point.row_number, size)
        self._next = point.row_number + 1


def _open_request(
    run: SinkContext,
    options: Mapping[str, Any],
    env: Mapping[str, str],
    limits: Limits,
    scratch: Path,
    folder: Path | None,
    *,
    axes: tuple[list[tuple[str, str]], list[tuple[str, str]]],
) -> OpenRequest:
    """The child's request to open the run. Variables of W&B replace options that are not set."""
    place, found = place_of(run, options, env), described(run, options, env)
    return {
        "mode": options["mode"],
        "scratch": str(scratch),
        "project": place.project,
        "entity": place.entity,
        "words": found["words"],
        "digest": found["digest"],
        "run_id": options.get("run_id") or run_id(run.store_id),
        "base_url": options.get("base_url"),
        "transmit_interval": int(options.get("transmit_interval", 1)),
        "store_id": run.store_id,
        "rows": run.rows,
        "axes": axes[0],
        "names": axes[1],
        "state_dir": str(run.state_dir.absolute()),
        "offline_root": str(folder or run.state_dir.absolute()),
        "stall_s": limits.stall_s,
        "finish_s": limits.finish_s,
        "init_s": limits.init_s,
        "max_file_bytes": limits.max_file_bytes,
    }


def _scratch(state_dir: Path, folder: Path | None) -> Path:
    """A new folder for the client's own files. The child owns it: here it would take a descriptor of each experiment.

    First it removes the folders that sidecars and their children left behind when they were killed together: of this
    experiment by its note, which also names one in another `folder`, and any in the system's folder for such files.
    """
    remove_left_behind()
    note = state_dir / "wandb-scratch"
    left = Path(note.read_text()) if note.exists() else None
    if left is not None and left.name.startswith(_SCRATCH):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder))
    try:
        note.write_text(str(scratch))
        return scratch
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    WandbSink.check_options(given)
    return {name: value for name, value in given.items() if value is not None}


def _check_option(name: str, value: Any) -> None:
    if name == "tags":
        if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
            raise WrongOption("wandb", name, f"is {value!r}", "a list of strings")
    elif name == "transmit_interval":
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 1 <= value < math.inf:
            raise WrongOption("wandb", name, f"is {value!r}", "a number of seconds, at least 1")
    elif name == "mode":
        if value not in MODES:
            raise WrongOption("wandb", name, f"is {value!r}", ", ".join(MODES), str(value), MODES)
    elif name == "alerts_from":
        if value not in SEVERITIES:
            raise WrongOption("wandb", name, f"is {value!r}", ", ".join(SEVERITIES), str(value), SEVERITIES)
    elif name not in (*budget.OPTIONS, *names.OPTIONS):
        check_text("wandb", name, value)


def run_id(store_id: str) -> str:
    """A run id that W&B accepts, always the same for a store."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", store_id):
        return store_id
    return hashlib.sha256(store_id.encode()).hexdigest()[:16]
