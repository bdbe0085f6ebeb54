"""How each process of the demo begins and ends."""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rlship_sidecar.demo.links import PeerGoneError, PeerLink
from rlship_sidecar.demo.plan import JobPlan

PEER_GONE = 3  # exit code: another process of the job ended first and has the reason

Work = Callable[[Path, JobPlan, int, Mapping[str, PeerLink]], None]


def name_of(actor: str, rank: int) -> str:
    """The name of a process among its peers."""
    return f"{actor}-{rank}"


def run(actor: str, work: Work) -> None:
    """Read the command line, do the work, exit.

    `work` gets the experiment's folder, the plan, this process's rank and its links by peer.
    """
    parser = argparse.ArgumentParser(description=f"The {actor} of the demo job.")
    parser.add_argument("experiment", type=Path, help="folder that rlship logs to")
    parser.add_argument("--plan", type=JobPlan.from_json, required=True, help="size and pace of the job, JSON")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--links", type=json.loads, required=True, help="peer -> inherited socket descriptor, JSON")
    args = parser.parse_args()
    # Exit in an orderly way on SIGTERM, so that rlship writes the lines that it still holds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    links = {peer: PeerLink(peer, socket.socket(fileno=descriptor)) for peer, descriptor in args.links.items()}
    try:
        work(args.experiment, args.plan, args.rank, links)
    except PeerGoneError as error:
        sys.stderr.write(f"{name_of(actor, args.rank)}: {error}, so this process ends too\n")
        sys.exit(PEER_GONE)


class LoopPace:
    """Keeps a loop from going faster than one round per `period_s`; it does not catch up on lost time."""

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._due = clock() + period_s

    def left(self) -> float:
        """Seconds to sleep now, 0 or more; begins the next round."""
        now = self._clock()
        left = max(0.0, self._due - now)
        self._due = max(now, self._due) + self._period_s
        return left
