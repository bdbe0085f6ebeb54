"""The online run, with the real client against a server on the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_formats.values import Histogram
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.wandb import client as wandb_client
from rlship_sidecar.sinks.wandb import sink as wandb_sink
from rlship_sidecar.sinks.wandb.link import ChildLink
from rlship_sidecar.sinks.wandb.sink import Limits, WandbSink
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import GRAPHQL, LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.rows import T0, make_row, make_rows, make_run


def make_sink(backend: LoopbackBackend, home: Path, *, stall_s: float = 60.0, finish_s: float = 15.0) -> WandbSink:
    limits = Limits(stall_s=stall_s, finish_s=finish_s)
    return WandbSink(limits=limits, env=client_env(backend.environment(home / "home")))


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def definitions(backend: LoopbackBackend) -> list[tuple[str, str]]:
    """(pattern, axis) of the run's metric definitions, which name their axis by its place in the list, from 1."""
    metrics = backend.run("rlship", "store1").config["_wandb"]["value"]["m"]
    return sorted((entry["2"], metrics[entry["5"] - 1]["1"]) for entry in metrics if "2" in entry)


def over(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """The definitions for these pairs of actor and axis: one for each name that an actor's metrics may have."""
    return sorted((f"{group}{actor}/*", axis) for actor, axis in pairs for group in ("", "aa_headline/", "zz_rlship/"))


def hidden(backend: LoopbackBackend) -> list[str]:
    """The metrics of which W&B is to make no chart: option 2 of a definition."""
    metrics = backend.run("rlship", "store1").config["_wandb"]["value"]["m"]
    return sorted(entry["1"] for entry in metrics if "1" in entry and 2 in entry.get("6", ()))


def test_a_row_arrives_within_two_seconds_and_signals_do_not_cut_it_off(tmp_path: Path) -> None:
    """A row is at the server less than 2 s after `write`; SIGTERM and SIGINT are the sidecar's business; `close` leaves
    nothing.
    """
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        assert sink.open(make_run(tmp_path, rows=2, name="run 7", tags=["a"], group="g")) == 0
        assert sink.child_pid is not None
        processes = family(sink.child_pid)
        assert os.getpgid(sink.child_pid) != os.getpgid(0), "Ctrl-C at the terminal would reach wandb-core"
        for sign in (signal.SIGTERM, signal.SIGINT):
            os.kill(sink.child_pid, sign)
        sink.write([make_row(0, missing=("0.2",))])
        run = backend.run("rlship", "store1")
        assert wait_until(lambda: len(run.history) == 1) < 2.0
        sink.flush()
        sink.write([make_row(1, actor="reward", axis="env_step", values={"reward/score": 0.25})])
        sink.close()

        wait_until(lambda: gone(processes))
        assert [{key: value for key, value in row.items() if key != "_runtime"} for row in run.rows()] == [
            {
                "_step": 0,
                "_timestamp": T0,
                "global_step": 0,
                "trainer/loss": 0,
                "zz_rlship/trainer/ranks/in": 2,
                "zz_rlship/trainer/ranks/expected": 3,
                "zz_rlship/trainer/ranks/missing": 1,
                "zz_rlship/trainer/ranks/short": 0,
                "zz_rlship/trainer/missing_ranks": "0.2",
            },
            {
                "_step": 1,
                "_timestamp": T0 + 1,
                "env_step": 1,
                "reward/score": 0.25,
                "zz_rlship/reward/ranks/in": 2,
                "zz_rlship/reward/ranks/expected": 2,
                "zz_rlship/reward/ranks/missing": 0,
                "zz_rlship/reward/ranks/short": 0,
            },
        ]
        assert (run.display_name, run.tags, run.group, run.finished) == ("run 7", ["a"], "g", True)
        assert run.value("store_id") == "store1"
        assert definitions(backend) == over(("reward", "env_step"), ("trainer", "global_step"))
        assert hidden(backend) == ["env_step", "global_step"]
        assert run.resent == 0 and run.rewritten == []


def test_a_server_that_shows_an_old_state_is_not_written_to(tmp_path: Path) -> None:
    """Right after a crash a server may tell of fewer lines than it has: rows sent then would overwrite others. Wait
    instead.
    """
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=5))
        sink.write([*make_rows(0, 4), make_row(4, actor="reward")])
        sink.flush()
        sink.close()

        backend.stale_lines = 2
        with pytest.raises(SinkUnavailable, match=r"3 as the number of rows .* 5 as the step"):
            sink.open(make_run(tmp_path, rows=6))
        sink.close()

        backend.stale_lines = 0
        assert sink.open(make_run(tmp_path, rows=6)) == 5
        sink.write(make_rows(5, 6))
        sink.flush()
        sink.close()
        assert backend.run("rlship", "store1").steps() == [0, 1, 2, 3, 4, 5]
        # The client forgets what it resumes; an actor that logs no more must keep its charts.
        assert definitions(backend) == over(("reward", "global_step"), ("trainer", "global_step"))


