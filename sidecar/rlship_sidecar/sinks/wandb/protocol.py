"""The messages between the sidecar and its W&B child: one JSON object a line, identified by its first key.

The sidecar writes to the child's standard input: one OpenMessage, then rows and flushes, then a CloseMessage. The child
writes to its standard output: Opened, then Acked and Trouble as they come, Alive every few seconds, and one last word.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Literal, NoReturn, TypedDict, final

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb.alerts import AlertWords
from rlship_sidecar.sinks.wandb.described import Described, RunWords

# What a person can do while the server cannot be reached.
NO_SERVER = 'check the network, or write the run offline: mode = "offline" in [sink.wandb], or WANDB_MODE=offline'


class Rejected(SinkRefused):
    """The server rejected our credentials or permissions. That is final, unless it took rows before."""


class OpenRequest(TypedDict):
    """Everything that the child needs to open the run."""

    mode: str  # "auto", "online" or "offline"
    project: str
    entity: str | None
    words: RunWords
    digest: str  # of what the job said of the run, "" for nothing
    run_id: str
    base_url: str | None
    transmit_interval: int
    store_id: str
    rows: int  # that the store holds
    axes: list[tuple[str, str]]  # (actor, axis), as defined so far
    names: list[tuple[str, str]]  # (name without an actor, axis), as defined so far
    scratch: str  # the folder of the client's own files, removed with the child
    state_dir: str
    offline_root: str
    stall_s: float
    finish_s: float
    init_s: float
    max_file_bytes: int


@final
class OpenMessage(TypedDict):
    """The first message."""

    open: OpenRequest


@final
class RowMessage(TypedDict):
    """A future history line; see `sink.Point`. The values of `hists` have counts (`values`) and edges (`bins`). `names`
    are those without an actor that no line had before. `summary` are numbers of the run's summary that the line
    displaces there. `withdrawn` are keys that the line has as NaN, because a revision took their values away.
    """

    row_number: int
    actor: str
    axis: str
    names: list[str]
    hists: list[str]
    withdrawn: list[str]
    tables_bytes: int
    summary: dict[str, float]
    alerts: list[AlertWords]
    tables: dict[str, dict[str, Any]]
    values: dict[str, Any]


@final
class DescribeMessage(TypedDict):
    """What the job said of the run."""

    describe: Described


@final
class SummaryMessage(TypedDict):
    """The numbers that the run's summary should have of the rows that were there when the run was opened."""

    summary: dict[str, float]


@final
class FlushMessage(TypedDict):
    """A flush of this number waits: settle the summary, and report soon how far the rows have come."""

    flush: int


@final
class CloseMessage(TypedDict):
    """Finish the run and end."""

    close: Literal[True]


ToChild = OpenMessage | RowMessage | DescribeMessage | SummaryMessage | FlushMessage | CloseMessage


@final
class Opened(TypedDict):
    """The run is open. `opened` is the first row that the destination lacks, `core` the process id of wandb-core."""

    opened: int
    mode: str
    where: str
    core: int | None
    notes: list[str]


@final
class Acked(TypedDict):
    """The first row that the destination lacks now; None answers a flush of a run that takes no rows. `described` is
    the digest of what it shows of the run. `settled` is the last flush after which its summary is as it should be.
    """

    acked: int | None
    described: str
    settled: int


@final
class Trouble(TypedDict):
    """The reason why rows are not delivered, "" once it is over."""

    trouble: str


@final
class Alive(TypedDict):
    """The child runs."""

    alive: Literal[True]


@final
class Closed(TypedDict):
    """Last word: the run is finished."""

    closed: Literal[True]


@final
class RejectedWord(TypedDict):
    """Last word: the server rejected our credentials or permissions."""

    rejected: str


@final
class RefusedWord(TypedDict):
    """Last word: a person has to act."""

    refused: str


@final
class ReopenWord(TypedDict):
    """Last word: nothing is wrong, but a new child has to begin anew."""

    reopen: str


@final
class UnavailableWord(TypedDict):
    """Last word: the destination, the client or the child failed."""

    unavailable: str


LastWord = Closed | RejectedWord | RefusedWord | ReopenWord | UnavailableWord
FromChild = Opened | Acked | Trouble | Alive | Closed | RejectedWord | RefusedWord | ReopenWord | UnavailableWord


def last_word(problem: BaseException) -> LastWord:
    """The last word of a child that ends with this exception."""
    if isinstance(problem, Rejected):
        return {"rejected": str(problem)}
    if isinstance(problem, SinkRefused):
        return {"refused": str(problem)}
    if isinstance(problem, SinkReopen):
        return {"reopen": str(problem)}
    if isinstance(problem, SinkUnavailable):
        return {"unavailable": str(problem)}
    if isinstance(problem, FileNotFoundError):
        return {"unavailable": f"sink wandb: {problem.filename} is gone"}
    return {"unavailable": f"{type(problem).__name__}: {problem}"}


def exception_of(word: LastWord, *, opened: bool) -> Exception | None:
    """The inverse: the exception that the sink raises after a last word.

    Once the run was `opened`, a rejection is a change on the server and no mistake in the settings, so it may pass.
    """
    if "rejected" in word:
        return SinkUnavailable(word["rejected"]) if opened else Rejected(word["rejected"])
    if "refused" in word:
        return SinkRefused(word["refused"])
    if "reopen" in word:
        return SinkReopen(word["reopen"])
    if "unavailable" in word:
        return SinkUnavailable(word["unavailable"])
    return None


class ParentPipe:
    """The child's pipe to its parent. Any thread may send; after the last word no thread can."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, message: FromChild) -> None:
        """Send one message."""
        with self._lock:
            self._write(message)

    def end(self, word: LastWord) -> NoReturn:
        """Send the last word and leave at once: wandb-core follows by itself, without uploading."""
        self._lock.acquire()
        self._write(word)
        os._exit(0)

    def _write(self, message: FromChild) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            os._exit(0)
