"""Live streams: what is new, to every page that looks at an experiment or at the list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.view.charts import metric_id
from rlship_sidecar.view.contract import BEAT_S, MAX_ROWS, ExperimentEntry, LiveRow, MetricEntry
from rlship_sidecar.view.folder import LIST_EVERY_S, ViewedFolder
from rlship_sidecar.view.following import News
from rlship_sidecar.view.lean import ChartedRow
from rlship_sidecar.view.sending import line
from rlship_sidecar.view.shown import Shown
from rlship_sidecar.view.texts import text

POLL_S, REMOTE_POLL_S = 0.15, 0.6
STATUS_EVERY_S = 2.0
PROGRESS_EVERY_S = 0.5
IDLE_S = 60.0  # for so long a store is followed that no page looks at
MAX_WAITING = 200  # events for a page that takes none
MAX_SUBSCRIBERS = 200
FIRST_LOOK_S = 0.5  # for so long an answer waits for the first look at a store


@dataclass(eq=False)
class Subscriber:
    """A page's stream: the events that it has not taken."""

    waiting: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(MAX_WAITING + 1))

    def put(self, data: bytes, behind: bytes) -> None:
        """Hand an event over; a page that takes none begins anew once it does."""
        if self.waiting.qsize() >= MAX_WAITING:
            self._forget()
            data = behind
        self.waiting.put_nowait(data)

    def end(self) -> None:
        """End the stream."""
        self._forget()
        self.waiting.put_nowait(None)

    def _forget(self) -> None:
        while not self.waiting.empty():
            self.waiting.get_nowait()

    async def lines(self) -> AsyncIterator[bytes]:
        """The events as they come, with a beat where none does."""
        while True:
            try:
                data = await asyncio.wait_for(self.waiting.get(), BEAT_S)
            except (asyncio.TimeoutError, TimeoutError):
                data = b""
            if data is None:
                return
            yield data