@pytest.mark.long
def test_a_client_that_silently_gave_up_is_replaced(tmp_path: Path) -> None:
    """After a 409 the client takes rows and sends none, for good, without an error. It is noticed, and the next child
    delivers.
    """
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=6))
        sink.write(make_rows(0, 2))
        sink.flush()
        backend.fail(409)
        sink.write(make_rows(2, 4))
        with pytest.raises(SinkUnavailable, match="gave up sending history"):
            sink.flush()
        sink.close()

        assert sink.open(make_run(tmp_path, rows=6)) == 2
        sink.write(make_rows(2, 6))
        sink.flush()
        sink.close()
        run = backend.run("rlship", "store1")
        assert run.steps() == [0, 1, 2, 3, 4, 5] and run.rewritten == []


def test_a_server_that_answers_but_takes_no_rows_is_noticed(tmp_path: Path) -> None:
    """Queries answered, history refused for `stall_s`: the child ends and says so, and nothing is left behind."""
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path, stall_s=1.5, finish_s=1.0)
        sink.open(make_run(tmp_path, rows=2))
        assert sink.child_pid is not None
        processes = family(sink.child_pid)
        backend.fail(503, None)
        sink.write(make_rows(0, 2))
        with pytest.raises(SinkUnavailable, match=r"took nothing for 1\.5 s"):
            sink.flush()
        sink.close()

        wait_until(lambda: gone(processes))


@pytest.mark.long
def test_an_outage_is_told_waited_out_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that goes away: the status says so, at most the window of rows is under way, and afterwards all arrive
    once.
    """
    monkeypatch.setattr(wandb_sink, "WINDOW_ROWS", 10)
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=40))
        sink.write(make_rows(0, 2))
        sink.flush()
        backend.down()

        def ship() -> None:
            sink.write(make_rows(2, 40))
            sink.flush()

        shipping = threading.Thread(target=ship, daemon=True)
        try:
            shipping.start()
            wait_until(lambda: sink.trouble != "")
            wait_until(lambda: len(sink._window.pending) == 10)
            assert shipping.is_alive()
            backend.up()
            shipping.join(40.0)
            assert not shipping.is_alive()
            assert sink.trouble == ""
        finally:
            sink.close()
        run = backend.run("rlship", "store1")
        assert run.steps() == list(range(40)) and run.rewritten == []


def test_a_rejected_key_is_refused(tmp_path: Path) -> None:
    """401 needs a person: refused, naming where a key may be set, and again when the key is no key at all."""
    with LoopbackBackend(api_key="a" * 40) as backend:
        sink = make_sink(backend, tmp_path)
        backend.api_key = "b" * 40
        with pytest.raises(SinkRefused, match=r"not logged in.*WANDB_API_KEY or netrc"):
            sink.open(make_run(tmp_path, rows=1))
        sink.close()

        malformed = WandbSink(env=client_env({**backend.environment(tmp_path / "home"), "WANDB_API_KEY": "short"}))
        with pytest.raises(SinkRefused, match=r"40\+ characters"):
            malformed.open(make_run(tmp_path, rows=1, mode="online"))
        malformed.close()


def test_a_run_that_must_not_be_written_is_refused(tmp_path: Path) -> None:
    """403 for the run itself, as for a project of others, is refused."""
    with LoopbackBackend() as backend:
        backend.fail(403, None, endpoint=GRAPHQL, operation="UpsertBucket")
        sink = make_sink(backend, tmp_path)
        with pytest.raises(SinkRefused, match=r"403|permission"):
            sink.open(make_run(tmp_path, rows=1))
        sink.close()


@pytest.mark.long
def test_a_server_that_is_down_is_an_outage(tmp_path: Path) -> None:
    """A connection that is refused will be tried again, and leaves no process."""
    with LoopbackBackend() as backend:
        backend.down()
        sink = make_sink(backend, tmp_path)
        with pytest.raises(SinkUnavailable):
            sink.open(make_run(tmp_path, rows=1))
        assert sink.child_pid is not None
        sink.close()
        assert sink.child_pid is None


def test_nothing_outlives_a_killed_sidecar(tmp_path: Path) -> None:
    """After kill -9 of the sidecar its child and wandb-core are gone within seconds, and the rows are sent by the next
    one.
    """
    program = """
