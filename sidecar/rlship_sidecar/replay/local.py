"""Processes on this machine that decode for a replay."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from multiprocessing.connection import Connection, wait

from rlship_sidecar.replay.ahead import EngineLost
from rlship_sidecar.replay.packed import Task


class LocalEngine:
    """At most so many processes, each started once the others have work. Should one of them die, all are given up."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._processes: list[subprocess.Popen[bytes]] = []
        self._loads: dict[Connection, int] = {}  # bytes under way
        self._sizes: dict[Connection, list[int]] = {}

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [process.pid for process in self._processes]

    def _start(self) -> None:
        here, there = socket.socketpair()
        for end in (here, there):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        with there:
            command = [sys.executable, "-m", "rlship_sidecar.replay.worker", str(there.fileno())]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._processes.append(subprocess.Popen(command, pass_fds=[there.fileno()], env=env))
        connection = Connection(here.detach())
        self._loads[connection], self._sizes[connection] = 0, []

    def submit(self, task: Task) -> None:
        """See `Engine`."""
        if len(self._processes) < self._most and all(self._loads.values()):
            self._start()
        connection = min(self._loads, key=self._loads.__getitem__)
        try:
            connection.send_bytes(pickle.dumps(task, 5))
        except OSError as error:
            raise EngineLost from error
        self._loads[connection] += task.size
        self._sizes[connection].append(task.size)

    def receive(self, *, wait: bool) -> list[bytes]:
        """See `Engine`."""
        answers = []
        for connection in _ready(list(self._loads), None if wait else 0):
            try:
                answers.append(connection.recv_bytes())
            except (EOFError, OSError) as error:
                raise EngineLost from error
            self._loads[connection] -= self._sizes[connection].pop(0)
        return answers

    def close(self) -> None:
        """See `Engine`."""
        for connection in self._loads:
            connection.close()
        self._loads.clear()
        for process in self._processes:
            process.terminate()
            process.wait()


def _ready(connections: list[Connection], timeout_s: float | None) -> list[Connection]:
    return [found for found in wait(connections, timeout_s) if isinstance(found, Connection)]
