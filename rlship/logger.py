"""The Logger, which a worker calls. It checks and encodes its arguments; its `Stream` writes them to the file."""

from __future__ import annotations

import time
from sys import modules

from . import definitions, endings, rundata, settings, tracing
from .batches import MAX_OBSERVATIONS, NUMBERS, observations
from .buffer import CAPACITY, MAX_NOTES
from .encode import MAX_NAME, metrics_note, size_of, why_not_a_name
from .file import Disk
from .flusher import Timing
from .gpu import values as device_values
from .gpu.memory import Allocator
from .guard import guarded, raised_by_signal
from .parts import Setup
from .records import event_line, sample_line
from .steps import Steps, StepScope, whole_step
from .stream import Stream
from .values import GREATEST, INT64, UnusableError, number, scalar, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, SupportsIndex

    from .gpu.late import Timed
    from .identity import Identity
    from .threads import RLock
    from .tracing import Span

_MAX_TAGGED = 64
_MANY_STEPLESS = 10  # calls of `log` without a step after which a job probably means steps
_FINALISER_PRIORITY = -1000
LEDGER_SHARE = 1 / 8  # of the keys


class Logger:
    """One actor of this process, with a file of its own. `rlship.init` makes it; any thread may call every method.

    No method blocks on the disk (except `flush` and `close`, up to their timeouts) and none raises. A call or value
    that cannot be used is left out, counted, and reported once on stderr and in the file.

    Attributes: `actor`, `replica`, `rank`, `world`, `attempt` and `axis` as in the file; `folder` (absolute); `id` and
    `path` of the file (None before it exists); `dropped_lines`, `dropped_values` and `errors`, counts.
    """

    def __init__(
        self,
        folder: str,
        identity: Identity,
        *,
        axis: str = "global_step",
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        timing: Timing | None = None,
        buffer_bytes: int = CAPACITY,
        disk: Disk | None = None,
    ) -> None:
        self.folder = folder
        self.actor = identity.actor
        self.replica = identity.replica
        self.rank = identity.rank
        self.world = identity.world
        self.attempt = identity.attempt
        self.axis = axis
        self.given: tuple[Any, ...] = (None,) * 4  # the parts of the identity that `init` got as arguments
        self.clock = clock
        self.ledger_share = LEDGER_SHARE
        self.steps = Steps()
        # Fills in the memory of devices at each step, once system metrics or a span on a GPU ask for it.
        self.allocator: Allocator | None = None
        self._setup = Setup(
            folder,
            identity,
            axis,
            dict(labels or {}),
            clock,
            timing or Timing.for_world(identity.world),
            buffer_bytes,
            disk or Disk(),
        )
        self.checksum = self._setup.checksum
        self.stream = Stream(self._setup)

    # Logging

    def log(
        self,
        metrics: Mapping[str, Any],
        step: SupportsIndex | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Write one record of `metrics` at `step`. See `rlship.log`."""
        stream, steps = self.stream, self.steps
        try:
            if not stream.live and not self._begin():
                return
            if step is None:
                if steps.counts:
                    self._log_counted(metrics, weight)
                    return
                step = steps.current()
                if step is None:
                    self._note_stepless(stream)
            else:
                if type(step) is not int or not 0 <= step <= 9007199254740991:
                    step = self._checked_for_log(step, metrics, weight)
                    if step is None:
                        return
                if step != steps.process:
                    self._go_on_to(stream, step)
            steps.logged = step
            t = self.clock()
            buffer = stream.buffer
            note = metrics_note(metrics, t) if weight is None and buffer.notes < MAX_NOTES else None
            if note is None or not buffer.note(note, step):
                self._log_now(stream, metrics, step, t, weight)
            if buffer.size > stream.wake_at:
                stream.wake()
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            stream.failed("log", error)

    def _log_now(self, stream: Stream, metrics: Mapping[str, Any], step: int | None, t: float, weight: Any) -> None:
        """Write a record of `metrics` that cannot wait as a note."""
        line = None if weight is not None else stream.encoder.line(metrics, step, t)
        if line is not None:
            stream.buffer.append(line, len(line) if line.isascii() else size_of(line), step)
        elif not hasattr(metrics, "items"):
            stream.misuse.refuse("log", f"log() takes a dict of names and values, not {metrics!r:.200}; it is left out")
        elif not ("torch" in modules and device_values.defer(stream, metrics, step, t, weight)):
            for line in stream.encoder.lines(metrics, step, t, weight):
                stream.buffer.append(line, size_of(line), step)

    def _log_counted(self, metrics: Mapping[str, Any], weight: float | Sequence[float] | None) -> None:
        """`log` without `step=` where each call is a step: log at the implicit step, and end it."""
        step = self.steps.current()
        self.log(metrics, step, weight)
        if step is not None and self.steps.outside() is not None:
            if self.allocator is not None:
                self._add_memory(self.stream, step)
            self.stream.barrier(step, self.clock(), wake=False)  # at each call, waking would cost more than the call
            self.steps.put(step + 1)
            self.steps.counted = step

    def _go_on_to(self, stream: Stream, step: int) -> None:
        """Make the step of a `log` the implicit one, unless it is of an earlier step."""
        if step == stream.promised:
            self._after_barrier(stream, "log", step)
        self.steps.reach(step)
        if self.allocator is not None and stream.promised < 0:  # no barrier has come, and perhaps none will
            self._add_memory(stream, step)

    def _note_stepless(self, stream: Stream) -> None:
        """Count a call of `log` while no step is known."""
        stream.unplaced = True
        if self.allocator is not None:
            self._add_memory(stream, None)
        self.steps.stepless += 1
        # On stderr only, and in one rank only: a process without steps is no misuse.
        if (
            self.steps.stepless == _MANY_STEPLESS
            and self.steps.counts is None
            and (self.replica, self.rank) == ("0", 0)
        ):
            stream.notices.once(
                "stepless",
                f"{self.actor}: log() was called {self.steps.stepless} times without a step. Such calls are no rows of "
                f"their own: a row holds all those of 10 s, or of one step of the trainer. If each call is a step, "
                f"pass step= to log(), or count_steps=True to init(); count_steps=False says that it is on purpose",
            )

    def fill_memory(self, step: int | None) -> None:
        """Fill in the memory of devices from now on: at each barrier, and at `step` if there has been none."""
        if self.allocator is None:
            self.allocator = Allocator()
        if self.stream.promised < 0:
            self._add_memory(self.stream, step)

    def _add_memory(self, stream: Stream, step: int | None) -> None:
        """Write what torch's allocator holds, once at a step. A failure ends it, and is reported."""
        allocator = self.allocator
        if allocator is None:
            return
        try:
            found = allocator.at(step)
        except Exception as error:  # torch or its driver may raise anything
            if raised_by_signal(error):
                raise
            allocator.failed = True
            stream.failed("device memory", error)
            return
        if found:
            for line in stream.encoder.lines(found, step, self.clock()):
                stream.buffer.append(line, size_of(line), step)

    def record_metric(
        self,
        key: str,
        value: Any,
        reduce: str | Iterable[str] | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Add observations of one metric at the implicit step. See `rlship.record_metric`."""
        stream = self.stream
        try:
            batches = stream.gathering.batches
            if (
                (type(value) is float or (type(value) is int and -INT64 <= value < INT64))
                and type(key) is str
                # A name that is in `asked` has already been checked.
                and (0 < len(key) <= MAX_NAME if reduce is None else stream.declared.asked.get(key) is reduce)
                and stream.live
                and (weight is None or (type(weight) in NUMBERS and 0 <= weight <= GREATEST))  # type: ignore[operator]
            ):
                steps = self.steps
                step = steps.task.get()
                if step is None:
                    step = steps.process
                if step is not batches.marked:
                    batches.mark(step)
                    if step is None:
                        stream.unplaced = True
                entries = batches.entries
                entries.append((key, value, step, weight))
                if len(entries) >= MAX_OBSERVATIONS:
                    stream.collect()
            elif stream.live or self._begin():
                self._record(stream, key, value, reduce, weight)
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            stream.failed("record_metric", error)

    def _record(self, stream: Stream, key: Any, value: Any, reduce: Any, weight: Any) -> None:
        """Add any observations of one metric at the implicit step."""
        name = key if type(key) is str else str(key)
        if not isinstance(key, str):
            stream.misuse.renamed(key)
        wrong = why_not_a_name(name)
        if reduce is not None and wrong is None:
            stream.declared.ask(name, reduce)
        step = self._implicit(stream)
        if isinstance(value, dict) or ("torch" in modules and device_values.on_device(value, weight)):
            self.log({name: value}, step, weight)
            return
        try:
            if wrong is not None:
                raise UnusableError(wrong)
            values, weights = observations(value, weight)
        except Exception as error:  # noqa: BLE001 - the value's own code may raise anything
            stream.misuse.unusable(name, value, why_unusable(error))
            return
        batches = stream.gathering.batches
        batches.add(name, values, weights, step)
        if batches.full:
            stream.collect()

    @guarded(None)
    def record_late(self, value: Timed, reductions: Mapping[str, str]) -> None:
        """Record metrics at the implicit step whose values a device delivers later, with a reduction for each."""
        stream = self.stream
        if not stream.live and not self._begin():
            return
        for name, reduce in reductions.items():
            stream.declared.ask(name, reduce)
        value.t, value.step = self.clock(), self._implicit(stream)
        stream.deferred.add(value)

    @guarded(None)
    def define(
        self,
        metrics: str | Mapping[str, Any],
        reduce: str | Iterable[str] | None = None,
        *,
        unit: str | None = None,
        per_rank: bool | None = None,
        stream: bool | None = None,
    ) -> None:
        """Declare metrics. See `rlship.define`."""
        own = self.stream
        if not own.live and not self._begin():
            return

        def report(name: str, message: str) -> None:
            own.misuse.tell("define", f"define {name[:200]}", message)

        own.declared.declare(definitions.parse(metrics, reduce, unit, per_rank, stream, report))

    def span(self, name: str, *, timer: str = "cpu", memory: bool = False) -> Span:
        """A context manager and decorator that records how long something took. See `rlship.span`."""
        return tracing.make(self._self, name, timer, memory)  # type: ignore[no-any-return]

    def _self(self) -> Logger:
        return self

    def implicit_step(self) -> int | None:
        """The step of calls that pass no step."""
        return self.steps.current()

    def _implicit(self, stream: Stream) -> int | None:
        """The implicit step. Without one, the first barrier adopts what is recorded now."""
        found = self.steps.current()
        if found is None:
            stream.unplaced = True
        return found

    # Events, tags and samples

    @guarded(None)
    def event(self, name: str, /, *, step: SupportsIndex | None = None, **attrs: Any) -> None:
        """Record that something happened. See `rlship.event`."""
        stream = self.stream
        if not stream.live and not self._begin():
            return
        t = self.clock()
        found = self._implicit(stream) if step is None else None
        if step is not None:
            found = self._checked(step, "event")
        named = self._named("event", name)
        if step is not None and found is None:
            return
        if named == "step_tag" and not (isinstance(attrs.get("tag"), str) and attrs["tag"]):
            stream.misuse.refuse(
                "step_tag", "event('step_tag') is how a tag of a step is written: call add_step_tag(tag)"
            )
        elif named is not None:
            self._event(stream, named, self._without_secrets(attrs) if named == "config" else attrs, found, t)

    @guarded(None)
    def add_step_tag(self, tag: str) -> None:
        """Tag the implicit step. See `rlship.add_step_tag`."""
        stream = self.stream
        if not stream.live and not self._begin():
            return
        step = self.steps.current()
        if step is None:
            stream.misuse.tell(
                "add_step_tag",
                "no step add_step_tag",
                f"add_step_tag({tag!r:.40}) without a step: call set_step(n) before; it is left out",
            )
            return
        named = self._named("add_step_tag", tag)
        if named is None:
            return
        tagged = stream.tagged
        with stream.lock:
            tags = tagged.get(step, frozenset())
            if named in tags:
                return
            if self._event(stream, "step_tag", {"tag": named}, step, self.clock()):
                tagged[step] = tags | {named}
                while len(tagged) > _MAX_TAGGED:
                    del tagged[next(iter(tagged))]

    @guarded(None)
    def clear_step_tags(self) -> None:
        """End the tags of the implicit step. See `rlship.clear_step_tags`."""
        step = self.steps.current()
        if step is not None:
            self.stream.tagged.pop(step, None)

    @guarded(None)
    def sample(
        self, table: str, row: Mapping[str, Any], *, score: Any = None, step: SupportsIndex | None = None
    ) -> None:
        """Offer a row of a table. See `rlship.sample`."""
        stream = self.stream
        if not stream.live and not self._begin():
            return
        t = self.clock()
        found = self._implicit(stream) if step is None else None
        if step is not None:
            found = self._checked(step, "sample")
        named = self._named("sample", table)
        if not hasattr(row, "items"):
            stream.misuse.refuse("row", f"sample({table!r:.40}) takes a row as a dict of columns, not {row!r:.200}")
            return
        if named is None or (step is not None and found is None):
            return
        pri = stream.admit(found, t)
        if pri is None:
            return

        def report(column: str, why: str) -> None:
            message = f"sample({named[:40]!r}): {column!r:.100}: {why}"
            stream.misuse.tell("sample", f"sample {named} {column[:200]}", message)

        try:
            line = sample_line(named, row, self._score(named, score), pri, found, t, report)
        except UnusableError as error:
            stream.misuse.refuse("columns", f"sample({named[:40]!r}) is left out: {error}")
            return
        stream.append_sample(line, found, t)

    def _without_secrets(self, config: dict[str, Any]) -> dict[str, Any]:
        """The attributes of an event `config`, read as `config` reads them; what it would leave out is named in one."""

        def report(path: str, why: str) -> None:
            self.stream.misuse.tell("event", f"event {path[:200]}", f"event('config'): {path[:100]!r}: {why}")

        kept, dropped = settings.as_data(("config",), config, report)
        if dropped:
            self.run_data(dropped=[".".join(path) for path in dropped])
        return kept  # type: ignore[no-any-return]

    def _event(self, stream: Stream, name: str, attrs: Mapping[str, Any], step: int | None, t: float) -> bool:
        def report(attribute: str, why: str) -> None:
            message = f"event({name[:40]!r}): {attribute!r:.100}: {why}"
            stream.misuse.tell("event", f"event {name} {attribute[:200]}", message)

        try:
            line = event_line(name, attrs, step, t, report)
        except UnusableError as error:
            stream.misuse.refuse("attributes", f"event({name[:40]!r}) is left out: {error}")
            return False
        kept = stream.buffer.append(line, size_of(line), step)
        if stream.buffer.size > stream.wake_at:
            stream.wake()
        return kept

    def _named(self, call: str, name: Any) -> str | None:
        """The name as a string; None if it cannot be used, which is reported."""
        found = name if type(name) is str else str(name)
        wrong = why_not_a_name(found)
        if wrong is not None:
            kind = "long" if found else "empty"
            self.stream.misuse.refuse(f"name {call}", f"{call}({found[:40]!r}): {wrong}; the call is left out", kind)
            return None
        return found

    def _score(self, table: str, score: Any) -> str | None:
        if score is None:
            return None
        try:
            found = scalar(score)
            if found is not None and found - found == 0:
                return number(found)
            why = "is not finite"
        except Exception as error:  # noqa: BLE001 - the value's own code may raise anything: the row is good
            why = why_unusable(error) or "is not a number"
        self.stream.misuse.tell(
            "sample",
            f"score {table}",
            f"sample({table[:40]!r}): the score of type {type(score).__name__} {why}: the row is kept without a score",
        )
        return None

    # The ledger

    @guarded(None)
    def ledger(self, hop: str, key: Any, /, *, step: SupportsIndex | None = None, **given: Any) -> None:
        """Record what a group of samples is at one hop. See `rlship.ledger`."""
        from .ledgers import calls, digest, entry  # a job without a ledger does not pay for it

        if type(key) is str and not digest.keeps(key, self.ledger_share):
            return  # as most calls
        stream = self.stream
        if not stream.live and not self._begin():
            return
        t = self.clock()
        found = self.steps.current() if step is None else self._checked(step, "ledger")
        named = self._named("ledger", hop)
        if named is None or (step is not None and found is None):
            return
        calls.record(stream, entry.Given(named, key, given), self.ledger_share, found, t)

    @guarded(None)
    def weights(self, version: SupportsIndex, fingerprint: object = None, *, step: SupportsIndex | None = None) -> None:
        """Record which weights a version has. See `rlship.weights`."""
        stream = self.stream
        if not stream.live and not self._begin():
            return
        t = self.clock()
        found = self.steps.current() if step is None else self._checked(step, "weights")
        if step is not None and found is None:
            return
        from .ledgers import calls

        calls.record_weights(stream, version, fingerprint, found, t)

    # The run

    def config(self, mapping: Any = None, /, **values: Any) -> None:
        """Note the configuration of this process, key by key. See `rlship.config`."""
        for given in (mapping, values or None):
            self.run_data(config=given)

    def summary(self, mapping: Any = None, /, **values: Any) -> None:
        """Note results, key by key. See `rlship.summary`."""
        for given in (mapping, values or None):
            self.run_data(summary=given)

    @guarded(None)
    def run_data(self, /, **members: Any) -> None:
        """Note members of a `run` record; None is not given. A later call replaces what it names, key by key.

        Args:
            members: `config`, `summary` and `facts`, names and values as in `rlship.config`; `name`, `notes`, `group`,
                `project`, `entity`, `job_type`, texts; `tags`, a list of texts; `dropped`, the dotted paths of
                secrets that the caller left out; `exit_code`, an integer from -255 to 255.
        """
        if all(value is None for value in members.values()):
            return
        stream = self.stream
        if not stream.live and not self._begin():
            return

        def report(path: str, why: str) -> None:
            member = path.partition(".")[0]
            stream.misuse.tell(member, f"run {path[:200]}", f"{path[:200]}: {why}")

        stream.note_run(rundata.read(members, report))

    # Steps

    @guarded(None)
    def set_step(self, step: SupportsIndex) -> None:
        """Set the implicit step. See `rlship.set_step`."""
        found = self._checked(step, "set_step", dropped=False)
        if found is None:
            return
        stream = self.stream
        if not self._after_barrier(stream, "set_step", found):
            before = None if self.steps.by_log else self.steps.outside()
            stream.misuse.back("set_step", found, stream.promised, before)
        self.steps.put(found)

    def step(self, step: SupportsIndex) -> StepScope:
        """A context manager that sets the implicit step inside. See `rlship.step`."""
        return StepScope(self.steps, self._checked(step, "step", dropped=False))

    def barrier(self, step: SupportsIndex | None = None) -> None:
        """Promise that this process writes nothing more for steps up to `step`. See `rlship.barrier`."""
        stream = self.stream
        try:
            t = self.clock()
            if type(step) is int and stream.promised < step <= 9007199254740991 and stream.live:
                found = step  # as nearly always: nothing about it has to be checked or reported
            elif (checked := self._step_of_barrier(stream, step)) is not None:
                found = checked
            else:
                return
            if self.allocator is not None and stream.live:
                if stream.promised < 0:
                    self.allocator.step = -1  # the first step may have it from its beginning
                self._add_memory(stream, found)
            stream.barrier(found, t)
            self.steps.put(found + 1)
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            stream.failed("barrier", error)

    def _step_of_barrier(self, stream: Stream, step: SupportsIndex | None) -> int | None:
        """The step of any call of `barrier`; None if the call is left out."""
        if not stream.live and not self._begin():
            return None
        if step is None and self.steps.counts and self.steps.outside() is not None:
            step = stream.promised if stream.promised >= 0 else None  # `log` has ended its step already
        found = self._own_step(step, "barrier")
        if found is not None:
            stream.misuse.back("barrier", found, stream.promised)
        return found

    @guarded(None)
    def rollback(self, step: SupportsIndex) -> None:
        """Go back to `step`. See `rlship.rollback`."""
        if not self.stream.live and not self._begin():
            return
        found = self._own_step(step, "rollback")
        if found is None:
            return
        known = [step for step in (self.steps.logged, self.steps.outside()) if step is not None]
        self.stream.misuse.forward(found, max(known, default=-1))
        self.stream.rollback(found)
        self.steps.put(found)
        if self.allocator is not None:
            self.allocator.step = -1

    def _after_barrier(self, stream: Stream, call: str, step: int) -> bool:
        """Whether the call is for the step of the barrier before it, with no `log` of a later step: reported once."""
        steps, promised = self.steps, stream.promised
        found = step == promised and steps.outside() == promised + 1 and (steps.logged or 0) <= promised
        if found:
            stream.misuse.after_barrier(call, step, counted=steps.counted == step)
        return found

    def _checked_for_log(self, step: Any, metrics: Any, weight: Any) -> int | None:
        """The step of a call of `log`. If it cannot be used, reports what else is wrong with the call; returns None."""
        found = self._checked(step, "log")
        if found is None and hasattr(metrics, "items"):
            self.stream.encoder.lines(metrics, None, self.clock(), weight)
        return found

    def _checked(self, step: Any, call: str, dropped: bool = True) -> int | None:
        misuse = self.stream.misuse
        try:
            found = whole_step(step)
            misuse.step_on_device(step, call)
            return found
        except Exception as error:  # the step's own code may raise anything
            if raised_by_signal(error):
                raise
            no_step = type(error) is ValueError
            why = str(error) if no_step else f"reading the step raised {type(error).__name__}"
            kind = "step" if no_step else "unreadable step"
            if dropped:
                misuse.refuse(call, f"{call}: {why}; the call is left out", kind)
            else:
                misuse.tell(call, f"{kind} {call}", f"{call}: {why}; the call is left out")
            return None

    def _own_step(self, step: Any, call: str) -> int | None:
        if step is not None:
            return self._checked(step, call, dropped=False)
        found = self.steps.current()
        if found is None:
            message = f"{call}() without a step: give one, or call set_step(n) before"
            self.stream.misuse.tell(call, f"no step {call}", message)
        return found

    # The end

    @guarded(False)
    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything logged before is in the file. See `rlship.flush`."""
        return not self.stream.live or self.stream.flush(timeout)

    @guarded(False)
    def close(self, timeout: float | None = None) -> bool:
        """Write what is left and the `close` record. See `rlship.close`."""
        return self.stream.close(timeout)

    @guarded(False)
    def close_at_exit(self, timeout: float | None, error: str) -> bool:
        """Close as the process ends; `error` is the one that ends it, "" for none."""
        return self.stream.close(timeout, error)

    # State

    @property
    def id(self) -> str | None:
        """The random id of the file; None before the first call of a forked child."""
        return self.stream.parts.id

    @property
    def path(self) -> str | None:
        """The file's path; None before the writing thread has chosen it."""
        return self.stream.path

    @property
    def local_rank(self) -> int | None:
        """This process's number on its host, as the launcher counts; None if it does not say."""
        return self._setup.identity.local_rank

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self.stream.closed

    @property
    def dropped_lines(self) -> int:
        """The number of lines left out because the buffer was full or a call could not be used."""
        return self.stream.buffer.dropped

    @property
    def dropped_values(self) -> int:
        """The number of values left out because they cannot be metrics."""
        return self.stream.misuse.dropped_values

    @property
    def errors(self) -> int:
        """The number of failed attempts to write, and of calls with an internal error."""
        return self.stream.faults.errors

    # For the registry

    def adopt(self, parent: str | None) -> None:
        """Make this the writer of a child process of the writer `parent`. Only before the first call."""
        self.stream.parts.parent = parent

    def attend(self, opened: float, each_round: Callable[[], object]) -> None:
        """Have the file begin at `opened` (Unix seconds), and the writing thread call `each_round()` in each round.

        Only before the first call.
        """
        self._setup.opened, self._setup.each_round = opened, each_round

    def find_facts(self) -> None:
        """Let the writing thread add facts about this process to the run data. A forked child adds none."""
        self.stream.declared.finds_facts = True

    @guarded(False)
    def start(self) -> bool:
        """Open the file now instead of at the first call. Returns whether calls are accepted."""
        return self.stream.live or self._begin()

    def _begin(self) -> bool:
        """Open for this process, at init or at a forked child's first call. Returns False if calls are dropped."""
        stream = self.stream
        with stream.lock:  # only one of several threads does it
            if stream.live:
                return True
            if stream.parts.id is None and not stream.closed:
                # Before the start: a signal handler may raise out of it, and the lines still need their end.
                _close_with_multiprocessing(self, stream)
            return stream.start()

    def failed(self, where: str, error: Exception) -> None:
        """Count an internal error and report it once."""
        self.stream.failed(where, error)

    def report(self, where: str, topic: str, message: str) -> None:
        """Report a misuse on stderr and in the file, once for each topic."""
        self.stream.misuse.tell(where, topic, message)

    @property
    def begun(self) -> bool:
        """True if this process has opened a file; False in a forked child that has not logged yet."""
        return self.stream.live

    @property
    def locks(self) -> tuple[RLock, RLock]:
        """The locks that no other thread may hold at a fork, in the order of taking them."""
        return self.stream.lock, self.stream.buffer.lock

    def after_fork(self) -> None:
        """In a forked child: forget the parent's buffer, thread and file; the first call opens a file of its own."""
        before = self.stream
        self.stream = Stream(
            self._setup, parent=before.leave_to_parent(), declared=before.declared.entries, closed=before.closed
        )


def _close_with_multiprocessing(logger: Logger, stream: Stream) -> None:
    """Close at the end of a `multiprocessing` child. It ends by os._exit, which skips `atexit` but runs its finalisers.

    A signal ends a Pool's child once its work is done, so what it logs must not wait.
    """
    process = modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    stream.wake_at = 0
    from multiprocessing.util import Finalize

    def close() -> None:
        logger.close_at_exit(None, endings.error_of_child())

    Finalize(None, close, exitpriority=_FINALISER_PRIORITY)
