"""A real `rlship watch` under a test that plays systemd, Prometheus and a probe."""

from __future__ import annotations

import itertools
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rlship_sidecar import config
from rlship_sidecar.daemon import loop as daemon
from rlship_sidecar.daemon.watched import Watched, open_watched
from rlship_sidecar.observe.pulse import Pulse
from rlship_sidecar.report.status import Status
from rlship_sidecar.tally import OWN_ACTOR
from tests.endtoend.evidence import check_rows, newest, shipped, state_of
from tests.endtoend.job import crew
from tests.endtoend.sidecar import rlship, watching
from tests.reference.settings import Settings

OWN_S = "0.5"


def figures(text: str) -> dict[str, float]:
    """The samples by name, with labels where there are some."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@contextmanager
def playing_systemd(address: str, said: list[str]) -> Iterator[None]:
    """Append what arrives at the abstract address to `said`."""

    def listen() -> None:
        while text := here.recv(4096):
            said.append(text.decode())

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        here.bind("\0" + address[1:])
        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"", "\0" + address[1:])
            listener.join()


def test_what_a_live_sidecar_tells(tmp_path: Path) -> None:
    """READY comes once it works, STATUS with step and ranks, signs of life all the time, STOPPING with SIGTERM.
    Metrics, probes and the textfile say how much was read and shipped. Its own figures are rows of the run, as the
    files say: rebuilt from them, another sidecar's rows are equal bit by bit, its own none.
    """
    experiment, home, textfile = tmp_path / "job", tmp_path / "home", tmp_path / "rlship.prom"
    experiment.mkdir()
    address = f"@rlship-test/{tmp_path}"
    settings = {
        "NOTIFY_SOCKET": address,
        "WATCHDOG_USEC": "600000",
        "RLSHIP_METRICS_PORT": "0",
        "RLSHIP_METRICS_FILE": str(textfile),
        "RLSHIP_OWN_ROWS_S": OWN_S,
        "RLSHIP_CLOCK_WINDOW_S": "1",
    }
    said: list[str] = []
    with (
        playing_systemd(address, said),
        watching(experiment, home=home, settings=settings) as sidecar,
        crew(experiment, "trainer", 2) as workers,
    ):
        sidecar.until(lambda: "READY=1" in said)
        for step in range(12):
            for rank, worker in enumerate(workers):
                worker.log({"loss": step / (rank + 3)}, step)
                worker.barrier(step)
                worker.flush()
            time.sleep(0.15)
        sidecar.until(lambda: any(row.unit.actor == OWN_ACTOR for row in shipped(experiment)))
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+", sidecar.said())
        told: dict[str, float] = {}

        def all_shipped() -> bool:
            told.update(figures(get(f"{url}/metrics")))
            written = told["rlship_ship_lag_seconds_count{at=written,sink=jsonl}"]
            return told.get("rlship_step{actor=trainer}") == 11 and written >= 12

        sidecar.until(all_shipped)
        assert get(f"{url}/healthz") == get(f"{url}/readyz") == "ok\n"
        for worker in workers:
            worker.end()
        sidecar.until_status(lambda status: all(writer.closed for writer in status.writers))
        assert sidecar.stop() == 0, sidecar.said()

    assert said.count("READY=1") == 1 and "STOPPING=1" in said
    assert said.count("WATCHDOG=1") >= 5
    assert "STATUS=step 11, 2/2 ranks, lag 0.0 s" in said
    assert said[-1].startswith("STATUS=stopping: step 11, 2/2 ranks")

    assert told["rlship_up"] == told["rlship_experiments"] == 1
    assert told["rlship_step{actor=trainer}"] == 11
    assert told["rlship_rows_total{actor=trainer,closed=complete}"] == 12
    assert told["rlship_records_read_total{actor=trainer}"] >= 2 * (1 + 12 + 12)
    assert told["rlship_sink_errors_total{sink=jsonl}"] == 0
    down = figures(textfile.read_text())
    assert (down["rlship_up"], down["rlship_rows_total{actor=trainer,closed=complete}"]) == (0, 12)

    rows = shipped(experiment)
    check_rows(experiment, rows, Settings(window=1.0))
    own = [row for row in rows if row.unit.actor == OWN_ACTOR]
    assert {row.unit.kind for row in own} == {"aligned", "clock"}
    beside = [row.values for row in own if row.unit.kind == "aligned"]
    assert all(row["rlship/late_rows"] == row["rlship/dead_letters"] == 0 for row in beside)
    assert all(0 < row["rlship/rss_bytes"] < 1 << 30 for row in beside)
    assert any(0 <= row.get("rlship/sink/jsonl/lag_s", -1) < 30 for row in beside)

    again = tmp_path / "again"
    done = rlship(home, "watch", experiment, "--once", "--sink", "jsonl", "--state-dir", again, settings=settings)
    assert done.returncode == 0, done.stderr
    assert len(list((experiment / "rlship").glob(f"{OWN_ACTOR}-*.jsonl"))) == 1
    (state_of(experiment) / "rows.jsonl").write_bytes((again / "job" / "rows.jsonl").read_bytes())
    assert newest(shipped(experiment)) == newest(rows)


def test_it_is_ready_and_stops_while_it_opens_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of experiments the last is opened minutes after the first: it is ready, gives signs of life and can
    be told to stop before that.
    """
    for number in range(5):
        (tmp_path / f"job{number}" / "rlship").mkdir(parents=True)
    stop, ready, beats = threading.Event(), [], []
    pulse = Pulse()

    def opened(*args: Any, **kwargs: Any) -> Watched:
        ready.append(pulse.is_ready)
        beats.append(pulse.beat_at)
        if len(ready) == 3:
            stop.set()
        return open_watched(*args, **kwargs)

    monkeypatch.setattr(daemon, "open_watched", opened)
    settings = config.load(tmp_path, {"sinks": ("jsonl",)}, {})
    assert daemon.watch(tmp_path, settings, once=False, stop=stop, pulse=pulse) == 0
    assert ready == [False, True, True]
    assert beats[0] is None and beats[1] < beats[2]
    assert not (tmp_path / "job3" / "rlship" / "state").exists()


