"""Faults of the W&B server, and which of them really met a request."""

from __future__ import annotations

import time
from collections import Counter, deque

from tests.loopback.backend import LoopbackBackend
from tests.soak.plan import FILE_STREAM, GRAPHQL, Strike

FLOWING_S = 2.5


class ServerFaults:
    """Queues strikes at the backend. A fault counts once for each request that met it, stale answers too; who sends
    nothing while the server is down leaves no trace here, so that one is the caller's to count.
    """

    def __init__(self, backend: LoopbackBackend) -> None:
        self.backend = backend
        self._queued: dict[str, deque[str]] = {FILE_STREAM: deque(), GRAPHQL: deque()}
        self._seen = 0
        self._struck: Counter[str] = Counter()
        self._stale_since = 0
        self.with_rows: Counter[str] = Counter()
        """How many of the requests that met each kind had rows in them."""

    def flowing(self, strike: Strike) -> bool:
        """Whether rows arrive just now, and what was queued for the same endpoint before has struck: else a fault would
        only meet the empty request by which a client introduces itself.
        """
        self.struck()
        endpoint = strike.detail.split()[-1] if strike.detail else FILE_STREAM
        if self._queued[endpoint]:
            return False
        sent = self.backend.sent(FILE_STREAM)[-3:]
        return any(one.status == 200 and one.lines[1] and one.t > time.time() - FLOWING_S for one in sent)

    def strike(self, strike: Strike) -> None:
        """Let it happen to the next requests."""
        backend, words = self.backend, strike.detail.split()
        if strike.kind == "server down":
            backend.down()
            return
        if strike.kind == "stale answers":
            self._stale_since = len(backend.sent(GRAPHQL))
            backend.stale_lines = strike.number
            return
        endpoint = words[-1]
        if strike.kind == "server hangs":
            backend.hang(strike.hold_s, strike.number, endpoint=endpoint)
        elif strike.kind == "request cut":
            backend.hang(0.0, strike.number, endpoint=endpoint)
        elif strike.kind == "reply cut":
            backend.cut_reply(strike.number, endpoint=endpoint)
        else:
            retry_after_s = 1 if strike.kind == "server 429" else None
            backend.fail(int(words[0]), strike.number, endpoint=endpoint, retry_after_s=retry_after_s)
        self._queued[endpoint] += [strike.kind] * strike.number

    def over(self, strike: Strike) -> None:
        """End what does not end with a number of requests."""
        if strike.kind == "server down":
            self.backend.up()
        elif strike.kind == "stale answers":
            answered = self.backend.sent(GRAPHQL)[self._stale_since :]
            self._struck["stale answers"] += sum(request.status == 200 for request in answered)
            self.backend.stale_lines = 0

    def struck(self) -> Counter[str]:
        """How many requests met each kind so far. Each endpoint's faults are met in the order in which they came."""
        with self.backend.lock:
            fresh, self._seen = self.backend.requests[self._seen :], len(self.backend.requests)
        for request in fresh:
            queued = self._queued.get(request.endpoint)
            if request.status != 200 and queued:
                kind = queued.popleft()
                self._struck[kind] += 1
                self.with_rows[kind] += request.lines[1] > 0
        return self._struck
