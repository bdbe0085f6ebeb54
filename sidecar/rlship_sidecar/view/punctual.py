"""Connections on which a request does not arrive are closed, so that they take no other page's place."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0  # for the head of a request to be whole


class Punctual(H11Protocol):
    """uvicorn waits without end for the rest of a request's head."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        self._due = self.loop.call_later(REQUEST_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        if repr(self.conn.their_state) != "IDLE":  # a state of h11, which uvicorn brings
            self._forget()
        elif self._due is None:
            self._due = self.loop.call_later(REQUEST_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._forget()
        super().connection_lost(exc)

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
