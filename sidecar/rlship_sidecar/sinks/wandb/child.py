"""The child process that alone imports wandb: rows come in on its standard input, acknowledgements go out.

Messages are lines of JSON on standard input and standard output. In: first `{"open": {...}}`, then `{"row": n, "actor":
a, "axis": x, "hists": [key], "tables": {key: {"columns": [text], "data": [[cell]]}}, "tables_bytes": n,
"values": {...}}`,
`{"flush": true}`, and `{"close": true}`. Out: `{"opened": next,
"mode": "online"|"offline", "where": text, "core": pid|null, "notes": [text]}`, `{"acked": next}`, `{"trouble": text}`
("" when it is over), `{"alive": true}` every few seconds, and as the last word `{"closed": true}`, `{"refused": text}`,
`{"rejected": text}` (by the server, for its rights), `{"reopen": text}` or `{"unavailable": text}`.

Nothing is repaired here. Whatever goes wrong ends the process, and the next one asks the server what it holds. It ends
as well when its input ends without a `close` or its parent is gone: the rows that are lacking then are sent again by
whoever comes next.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import client, health, offline, online
from rlship_sidecar.sinks.wandb.acks import Acknowledgements
from rlship_sidecar.sinks.wandb.file import HeldRows
from rlship_sidecar.sinks.wandb.line import Line
from rlship_sidecar.sinks.wandb.remote import Rejected

PARENT_POLL_S = 0.5
ALIVE_EVERY_S = 5.0

TABLE_COPIES = 3  # the client keeps one for the run, one for the artifact and one in its cache

Inbox = queue.SimpleQueue[dict[str, Any]]


@dataclass(slots=True)
class Tables:
    """How many bytes of tables were logged."""

    bytes: int = 0


def main() -> None:
    """Run the child until it is told to close or its parent is gone."""
    line = Line(os.dup(1))
    os.dup2(2, 1)
    # The parent decides when to stop: a signal to the whole group must not cut off what it still wants to deliver.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    inbox: Inbox = queue.SimpleQueue()
    order = json.loads(sys.stdin.buffer.readline())["open"]
    threading.Thread(target=_listen, args=(inbox, order["scratch"]), name="input", daemon=True).start()
    threading.Thread(target=_beat, args=(parent, order["scratch"], line), name="beat", daemon=True).start()
    try:
        _serve(order, inbox, line)
    except Rejected as rejection:
        line.end(rejected=str(rejection))
    except SinkRefused as refusal:
        line.end(refused=str(refusal))
    except SinkReopen as wish:
        line.end(reopen=str(wish))
    except SinkUnavailable as outage:
        line.end(unavailable=str(outage))
    except BaseException as problem:  # noqa: BLE001 - the parent must hear of it, whatever it is
        line.end(unavailable=f"{type(problem).__name__}: {problem}")


def _listen(inbox: Inbox, scratch: str) -> None:
    for text in sys.stdin.buffer:
        if not text.endswith(b"\n"):
            break
        message = json.loads(text)
        inbox.put(message)
        if "close" in message:
            return
    _leave(scratch)


def _beat(parent: int, scratch: str, line: Line) -> None:
    """Show that this process runs, and see that the parent does."""
    said = time.monotonic()
    while os.getppid() == parent:
        if time.monotonic() - said >= ALIVE_EVERY_S:
            line.say(alive=True)
            said = time.monotonic()
        time.sleep(PARENT_POLL_S)
    _leave(scratch)


def _leave(scratch: str) -> NoReturn:
    """End without a word: there is nobody to hear it. What the client keeps there is of no use to a successor."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


def _serve(order: Mapping[str, Any], inbox: Inbox, line: Line) -> None:
    if order["base_url"]:
        os.environ["WANDB_BASE_URL"] = order["base_url"]
    client.prepare()
    mode = client.mode(order["mode"])
    if mode == "offline":
        _serve_offline(order, inbox, line)
    execute = client.connect()
    run, next_row, notes = online.open_run(order, execute, online.runs_of(order))
    core = health.core_pid()
    tables = Tables()
    line.say(opened=next_row, mode=mode, where=run.url, core=core, notes=notes)
    health.watch(
        line,
        [health.core_death(core), health.fatal_in(Path(run.settings.log_internal))],
        health.grown(Path(run.settings.sync_file), order["most_bytes"], lambda: TABLE_COPIES * tables.bytes),
    )
    position = online.position_of(order, execute, run)
    _take_rows(order, run, inbox, line, Acknowledgements(line, position, next_row, order["stall_s"]), tables)


def _serve_offline(order: Mapping[str, Any], inbox: Inbox, line: Line) -> NoReturn:
    made = online.runs_of(order).made
    found = offline.prepare(Path(order["offline_root"]), order["run_id"], order["store_id"], order["rows"], made)
    if isinstance(found, offline.Whole):
        line.say(opened=found.rows, mode="offline", where=str(found.folder), core=None, notes=[])
        _follow_whole(inbox, line)
    run = client.init(order, found, "offline", order["offline_root"])
    file = Path(run.settings.sync_file)
    held = HeldRows(file)
    os.environ["WANDB_DATA_DIR"] = str(file.parent / "data")  # `wandb sync` takes the run's tables from there

    def position() -> int:
        rows = held.update().rows
        with open(file, "rb") as written:
            os.fsync(written.fileno())
        return rows

    core = health.core_pid()
    line.say(opened=0, mode="offline", where=str(file.parent), core=core, notes=[])
    health.watch(line, [health.core_death(core)], lambda: "")
    _take_rows(order, run, inbox, line, Acknowledgements(line, position, 0, order["stall_s"]), Tables())


def _take_rows(
    order: Mapping[str, Any],
    run: Any,
    inbox: Inbox,
    line: Line,
    acknowledgements: Acknowledgements,
    tables: Tables,
) -> NoReturn:
    defined = {(actor, axis) for actor, axis in order["axes"]}
    for actor, axis in order["axes"]:
        client.define(run, actor, axis)
    while True:
        message = inbox.get()
        if "row" in message:
            actor, axis = message["actor"], message["axis"]
            if (actor, axis) not in defined:
                defined.add((actor, axis))
                client.define(run, actor, axis)
            values = message["values"]
            for key in message.get("hists", ()):
                values[key] = client.histogram(values[key])
            tables.bytes += message["tables_bytes"]
            client.log(run, values, message["tables"], message["row"])
            acknowledgements.logged(message["row"] + 1)
        elif "flush" in message:
            acknowledgements.hurry()
        else:
            run.finish()
            line.end(closed=True)


def _follow_whole(inbox: Inbox, line: Line) -> NoReturn:
    """A whole offline run takes no more rows: a first one ends this process, and the next writes the run anew."""
    while "close" not in (message := inbox.get()):
        if "row" in message:
            raise SinkReopen("more rows came for a closed offline run: it is written anew from row 0")
        line.say(acked=None)
    line.end(closed=True)


if __name__ == "__main__":
    main()
