"""What a job says besides metrics: events, tags of steps, and samples of what it works on."""

from __future__ import annotations

from . import quota
from .encode import size_of, why_not_a_name
from .guard import guarded
from .records import event_line, sample_line
from .values import UnusableError, number, scalar, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, SupportsIndex

    from .steps import Steps
    from .stream import Stream

_MOST_TAGGED = 64


class Occurrences:
    """The part of a Logger that says what happened."""

    if TYPE_CHECKING:  # what it needs of the Logger
        _stream: Stream
        _steps: Steps
        _clock: Callable[[], float]

        def _begin(self) -> bool: ...
        def _checked(self, step: Any, call: str, dropped: bool = True) -> int | None: ...
        def failed(self, where: str, error: Exception) -> None: ...

    @guarded(None)
    def event(self, name: str, /, *, step: SupportsIndex | None = None, **attrs: Any) -> None:
        """Write that something happened. See `rlship.event`."""
        stream = self._stream
        if not stream.live and not self._begin():
            return
        t = self._clock()
        found = self._steps.current()
        if step is not None:
            found = self._checked(step, "event")
            if found is None:
                return
        named = self._named("event", name)
        if named == "step_tag" and not (isinstance(attrs.get("tag"), str) and attrs["tag"]):
            stream.refuse("step_tag", "event('step_tag') is how a tag of a step is written: call add_step_tag(tag)")
        elif named is not None:
            self._event(stream, named, attrs, found, t)

    @guarded(None)
    def add_step_tag(self, tag: str) -> None:
        """Tag the implicit step. See `rlship.add_step_tag`."""
        stream = self._stream
        if not stream.live and not self._begin():
            return
        step = self._steps.current()
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
            if self._event(stream, "step_tag", {"tag": named}, step, self._clock()):
                tagged[step] = tags | {named}
                while len(tagged) > _MOST_TAGGED:
                    del tagged[next(iter(tagged))]

    @guarded(None)
    def clear_step_tags(self) -> None:
        """End the tags of the implicit step. See `rlship.clear_step_tags`."""
        step = self._steps.current()
        if step is not None:
            self._stream.tagged.pop(step, None)

    @guarded(None)
    def sample(
        self, table: str, row: Mapping[str, Any], *, score: Any = None, step: SupportsIndex | None = None
    ) -> None:
        """Offer a row of a table. See `rlship.sample`."""
        stream = self._stream
        if not stream.live and not self._begin():
            return
        t = self._clock()
        found = self._steps.current()
        if step is not None:
            found = self._checked(step, "sample")
            if found is None:
                return
        named = self._named("sample", table)
        if named is None:
            return
        if not hasattr(row, "items"):
            stream.refuse("row", f"sample({named[:40]!r}) takes a row as a dict of columns, not {row!r:.200}")
            return
        pri = quota.priority()
        with stream.lock:
            kept = stream.samples.admits(found, t, pri)
            passed = stream.samples.passed()
        if passed:
            stream.tell_dropped(passed)
        if not kept:
            return

        def told(column: str, why: str) -> None:
            message = f"sample({named[:40]!r}): {column!r:.100}: {why}"
            stream.misuse.tell("sample", f"sample {named} {column[:200]}", message)

        try:
            line = sample_line(named, row, self._score(named, score), pri, found, t, told)
        except UnusableError as error:
            stream.refuse("columns", f"sample({named[:40]!r}) is left out: {error}")
            return
        size = size_of(line)
        stream.samples.spend(found, t, size)
        stream.buffer.append(line, size, found)
        if stream.buffer.size > stream.wake_at:
            stream.wake()

    def _event(self, stream: Stream, name: str, attrs: Mapping[str, Any], step: int | None, t: float) -> bool:
        def told(attribute: str, why: str) -> None:
            message = f"event({name[:40]!r}): {attribute!r:.100}: {why}"
            stream.misuse.tell("event", f"event {name} {attribute[:200]}", message)

        try:
            line = event_line(name, attrs, step, t, told)
        except UnusableError as error:
            stream.refuse("attributes", f"event({name[:40]!r}) is left out: {error}")
            return False
        kept = stream.buffer.append(line, size_of(line), step)
        if stream.buffer.size > stream.wake_at:
            stream.wake()
        return kept

    def _named(self, call: str, name: Any) -> str | None:
        """The name as a string; None, and told, where it cannot be used."""
        found = name if type(name) is str else str(name)
        wrong = why_not_a_name(found)
        if wrong is not None:
            self._stream.refuse(f"name {call}", f"{call}({found[:40]!r}): {wrong}; the call is left out")
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
            why = why_unusable(error) or "is no number"
        self._stream.misuse.tell(
            "sample",
            f"score {table}",
            f"sample({table[:40]!r}): the score of type {type(score).__name__} {why}: the row is kept without one",
        )
        return None
