"""States and episodes as bytes, for the store. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rlship_sidecar.alerts.episodes import Course, Episode, Moment, RuleState

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


def pack_state(state: RuleState) -> bytes:
    """A rule's state. Equal states have equal bytes."""
    return _encode(state)


def unpack_state(data: bytes) -> RuleState:
    """The inverse of `pack_state`."""
    signals, course, places = _tuples(_decode(data))
    return RuleState(signals, _course(course), tuple(map(_course, places)))


def _course(fields: tuple[Any, ...]) -> Course:
    made = Course(*fields)
    return made._replace(first=Moment(*made.first), fired=Moment(*made.fired), last=Moment(*made.last))


def pack_episodes(episodes: Sequence[Episode]) -> bytes:
    """Episodes, as they were found in one piece of a lineage."""
    return _encode(
        [
            (
                *(one.rule, one.severity, one.state, one.place, one.lineage),
                *(one.first, one.fired, one.last, one.ended, one.evidence, one.apart),
            )
            for one in episodes
        ]
    )


def unpack_episodes(data: bytes) -> tuple[Episode, ...]:
    """The inverse of `pack_episodes`."""
    found = []
    for rule, severity, state, place, lineage, first, fired, last, ended, evidence, apart in _tuples(_decode(data)):
        moments = Moment(*first), Moment(*fired), Moment(*last), None if ended is None else Moment(*ended)
        found.append(Episode(rule, severity, state, place, lineage, *moments, evidence, apart))
    return tuple(found)


def _tuples(value: Any) -> Any:
    return tuple([_tuples(one) for one in value]) if type(value) is list else value
