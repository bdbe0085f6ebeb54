"""`rlship scrape` as a process, on servers that are there, and the rows that `rlship watch` makes of it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.sidecar import RLSHIP, environment, rlship
from tests.scrape.pages import Page
from tests.scrape.servers import Answer, Server, serving

TTFT = ("0.1", "0.5", "1.0", "+Inf")
TPOT = ("0.01", "0.02", "0.05", "+Inf")


def engine(
    page: Page, number: int, tokens: int, queries: int, hits: int, waiting: float, kv: float, ttft: str, tpot: str
) -> Page:
    """What an engine says; `ttft` and `tpot` are how many fell into each bucket so far."""
    return page.engine(
        number,
        generation_tokens=tokens,
        prefix_cache_queries=queries,
        prefix_cache_hits=hits,
        num_requests_waiting=waiting,
        num_requests_running=float(number + 1),
        kv_cache_usage_perc=kv,
        time_to_first_token_seconds=dict(zip(TTFT, map(int, ttft.split()))),
        inter_token_latency_seconds=dict(zip(TPOT, map(int, tpot.split()))),
    )


def two_engines(number: int) -> str:
    """The first endpoint: engines 0 and 1, which work between the first and the third look."""
    pages = (
        engine(Page(100.0), 0, 1000, 100, 40, 4.0, 0.5, "5 5 0 0", "9 0 0 0"),
        engine(Page(100.0), 0, 1600, 300, 90, 4.0, 0.5, "10 5 0 0", "19 10 0 0"),
        engine(Page(100.0), 0, 2200, 500, 140, 4.0, 0.5, "15 15 0 0", "29 20 0 0"),
    )
    page = pages[min(number, 2)]
    others = ((2000, 0, 0, "0 0 0 0"), (2900, 1000, 900, "0 30 0 0"), (3300, 1000, 900, "0 50 0 0"))
    tokens, queries, hits, ttft = others[min(number, 2)]
    return engine(page, 1, tokens, queries, hits, 6.0, 0.25, ttft, "0 0 0 0").text()


def restarted(number: int) -> Answer | str:
    """The second endpoint: it works, is away for three looks, and comes back as another process."""
    if number in (3, 4, 5):
        return Answer(b"no engine", 503)
    if number < 3:
        tokens, queries, ttft, tpot = ((500, 200, "7 7 7 7", "0 0 0 0"), (800, 800, "7 7 47 7", "0 0 60 0"))[number > 0]
        return engine(Page(50.0), 0, tokens, queries, 0, 3.0, 0.9, ttft, tpot).text()
    # Nothing is less than before: only the start time tells that it is another process.
    tokens, queries, hits, ttft = ((1000, 1010, 5, "7 7 60 7"), (1200, 1110, 105, "7 7 60 17"))[number > 6]
    return engine(Page(900.0), 0, tokens, queries, hits, 3.0, 0.1, ttft, "0 0 60 0").text()


@contextmanager
def scraping(home: Path, directory: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`rlship scrape` on an experiment, killed at the end if it is still there."""
    command = [*RLSHIP, "scrape", *map(str, arguments), "--dir", str(directory)]
    process = subprocess.Popen(
        command, cwd=home.parent, env=environment(home, {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """Ask it to stop; what it said on stderr."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    return said


def trainer(directory: Path, began: float, end: float) -> None:
    """The file of a trainer whose step 1 is the time from `began` to `end`."""
    records: list[dict[str, Any]] = [
        {"kind": "open", "rlship": 1, "id": "a1", "actor": "trainer", "world": 1, "rank": 0, "t": began - 5},
        {"t": began - 1, "step": 0, "m": {"loss": 2.0}},
        {"kind": "barrier", "step": 0, "t": began},
        {"t": end, "step": 1, "m": {"loss": 1.0}},
        {"kind": "barrier", "step": 1, "t": end},
        {"kind": "close", "t": end},
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (directory / "rlship" / "trainer-0-r0-n1-1-a1.jsonl").write_text(text)


def rows(home: Path, directory: Path) -> list[dict[str, Any]]:
    """What `rlship watch --once` makes of an experiment."""
    done = rlship(home, "watch", directory, "--once", "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    text = (directory / "rlship" / "state" / "rows.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of the test's own."""
    made = tmp_path / "home"
    made.mkdir()
    return made


def test_rows_hold_what_two_engines_did(tmp_path: Path, home: Path) -> None:
    """Throughput, queue depth, KV usage, prefix-cache misses, TTFT and inter-token quantiles, failures and recovery, of
    two endpoints of which one has two engines and the other one restarts, are those worked out by hand.
    """
    directory = tmp_path / "grpo"
    began = round(time.time(), 3)
    with serving(two_engines) as first, serving(restarted) as second:
        with scraping(home, directory, f"a={first.url}", f"b={second.url}", "--interval", 0.2) as process:
            second.wait_for(9)
            first.wait_for(4)
            said = ended(process)
        arrivals = second.arrivals
    end = round(time.time() + 0.001, 3)
    trainer(directory, began, end)
    (row,) = (row for row in rows(home, directory) if row["kind"] == "aligned" and row["actor"] == "generator")
    found, per_rank = row["m"], row["per_rank"]

    # (2200 - 1000) + (3300 - 2000) + (800 - 500) + (1200 - 1000): what the restarted one did before it was looked at
    # again is not known.
    assert found["generator/gen/decode_tokens_per_s"] == pytest.approx(3000 / (end - began), rel=1e-9)
    assert per_rank["generator/gen/decode_tokens_per_s"] == pytest.approx(
        {"a.0": 1200 / (end - began), "a.1": 1300 / (end - began), "b.0": 500 / (end - began)}, rel=1e-9
    )
    assert found["generator/gen/requests_waiting"] == pytest.approx(4 + 6 + 3)
    assert found["generator/gen/requests_waiting/max"] == 6
    assert found["generator/gen/requests_running"] == pytest.approx(1 + 2 + 1)
    assert per_rank["generator/svc/replica_queue_depth"] == {"a.0": 10, "b.0": 3}
    assert found["generator/gen/kv_usage"] == 0.9
    assert per_rank["generator/gen/kv_usage"] == {"a.0": 0.5, "a.1": 0.25, "b.0": 0.9}
    # Queries 400 + 1000 + 600 + 100, of which 100 + 900 + 0 + 100 were hits.
    assert found["generator/gen/kv_miss_rate"] == pytest.approx(1000 / 2100)
    assert per_rank["generator/gen/kv_miss_rate"] == pytest.approx({"a.0": 300 / 400, "a.1": 100 / 1000, "b.0": 6 / 7})
    # In all 10 up to 0.1 s, 60 up to 0.5, 40 up to 1 and 10 above: the 60th and the 118.8th of 120.
    assert found["generator/gen/ttft_s"] == pytest.approx(0.1 + 0.4 * 50 / 60)
    assert found["generator/gen/ttft_s/p99"] == pytest.approx(1.0)
    assert per_rank["generator/gen/ttft_s"] == pytest.approx({"a.0": 0.1, "a.1": 0.3, "b.0": 0.5 + 0.5 * 25 / 40})
    # 20, 20 and 60: the 50th and the 99th of 100.
    assert found["generator/gen/tpot_s"] == pytest.approx(0.02 + 0.03 * 10 / 60)
    assert found["generator/gen/tpot_s/p99"] == pytest.approx(0.02 + 0.03 * 59 / 60)

    assert found["generator/svc/replica_failures"] == 3
    assert per_rank["generator/svc/replica_failures"] == {"a.0": 0, "b.0": 3}
    assert found["generator/svc/recovery_s"] == pytest.approx(arrivals[6] - arrivals[3], abs=0.1)
    assert found["generator/svc/replica_restarts"] == 1
    assert found["generator/event/replica_up"] == 1
    assert row["coverage"]["ranks"] == ["a.0-1", "b.0"]
    assert row["coverage"]["underivable"] == []
    assert "HTTP 503" in said
    assert "answers after 3 failures" in said


def test_lists_of_endpoints_are_followed(tmp_path: Path, home: Path) -> None:
    """An endpoint that comes into a file is read while the scrape runs, and one that goes is closed; what is in Ray's
    file is read as well.
    """
    page = Page().engine(0, num_requests_waiting=2.0).text()
    directory, listed, ray = tmp_path / "grpo", tmp_path / "endpoints.txt", tmp_path / "ray"
    ray.mkdir()
    with serving(lambda n: page) as first, serving(lambda n: page) as second, serving(lambda n: page) as third:
        targets = [{"labels": {"job": "ray"}, "targets": [f"127.0.0.1:{third.port}"]}]
        (ray / "prom_metrics_service_discovery.json").write_text(json.dumps(targets))
        listed.write_text(f"# engines\nfirst={first.url}\n")
        options = ("--interval", 0.2, "--endpoints", listed, "--ray", "--ray-temp-dir", ray)
        with scraping(home, directory, *options) as process:
            first.wait_for(2)
            third.wait_for(1)
            listed.write_text(f"second={second.url}\n")
            second.wait_for(2)
            closed_after = len(first.arrivals)
            second.wait_for(len(second.arrivals) + 4)
            assert len(first.arrivals) <= closed_after + 1
            files = {path.name.split("-")[1]: path.read_text() for path in (directory / "rlship").glob("*.jsonl")}
            assert files["first"].splitlines()[-1].startswith('{"kind":"close"')
            ended(process)
    assert set(files) == {"first", "second", f"127.0.0.1_{third.port}"}


def test_a_job_may_be_looked_at_without_writing(tmp_path: Path, home: Path) -> None:
    """--dry-run prints what would be logged; --rounds ends, with 0 only if each endpoint answered; no file is made."""
    page = Page().engine(0, num_requests_waiting=2.0).text()
    with serving(lambda n: page) as server:
        good = rlship(home, "scrape", server.url, "--rounds", 1, "--dry-run")
        free = Server(lambda n: page)
        free.close()
        bad = rlship(home, "scrape", server.url, free.url, "--rounds", 1, "--dry-run")
    lines = [json.loads(line) for line in good.stdout.splitlines()]
    assert (good.returncode, good.stderr) == (0, "")
    assert lines[0] == {
        "replica": f"127.0.0.1:{server.port}",
        "engine": "0",
        "m": {"gen/requests_waiting": 2.0},
    }
    assert bad.returncode == 1
    assert bad.stderr == f"rlship: {free.url}: Connection refused\n"
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_nobody_reads(tmp_path: Path, home: Path) -> None:
    """A dry run whose output is no longer read ends with exit code 1 and says so."""
    page = Page().engine(0, num_requests_waiting=2.0).text()
    with (
        serving(lambda n: page) as server,
        scraping(home, tmp_path, server.url, "--dry-run", "--interval", 0.1) as process,
    ):
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1
        assert "the reader of standard output is gone" in process.stderr.read()
        process.stdout = None
