"""One endpoint over time, its files, and the time between two looks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_agents.scrape.endpoints import parse
from rlship_agents.scrape.fetch import Limits
from rlship_agents.scrape.figures import OF_ENDPOINT, Figure, Figures
from rlship_agents.scrape.reading import Engine
from rlship_agents.scrape.replica import Manner, Replica, pause, phase
from rlship_agents.scrape.running import scrape
from rlship_agents.scrape.sources import Sources
from rlship_agents.scrape.writers import MAX_ENGINES, MAX_METRICS, Printed, Writers
from tests.scrape.pages import Page
from tests.scrape.servers import Answer, raw, serving


class Kept:
    """An output that keeps what it is given."""

    left_out = 0

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.closed = False

    def log(self, engines: Mapping[Engine, Figures]) -> None:
        self.looks.append({name: one.value for figures in engines.values() for name, one in figures.items()})

    def event(self, name: str, **attrs: Any) -> None:
        self.events.append((name, attrs))

    def close(self, timeout: float = 5.0) -> None:
        self.closed = True


def records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each file by `replica.rank`."""
    found = {}
    for file in (folder / "rlship").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
        found[f"{lines[0]['replica']}.{lines[0]['rank']}"] = lines
    return found


def test_failures_and_recovery() -> None:
    """Each failed look counts 1, each good one 0; recovery is from the beginning of the first failed look to that of
    the next good one, only of what was up before; each outage is said and logged once.
    """
    page = Page().engine(0, num_requests_waiting=1.0).text()
    answers: list[Answer | str] = [Answer(b"", 500), page, Answer(b"", 503), "<html>", page, page]
    now = [1000.0]
    said: list[str] = []
    output = Kept()
    with serving(lambda n: answers[n]) as server:
        replica = Replica(parse(server.url), Manner(), output, said.append, clock=lambda: now[0])
        for _ in answers:
            replica.look()
            now[0] += 2.5
    assert [look["svc/replica_failures"] for look in output.looks] == [1, 0, 1, 1, 0, 0]
    assert [look.get("svc/recovery_s") for look in output.looks] == [None, None, None, None, 5.0, None]
    assert [name for name, _ in output.events] == ["replica_down", "replica_down", "replica_up"]
    assert output.events[2][1] == {"recovery_s": 5.0, "failures": 2}
    assert [line.partition("/metrics: ")[2][:20] for line in said] == [
        "HTTP 500 Internal Se",
        "answers after 1 fail",
        "HTTP 503 Service Una",
        "it is not metrics te",
        "answers after 2 fail",
    ]


def test_what_was_done_while_nobody_could_look_counts() -> None:
    """After failed looks the increase since the last good one is logged."""
    answers: list[Answer | str] = [
        Page(1.0).engine(0, generation_tokens=10).text(),
        Answer(b"", 500),
        Page(1.0).engine(0, generation_tokens=35).text(),
    ]
    output = Kept()
    with serving(lambda n: answers[n]) as server:
        replica = Replica(parse(server.url), Manner(), output, lambda line: None)
        for _ in answers:
            replica.look()
    assert output.looks[2]["gen/decode_tokens_per_s"] == 25.0


def test_a_hanging_endpoint_holds_up_no_other(tmp_path: Path) -> None:
    """While one never answers, another one is looked at on time; and stopping does not wait for the one that hangs."""
    outputs: dict[str, Kept] = {}
    stop = threading.Event()
    page = Page().engine(0, num_requests_waiting=1.0).text()
    with raw(lambda client: time.sleep(5)) as hanging, serving(lambda n: page) as server:
        sources = Sources([parse(f"slow={hanging}"), parse(f"good={server.url}")], [], lambda line: None)
        manner = Manner(interval_s=0.1, limits=Limits(silent_s=60.0, total_s=60.0))
        thread = threading.Thread(
            target=scrape,
            args=(sources, manner, lambda endpoint, n: outputs.setdefault(endpoint.name, Kept())),
            kwargs={"stop": stop, "say": lambda line: None},
        )
        thread.start()
        server.wait_for(10)
        stop.set()
        began = time.monotonic()
        thread.join()
    assert time.monotonic() - began < 6
    assert len(outputs["good"].looks) >= 9
    assert outputs["slow"].looks == []
    assert outputs["slow"].closed
    assert outputs["good"].closed


def test_waiting_for_others_is_no_failure() -> None:
    """An answer that came in time counts, however long others are read before it, and that is not in what its look
    took.
    """
    turns, output = threading.Semaphore(0), Kept()
    with serving(lambda n: Page().engine(0, num_requests_waiting=1.0).text()) as server:
        manner = Manner(limits=Limits(total_s=1.0))
        replica = Replica(parse(server.url), manner, output, lambda line: None, turns=turns)
        threading.Timer(1.5, turns.release).start()
        assert replica.look()
    assert output.looks[0]["gen/requests_waiting"] == 1.0
    assert output.looks[0]["svc/scrape_s"] < 1.0


