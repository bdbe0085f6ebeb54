"""Tasks of a Ray cluster that decode for a replay: they need the package ray.

The cluster is the user's, and this module starts nothing. `RAY_ADDRESS` names the cluster; by default it is the one
that runs on this machine. Tasks read the files by their paths. So every node has to have the files there, and the same
rlship.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import rlship_sidecar
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.replay.ahead import EngineLost
from rlship_sidecar.replay.decoding import Decoding
from rlship_sidecar.replay.packed import Task

REACH_S = 5.0
AT_ONCE = 4  # tasks under way for each that can run, so that the next one starts at once


class NoCluster(RlshipError):
    """No usable Ray cluster was found. Exit code 1."""


class RayEngine:
    """Runs at most `jobs` tasks at a time; with 0, as many as the cluster has CPUs."""

    def __init__(self, jobs: int = 0) -> None:
        """Join the cluster; raises UsageProblem, NoCluster."""
        try:
            import ray
        except ImportError as error:
            raise UsageProblem("--engine ray needs Ray", f"{sys.executable} -m pip install ray") from error
        self._ray: Any = ray
        self._joined = not ray.is_initialized()
        if self._joined:
            address = os.environ.get("RAY_ADDRESS") or "auto"
            try:
                _reach(address)
                with _in_own_folder():
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, ValueError, RuntimeError) as error:
                raise NoCluster(
                    f"no Ray cluster can be used: {error}",
                    "Name it by RAY_ADDRESS, or start one on this machine: ray start --head.",
                ) from error
        self._jobs = jobs or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        # One try more, and on another node, is all that Ray's own retries are for: an answer depends on the task alone.
        self._decode = ray.remote(num_cpus=1, max_retries=3)(_decoded)
        self._under_way: list[Any] = []

    @property
    def room(self) -> int:
        """See `Engine`."""
        return AT_ONCE * self._jobs - len(self._under_way)

    def submit(self, task: Task) -> None:
        """See `Engine`."""
        self._under_way.append(self._decode.remote(task))

    def receive(self, *, wait: bool) -> list[bytes]:
        """See `Engine`."""
        if not self._under_way:
            return []
        ready, self._under_way = self._ray.wait(
            self._under_way, num_returns=len(self._under_way) if not wait else 1, timeout=None if wait else 0
        )
        try:
            return list(self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            raise EngineLost from error

    def close(self) -> None:
        """See `Engine`."""
        for reference in self._under_way:
            self._ray.cancel(reference, force=False)
        self._under_way = []
        if self._joined:
            self._ray.shutdown()


@contextmanager
def _in_own_folder() -> Iterator[None]:
    """Join the cluster from the folder of this package.

    Ray lets its workers import from the folder in which a job joins, before installed packages. The current folder may
    be an experiment's, with modules planted in it.
    """
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(os.path.dirname(os.path.dirname(rlship_sidecar.__file__)))
        try:
            yield
        finally:
            os.fchdir(before)
    finally:
        os.close(before)


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at the address: Ray would end this process."""
    host, separator, port = address.rpartition(":")
    if separator and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), REACH_S).close()


@lru_cache(1)
def _decoding() -> Decoding:
    """The decoder of one Ray process, which does many tasks."""
    return Decoding()


def _decoded(task: Task) -> bytes:
    return _decoding().answer(task)
