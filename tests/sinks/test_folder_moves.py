"""A job's folder that is renamed or removed while a sink opens: nothing but a writer makes it again."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_sidecar.sinks.contract import Sink, SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend, isolated
from tests.sinks.kinds import client_env
from tests.sinks.rows import make_rows, make_run


def rename(job: Path) -> None:
    job.rename(job.with_name("renamed"))


def remove(job: Path) -> None:
    """As `rm -rf` does, and again where a process makes a file in it meanwhile."""
    for _ in range(20):
        shutil.rmtree(job, ignore_errors=True)


def find_core(sink: WandbSink) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [one for one in psutil.Process(sink.child_pid).children() if "wandb" in one.name()]
    return []


def find_run(job: Path) -> list[Path]:
    return list(job.rglob("*run-*/logs"))


# When the folder goes: the child begins to import its modules, it starts wandb-core, it makes the run's folders.
MOMENTS: dict[str, Callable[[WandbSink, Path], object]] = {
    "child": lambda sink, job: sink.child_pid,
    "core": lambda sink, job: find_core(sink),
    "run": lambda sink, job: find_run(job),
}


WAYS = [("offline", rename), ("online", remove), *long(("offline", remove), ("online", rename))]


@pytest.mark.parametrize("moment", ["run", *long("child", "core")])
@pytest.mark.parametrize("way", WAYS, ids=["offline-rename", "online-remove", "offline-remove", "online-rename"])
def test_a_folder_that_goes_while_the_child_starts(
    tmp_path: Path, backend: LoopbackBackend, way: tuple[str, Callable[[Path], None]], moment: str
) -> None:
    """Whatever the child and the client still do, the folder stays away. `dir` has the online run in the job, too."""
    mode, go = way
    home, job = tmp_path / "home", tmp_path / "job"
    sink = WandbSink(env=client_env(isolated(home) if mode == "offline" else backend.environment(home)))
    run = make_run(job, rows=2, **({"dir": "files"} if mode == "online" else {}))

    def ship() -> None:
        with contextlib.suppress(SinkUnavailable, SinkReopen, OSError):
            sink.open(run)
            sink.write(make_rows(0, 2))
            sink.flush()

    shipping = threading.Thread(target=ship, daemon=True)
    shipping.start()
    try:
        wait_until(lambda: MOMENTS[moment](sink, job) or not shipping.is_alive(), moment)
        go(job)
        shipping.join(60.0)
        assert not shipping.is_alive()
    finally:
        sink.close()
    assert not job.exists(), sorted(job.rglob("*"))


@pytest.mark.parametrize("options", [{}, {"path": "out/rows.jsonl", "dir": "out"}], ids=["state", "elsewhere"])
@pytest.mark.parametrize("make", [JsonlSink, TensorBoardSink, WandbSink])
def test_a_folder_that_is_gone_before(tmp_path: Path, make: Callable[[], Sink], options: dict[str, str]) -> None:
    """A sink that opens then says that it cannot."""
    unknown = "path" if make is not JsonlSink else "dir"
    run = make_run(tmp_path / "job", **{name: value for name, value in options.items() if name != unknown})
    rename(tmp_path / "job")
    with pytest.raises((SinkUnavailable, FileNotFoundError)):
        make().open(run)
    assert os.listdir(tmp_path) == ["renamed"]


def test_refused_is_not_what_a_lost_folder_is(tmp_path: Path) -> None:
    """The child tells of it as an outage, so that the sidecar tries again where the folder is."""
    sink = WandbSink(env=client_env(isolated(tmp_path / "home")))
    run = make_run(tmp_path / "job", rows=2)
    problems: list[Exception] = []

    def open_sink() -> None:
        try:
            sink.open(run)
        except (SinkUnavailable, SinkRefused, OSError) as problem:
            problems.append(problem)

    opening = threading.Thread(target=open_sink, daemon=True)
    opening.start()
    wait_until(lambda: sink.child_pid, "the child")
    rename(tmp_path / "job")
    opening.join(60.0)
    sink.close()
    assert [type(problem) for problem in problems] == [SinkUnavailable]
