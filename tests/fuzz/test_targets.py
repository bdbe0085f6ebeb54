"""A short run of what `make fuzz` does for long: seeds, and seeds that were cut, joined and changed in places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import Target, targets

TARGETS = {target.name: target for target in targets()}
_TOKENS = (
    *(b"\n", b'"', b"{", b"}", b"[", b",", b"NaN", b"1e999", b"-0", b"null", b'"step":', b"\\ud800", b"\xff"),
    b"0" * 20,
)


@st.composite
def mutations(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A seed, or the beginning of one and the end of another, with some bytes replaced."""
    one, other = draw(st.sampled_from(seeds)), draw(st.sampled_from(seeds))
    text = bytearray(one[: draw(st.integers(0, len(one)))] + other[draw(st.integers(0, len(other))) :])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 8))] = draw(st.sampled_from(_TOKENS) | st.binary(max_size=4))
    return bytes(text)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(name: str) -> None:
    """Each target takes all of its seeds, and there are some."""
    target = TARGETS[name]
    assert target.seeds
    for seed in target.seeds:
        target.play(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_do_nothing_that_must_not_be(name: str) -> None:
    """Whatever the text, it is read to its end without an exception, the same by pieces and at once."""
    target = TARGETS[name]
    _play_many(target)


def _play_many(target: Target) -> None:
    @settings(max_examples=150, deadline=None)
    @given(mutations(target.seeds))
    def play(text: bytes) -> None:
        target.play(text)

    play()
