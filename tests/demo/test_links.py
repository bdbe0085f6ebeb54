"""The job's own messages arrive whole, and the end of a peer is noticed."""

from __future__ import annotations

import socket

import pytest

from rlship_sidecar.demo.links import PeerGoneError, PeerLink, waiting


def pair() -> tuple[PeerLink, PeerLink]:
    """Two linked ends; each calls the other by its name."""
    one, other = socket.socketpair()
    return PeerLink("right", one), PeerLink("left", other)


def test_messages_arrive_whole_and_in_order() -> None:
    """Floats come back equal by bits."""
    left, right = pair()
    left.send({"weights": [0.1, 1e-300, -0.0]})
    left.send({"step": 1})

    assert right.receive() == {"weights": [0.1, 1e-300, -0.0]}
    assert right.receive() == {"step": 1}
    left.close()
    right.close()


def test_the_end_of_a_peer_is_named() -> None:
    """Receiving from, and sending to, a process that has ended names it."""
    left, right = pair()
    right.close()

    with pytest.raises(PeerGoneError, match="right has ended"):
        left.receive()
    with pytest.raises(PeerGoneError, match="right has ended"):
        left.send({})
    left.close()


def test_a_torn_message_is_the_end_of_the_peer() -> None:
    """A process that dies in the middle of a message has said nothing."""
    one, other = socket.socketpair()
    one.sendall(b'{"step":')
    one.close()
    link = PeerLink("trainer-1", other)

    with pytest.raises(PeerGoneError, match="trainer-1 has ended"):
        link.receive()
    link.close()


def test_waiting_returns_the_links_with_messages() -> None:
    """Only links over which something came are returned."""
    quiet, quiet_end = pair()
    busy, busy_end = pair()
    busy_end.send({"step": 0})

    assert waiting([quiet, busy]) == [busy]
    for link in (quiet, quiet_end, busy, busy_end):
        link.close()
