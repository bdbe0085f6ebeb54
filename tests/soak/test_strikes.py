"""The parts of the injector that can go wrong without anyone noticing."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
from pathlib import Path

from rlship_sidecar.store.store import Store
from tests.kit.waiting import wait_until
from tests.loopback.backend import FILE_STREAM, GRAPHQL, LoopbackBackend, Request
from tests.reference.lines import read_file
from tests.soak import values
from tests.soak.injector import positions
from tests.soak.plan import Strike
from tests.soak.server_faults import ServerFaults
from tests.soak.sidecars import Daemon, Sidecars
from tests.soak.writers import append_rubbish, cut_unread

PATHS = {FILE_STREAM: "/files/e/p/r/file_stream", GRAPHQL: "/graphql"}


def test_only_what_nobody_read_is_cut(tmp_path: Path) -> None:
    """The cut is within the last line and never below the position that was read; nothing unread, nothing cut."""
    file = tmp_path / "w.jsonl"
    cut = 0
    for seed in range(200):
        dice = random.Random(seed)
        data = b"".join(b"x" * dice.randrange(9) + b"\n" for _ in range(3)) + dice.choice([b"", b"torn"])
        read = dice.randrange(len(data) + 1)
        file.write_bytes(data)
        did = cut_unread(file, read, dice)
        left = file.read_bytes()
        assert data.startswith(left) and len(left) >= min(read, len(data))
        assert left.count(b"\n") >= data.count(b"\n") - 1
        assert did == (len(left) < len(data))
        if read == len(data):
            assert not did
        cut += did
    assert cut > 50


def test_rubbish_is_rubbish(tmp_path: Path) -> None:
    """No kind of rubbish adds a figure, a step or a promise behind what a writer wrote."""
    opening = {"kind": "open", "actor": "a", "id": "i", "t": 1763600001.0}
    for seed in range(60):
        file = tmp_path / f"{seed}.jsonl"
        file.write_text(json.dumps(opening) + '\n{"step":2,"m":{"loss":1}}\n')
        append_rubbish(file, ("torn", "rubbish", "bytes")[seed % 3], random.Random(seed))
        read = read_file(file.name, file.read_bytes())
        assert read.writer is not None
        assert [list(line.values) for segment in read.writer.segments for line in segment.measured if line.values] == [
            ["loss"]
        ]
        assert {line.step for segment in read.writer.segments for line in segment.measured} == {2}
        assert not any(segment.barriers for segment in read.writer.segments)


def test_positions_are_those_of_the_newest_store(tmp_path: Path) -> None:
    """Where there is a store, its positions; without a store, nothing was read."""
    assert positions(tmp_path) == {}
    for generation in (2, 10):
        Store(tmp_path / f"store.{generation}.db", local=True).close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert positions(tmp_path) == {}
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_server_faults_count_by_the_requests_that_met_them(tmp_path: Path) -> None:
    """A fault that no request met does not count; two endpoints' faults are distinguished, in order."""
    with LoopbackBackend() as backend:
        token = base64.b64encode(f"api:{backend.api_key}".encode()).decode()
        faults = ServerFaults(backend)

        def ask(endpoint: str) -> None:
            query = b'{"query":"query Viewer { viewer { id } }"}'
            backend.answer(PATHS[endpoint], query, {"authorization": f"Basic {token}"})

        faults.strike(Strike(0.0, "server 5xx", 0.0, 0.0, 2, f"503 {FILE_STREAM}"))
        faults.strike(Strike(0.0, "reply cut", 0.0, 0.0, 1, GRAPHQL))
        faults.strike(Strike(0.0, "server rejects", 0.0, 0.0, 1, f"409 {FILE_STREAM}"))
        faults.strike(Strike(0.0, "server 429", 0.0, 0.0, 1, f"429 {GRAPHQL}"))
        assert faults.struck() == {}
        for endpoint in (FILE_STREAM, GRAPHQL, FILE_STREAM, FILE_STREAM):
            ask(endpoint)
        assert faults.struck() == {"server 5xx": 2, "reply cut": 1, "server rejects": 1}
        stale = Strike(0.0, "stale answers", 0.0, 1.0, 7)
        faults.strike(stale)
        assert backend.stale_lines == 7
        ask(GRAPHQL)  # meets the 429
        ask(GRAPHQL)
        faults.over(stale)
        ask(GRAPHQL)
        assert backend.stale_lines == 0
        assert faults.struck()["stale answers"] == 1 and faults.struck()["server 429"] == 1


def test_faults_wait_for_rows(tmp_path: Path) -> None:
    """Rows flow once a request with rows was answered, and until it is old or a fault waits for the next one."""
    with LoopbackBackend() as backend:
        faults = ServerFaults(backend)
        strike = Strike(0.0, "reply cut", 0.0, 0.0, 1, FILE_STREAM)

        def sent(status: int, lines: int, age_s: float = 0.0) -> None:
            backend.requests.append(Request(time.time() - age_s, FILE_STREAM, "", status, (0, lines)))

        sent(200, 0)
        sent(503, 4)
        sent(200, 4, age_s=60.0)
        assert not faults.flowing(strike)
        sent(200, 4)
        assert faults.flowing(strike)
        faults.strike(strike)
        assert not faults.flowing(strike)
        sent(0, 4)
        assert faults.flowing(strike) and faults.struck()["reply cut"] == 1 and faults.with_rows == {"reply cut": 1}


def test_marks_tell_who() -> None:
    """A sum of marks gives back its writers in merge order; any other number is refused."""
    for crew in values.CREWS:
        places = crew.places()
        assert len({values.mark(crew, *place) for place in places}) == len(places)
        some = places[::2]
        assert values.marked(crew, float(sum(values.mark(crew, *place) for place in some))) == some
        for wrong in (0.0, 0.5, float(1 << len(places))):
            try:
                values.marked(crew, wrong)
            except ValueError as refusal:
                assert str(wrong) in str(refusal)
            else:
                raise AssertionError(wrong)


def test_values_are_a_function_of_who_and_when() -> None:
    """The same always, and different for different writers and steps."""
    assert values.loss("a", "0", 1, 5) == values.loss("a", "0", 1, 5)
    assert len({values.loss(actor, "0", rank, step) for actor in "ab" for rank in (0, 1) for step in (0, 1)}) == 8
    assert (
        values.mean_loss("a", [("0", 0), ("0", 1)], 3)
        == (values.loss("a", "0", 0, 3) + values.loss("a", "0", 1, 3)) / 2
    )


def test_a_sidecar_that_is_stopped_before_it_could_try_again_is_in_order(tmp_path: Path) -> None:
    """One that leaves an experiment as it is after a full disk may end with 1, for that reason alone."""
    said = "rlship: /job is left as it is: cannot keep the state of /job in /job/state: database or disk is full"
    sidecars = Sidecars(tmp_path, tmp_path, {})
    for number, text in enumerate((said, "rlship: something else")):
        log, ready = tmp_path / f"sidecar-{number}.log", tmp_path / f"ready-{number}"
        # Much may be said behind it.
        end = f"echo {text} >&2; printf '%3000s' >&2; exit 1"
        script = f'trap "{end}" TERM; : > {ready}; while :; do sleep 0.05; done'
        with open(log, "wb") as err:
            process = subprocess.Popen(["/bin/sh", "-c", script], stderr=err)
        sidecars.daemons.append(Daemon(number, process, log, ""))
        wait_until(ready.exists, "the trap is set")
    (problem,) = sidecars.stop(10.0)
    assert "sidecar 1 ended with 1" in problem and sidecars.exits == [1, 1]
