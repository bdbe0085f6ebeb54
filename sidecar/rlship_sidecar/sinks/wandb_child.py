"""The child process that alone imports wandb: rows come in on its standard input, acknowledgements go out.

Messages are lines of JSON on standard input and standard output. In: first `{"open": {...}}`, then `{"row": n, "actor":
a, "axis": x, "values": {...}}`, `{"flush": true}`, and `{"close": true}`. Out: `{"opened": next, "mode":
"online"|"offline", "where": text, "core": pid|null}`, `{"acked": next}`, `{"trouble": text}` ("" when it is over), and
as the last word `{"closed": true}`, `{"refused": text}`, `{"reopen": text}` or `{"unavailable": text}`.

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from rlship_sidecar.sinks import wandb_offline, wandb_remote
from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb_acks import Acknowledgements, Line, any_of, core_death, core_pid, fatal_in
from rlship_sidecar.sinks.wandb_file import HeldRows

PARENT_POLL_S = 0.5
SETTLE_S = 20.0
QUERY_TIMEOUT_S = 10.0
OFFLINE_FLUSH_S = 0.5


def main() -> None:
    """Run the child until it is told to close or its parent is gone."""
    line = Line(os.dup(1))
    os.dup2(2, 1)
    # The parent decides when to stop: a signal to the whole group must not cut off what it still wants to deliver.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    order = json.loads(sys.stdin.buffer.readline())["open"]
    threading.Thread(target=_listen, args=(inbox, order["scratch"]), name="input", daemon=True).start()
    threading.Thread(target=_watch_parent, args=(parent, order["scratch"]), name="parent", daemon=True).start()
    try:
        _serve(order, inbox, line)
    except SinkRefused as refusal:
        line.end(refused=str(refusal))
    except SinkReopen as wish:
        line.end(reopen=str(wish))
    except SinkUnavailable as outage:
        line.end(unavailable=str(outage))
    except BaseException as problem:  # noqa: BLE001 - the parent must hear of it, whatever it is
        line.end(unavailable=f"{type(problem).__name__}: {problem}")


def _listen(inbox: queue.SimpleQueue[dict[str, Any]], scratch: str) -> None:
    for text in sys.stdin.buffer:
        if not text.endswith(b"\n"):
            break
        message = json.loads(text)
        inbox.put(message)
        if "close" in message:
            return
    _leave(scratch)


def _watch_parent(parent: int, scratch: str) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    _leave(scratch)


def _leave(scratch: str) -> NoReturn:
    """End without a word: there is nobody to hear it. What the client keeps there is of no use to a successor."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


def _serve(order: Mapping[str, Any], inbox: queue.SimpleQueue[dict[str, Any]], line: Line) -> None:
    if order["base_url"]:
        os.environ["WANDB_BASE_URL"] = order["base_url"]
    mode = _mode(order["mode"])
    if mode == "offline":
        found = wandb_offline.prepare(Path(order["offline_root"]), order["run_id"], order["store_id"], order["rows"])
        if isinstance(found, wandb_offline.Whole):
            line.say(opened=found.rows, mode=mode, where=str(found.folder), core=None)
            _follow_whole(inbox, line)
        run = _init({**order, "run_id": found}, "offline", order["offline_root"])
        held = HeldRows(Path(run.settings.sync_file))
        next_row, where, broken = 0, str(Path(run.settings.sync_file).parent), core_death()

        def position() -> int:
            rows = held.update().rows
            with open(run.settings.sync_file, "rb") as file:
                os.fsync(file.fileno())
            return rows
    else:
        execute = _connect()
        run, next_row = _resume(order, execute)
        where, broken = run.url, any_of(core_death(), fatal_in(Path(run.settings.log_internal)))

        def position() -> int:
            remote = wandb_remote.read_run(execute, run.entity, run.project, run.id)
            return 0 if remote is None else remote.next_step

    line.say(opened=next_row, mode=mode, where=where, core=core_pid())
    acknowledgements = Acknowledgements(line, position, broken, next_row, order["stall_s"])
    defined = {(actor, axis) for actor, axis in order["axes"]}
    for actor, axis in order["axes"]:
        _define(run, actor, axis)
    while True:
        message = inbox.get()
        if "row" in message:
            actor, axis = message["actor"], message["axis"]
            if (actor, axis) not in defined:
                defined.add((actor, axis))
                _define(run, actor, axis)
            run.log(message["values"], step=message["row"], commit=True)
            acknowledgements.logged(message["row"] + 1)
        elif "flush" in message:
            acknowledgements.hurry()
        else:
            run.finish()
            line.end(closed=True)


def _follow_whole(inbox: queue.SimpleQueue[dict[str, Any]], line: Line) -> NoReturn:
    """A whole offline run takes no more rows: a first one ends this process, and the next writes the run anew."""
    while "close" not in (message := inbox.get()):
        if "row" in message:
            raise SinkReopen("more rows came for a closed offline run: it is written anew from row 0")
        line.say(acked=None)
    line.end(closed=True)


