"""The files of scrapes: one for each engine of an endpoint, by the same writer that workers use."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from rlship.identity import MAX_NAME, Identity
from rlship.logger import Logger
from rlship_agents.scrape.endpoints import Endpoint
from rlship_agents.scrape.figures import OF_ENDPOINT, Figure, Figures
from rlship_agents.scrape.reading import Engine

MAX_ENGINES = 64  # of one endpoint
MAX_METRICS = 500  # of one engine
# Weights of levels differ by too little to change a mean, but by enough to distinguish sources.
_TAG_STEP = 2.0**-52


class Writers:
    """The Loggers of one endpoint. Used by one thread.

    The endpoint is the replica, an engine is a rank: its own number if it has one, else the lowest free one.
    """

    def __init__(self, folder: str, actor: str, endpoint: Endpoint, local: int = 0) -> None:
        """`folder`: the experiment's; `local`: the endpoint's index among those of this process, from 0."""
        self._folder = folder
        self._actor = actor[:MAX_NAME]
        self._endpoint = endpoint
        self._local = local
        self._ranks: dict[Engine, int] = {OF_ENDPOINT: 0}
        self._loggers: dict[int, Logger] = {}
        self._defined: dict[int, dict[str, dict[str, Any]]] = {}
        self.left_out = 0

    def log(self, engines: Mapping[Engine, Figures]) -> None:
        """Log values of engines, each engine on a line of its own; `left_out` counts values beyond the bounds."""
        self._settle(engines)
        lines: dict[int, Figures] = {}
        for engine, figures in engines.items():
            rank = self._ranks.get(engine)
            if rank is None:
                self.left_out += len(figures)
            else:
                lines[rank] = {**figures, **lines.get(rank, {})}
        for rank, figures in lines.items():
            self._write(rank, figures)

    def event(self, name: str, **attrs: Any) -> None:
        """Log an event of the endpoint."""
        self._logger(0).event(name, **attrs)

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left, within `timeout` seconds for each file."""
        for logger in self._loggers.values():
            logger.close(timeout)

    def _settle(self, engines: Mapping[Engine, Figures]) -> None:
        """Assign ranks to new engines. An engine that is gone keeps its rank until another one needs it."""
        for engine in sorted(engines.keys() - self._ranks.keys()):
            taken = {rank for other, rank in self._ranks.items() if other != OF_ENDPOINT}
            number = engine.number
            own = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else MAX_ENGINES
            if not engine.process and own < MAX_ENGINES and own not in taken:
                self._ranks[engine] = own
                continue
            free = next((rank for rank in range(MAX_ENGINES) if rank not in taken), None)
            if free is None:
                gone = next((other for other in self._ranks if other not in engines and other != OF_ENDPOINT), None)
                free = None if gone is None else self._ranks.pop(gone)
            if free is not None:
                self._ranks[engine] = free

    def _write(self, rank: int, figures: Figures) -> None:
        logger, defined = self._logger(rank), self._defined.setdefault(rank, {})
        new = sorted(figures.keys() - defined.keys())[: MAX_METRICS - len(defined)]
        declared = {metric: _declared(figures[metric]) for metric in figures if metric in defined or metric in new}
        # A family may be a gauge at one look and a counter at the next.
        if other := {metric: entry for metric, entry in declared.items() if defined.get(metric) != entry}:
            defined.update(other)
            logger.define(other)
        known = {metric: figure for metric, figure in figures.items() if metric in defined}
        self.left_out += len(figures) - len(known)
        weight = 1.0 + zlib.crc32(f"{self._endpoint.name}\0{rank}".encode()) * _TAG_STEP
        logger.log({name: {"v": [one.value], "w": [weight]} if one.level else one.value for name, one in known.items()})

    def _logger(self, rank: int) -> Logger:
        logger = self._loggers.get(rank)
        if logger is None:
            identity = Identity(
                self._actor,
                self._endpoint.name,
                rank,
                None,  # no world, so that no row waits for a missing engine
                0,
                "given",
                os.uname().nodename or "unknown",
                self._local * MAX_ENGINES + rank,  # only the first measures this host's clock
            )
            logger = Logger(self._folder, identity, labels={"agent": "scrape", "endpoint": self._endpoint.url})
            self._loggers[rank] = logger
            logger.start()
        return logger


def _declared(figure: Figure) -> dict[str, Any]:
    entry: dict[str, Any] = {"reduce": list(figure.reduce)}
    if figure.unit:
        entry["unit"] = figure.unit
    if figure.per_rank:
        entry["per_rank"] = True
    return entry


class Printed:
    """Replaces Writers: passes the values to `put`, as plain data, and writes nothing."""

    def __init__(self, endpoint: Endpoint, put: Callable[[dict[str, Any]], None]) -> None:
        self._name = endpoint.name
        self._put = put
        self.left_out = 0

    def log(self, engines: Mapping[Engine, Figures]) -> None:
        """Show the values of each engine that has some."""
        for engine, figures in engines.items():
            if figures:
                name = "/".join([*engine.process, engine.number]).strip("/")
                values = {metric: figure.value for metric, figure in figures.items()}
                self._put({"replica": self._name, **({"engine": name} if name else {}), "m": values})

    def event(self, name: str, **attrs: Any) -> None:
        """Show an event."""
        self._put({"replica": self._name, "event": name, "attrs": attrs})

    def close(self, timeout: float = 5.0) -> None:
        """Do nothing, because there is nothing to close."""
