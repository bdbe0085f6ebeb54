"""Every sink, as the contract suite sees it: how to make one, how to crash it and how to read back what arrived."""

from __future__ import annotations

import io
import os
import re
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlship_sidecar.sinks.console import ConsoleSink
from rlship_sidecar.sinks.contract import Run, Sink
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.contributing.page import PAGE, code_below
from tests.loopback.backend import LoopbackBackend, isolated
from tests.sinks.readback import jsonl_numbers, offline_rows, tensorboard_points
from tests.sinks.rows import make_run


@dataclass(slots=True)
class Place:
    """One kind of sink at one destination. `tells`: whether it can say how many rows the destination holds."""

    make: Callable[[], Sink]
    numbers: Callable[[], list[int]]
    folder: Path
    tells: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    crash: Callable[[Sink], None] = lambda sink: None

    def run(self, rows: int, store_id: str = "store1") -> Run:
        return make_run(self.folder, store_id=store_id, rows=rows, **self.options)


def client_env(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without its WANDB_* and proxies, and with `extra`."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("WANDB") and not k.lower().endswith("_proxy")}
    return {**ours, **extra}


def console(folder: Path, backend: LoopbackBackend) -> Place:
    stream = io.StringIO()
    return Place(
        lambda: ConsoleSink(stream),
        lambda: [int(found) for found in re.findall(r"global_step=(\d+)", stream.getvalue())],
        folder,
        tells=False,
    )


def jsonl(folder: Path, backend: LoopbackBackend) -> Place:
    return Place(JsonlSink, lambda: jsonl_numbers(folder / "rlship" / "state" / "rows.jsonl"), folder)


def tensorboard(folder: Path, backend: LoopbackBackend) -> Place:
    events = folder / "rlship" / "state" / "tensorboard"
    return Place(
        TensorBoardSink, lambda: [step for step, _ in tensorboard_points(events, "aa_headline/trainer/loss")], folder
    )


def wandb_online(folder: Path, backend: LoopbackBackend) -> Place:
    env = client_env(backend.environment(folder / "home"))
    project = f"p{folder.name}"
    return Place(
        lambda: WandbSink(env=env),
        lambda: [int(row["trainer/loss"]) for row in backend.run(project, "store1").rows()],
        folder,
        options={"project": project},
        crash=kill_child,
    )


def wandb_offline(folder: Path, backend: LoopbackBackend) -> Place:
    env = client_env(isolated(folder / "home"))
    return Place(
        lambda: WandbSink(env=env),
        lambda: [row["_step"] for row in offline_rows(folder / "rlship" / "state")],
        folder,
        options={"mode": "offline"},
        crash=kill_child,
    )


def documented(folder: Path, backend: LoopbackBackend) -> Place:
    """The sink whose code is in the documentation, as it stands there."""
    (code,) = code_below("Add a sink")
    names: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), names)
    (folder / "rlship" / "state").mkdir(parents=True)

    def numbers() -> list[int]:
        with closing(sqlite3.connect(folder / "rlship" / "state" / "rows.db")) as found:
            return [number for (number,) in found.execute("select row_number from rows order by rowid")]

    return Place(names["SqliteSink"], numbers, folder)


def kill_child(sink: Sink) -> None:
    """kill -9 of the process that talks to W&B."""
    assert isinstance(sink, WandbSink) and sink.child_pid is not None
    os.kill(sink.child_pid, signal.SIGKILL)


KINDS: dict[str, Callable[[Path, LoopbackBackend], Place]] = {
    "console": console,
    "jsonl": jsonl,
    "tensorboard": tensorboard,
    "wandb-online": wandb_online,
    "wandb-offline": wandb_offline,
    "documented": documented,
}