def _mode(asked: str) -> str:
    if asked != "auto":
        return asked
    import wandb
    from wandb.sdk.lib import wbauth

    settings = wandb.setup().settings
    named = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key
    try:
        return "online" if named or wbauth.read_netrc_auth(host=settings.base_url) else "offline"
    except wandb.errors.AuthenticationError as error:
        raise SinkRefused(f"sink wandb: {error}") from error


def _connect() -> Callable[[str, Mapping[str, Any]], Any]:
    """A function that runs a GraphQL query at the server; the credentials are checked by the way."""
    import wandb

    try:
        api = wandb.Api(timeout=int(QUERY_TIMEOUT_S))
    except wandb.errors.AuthenticationError as error:
        raise _told(error, error.__cause__) from error
    except wandb.errors.UsageError as error:
        raise SinkRefused(f'sink wandb: {error}: set WANDB_API_KEY, or [sink.wandb] mode = "offline"') from error
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    service = api._service_api

    def execute(query: str, variables: Mapping[str, Any]) -> Any:
        if not variables["entity"]:
            variables = {**variables, "entity": api.default_entity}
        try:
            return service.execute_graphql(query, variables, timeout=QUERY_TIMEOUT_S)
        except WandbApiFailedError as error:
            raise _told(error, error) from error

    return execute


def _told(error: Exception, cause: BaseException | None) -> SinkRefused | SinkUnavailable:
    """An error of the client in our words: final if the server rejected us, or if the key cannot be one."""
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    text = " ".join(str(error).split())
    if isinstance(cause, WandbApiFailedError):
        status = cause.response.http_status if cause.response is not None else 0
        if status not in (401, 403):
            return SinkUnavailable(f"sink wandb: {text}")
    return SinkRefused(
        f"sink wandb: {text}. Check the API key (WANDB_API_KEY or netrc) and its rights on "
        "[sink.wandb] entity and project"
    )


def _resume(
    order: Mapping[str, Any],
    execute: Callable[[str, Mapping[str, Any]], Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Any, int]:
    """Open the run on the server and return it with the number of the first row it lacks, once all sources of that
    number agree.
    """
    entity, project, run_id = order["entity"] or "", order["project"], order["run_id"]
    deadline = clock() + SETTLE_S
    while True:
        remote = wandb_remote.read_run(execute, entity, project, run_id)
        why = wandb_remote.objection(remote, order["store_id"], "/".join(filter(None, (entity, project, run_id))))
        if why is not None:
            raise SinkRefused(why)
        if remote is None or remote.settled:
            break
        if clock() > deadline:
            raise SinkUnavailable(
                f"sink wandb: the run {project}/{run_id} has {remote.lines} history lines, but its last step is "
                f"{remote.next_step - 1}: rows sent now could overwrite others"
            )
        sleep(1.0)
    run = _init(order, "online", order["online_root"])
    held = 0 if remote is None else remote.lines
    if run.starting_step != held:
        raise SinkUnavailable(
            f"sink wandb: the server gave {held} as the number of rows it has, and {run.starting_step} as the step to "
            "go on at"
        )
    return run, held


def _init(order: Mapping[str, Any], mode: Literal["online", "offline"], root: str) -> Any:
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        init_timeout=60,
        finish_timeout=order["finish_s"],
        finish_timeout_raises=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_file_stream_transmit_interval=order["transmit_interval"],
        x_file_stream_retry_wait_min_seconds=1,
        x_file_stream_retry_wait_max_seconds=5,
        x_file_stream_timeout_seconds=30,
        x_transaction_log_flush_interval=OFFLINE_FLUSH_S if mode == "offline" else 5,
    )
    try:
        return wandb.init(
            id=order["run_id"],
            project=order["project"],
            entity=order["entity"],
            name=order["name"],
            group=order["group"],
            tags=order["tags"],
            config={"store_id": order["store_id"]},
            resume="allow",
            mode=mode,
            dir=root,
            settings=settings,
        )
    except wandb.errors.AuthenticationError as error:
        raise _told(error, error.__cause__) from error
    except wandb.errors.CommError as error:
        rejected = any(word in str(error).lower() for word in ("401", "403", "permission denied", "not logged in"))
        raise (SinkRefused if rejected else SinkUnavailable)(f"sink wandb: {' '.join(str(error).split())}") from error
    except wandb.errors.UsageError as error:
        raise SinkRefused(f"sink wandb: {' '.join(str(error).split())}") from error


def _define(run: Any, actor: str, axis: str) -> None:
    """Chart the actor's metrics over its axis; names with `*`, which W&B takes for patterns, stay on its own step."""
    if "*" in actor or "*" in axis:
        return
    run.define_metric(axis, summary="max")
    run.define_metric(f"{actor}/*", step_metric=axis, step_sync=False)


if __name__ == "__main__":
    main()