def _end(subscribers: Iterable[Subscriber]) -> None:
    for subscriber in subscribers:
        subscriber.end()


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Channel:
    """Follows one experiment as long as pages look at it, and tells them what is new."""

    def __init__(self, shown: Shown, *, is_local: bool) -> None:
        self.shown = shown
        self.used = time.monotonic()
        self.subscribers: set[Subscriber] = set()
        self.trouble: RlshipError | None = None
        self._published: tuple[str, int] = ("", 0)
        self._poll_s = POLL_S if is_local else REMOTE_POLL_S
        self._is_local = is_local
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._entry: ExperimentEntry | None = None
        self._status_at = 0.0
        self._metrics: set[str] = set()
        self._run_version = 0

    def touch(self) -> None:
        """Follow the experiment from now on, if that is not done already."""
        self.used = time.monotonic()
        if self._task is None or self._task.done():
            self._looked.clear()
            self._task = asyncio.create_task(self._follow())

    async def ready(self) -> None:
        """Wait for the first look, but not for long: a long history is answered from as far as it was read."""
        self.touch()
        if self.trouble is not None:  # a store that a sidecar makes at this moment can be read by the next look
            self._looked.clear()
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._looked.wait(), FIRST_LOOK_S)
        while self.shown.followed is None and self.trouble is None:
            if self._task is not None and self._task.done():
                self._task.result()
                raise RlshipError(f"{self.shown.path} is not followed any more", "ask again")
            await asyncio.sleep(0.02)
        if not self._published[0]:  # the first look is under way: pages count from as far as it is
            self._published = self.shown.version()

    @property
    def is_idle(self) -> bool:
        """Whether no page has looked at it for a while."""
        return not self.subscribers and time.monotonic() - self.used > IDLE_S

    def end_streams(self) -> None:
        """End the streams of all pages."""
        _end(self.subscribers)

    async def close(self) -> None:
        """End following it."""
        await _cancel(self._task)
        await asyncio.to_thread(self.shown.close)

    # Following --------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while not self.is_idle:
            try:
                if await self._has_changed():
                    news = await self._look()
                    self._publish(news)
                self._recover()
                if time.monotonic() - self._status_at >= STATUS_EVERY_S:
                    await self._tell_status()
            except RlshipError as problem:
                self._complain(problem)
            except OSError as problem:
                self._complain(RlshipError(f"{self.shown.path} cannot be read: {problem}", "is it still there?"))
            finally:
                self._looked.set()
            await asyncio.sleep(self._poll_s)

    async def _has_changed(self) -> bool:
        followed = self.shown.followed
        if followed is None or followed.stamp is None or time.monotonic() - self._status_at >= STATUS_EVERY_S:
            followed = await asyncio.to_thread(self.shown.find_store)
        if self._is_local:
            return followed.has_changed()
        return await asyncio.to_thread(followed.has_changed)

    async def _look(self) -> News:
        """Take in what is new; meanwhile pages get events that say how far that is."""
        task = asyncio.ensure_future(asyncio.to_thread(self.shown.look))
        while True:
            done, _ = await asyncio.wait([task], timeout=PROGRESS_EVERY_S)
            if done:
                return task.result()
            self._looked.set()
            await self._tell_status()

    def _publish(self, news: News) -> None:
        store, row = self.shown.version()
        before, self._published = self._published, (store, row)
        if news.is_other and before[0]:
            self._metrics = set()
            self._send(line({"kind": "store", "store": store, "row": row}))
        elif news.rows is None or row - before[1] != len(news.rows):
            if before != (store, row):
                self._send(self._behind())
        elif news.rows and self.subscribers:
            self._send(line(self._rows_event(news.rows, self._new_metrics(news.rows))))
        else:
            self._new_metrics(news.rows)
        followed = self.shown.followed
        if followed is not None and followed.run_version != self._run_version:
            self._run_version = followed.run_version
            self._send(line({"kind": "run", "store": store, "row": row}))

    def _send(self, data: bytes) -> None:
        """Send an event to every page."""
        behind = self._behind()
        for subscriber in self.subscribers:
            subscriber.put(data, behind)

    def _behind(self) -> bytes:
        store, row = self._published
        return line({"kind": "behind", "store": store, "row": row})

    def _new_metrics(self, rows: Iterable[ChartedRow]) -> list[MetricEntry]:
        """The metrics of rows that no row had before."""
        found: list[MetricEntry] = []
        for row in rows:
            for key in (*row.m, *row.per_rank):
                one = metric_id(*row.family, key)
                if one not in self._metrics:
                    self._metrics.add(one)
                    with self.shown.reading:
                        metric = self.shown.metric(one)
                    if metric is not None:
                        found.append(metric)
        return found

    def _rows_event(self, rows: list[ChartedRow], metrics: list[MetricEntry]) -> dict[str, Any]:
        store = self._published[0]
        event: dict[str, Any] = {"kind": "rows", "store": store, "row": rows[-1].row + 1}
        return {**event, "rows": [live_row(row) for row in rows], "metrics": metrics}

    # Status and trouble -----------------------------------------------------------------------------------------------

    async def _tell_status(self) -> None:
        self._status_at = time.monotonic()
        if not self.subscribers:
            return
        entry = await asyncio.to_thread(self.shown.viewed.entry, self.shown.id, self.shown.path)
        event = self._status_event(entry)
        if entry != self._entry or event["progress"] is not None:
            self._entry = entry
            data = line(event)
            self._send(data)

    def _status_event(self, entry: ExperimentEntry) -> dict[str, Any]:
        store, row = self._published
        shown = self.shown
        progress, doing = shown.progress, shown.doing
        return {"kind": "status", "store": store, "row": row, "entry": entry, "progress": progress, "doing": doing}

    def _complain(self, problem: RlshipError) -> None:
        if self.trouble is None or self.trouble.message != problem.message:
            data = line(self._trouble_event(problem))
            self._send(data)
        self.trouble = problem

    def _trouble_event(self, problem: RlshipError) -> dict[str, Any]:
        store, row = self._published
        said = {"error": text(problem.message), "hint": text(problem.hint)}
        return {"kind": "trouble", "store": store, "row": row, **said}

    def _recover(self) -> None:
        if self.trouble is not None:
            self.trouble, self._entry = None, None
            self._status_at = 0.0

    # A page's stream --------------------------------------------------------------------------------------------------

    async def stream(self, store: str, row: int | None) -> AsyncIterator[bytes]:
        """The events for a page that has rows below `row` of a store; None: nothing."""
        await self.ready()
        subscriber = Subscriber()
        self.subscribers.add(subscriber)
        try:
            now, count = self._published
            missed = await self._missed(store, row)
            behind = row is None or missed is None
            yield line({"kind": "hello", "store": now, "row": count if behind else row, "behind": behind})
            if missed:
                yield line(self._rows_event(missed, []))
            if self.trouble is not None:
                yield line(self._trouble_event(self.trouble))
            entry = await asyncio.to_thread(self.shown.viewed.entry, self.shown.id, self.shown.path)
            yield line(self._status_event(entry))
            async for data in subscriber.lines():
                self.used = time.monotonic()
                yield data or line({"kind": "beat", "store": self._published[0], "row": self._published[1]})
        finally:
            self.subscribers.discard(subscriber)
            self.used = time.monotonic()

    async def _missed(self, store: str, row: int | None) -> list[ChartedRow] | None:
        """The rows that a page lacks; None if these are too many, or of another store."""
        now, count = self._published
        followed = self.shown.followed
        if row is None or store != now or not 0 <= count - row <= MAX_ROWS or followed is None:
            return None
        if row == count:
            return []
        try:
            return await asyncio.to_thread(followed.rows, row, count)
        except RlshipError:
            return None