def test_the_writers_files(tmp_path: Path) -> None:
    """The endpoint is a replica and an engine a rank, by its number, or the lowest that is free; each says once how its
    metrics are reduced; lines have no step, and levels the same weight at each look.
    """
    writers = Writers(str(tmp_path), "generator", parse("http://n1:8000"))
    level = Figure(3.0, ("gauge.sum", "max"), "count", per_rank=True, level=True)
    for _ in range(2):
        writers.log(
            {Engine((), "2"): {"q": level}, Engine(("ReplicaId=a",), "0"): {"q": level}, OF_ENDPOINT: {"f": level}}
        )
    writers.event("replica_down", reason="x")
    writers.close()
    found = records(tmp_path)
    assert set(found) == {"n1:8000.0", "n1:8000.2"}
    opened, defined, *lines, closed = found["n1:8000.2"]
    assert (opened["actor"], opened.get("world"), opened["labels"]) == (
        "generator",
        None,
        {"agent": "scrape", "endpoint": "http://n1:8000/metrics"},
    )
    assert defined["m"] == {"q": {"reduce": ["gauge.sum", "max"], "unit": "count", "per_rank": True}}
    weights = {
        record["m"]["q"]["w"][0] for lines in found.values() for record in lines if "m" in record and "t" in record
    }
    assert len(weights) == 2
    assert all(1 <= weight < 1 + 2**-20 for weight in weights)
    assert all("step" not in line for line in lines)
    assert closed["kind"] == "close"
    assert [line["name"] for line in found["n1:8000.0"] if line.get("kind") == "event"] == ["replica_down"]


def test_a_family_that_becomes_another_one(tmp_path: Path) -> None:
    """What was a gauge and is a counter now is reduced as one from then on."""
    writers = Writers(str(tmp_path), "generator", parse("http://n1:8000"))
    for reduce in (("mean", "max"), ("mean", "max"), ("rate",), ("rate",)):
        writers.log({OF_ENDPOINT: {"q": Figure(3.0, reduce)}})
    writers.close()
    defined = [line["m"]["q"] for line in records(tmp_path)["n1:8000.0"] if line.get("kind") == "define"]
    assert [entry["reduce"] for entry in defined] == [["mean", "max"], "rate"]


def test_engines_and_metrics_are_bounded(tmp_path: Path) -> None:
    """What is beyond the budgets is left out and counted; an engine that is gone makes room for a new one."""
    writers = Writers(str(tmp_path), "generator", parse("http://n1:8000"))
    one = Figure(1.0, ("mean",))
    crowd = {Engine((f"WorkerId={number:03}",), ""): {"a": one} for number in range(MAX_ENGINES)}
    writers.log(crowd)
    assert writers.left_out == 0
    late = Engine(("WorkerId=late",), "")
    writers.log({**crowd, late: {"a": one}})
    assert writers.left_out == 1
    del crowd[Engine(("WorkerId=007",), "")]
    writers.log({**crowd, late: {"a": one}})
    assert writers.left_out == 1
    writers.log({OF_ENDPOINT: {f"m{number:04}": one for number in range(MAX_METRICS)}})
    assert writers.left_out == 2  # `a` is one of them already
    writers.close()
    found = records(tmp_path)
    assert len(found) == MAX_ENGINES
    assert len(found["n1:8000.0"][-2]["m"]) == MAX_METRICS - 1


def test_what_is_printed() -> None:
    """Without files, each engine's figures are an object of their own."""
    lines: list[dict[str, Any]] = []
    printed = Printed(parse("n1:8000"), lines.append)
    printed.log({Engine(("ReplicaId=a",), "0"): {"q": Figure(1.0, ("mean",))}, Engine((), "1"): {}})
    printed.event("replica_down", reason="x")
    printed.close()
    assert lines == [
        {"replica": "n1:8000", "engine": "ReplicaId=a/0", "m": {"q": 1.0}},
        {"replica": "n1:8000", "event": "replica_down", "attrs": {"reason": "x"}},
    ]


@given(st.floats(1e9, 2e9), st.sampled_from([0.1, 0.5, 1.0, 5.0, 15.0, 60.0]), st.floats(0, 0.4), st.text())
def test_looks_do_not_drift(now: float, interval: float, took: float, name: str) -> None:
    """The next look is in an endpoint's own place of an interval of the wall clock, a quarter of one or more from its
    ends, half to one and a half of one away, however long the last look took.
    """
    at, place = now, phase(name)
    assert 0.25 <= place <= 0.75
    for _ in range(5):
        wait = pause(at, interval, place)
        assert interval / 2 - 1e-6 <= wait <= 1.5 * interval + 1e-6
        at += wait
        assert at / interval % 1 == pytest.approx(place, abs=1e-4)
        late = at + took * interval
        assert (late + pause(late, interval, place)) - at == pytest.approx(interval, abs=1e-4 * interval)
