"""The server of the page: which request is answered by what."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.view import answers, asking
from rlship_sidecar.view.contract import Refusal
from rlship_sidecar.view.folder import ViewedFolder
from rlship_sidecar.view.live import MAX_SUBSCRIBERS, Channel, ListChannel
from rlship_sidecar.view.sending import encoded, json_response
from rlship_sidecar.view.shown import Shown
from rlship_sidecar.view.texts import text

CACHE_BYTES = 16 << 20  # of answers, of all experiments
HELD_BYTES = 96 << 20  # of rollups; beyond it those that no page looks at are let go
AT_ONCE = 4  # answers
TIDY_EVERY_S = 5.0
NDJSON = "application/x-ndjson"
_SLOW = ("why", "diff", "spans", "rollouts", "events")  # these read much, one at a time
Version = tuple[object, ...]
T = TypeVar("T")


@dataclass
class AnswerCache:
    """Encoded answers by request, the oldest use first. One of another version is made anew."""

    size: int = 0
    held: OrderedDict[str, tuple[Version, bytes]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, request: str, version: Version) -> bytes | None:
        """An answer of this version."""
        with self.lock:
            found = self.held.get(request)
            if found is None or found[0] != version:
                return None
            self.held.move_to_end(request)
            return found[1]

    def put(self, request: str, version: Version, body: bytes) -> None:
        """Keep an answer, if it is small enough to be one of several."""
        with self.lock:
            former = self.held.pop(request, None)
            self.size -= len(former[1]) if former is not None else 0
            if len(body) > CACHE_BYTES // 4:
                return
            self.held[request] = version, body
            self.size += len(body)
            while self.size > CACHE_BYTES:
                self.size -= len(self.held.popitem(last=False)[1][1])


class PageServer:
    """Answers requests about the experiments of a folder."""

    def __init__(self, viewed: ViewedFolder) -> None:
        self.viewed = viewed
        self._channels: dict[str, Channel] = {}
        self._list = ListChannel(viewed)
        self._cache = AnswerCache()
        self._quick = asyncio.Semaphore(AT_ONCE)
        self._slow = asyncio.Semaphore(1)
        self._tasks: list[asyncio.Task[None]] = []
        routes = [
            Route("/api/experiments", self._experiments),
            Route("/api/live", self._live_list),
            Route("/api/e/{experiment}/live", self._live),
            Route("/api/e/{experiment}/{name}", self._about),
        ]
        handlers: Mapping[Any, Any] = {RlshipError: _refused, HTTPException: _unknown, Exception: _failed}
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    def begin(self) -> None:
        """Begin the work that no request asks for."""
        self._tasks = [asyncio.create_task(self._tidy()), asyncio.create_task(self._open_only())]

    def end_streams(self) -> None:
        """End all live streams, so that the server can stop."""
        self._list.end_streams()
        for channel in self._channels.values():
            channel.end_streams()

    async def close(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._list.close()
        for channel in list(self._channels.values()):
            await channel.close()

    async def _open_only(self) -> None:
        """Open the only experiment of the folder: the page asks for it next."""
        with suppress(RlshipError):  # a request says it
            if (one := await asyncio.to_thread(self.viewed.only)) is not None:
                await self._channel(one)

    async def _tidy(self) -> None:
        """Let go of what no page looks at, once there is too much of it."""
        while True:
            await asyncio.sleep(TIDY_EVERY_S)
            held = sorted(self._channels.items(), key=lambda one: one[1].used)
            total = sum(_bytes(channel) for _, channel in held)
            for one, channel in held:
                if channel.is_idle or (total > HELD_BYTES and not channel.subscribers and len(self._channels) > 1):
                    total -= _bytes(channel)
                    del self._channels[one]
                    await channel.close()

    async def _channel(self, one: str) -> Channel:
        channel = self._channels.get(one)
        if channel is None:
            folders = await asyncio.to_thread(self.viewed.folders)
            path = folders.get(one)
            if path is None:
                raise UnknownExperiment(
                    f"there is no experiment {text(one, 40)!r} in {self.viewed.directory}", "open the list again"
                )
            is_local = await asyncio.to_thread(lambda: filesystem_of(str(path.resolve())).local)
            channel = self._channels.setdefault(one, Channel(Shown(self.viewed, one, path), is_local=is_local))
        channel.touch()
        return channel

    # Requests ---------------------------------------------------------------------------------------------------------

    async def _experiments(self, request: Request) -> Response:
        asking.only(_parameters(request), ())
        return json_response(await asyncio.to_thread(lambda: encoded(self.viewed.listed())))

    async def _live_list(self, request: Request) -> Response:
        asking.only(_parameters(request), ())
        _require_room(self._list.subscribers)
        return _streamed(request, self._list.stream)

    async def _live(self, request: Request) -> Response:
        given = _parameters(request)
        asking.only(given, ("store", "row"))
        row = asking.step(given, "row")
        channel = await self._channel(request.path_params["experiment"])
        _require_room([one for channel in self._channels.values() for one in channel.subscribers])
        return _streamed(request, partial(channel.stream, given.get("store", ""), row))

    async def _about(self, request: Request) -> Response:
        name = request.path_params["name"]
        given = _parameters(request)
        channel = await self._channel(request.path_params["experiment"])
        await channel.ready()
        if channel.trouble is not None:
            raise channel.trouble
        if name == "diff":
            asking.only(given, ("with", "rtol", "atol"))
            other = await self._channel(given.get("with", ""))
            await other.ready()
            return json_response(
                await self._answered(partial(answers.diff, channel.shown, given, other.shown), self._slow)
            )
        answer = answers.ANSWERS.get(name)
        if answer is None:
            raise answers.unknown_error(name)
        version: Version = channel.shown.version()
        kept = f"{channel.shown.id}/{name}?{request.url.query}"
        body = self._cache.get(kept, version)
        if body is None:
            turn = self._slow if name in _SLOW else self._quick
            body = await self._answered(partial(answer, channel.shown, given), turn)
            if name not in answers.OF_THE_MOMENT and channel.shown.progress is None and name not in _SLOW[2:]:
                self._cache.put(kept, version, body)
        return json_response(body)

    async def _answered(self, make: Callable[[], Any], turn: asyncio.Semaphore) -> bytes:
        async with turn:
            return await asyncio.to_thread(lambda: encoded(_checked(make)))


class UnknownExperiment(UsageProblem):
    """No experiment has the id."""


def _checked(make: Callable[[], T]) -> T:
    """What `make` answers. What a store that no sidecar wrote makes of it becomes a refusal."""
    try:
        return make()
    except (TypeError, ValueError, LookupError, AttributeError) as problem:
        raise RlshipError(
            f"what is stored of this experiment cannot be used: {type(problem).__name__}: {text(problem, 200)}",
            "make the rows again from the files: rlship replay",
        ) from problem


def _require_room(subscribers: Sized) -> None:
    if len(subscribers) >= MAX_SUBSCRIBERS:
        raise RlshipError(f"{MAX_SUBSCRIBERS} pages are open already", "close some of them")


def _streamed(request: Request, stream: Callable[[], AsyncIterator[bytes]]) -> Response:
    """A live stream. HEAD has its headers alone: else the next request of the connection would wait for ever."""
    return Response(media_type=NDJSON) if request.method == "HEAD" else StreamingResponse(stream(), media_type=NDJSON)


def _parameters(request: Request) -> dict[str, str]:
    """The parameters of a request. One that is given twice is refused."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise UsageProblem(f"{text(name, 40)} is given twice", "give it once, with commas between its items")
        found[name] = value
    return found


def _bytes(channel: Channel) -> int:
    followed = channel.shown.followed
    return 0 if followed is None else followed.rollup.nbytes


def _refused(request: Request, problem: RlshipError) -> Response:
    status, code = 503, "store"
    if isinstance(problem, UnknownExperiment):
        status, code = 404, "unknown"
    elif isinstance(problem, UsageProblem):
        status, code = 400, "parameter"
    refusal: Refusal = {"code": code, "error": text(problem.message), "hint": text(problem.hint)}
    return json_response(encoded(refusal), status)


def _unknown(request: Request, problem: HTTPException) -> Response:
    refusal: Refusal = {"code": "path", "error": "there is no such request", "hint": "the page is at /"}
    return json_response(encoded(refusal), problem.status_code)


def _failed(request: Request, problem: Exception) -> Response:
    """An error of the server itself; its traceback goes to standard error."""
    said = f"the server failed: {type(problem).__name__}"
    refusal: Refusal = {"code": "internal", "error": said, "hint": "what `rlship view` printed says more"}
    return json_response(encoded(refusal), 500)
