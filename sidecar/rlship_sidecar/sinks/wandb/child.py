"""The child process that alone runs the W&B client: rows come in on standard input, reports go out on standard output.

`protocol` has the messages. Nothing is repaired here: every error ends the process, and the next child asks the server
which rows it holds. The process also ends if its input ends without a `close` or its parent is gone. The next child
then gets the rows that are lacking.
"""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rlship_sidecar.scratch import own
from rlship_sidecar.sinks.contract import SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import client, health, offline, online
from rlship_sidecar.sinks.wandb.file import HeldRows
from rlship_sidecar.sinks.wandb.protocol import OpenRequest, ParentPipe, ToChild, last_word
from rlship_sidecar.sinks.wandb.told import Proof, ToldSummary

PARENT_POLL_S = 0.5
ALIVE_EVERY_S = 5.0
ACK_SLOW_S = 5.0
ACK_FAST_S = 0.1
ACK_FAST_MAX_S = 1.0
UNANSWERED_S = 300.0

TABLE_COPIES = 3  # the client keeps one for the run, one for the artifact and one in its cache

Inbox = queue.SimpleQueue[ToChild]


@dataclass(slots=True)
class Tables:
    """How many bytes of tables were logged.

    `beside`: two paths of the run's folder. After a rename or removal of the folder, the client would make them again
    for a table.
    """

    bytes: int = 0
    beside: tuple[Path, Path] | None = None

    def check(self) -> None:
        """Raise SinkUnavailable if the run's folder is no longer in its place."""
        if self.beside is not None:
            path, pinned_path = self.beside
            if not path.exists() or not path.samefile(pinned_path):
                raise SinkUnavailable(f"sink wandb: {path} is gone")


def main() -> None:
    """Run the child until a CloseMessage comes or its parent is gone."""
    parent = ParentPipe(os.dup(1))
    os.dup2(2, 1)
    # The parent decides when to stop: a signal to the whole group must not cut off its last rows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent_pid = os.getppid()
    inbox: Inbox = queue.SimpleQueue()
    request = json.loads(sys.stdin.buffer.readline())["open"]
    with suppress(OSError):  # the sidecar that gave it was killed and another one has removed it: the end comes soon
        own(Path(request["scratch"]))
    threading.Thread(target=_listen, args=(inbox, request["scratch"]), name="input", daemon=True).start()
    threading.Thread(target=_beat, args=(parent_pid, request["scratch"], parent), name="beat", daemon=True).start()
    try:
        _serve(request, inbox, parent)
    except BaseException as problem:  # noqa: BLE001 - the parent must get a report of every error
        parent.end(last_word(problem))


def _listen(inbox: Inbox, scratch: str) -> None:
    for text in sys.stdin.buffer:
        if not text.endswith(b"\n"):
            break
        message = json.loads(text)
        inbox.put(message)
        if "close" in message:
            return
    _leave(scratch)


def _beat(parent_pid: int, scratch: str, parent: ParentPipe) -> None:
    """Report that this process runs, and end it once the parent is gone."""
    beat_at = time.monotonic()
    while os.getppid() == parent_pid:
        if time.monotonic() - beat_at >= ALIVE_EVERY_S:
            parent.send({"alive": True})
            beat_at = time.monotonic()
        time.sleep(PARENT_POLL_S)
    _leave(scratch)


