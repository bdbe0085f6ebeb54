"""The probes and the metrics over HTTP, on loopback."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.observe import server
from rlship_sidecar.observe.pulse import STALLED_S, LoopSnapshot, Pulse
from rlship_sidecar.tally import Tally
from tests.cli.sample import a_status
from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until


@pytest.fixture
def clock() -> Clock:
    """The loop's clock."""
    return Clock()


@pytest.fixture
def pulse(clock: Clock) -> Pulse:
    """A loop that has reported one experiment."""
    pulse = Pulse(clock=clock)
    pulse.beat()
    pulse.report(LoopSnapshot([a_status()], [Tally()]))
    return pulse


@pytest.fixture
def port(pulse: Pulse) -> Iterator[int]:
    """The port of a server that answers for it."""
    with server.serving("127.0.0.1", 0, pulse) as port:
        yield port


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def test_what_is_answered(port: int) -> None:
    """The metrics in the form that is asked for, the probes in a word, and what there is for anything else."""
    status, content_type, body = ask(port, "/metrics")
    assert (status, content_type[:10]) == (200, "text/plain") and "\nrlship_up 1.0\n" in body
    status, content_type, body = ask(port, "/metrics?x=1", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, content_type[:28]) == (200, "application/openmetrics-text") and body.endswith("# EOF\n")
    assert ask(port, "/healthz")[::2] == (200, "ok\n")
    assert ask(port, "/readyz")[::2] == (200, "ok\n")
    assert ask(port, "/healthz", "HEAD")[::2] == (200, "")
    assert ask(port, "/")[::2] == (404, "there are /metrics, /healthz and /readyz\n")
    assert ask(port, "/metrics", "POST")[0] == 501


def test_probes_say_what_is_wrong(port: int, pulse: Pulse, clock: Clock) -> None:
    """A loop that stands is unhealthy though it was ready; one that stops is not ready though it is healthy."""
    clock.now += STALLED_S + 30
    assert ask(port, "/healthz")[::2] == (503, "the loop last completed a round 150 s ago; 120 s are allowed\n")
    pulse.beat()
    pulse.stopping()
    assert ask(port, "/healthz")[::2] == (200, "ok\n")
    assert ask(port, "/readyz")[::2] == (503, "stopping\n")


def test_it_answers_this_machine_only(port: int) -> None:
    """On the default address nothing is heard on another one."""
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", port)) != 0


def test_ipv6_is_an_address_too(pulse: Pulse) -> None:
    """An address with colons is one of IPv6."""
    with server.serving("::1", 0, pulse) as port:
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def silent(port: int, count: int) -> list[socket.socket]:
    """Clients that begin a request."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
    for client in clients:
        client.sendall(b"GET /heal")
    return clients


def test_clients_that_say_nothing_do_not_stay(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent or trickling client is cut in time."""
    monkeypatch.setattr(server, "MAX_REQUEST_S", 0.3)
    with server.serving("127.0.0.1", 0, pulse) as port:
        for client in silent(port, 2):
            assert client.recv(1) == b""
            client.close()


def test_clients_that_say_nothing_keep_no_probe_out(port: int) -> None:
    """However many there are, and though they come again, each probe is answered: the oldest of them is cut for it."""
    clients = []
    for _ in range(20):
        clients += silent(port, server.MAX_AT_ONCE)
        assert ask(port, "/healthz")[0] == 200
    assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) < 3 * server.MAX_THREADS
    for client in clients:
        client.close()


def test_it_outlives_a_lack_of_threads(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients for which no thread can be started are turned away, and take no place from later ones."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as lacking:
        lacking.setattr(threading.Thread, "start", start)
        for _ in range(2 * server.MAX_THREADS):
            with pytest.raises(OSError):
                ask(port, "/healthz")
    assert ask(port, "/healthz")[0] == 200


def test_a_lack_of_descriptors_costs_no_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that cannot be taken is tried a few times a second, not without end."""
    tried = []

    def accept(taken: socket.socket) -> tuple[socket.socket, object]:
        tried.append(taken)
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as lacking:
        lacking.setattr(socket.socket, "accept", accept)
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        time.sleep(0.5)
    assert 0 < len(tried) < 20
    client.close()
    assert ask(port, "/healthz")[0] == 200


def test_nothing_is_left_running(pulse: Pulse) -> None:
    """At the end the port is free and the thread is gone."""
    before = threading.active_count()
    with server.serving("127.0.0.1", 0, pulse) as port:
        assert ask(port, "/healthz")[0] == 200
    wait_until(lambda: threading.active_count() <= before, threading.enumerate)
    with server.serving("127.0.0.1", port, pulse):
        pass


def test_a_port_that_is_taken_is_named(port: int, pulse: Pulse) -> None:
    """The error names address, port and reason, and two ways out."""
    with (
        pytest.raises(RlshipError, match=f"cannot answer on 127.0.0.1 port {port}: Address already in use") as raised,
        server.serving("127.0.0.1", port, pulse),
    ):
        pass
    assert "--metrics-port 0" in raised.value.hint and "--metrics-file" in raised.value.hint