import sys, time
from pathlib import Path
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.sinks.rows import make_rows, make_run
sink = WandbSink()
sink.open(make_run(Path(sys.argv[1]), rows=3))
sink.write(make_rows(0, 3))
print(sink.child_pid, flush=True)
time.sleep(600)
"""
    with LoopbackBackend() as backend:
        scratch = tmp_path / "t"
        scratch.mkdir()
        env = client_env({**backend.environment(tmp_path / "home"), "TMPDIR": str(scratch)})
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", program, str(tmp_path)]
        sidecar = subprocess.Popen(command, env=env, cwd=root, stdout=subprocess.PIPE, text=True)
        try:
            assert sidecar.stdout is not None
            processes = family(int(sidecar.stdout.readline()))
            assert len(processes) >= 2
        finally:
            sidecar.kill()
            sidecar.communicate()
        wait_until(lambda: gone(processes))
        assert list(scratch.glob("rlship-wandb-*/wandb")) == []

        sink = make_sink(backend, tmp_path)
        answer = sink.open(make_run(tmp_path, rows=3))
        assert answer is not None
        sink.write(make_rows(answer, 3))
        sink.flush()
        sink.close()
        assert backend.run("rlship", "store1").steps() == [0, 1, 2]


@pytest.mark.parametrize("lives", [1, *long(2)])
def test_a_job_that_was_launched_by_wandb_gets_our_run(tmp_path: Path, lives: int) -> None:
    """Variables that W&B Launch sets, and such as change how the client works, make neither another run of ours nor
    lose rows; what names a way to the server stays.
    """
    foreign = {"WANDB_LAUNCH": "true", "WANDB_X_FILE_STREAM_MAX_LINE_BYTES": "20", "WANDB_X_PRIMARY": "false"}
    with LoopbackBackend() as backend:
        for rows in (2, 3)[:lives]:
            sink = WandbSink(env=client_env({**backend.environment(tmp_path / "home"), **foreign}))
            assert sink.open(make_run(tmp_path, rows=rows)) == (0 if rows == 2 else 2)
            sink.write(make_rows(0 if rows == 2 else 2, rows))
            sink.flush()
            sink.close()
        assert list(backend.runs) == [("loopback/rlship", "store1")]
        assert backend.run("rlship", "store1").steps() == list(range(lives + 1))


def test_a_client_that_opens_another_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in a run that no later start would find would be sent again to the next."""
    other = types.SimpleNamespace(id="random", project="uncategorized")
    monkeypatch.setattr("wandb.init", lambda **_: other)
    order = {"entity": None, "words": dict.fromkeys(("name", "notes", "tags", "group", "job_type"))}
    order |= {"project": "p", "store_id": "s", "init_s": 1.0, "finish_s": 1.0, "transmit_interval": 1}
    with pytest.raises(SinkRefused, match="opened uncategorized/random in place of p/r"):
        wandb_client.init(order, "r", "online", ".")


def test_what_is_on_its_way_begins_small_and_doubles() -> None:
    """Over a slow link a request with all of the window would never end in time, and every client after it would try
    the same again.
    """
    waits, sent = list[int](), 0
    window, size = wandb_sink.SendWindow(), 70_000

    class Echo:
        """Acknowledges everything whenever it is waited for."""

        acked = 0

        def begin_flush(self) -> None: ...

        def wait(self, ready: Callable[[], bool]) -> None:
            waits.append(size * (sent - self.acked))
            self.acked = sent
            assert ready()

    link = Echo()
    for row in range(400):
        window.await_room(cast(ChildLink, link), size)
        window.sent(row, size)
        sent = row + 1
    sizes = [min(wandb_sink.FIRST_WINDOW_BYTES << times, wandb_sink.WINDOW_BYTES) for times in range(4)]
    assert len(waits) > 4 and all(0.8 * size < held <= size for held, size in zip(waits, sizes, strict=False))
    assert max(waits) <= wandb_sink.WINDOW_BYTES


def test_histograms_and_values_of_ranks_at_the_server(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A histogram is one of W&B's own in the history line of its row, ranks' values are keys of the same line, and
    there is one line for each row.
    """
    rows = [
        replace(
            make_row(no),
            hists={"trainer/len": Histogram(tuple(bin / 4 for bin in range(65)), (no,) * 64)},
            per_rank={"trainer/loss": [("0.0", 1.0), ("1.0", 2.0 + no)]},
        )
        for no in range(3)
    ]
    sink = make_sink(backend, tmp_path)
    sink.open(make_run(tmp_path, rows=3, project="hists", ranks="per_rank_reduce", max_keys=3))
    sink.write(rows)
    sink.flush()
    sink.close()
    run = backend.run("hists", "store1")

    assert run.steps() == [0, 1, 2]
    assert [row["trainer/len"] for row in run.rows()] == [
        {"_type": "histogram", "values": [no] * 64, "bins": [bin / 4 for bin in range(65)]} for no in range(3)
    ]
    assert [row["zz_rlship/trainer/loss/r0.0"] for row in run.rows()] == [1.0, 1.0, 1.0]
    assert not any("zz_rlship/trainer/loss/r1.0" in row for row in run.rows())
    assert sink.note.startswith("the run has 3 keys: trainer/loss/r1.0 and all further")


def test_a_run_that_was_begun_under_other_names_goes_on(
    tmp_path: Path, backend: LoopbackBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lines so far stay, further ones have the new names, and the log says so once."""
    for life, rows in enumerate((1, 2, 3)):
        sink = make_sink(backend, tmp_path)
        assert sink.open(make_run(tmp_path, rows=rows, project="begun")) == life
        sink.write([make_row(life)])
        sink.close()
        if life == 0:
            (tmp_path / "rlship" / "state" / "sink-names.json").unlink()  # an earlier release wrote none
    run = backend.run("begun", "store1")
    assert run.steps() == [0, 1, 2] and run.overwritten() == []
    (said,) = [text for text in caplog.messages if "other names" in text]
    assert "from row 1 on what rlship adds stands under zz_rlship/" in said  # the job's metrics keep their keys
