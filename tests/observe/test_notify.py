"""systemd's protocol, with a socket that plays systemd."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.observe.notify import Notifier, from_environment


@pytest.fixture(params=["path", "abstract"])
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket, and the address as NOTIFY_SOCKET has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        if request.param == "path":
            address = f"/tmp/rlship-{os.getpid()}-{tmp_path.name}.sock"
            here.bind(address)
        else:
            address = f"@rlship/{os.getpid()}/{tmp_path.name}"
            here.bind("\0" + address[1:])
        here.settimeout(5.0)
        yield here, address
        if request.param == "path":
            os.unlink(address)


def test_what_is_said_arrives(played: tuple[socket.socket, str]) -> None:
    """Each thing said is a datagram, at a path as at an abstract address; the same status is not said twice."""
    here, address = played
    notifier = from_environment({"NOTIFY_SOCKET": address})
    notifier.ready()
    notifier.status("step 1204, 64/64 ranks, lag 0.8 s")
    notifier.status("step 1204, 64/64 ranks, lag 0.8 s")
    notifier.stopping()
    said = [here.recv(1024).decode() for _ in range(3)]
    assert said == ["READY=1", "STATUS=step 1204, 64/64 ranks, lag 0.8 s", "STOPPING=1"]


def test_the_variables_are_for_this_process_only() -> None:
    """They are gone afterwards, so that no child tells systemd that it is ready."""
    env = {"NOTIFY_SOCKET": "@absent", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "HOME": "/x"}
    from_environment(env)
    assert env == {"HOME": "/x"}


def test_signs_of_life_come_three_times_in_the_time_of_one() -> None:
    """With a watchdog of 3 s a loop that goes round all the time tells once a second, and at once the first time."""
    said: list[str] = []

    def send(text: str, wait_s: float = 0.0) -> bool:
        said.append(text)
        return True

    notifier = Notifier(send, 3.0)
    for tenth in range(31):
        notifier.alive(100.0 + tenth / 10)
    assert said == ["WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid() + 1)}, 0),
        ({"WATCHDOG_USEC": "0"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({}, 0),
    ],
)
def test_whose_watchdog_it_is(variables: dict[str, str], expected: int, played: tuple[socket.socket, str]) -> None:
    """Signs of life are sent if an interval is given, and to this process."""
    here, address = played
    from_environment({"NOTIFY_SOCKET": address, **variables}).alive(0.0)
    here.setblocking(False)
    said = []
    try:
        while True:
            said.append(here.recv(64))
    except BlockingIOError:
        pass
    assert said == [b"WATCHDOG=1"] * expected


@pytest.mark.parametrize("address", ["", "@no-listener-here", "/nowhere/at/all", "vsock:2:1234", "relative", "/" * 300])
def test_a_socket_that_is_not_there_is_like_none(address: str) -> None:
    """Nothing is raised into the work."""
    notifier = from_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"})
    notifier.ready()
    notifier.alive(1.0)


def test_what_finds_no_room_is_said_again() -> None:
    """A status or a sign of life that could not be sent is tried at the next occasion, not held for said."""
    said: list[str] = []
    room = [False, False, True, True]

    def send(text: str, wait_s: float = 0.0) -> bool:
        said.append(text)
        return room.pop(0)

    notifier = Notifier(send, 3.0)
    for _ in range(2):
        notifier.status("a")
        notifier.alive(0.0)
    notifier.status("a")
    notifier.alive(0.5)
    assert said == ["STATUS=a", "WATCHDOG=1"] * 2


def test_ready_waits_for_room(played: tuple[socket.socket, str]) -> None:
    """With a socket that is full, READY=1 goes out once there is room."""
    here, address = played
    notifier = from_environment({"NOTIFY_SOCKET": address})
    sent = 0
    while sent < 1000 and notifier._send(f"STATUS={sent}"):
        sent += 1
    ready = threading.Thread(target=notifier.ready)
    ready.start()
    received = [here.recv(64).decode() for _ in range(sent + 1)]
    ready.join()
    assert received[-1] == "READY=1"