def test_it_is_alive_while_it_makes_the_statuses_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statuses of thousands take longer than a probe waits: there is a sign of life between any two."""
    for number in range(3):
        (tmp_path / f"job{number}" / "rlship").mkdir(parents=True)
    stop, beats = threading.Event(), list[float | None]()
    ticks = itertools.count()
    pulse = Pulse(clock=lambda: float(next(ticks)))
    tell = Watched.report

    def told(watched: Watched, now: float, wall: float, **more: bool) -> Status:
        beats.append(pulse.beat_at)
        if len(beats) == 3:
            stop.set()
        return tell(watched, now, wall, **more)

    monkeypatch.setattr(Watched, "report", told)
    settings = config.load(tmp_path, {"sinks": ("jsonl",)}, {})
    assert daemon.watch(tmp_path, settings, once=False, stop=stop, pulse=pulse) == 0
    assert len(set(beats[:3])) == 3, beats


def test_an_idle_sidecar_writes_nothing(tmp_path: Path) -> None:
    """Once the job is over the sidecar's own file is closed and no longer grows, nor do the rows."""
    experiment, home = tmp_path / "job", tmp_path / "home"
    experiment.mkdir()
    settings = {"RLSHIP_OWN_ROWS_S": "0.2", "RLSHIP_CLOCK_WINDOW_S": "0.5"}
    with watching(experiment, home=home, settings=settings) as sidecar:
        with crew(experiment, "trainer", 1) as (worker,):
            worker.log({"loss": 1.0}, 0)
            worker.barrier(0)
            worker.flush()
            sidecar.until(lambda: any((experiment / "rlship").glob(f"{OWN_ACTOR}-*.jsonl")))
            worker.end()
        status = sidecar.until_status(lambda status: all(writer.closed for writer in status.writers))
        files = {file: file.stat().st_size for file in (experiment / "rlship").glob("*.jsonl")}
        later = sidecar.until_status(lambda later: later.t > status.t + 2.5)
        assert {file: file.stat().st_size for file in (experiment / "rlship").glob("*.jsonl")} == files
        assert later.rows - status.rows <= 2  # the windows that the end closed
        assert sidecar.stop() == 0
    assert "finished: all writers closed" in rlship(home, "status", experiment).stdout


def test_a_kill_and_another_sidecar_leave_one_rank(tmp_path: Path) -> None:
    """A sidecar that is killed leaves its own file without an end. Its successor writes for the same rank, as a later
    attempt; no rank is claimed twice, and the data are complete.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    experiment.mkdir()
    settings = {"RLSHIP_OWN_ROWS_S": "0.2", "RLSHIP_CLOCK_WINDOW_S": "0.5", "RLSHIP_GRACE_S": "1"}
    with crew(experiment, "trainer", 1) as (worker,):
        for life in range(2):
            with watching(experiment, home=home, settings=settings) as sidecar:
                for step in range(10 * life, 10 * life + 10):
                    worker.log({"loss": 1.0}, step)
                    worker.barrier(step)
                    worker.flush()
                sidecar.until(
                    lambda life=life: len(list((experiment / "rlship").glob(f"{OWN_ACTOR}-*.jsonl"))) == life + 1
                )
                if life == 0:
                    sidecar.kill()
                else:
                    worker.end()
                    status = sidecar.until_status(lambda status: all(w.closed for w in status.writers if w.attempt))
                    assert status.claims == [] and not [note for note in status.notes if OWN_ACTOR in note]
                    assert sidecar.stop() == 0
    rows = shipped(experiment)
    check_rows(experiment, rows, Settings(window=0.5))
    assert {row.coverage.attempts for row in rows if row.unit.actor == OWN_ACTOR} <= {(0,), (1,), (0, 1)}


def test_a_port_that_is_taken_ends_it_at_once(tmp_path: Path) -> None:
    """A port that is taken would leave probes without an answer: the sidecar ends with exit code 1, and says what to
    do.
    """
    (tmp_path / "job").mkdir()
    (tmp_path / "home").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = rlship(tmp_path / "home", "watch", tmp_path / "job", "--metrics-port", port)
    assert done.returncode == 1
    assert f"cannot answer on 127.0.0.1 port {port}: Address already in use" in done.stderr
