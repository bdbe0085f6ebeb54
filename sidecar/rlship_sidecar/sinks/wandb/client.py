"""The functions of the wandb package that the child uses, with its errors in our words. Only the child imports this."""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from rlship_sidecar.plainfiles import pinned
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.names import EXTRAS, FIRST
from rlship_sidecar.sinks.wandb.alerts import AlertWords
from rlship_sidecar.sinks.wandb.described import STORE_ID, Described, RunWords
from rlship_sidecar.sinks.wandb.point import has_axis
from rlship_sidecar.sinks.wandb.protocol import NO_SERVER, OpenRequest, Rejected
from rlship_sidecar.sinks.wandb.told import ToldSummary

QUERY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
_BUSY = "busy and did not respond in time"
OFFLINE_FLUSH_S = 0.5

Execute = Callable[[str, Mapping[str, Any]], Any]

# The text of an outage often contains the server's address or a request's id, with arbitrary digits.
_NO_RIGHTS = re.compile(r"(?<!\S)40[13](?![\w.-])|permission denied|not logged in")


class Deleted(Exception):
    """The server had a run of this id that was deleted, and does not allow the id again."""


def prepare() -> None:
    """Import the client, and make an object that it otherwise makes only when wandb-core dies while it starts.

    By then it holds a lock that the object's constructor needs, and would wait for itself for ever.
    """
    # What an import makes stays to the end. Looking through it for garbage takes a quarter of the import's time.
    gc.disable()
    from wandb.analytics import get_telemetry_recorder

    gc.freeze()
    gc.enable()
    get_telemetry_recorder()


def keep_in(scratch: str) -> None:
    """Make the client keep its files there.

    By default it leaves folders behind in the temporary folder, and copies of tables in two others. It makes the
    missing parts of these paths at its start, but not a folder that disappears later.
    """
    folder = pinned(scratch)
    os.environ.update(TMPDIR=folder, WANDB_CACHE_DIR=f"{folder}/cache", WANDB_DATA_DIR=f"{folder}/data")


def mode(asked: str) -> str:
    """The requested mode, "online" or "offline"; "auto" is online if there is an API key."""
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


def server() -> str:
    """The address of the server in the settings."""
    import wandb

    return str(wandb.setup().settings.base_url)


def view_url(entity: str, project: str, name: str) -> str:
    """The address of a saved view for people."""
    from wandb.util import app_url

    known = name.removeprefix("nw-").removesuffix("-v")
    return f"{app_url(server())}/{quote(entity)}/{quote(project)}?nw={quote(known)}"


def connect() -> Execute:
    """A function that runs a GraphQL query at the server; connecting also checks the credentials."""
    import wandb

    try:
        api = wandb.Api(timeout=int(QUERY_TIMEOUT_S))
    except wandb.errors.AuthenticationError as error:
        raise _translated(error, error.__cause__) from error
    except wandb.errors.UsageError as error:
        raise SinkRefused(
            f'sink wandb: {error}: run `wandb login` or set WANDB_API_KEY, or set [sink.wandb] mode = "offline"'
        ) from error
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    service = api._service_api

    def execute(query: str, variables: Mapping[str, Any]) -> Any:
        try:
            if not variables["entity"]:
                variables = {**variables, "entity": api.default_entity}
            return service.execute_graphql(query, variables, timeout=QUERY_TIMEOUT_S)
        except WandbApiFailedError as error:
            raise _translated(error, error) from error

    return execute


def _translated(error: Exception, cause: BaseException | None) -> SinkRefused | SinkUnavailable:
    """An error of the client in our words: final if the server rejected us, or if the key is malformed."""
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    text = " ".join(str(error).split())
    way_out = "Check the API key (WANDB_API_KEY or netrc) and its rights on [sink.wandb] entity and project"
    if isinstance(cause, WandbApiFailedError):
        if cause.response is None:
            return SinkUnavailable(f"sink wandb: {_unanswered(text).rstrip('.')}: {NO_SERVER}")
        status = cause.response.http_status
        if status not in (401, 403):
            return SinkUnavailable(f"sink wandb: {text}")
        return Rejected(f"sink wandb: {text}. {way_out}")
    if cause is not None:  # wandb-core is gone: the client reports this as an authentication error, too
        return SinkUnavailable(f"sink wandb: {text} {type(cause).__name__}")
    return SinkRefused(f"sink wandb: {text}. {way_out}")


def _unanswered(text: str) -> str:
    """The text of an error without an answer. The client calls its own process busy while that tries to connect."""
    if _BUSY not in text:
        return text
    address = server()
    parts = urlsplit(address)
    if parts.scheme in urllib.request.getproxies():  # then the proxy connects, and its answers say more than ours
        return f"{address} did not answer in time"
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"cannot connect to {address}: {error.strerror or error}"
    return f"{address} did not answer in time"


