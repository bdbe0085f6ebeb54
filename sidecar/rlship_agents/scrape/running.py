"""All endpoints of a scrape: a thread for each current endpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rlship_agents.scrape.endpoints import Endpoint
from rlship_agents.scrape.replica import READERS, Manner, Output, Replica
from rlship_agents.scrape.sources import Sources

# Seconds between two reads of lists of endpoints, and the longest time to stop.
LOOK_S = 1.0
STOP_S = 3.0
CLOSE_S = 5.0


def scrape(
    sources: Sources,
    manner: Manner,
    output: Callable[[Endpoint, int], Output],
    *,
    stop: threading.Event,
    say: Callable[[str], None],
) -> bool:
    """Look at all endpoints until `stop`, or `manner.rounds` times. Returns whether each answered at the last look.

    `output(endpoint, index)` makes the destination of an endpoint's values; the index counts from 0.
    """
    running: dict[Endpoint, tuple[Replica, threading.Thread]] = {}
    started = 0
    turns = threading.Semaphore(READERS)
    while True:
        endpoints = sources.current()
        for gone in running.keys() - set(endpoints):
            running.pop(gone)[0].stop.set()
        for endpoint in endpoints:
            if endpoint not in running:
                replica = Replica(endpoint, manner, output(endpoint, started), say, turns=turns)
                thread = threading.Thread(target=replica.run, name=f"rlship-{endpoint.name}"[:60], daemon=True)
                try:
                    thread.start()
                except RuntimeError as problem:  # no thread can be started now; the next look tries again
                    say(f"{endpoint.url}: {problem}")
                    break
                running[endpoint] = replica, thread
                started += 1
        if manner.rounds is not None and not any(thread.is_alive() for _, thread in running.values()):
            break
        if stop.wait(LOOK_S if manner.rounds is None else 0.05):
            break
    _end([*running.values()])
    return bool(running) and all(replica.health.down is None for replica, _ in running.values())


def _end(running: list[tuple[Replica, threading.Thread]]) -> None:
    """End all threads. A thread that hangs where nothing can wake it is left behind, and its files are closed here."""
    for replica, _ in running:
        replica.stop.set()
    deadline = time.monotonic() + STOP_S
    for _, thread in running:
        thread.join(max(0.0, deadline - time.monotonic()))
    deadline = time.monotonic() + CLOSE_S
    for replica, thread in running:
        if thread.is_alive():
            replica.output.close(max(0.1, deadline - time.monotonic()))
