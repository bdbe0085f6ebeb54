"""What the job said of itself: the labels of its writers and their events named `config`, by actor."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlship_formats.reading import Event, FileReader
from rlship_formats.records import CONFIG, Open
from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.sinks.contract import Sink
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import START, Descriptors, Tail

EVERY_S = 10.0
WAIT_S = 2.0  # how long rows wait for a look
HEAD_BYTES = 256 << 10  # a configuration stands where the writer begins
OPEN_BYTES = 16 << 10
MAX_WHOLE = 1 << 53  # from here on readers of JSON may round

Config = dict[str, dict[str, Any]]  # by actor


def declared_for(sink: Sink, experiment: Path, clock: Callable[[], float]) -> DeclaredConfig | None:
    """The configuration of the experiment, for a sink that takes it."""
    taker = sink.inner if isinstance(sink, ObservingSink) else sink
    return None if type(taker).configure is Sink.configure else DeclaredConfig(experiment, clock=clock)


class DeclaredConfig:
    """The configuration of an experiment, read from the beginnings of its files.

    Of each actor it is that of the lowest rank, of its writers the one that opened last: its labels, and over them its
    `config` events in their order. Other ranks add nothing: a mixture would be the configuration of no process.

    `news` looks in a thread of its own, because a look takes one read for each file, and a file on a filesystem that
    hangs must not hold up rows.
    """

    def __init__(self, experiment: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._opener = Opener(str(experiment), Descriptors(1, keep=False, root=str(experiment)))
        self._opens: dict[str, Open | None] = {}
        self._clock = clock
        self._looked_at: float | None = None
        self._looking: threading.Thread | None = None
        self._found: Config = {}
        self._told: Config = {}

    def news(self) -> Config:
        """The configuration of actors for which it is another one than at the last call.

        Looks every `EVERY_S`, and waits for a look at most `WAIT_S`. What it finds later comes with a later call.
        """
        now = self._clock()
        due = self._looked_at is None or now - self._looked_at >= EVERY_S
        if due and (self._looking is None or not self._looking.is_alive()):
            self._looked_at = now
            self._looking = threading.Thread(target=self._look, name="rlship-declared", daemon=True)
            self._looking.start()
        if self._looking is not None and self._looked_at is not None:
            self._looking.join(max(0.0, self._looked_at + WAIT_S - now))
        news = {actor: config for actor, config in self._found.items() if config != self._told.get(actor)}
        self._told.update(news)
        return news

    def _look(self) -> None:
        self._found = self.look()

    def look(self) -> Config:
        """The configuration as it is in the files now. A file that cannot be read is left out."""
        try:
            tails = {name: tail for name, tail in self._opener.all().items() if not is_foreign(name)}
        except OSError:
            return {}
        first: dict[str, tuple[Any, str]] = {}
        for name in sorted(tails):
            opened = self._opens.get(name) or self._open_of(name, tails[name])
            if opened is None or opened.parent is not None or opened.agent:
                continue
            place = (replica_key(opened.replica), opened.rank, -opened.t, opened.id)
            if opened.actor not in first or place < first[opened.actor][0]:
                first[opened.actor] = (place, name)
        found = {actor: _config_of(tails[name]) for actor, (_, name) in sorted(first.items())}
        return {actor: config for actor, config in found.items() if config}

    def _open_of(self, name: str, tail: Tail) -> Open | None:
        reader = FileReader()
        for line in _lines(tail, OPEN_BYTES):
            reader.read(line)
            if reader.opened is not None:
                break
        self._opens[name] = reader.opened
        return reader.opened


def _config_of(tail: Tail) -> dict[str, Any]:
    reader, config = FileReader(), dict[str, Any]()
    for line in _lines(tail, HEAD_BYTES):
        record = reader.read(line)
        if isinstance(record, Event) and record.name == CONFIG:
            config.update(record.attrs)
    return {**{name: _typed(text) for name, text in reader.labels.items()}, **config}


def _typed(text: str) -> str | int | float | bool:
    """The number or bool of which a label is the text, because files keep labels as text; any other text as it is.

    Only the text that `str` gives counts. So "007" and "1.10" stay as they are, and so does a number that no JSON has.
    """
    if text in ("True", "False"):
        return text == "True"
    with suppress(ValueError):
        if str(whole := int(text)) == text and abs(whole) < MAX_WHOLE:
            return whole
    with suppress(ValueError):
        if repr(real := float(text)) == text and math.isfinite(real):
            return real
    return text


def _lines(tail: Tail, size: int) -> list[bytes]:
    try:
        return list(tail.read(START, size).lines)
    except OSError:
        return []
