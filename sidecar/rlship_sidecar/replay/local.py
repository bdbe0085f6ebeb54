"""Processes on this machine that decode for a replay."""

from __future__ import annotations

import pickle
import select
import socket
import subprocess
from multiprocessing.connection import Connection

from rlship_sidecar.child_process import module_command
from rlship_sidecar.replay.ahead import EngineLost
from rlship_sidecar.replay.packed import Task

AT_ONCE = 8  # tasks of a process: each takes some ms, and it must not run dry while rows are made and committed


class LocalEngine:
    """At most this many processes. Another one starts when those before it have work.

    A process gets work once it is up, because starting takes long. If one of them dies, all are given up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._processes: list[subprocess.Popen[bytes]] = []
        self._loads: dict[Connection, int] = {}  # bytes under way
        self._sizes: dict[Connection, list[int]] = {}
        self._connections: dict[int, Connection] = {}
        self._poll = select.poll()  # made once, because `room` is called often

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def _start(self) -> None:
        here, there = socket.socketpair()
        for end in (here, there):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        with here, there:
            command = module_command("rlship_sidecar.replay.worker", str(there.fileno()))
            self._processes.append(subprocess.Popen(command, pass_fds=[there.fileno()]))
            connection = Connection(here.detach())
        self._connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)

    @property
    def room(self) -> int:
        """See `Engine`."""
        room = sum(AT_ONCE - len(sizes) for sizes in self._sizes.values())
        if room <= 0 and len(self._processes) < self._most:
            try:
                self._start()
            except OSError:  # the system may allow no more processes or files: the existing ones have to suffice
                self._most = len(self._processes)
        return room

    def submit(self, task: Task) -> None:
        """See `Engine`."""
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
        for fd, _ in self._poll.poll(None if wait else 0):
            connection = self._connections[fd]
            try:
                answer = connection.recv_bytes()
            except (EOFError, OSError) as error:
                raise EngineLost from error
            if connection not in self._loads:  # it is up
                self._loads[connection], self._sizes[connection] = 0, []
                continue
            answers.append(answer)
            self._loads[connection] -= self._sizes[connection].pop(0)
        return answers

    def close(self) -> None:
        """See `Engine`."""
        for connection in self._connections.values():
            connection.close()
        self._loads.clear()
        for process in self._processes:
            process.terminate()
            process.wait()
