"""The server's front: it sends the page's own files from the first moment on, and data once what reads them is loaded.

Half of the server's start is the loading of modules that only data need. The browser has the page by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rlship_sidecar.view import assets
from rlship_sidecar.view.guard import API

if TYPE_CHECKING:
    from rlship_sidecar.view.app import PageServer


class Front:
    """An ASGI application. `make` gives what answers about data; it is called once, by a worker thread."""

    def __init__(self, make: Callable[[], PageServer]) -> None:
        self._make = make
        self._loading: asyncio.Future[PageServer] | None = None
        self._files = Starlette(routes=[Route("/{path:path}", assets.serve)], lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http" and scope["path"].startswith(API) and self._loading is not None:
            server = await asyncio.shield(self._loading)
            await server.app(scope, receive, send)
        else:
            await self._files(scope, receive, send)

    def end_streams(self) -> None:
        """End all live streams, so that the server can stop."""
        loading = self._loading
        if loading is not None and loading.done() and loading.exception() is None:
            loading.result().end_streams()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._loading = asyncio.ensure_future(self._load())
        try:
            yield
        finally:
            with suppress(Exception):  # each request failed with it
                server = await self._loading
                await server.close()

    async def _load(self) -> PageServer:
        server = await asyncio.to_thread(self._make)
        server.begin()
        return server