def _leave(scratch: str) -> NoReturn:
    """End without a message, because the parent is gone. The next client does not need the files in `scratch`."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


def _serve(request: OpenRequest, inbox: Inbox, parent: ParentPipe) -> None:
    if request["base_url"]:
        os.environ["WANDB_BASE_URL"] = request["base_url"]
    client.keep_in(request["scratch"])
    client.prepare()
    mode = client.mode(request["mode"])
    if mode == "offline":
        _serve_offline(request, inbox, parent)
    execute = client.connect()
    run, next_row, notes = online.open_run(request, execute, online.runs_of(request))
    core = health.core_pid()
    tables = Tables()
    parent.send({"opened": next_row, "mode": mode, "where": run.url, "core": core, "notes": notes})
    health.watch(
        parent,
        [health.core_death(core), health.fatal_in(Path(run.settings.log_internal))],
        health.grown(Path(run.settings.sync_file), request["max_file_bytes"], lambda: TABLE_COPIES * tables.bytes),
    )
    told = client.told_summary(run)
    server = Destination(online.position_of(request, execute, run), online.summary_of(execute, run), told.proof)
    acknowledgements = Acknowledgements(parent, server, next_row, request["stall_s"])
    _take_rows(request, run, inbox, told, acknowledgements, tables)


def _serve_offline(request: OpenRequest, inbox: Inbox, parent: ParentPipe) -> NoReturn:
    made = online.runs_of(request).made
    root, digest = Path(request["offline_root"]), request["digest"]
    found = offline.prepare(root, request["run_id"], request["store_id"], request["rows"], made, digest)
    if isinstance(found, offline.Whole):
        parent.send({"opened": found.rows, "mode": "offline", "where": str(found.folder), "core": None, "notes": []})
        _follow_whole(inbox, parent, digest)
    run = client.init(request, found, "offline", request["offline_root"])
    file = Path(run.settings.sync_file)
    held = HeldRows(file)
    folder = Path(request["offline_root"], file.parent.relative_to(run.settings.root_dir))
    # `wandb sync` takes the run's tables from there; the run has their absolute paths.
    os.environ["WANDB_DATA_DIR"] = str(folder / "data")

    def position() -> online.Held:
        found = online.Held(held.update().rows, held.digest)
        with open(file, "rb") as written:
            os.fsync(written.fileno())
        return found

    core = health.core_pid()
    parent.send({"opened": 0, "mode": "offline", "where": str(folder), "core": core, "notes": []})
    health.watch(parent, [health.core_death(core)], lambda: "")
    told = client.told_summary(run)
    written = Destination(position, lambda: held.summary, told.proof)
    acknowledgements = Acknowledgements(parent, written, 0, request["stall_s"])
    _take_rows(request, run, inbox, told, acknowledgements, Tables(beside=(folder, file.parent)))


def _take_rows(
    request: OpenRequest,
    run: Any,
    inbox: Inbox,
    told: ToldSummary,
    acknowledgements: Acknowledgements,
    tables: Tables,
) -> NoReturn:
    defined = {(actor, axis) for actor, axis in request["axes"]}
    for actor, axis in request["axes"]:
        client.define(run, actor, axis)
    for name, axis in request["names"]:
        client.define_name(run, name, axis)
    while True:
        message = inbox.get()
        if "row_number" in message:
            actor, axis = message["actor"], message["axis"]
            if (actor, axis) not in defined:
                defined.add((actor, axis))
                client.define(run, actor, axis)
            for name in message["names"]:
                client.define_name(run, name, axis)
            if message["tables"]:
                tables.check()
            values = message["values"]
            for key in message["hists"]:
                values[key] = client.histogram(values[key])
            values.update(dict.fromkeys(message["withdrawn"], math.nan))
            tables.bytes += message["tables_bytes"]
            client.log(run, values, message["tables"], message["row_number"])
            for alert in message["alerts"]:
                client.alert(run, alert)
            told.logged({**values, **message["tables"]}, message["summary"])
            acknowledgements.logged(message["row_number"] + 1)
        elif "describe" in message:
            client.describe(run, message["describe"])
            told.described(message["describe"]["summary"])
            acknowledgements.described(message["describe"]["digest"])
        elif "summary" in message:
            told.repair(message["summary"])
        elif "flush" in message:
            told.settle()
            acknowledgements.hurry(message["flush"])
        else:
            told.settle()
            run.finish()
            acknowledgements.close()


def _follow_whole(inbox: Inbox, parent: ParentPipe, digest: str) -> NoReturn:
    """Watch over a complete offline run, which shows the run's data of this digest. It takes nothing more: the first
    row, or other data, ends this process, and the next child writes the run again.
    """
    while "close" not in (message := inbox.get()):
        if "row_number" in message:
            raise SinkReopen("more rows came for a closed offline run: it is written again from row 0")
        if "describe" in message and message["describe"]["digest"] != digest:
            raise SinkReopen("other data of the run came for a closed offline run: it is written again from row 0")
        if "flush" in message:
            parent.send({"acked": None, "described": digest, "settled": message["flush"]})
    parent.end({"closed": True})


class Destination(NamedTuple):
    """Where rows go: what it holds, its summary, and what that has to show."""

    position: Callable[[], online.Held]
    summary: Callable[[], Mapping[str, Any]]
    proof: Proof


class Acknowledgements:
    """A thread that asks the server what it holds, and reports it; often only while a flush waits."""

    def __init__(self, parent: ParentPipe, server: Destination, next_row: int, stall_s: float):
        self._parent = parent
        self._server = server
        self._stall_s = stall_s
        self._acked = self._logged = next_row
        self._shown = self._told = ""  # digests of the run's data
        self._settled = self._flush = 0  # numbers of flushes
        self._hurried = False
        self._change = threading.Condition()
        threading.Thread(target=self._run, name="acknowledgements", daemon=True).start()

    def logged(self, next_row: int) -> None:
        """The client has rows below `next_row`."""
        with self._change:
            if self._logged == self._acked:
                self._change.notify_all()
            self._logged = next_row

    def described(self, digest: str) -> None:
        """The client has the run's data of this digest."""
        with self._change:
            self._told = digest
            self._change.notify_all()

    def hurry(self, flush: int) -> None:
        """Ask often: the flush of this number waits."""
        with self._change:
            self._hurried = True
            self._flush = flush
            self._change.notify_all()

    def close(self) -> NoReturn:
        """The run is finished: say so and leave."""
        self._parent.end({"closed": True})

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as problem:  # noqa: BLE001 - without this thread a delivery would never be reported
            self._parent.end(last_word(problem))

    def _rest(self) -> bool:
        """Wait until something is to be asked, if nothing is; answers a flush then. Returns whether it rested."""
        with self._change:
            arrived = self._logged == self._acked and self._told == self._shown
            if not arrived or (self._hurried and not self._server.proof.is_complete):
                if not self._hurried:
                    self._change.wait(ACK_SLOW_S)
                return False
            if self._hurried:
                self._hurried = False
                self._settled = self._flush
                self._report()
            self._change.wait()
            return True

    def _report(self) -> None:
        self._parent.send({"acked": self._acked, "described": self._shown, "settled": self._settled})

    def _watch(self) -> None:
        moved = answered = time.monotonic()
        quick = ACK_FAST_S
        while True:
            if self._rest():
                moved = answered = time.monotonic()
                quick = ACK_FAST_S
                continue
            with self._change:
                hurried, logged, told = self._hurried, self._logged, self._told
            try:
                held = self._server.position()
                position, shown = min(held.rows, logged), held.digest == told
                arrived = position >= logged and shown
                if arrived and not self._server.proof.is_complete:
                    self._server.proof.look(self._server.summary())
            except SinkReopen:
                raise
            except SinkUnavailable as outage:
                # The client keeps the rows and delivers them when the server is back: no stall, but worth a report.
                self._parent.send({"trouble": str(outage)})
                moved = time.monotonic()
                if moved - answered > UNANSWERED_S:
                    # Perhaps the client hangs. A new one costs little, and sends the lacking rows.
                    self._parent.end({"unavailable": f"{outage}; no answer for {UNANSWERED_S:g} s"})
                time.sleep(ACK_FAST_MAX_S)
                continue
            answered = time.monotonic()
            if position > self._acked or (shown and told != self._shown):
                with self._change:
                    self._acked = max(position, self._acked)
                    self._shown = told if shown else self._shown
                self._report()
                moved, quick = answered, ACK_FAST_S
            elif not arrived:
                self._parent.send({"trouble": ""})
                if answered - moved > self._stall_s:
                    self._parent.end(
                        {"unavailable": f"sink wandb: the server answers, but took nothing for {self._stall_s:g} s"}
                    )
            if hurried and not (arrived and self._server.proof.is_complete):
                time.sleep(quick)
                quick = min(quick * 1.5, ACK_FAST_MAX_S)


if __name__ == "__main__":
    main()