def init(request: OpenRequest, run_id: str, mode: Literal["online", "offline"], root: str) -> Any:
    """The client's run object; it keeps its files under `root`."""
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        init_timeout=request["init_s"],
        finish_timeout=request["finish_s"],
        finish_timeout_raises=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_file_stream_transmit_interval=request["transmit_interval"],
        x_file_stream_retry_wait_min_seconds=1,
        x_file_stream_retry_wait_max_seconds=5,
        x_file_stream_timeout_seconds=30,
        x_transaction_log_flush_interval=OFFLINE_FLUSH_S if mode == "offline" else 5,
    )
    try:
        run = wandb.init(
            id=run_id,
            project=request["project"],
            entity=request["entity"],
            **request["words"],
            config={STORE_ID: request["store_id"]},
            resume="allow",
            mode=mode,
            dir=pinned(root),
            settings=settings,
        )
    except wandb.errors.AuthenticationError as error:
        raise _translated(error, error.__cause__) from error
    except wandb.errors.CommError as error:
        raise _failed_init(" ".join(str(error).split())) from error
    except wandb.errors.UsageError as error:
        raise SinkRefused(f"sink wandb: {' '.join(str(error).split())}") from error
    # Before a table is logged the client asks the server whether an artifact of its name has another type, and waits;
    # ours are named after the run. Rows must not wait for that.
    setattr(run, "_assert_can_log_artifact", _may_log)  # noqa: B010 - the type checker rejects a plain assignment
    # Settings from elsewhere may override the request. No later start would find that run, and rows would come again.
    if (run.id, run.project) != (run_id, request["project"]):
        raise SinkRefused(
            f"sink wandb: the client opened {run.project}/{run.id} in place of {request['project']}/{run_id}: look for "
            "WANDB_* variables or a settings file of wandb that name another run"
        )
    return run


def _may_log(artifact: Any) -> None:
    """Replaces a request to the server."""


def _failed_init(text: str) -> Exception:
    """The meaning of an error of `wandb.init`, of which the client gives only the text."""
    known = text.lower()
    if "previously created and deleted" in known:
        return Deleted(text)
    if _NO_RIGHTS.search(known):
        return Rejected(f"sink wandb: {text}")
    return SinkUnavailable(f"sink wandb: {text}")


def told_summary(run: Any) -> ToldSummary:
    """The summary of a run, to be told."""
    return ToldSummary(run.summary.update, run.summary._as_dict)


def histogram(value: Mapping[str, Any]) -> Any:
    """The client's own form of a histogram, from its counts and edges."""
    import wandb

    return wandb.Histogram(np_histogram=(value["values"], value["bins"]))


def alert(run: Any, words: AlertWords) -> None:
    """Have W&B tell the people who follow the run. A failure is no reason to lose rows."""
    try:
        run.alert(title=words["title"], text=words["text"], level=words["level"], wait_duration=0)
    except (ValueError, TypeError) as problem:
        sys.stderr.write(f"an alert is left out: {type(problem).__name__}: {problem}\n")


def log(run: Any, values: dict[str, Any], tables: Mapping[str, Any], row_number: int) -> None:
    """Log one line. Its tables are files that the client uploads when it can.

    A line whose tables the client rejects is logged without them, because no line may be lacking.
    """
    if tables:
        import wandb

        try:
            made = {
                key: wandb.Table(columns=found["columns"], data=found["data"], allow_mixed_types=True)
                for key, found in tables.items()
            }
            run.log({**values, **made}, step=row_number, commit=True)
            return
        except (ValueError, TypeError, AssertionError, OSError) as problem:
            sys.stderr.write(f"row {row_number}: its tables are left out: {type(problem).__name__}: {problem}\n")
    run.log(values, step=row_number, commit=True)


def describe(run: Any, found: Described) -> None:
    """Show what the job said of the run but its summary, as far as the run shows something else. After a resume it has
    the server's.

    What the client rejects is left out, because rows must go on.
    """
    _name(run, found["words"])
    known, config = dict(run.config), found["config"]
    beside = tuple(f"{actor}/" for actor in found["actors"])
    # The client can set a value, and cannot remove one.
    over = {name: None for name in known if name.startswith(beside) and name not in config and known[name] is not None}
    if new := {**_news(config, known), **over}:
        try:
            run.config.update(new, allow_val_change=True)
        except (ValueError, TypeError) as problem:
            sys.stderr.write(f"what the job said of the run is left out: {type(problem).__name__}: {problem}\n")


def _news(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What is not known yet, or known with another value."""
    return {name: value for name, value in wanted.items() if name not in known or _json(known[name]) != _json(value)}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _name(run: Any, words: RunWords) -> None:
    """Set the name, notes, tags, group and type of the run."""
    known = {"name": run.name, "notes": run.notes, "tags": [*(run.tags or ())], "group": run.group}
    known["job_type"] = run.job_type
    new = {member: value for member, value in words.items() if value is not None and value != (known[member] or None)}
    if not new:
        return
    # Only `init` sets these two, but every message about the run has them.
    for member, setting in (("group", "run_group"), ("job_type", "run_job_type")):
        if member in new:
            setattr(run._settings, setting, new[member])
    if "notes" in new:
        run.notes = new["notes"]
    if "tags" in new:
        run.tags = new["tags"]
    run.name = words["name"]


def define(run: Any, actor: str, axis: str) -> None:
    """Chart the actor's metrics over its axis, under each name that they may have, and make no chart of the axis."""
    if not has_axis(actor + axis):
        return
    # Without a `summary` the run's summary has a plain number; with "max" it would have {"max": 6}.
    run.define_metric(axis, hidden=True)
    for names in (actor, f"{FIRST}/{actor}", f"{EXTRAS}/{actor}"):
        run.define_metric(f"{names}/*", step_metric=axis, step_sync=False)


def define_name(run: Any, name: str, axis: str) -> None:
    """Chart one metric over its axis: a name without an actor shares its beginning with those of other axes."""
    if has_axis(name + axis):
        run.define_metric(name, step_metric=axis, step_sync=False)
