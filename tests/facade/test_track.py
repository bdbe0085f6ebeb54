"""The file of one axis: its lines as they are on disk, and when a step ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship.facade.track import Track
from rlship.identity import Identity
from tests.kit.waiting import wait_until
from tests.writer.reading import files, whole

T0 = 1763600000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.t = T0

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def track(tmp_path: Path, clock: Clock) -> Iterator[Track]:
    identity = Identity("trainer", "0", 0, None, 0, "none", "n1")
    made = Track(
        str(tmp_path), identity, axis="s", labels={"source": "wandb"}, opened=T0 - 1.5, quiet_s=60.0, clock=clock
    )
    yield made
    made.close()


def lines(folder: Path) -> list[str]:
    (path,) = files(folder)
    return whole(path)


def test_the_lines_of_a_track(tmp_path: Path, track: Track, clock: Clock) -> None:
    """The file begins when the run began. Lines without a step are so on purpose, and have microseconds, as barriers
    have: the time decides to which step they belong. A barrier has the time of the last call at its step.
    """
    track.declare({"loss": {"reduce": ["last"]}})
    track.put({"free": 1.5}, None, T0 + 0.000123)
    track.put({"loss": 0.5}, 1, T0 + 0.25)
    track.put({"loss": 0.25}, 1, T0 + 0.500001)
    track.put({"free": 2}, None, T0 + 0.500002)
    track.tell("texts", {"a": "b"}, None, T0 + 0.6)
    track.tell("texts", {"a": "b"}, 1, T0 + 0.4)
    clock.t = T0 + 1
    track.put({"loss": 1}, 2, T0 + 1)
    track.put({"late": 1}, 1, T0 + 1.25)
    clock.t = T0 + 2
    track.close()
    opened, *rest = lines(tmp_path)
    assert '"t":1763599998.5,' in opened
    assert '"axis":"s"' in opened
    assert [line for line in rest if not line.startswith('{"kind":"run"')] == [
        '{"kind":"define","m":{"loss":{"reduce":"last"}}}',
        '{"stream":true,"t":1763600000.000123,"m":{"free":1.5}}',
        '{"t":1763600000.250,"step":1,"m":{"loss":0.5}}',
        '{"t":1763600000.500,"step":1,"m":{"loss":0.25}}',
        '{"stream":true,"t":1763600000.500002,"m":{"free":2}}',
        '{"kind":"event","t":1763600000.600000,"stream":true,"name":"texts","attrs":{"a":"b"}}',
        '{"kind":"event","t":1763600000.400000,"step":1,"name":"texts","attrs":{"a":"b"}}',
        '{"kind":"barrier","step":1,"t":1763600000.500001}',
        '{"t":1763600001.000,"step":2,"m":{"loss":1}}',
        '{"t":1763600001.250,"step":1,"m":{"late":1}}',
        '{"kind":"barrier","step":2,"t":1763600001.000000}',
        '{"kind":"close","t":1763600002.000,"reason":"exit"}',
    ]


def test_samples_of_a_track(tmp_path: Path, track: Track) -> None:
    """A sample without a step is so on purpose; the budget of a step holds here too."""
    track.offer("t", {"a": 1}, "0.5", None, T0 + 0.000001)
    for _ in range(30):
        track.offer("t", {"a": "x" * 100_000}, None, 3, T0)
    track.put({}, 4, T0)
    track.close()
    found = lines(tmp_path)
    (free,) = [line for line in found if '"stream"' in line]
    assert free.startswith('{"kind":"sample","t":1763600000.000001,"stream":true,"table":"t","score":0.5,"pri":')
    kept = sum('"kind":"sample"' in line for line in found) - 1
    (dropped,) = [line for line in found if "samples_dropped" in line]
    assert f'"n":{30 - kept}' in dropped
    assert kept < 30


def test_lines_without_a_step_fit(tmp_path: Path, track: Track) -> None:
    """What is cut to the longest line is still no longer with its mark."""
    track.put({"array": [0.1 + i for i in range(200_000)]}, None, T0)
    track.offer("t", {"text": "y" * (2 << 20)}, None, None, T0)
    track.tell("texts", {"text": "é" * (1 << 20)}, None, T0)
    track.close()
    found = [line for line in lines(tmp_path) if '"stream"' in line]
    assert len(found) > 3
    assert max(len(line.encode()) for line in found) < 1 << 20


def test_a_step_ends_once_it_is_quiet(tmp_path: Path, track: Track) -> None:
    """The writing thread ends a step `quiet_s` after its last call; a later call at it is a late one."""
    track._quiet_s = 0.05
    begun = time.monotonic()
    track.put({"a": 1}, 7, T0)
    wait_until(lambda: bool(files(tmp_path)) and any('"barrier"' in line for line in lines(tmp_path)))
    assert time.monotonic() - begun >= 0.05
    track.put({"b": 1}, 7, T0 + 5)
    track.close()
    assert [line for line in lines(tmp_path) if '"barrier"' in line] == [
        '{"kind":"barrier","step":7,"t":1763600000.000000}'
    ]


def test_another_declaration_is_no_misuse(tmp_path: Path, track: Track) -> None:
    """A metric that is logged in another way than before is declared anew, and nothing is reported about it."""
    track.declare({"x": {"reduce": ["last"]}})
    track.put({"x": 1}, 0, T0)
    track.declare({"x": {"reduce": ["mean", "max"]}})
    track.put({"x": 1}, None, T0 + 1)
    track.close()
    found = lines(tmp_path)
    assert sum('"kind":"define"' in line for line in found) == 2
    assert not [line for line in found if "rlship_error" in line]


def test_a_track_that_was_closed_takes_nothing(tmp_path: Path, track: Track) -> None:
    """Calls after the end do nothing, and closing twice writes nothing twice."""
    ended: list[int] = []
    track.before_close = lambda: ended.append(1)
    track.put({"a": 1}, 0, T0)
    track.close()
    before = lines(tmp_path)
    track.put({"a": 2}, 1, T0)
    track.tell("x", {}, None, T0)
    track.close()
    assert lines(tmp_path) == before
    assert ended == [1]