def live_row(row: ChartedRow) -> LiveRow:
    """A row as a live event has it."""
    family = row.family
    return {
        "no": row.row,
        "actor": text(row.actor),
        "kind": family[1],
        "x": row.step,
        "t": row.t,
        "partial": bool(row.coverage.missing),
        "m": {metric_id(*family, key): value for key, value in row.m.items()},
        "tables": [text(name, 200) for name in row.samples],
    }


class ListChannel:
    """Looks at all experiments while a page shows the list."""

    def __init__(self, viewed: ViewedFolder) -> None:
        self._viewed = viewed
        self.subscribers: set[Subscriber] = set()
        self._entries: dict[str, ExperimentEntry] = {}
        self._task: asyncio.Task[None] | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        """The entries that change."""
        subscriber = Subscriber()
        self.subscribers.add(subscriber)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._follow())
            yield self._event(list(self._entries.values()), [])
            async for data in subscriber.lines():
                yield data or line({"kind": "beat", "now": time.time(), "experiments": [], "gone": []})
        finally:
            self.subscribers.discard(subscriber)

    def end_streams(self) -> None:
        """End the streams of all pages."""
        _end(self.subscribers)

    async def close(self) -> None:
        """End it."""
        await _cancel(self._task)

    async def _follow(self) -> None:
        while self.subscribers:
            with suppress(RlshipError):  # the folder cannot be read now: a request for the list says so
                listed = await asyncio.to_thread(self._viewed.listed)
                found = {one["id"]: one for one in listed["experiments"]}
                changed = [one for one in found.values() if self._entries.get(one["id"]) != one]
                gone = [one for one in self._entries if one not in found]
                self._entries = found
                if changed or gone:
                    data = self._event(changed, gone)
                    whole = self._event(list(found.values()), [])
                    for subscriber in self.subscribers:
                        subscriber.put(data, whole)
            await asyncio.sleep(LIST_EVERY_S)

    @staticmethod
    def _event(entries: list[ExperimentEntry], gone: list[str]) -> bytes:
        return line({"kind": "experiments", "now": time.time(), "experiments": entries, "gone": gone})
