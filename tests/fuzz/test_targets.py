"""A short run of what `make fuzz` does for long: seeds, and seeds that were cut, joined and changed in places."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import __main__ as fuzzing
from tests.fuzz.targets import Target, targets
from tests.kit.cases import few

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


@pytest.mark.statistical
@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_do_nothing_that_must_not_be(name: str) -> None:
    """Whatever the text, it is read to its end without an exception, the same by pieces and at once."""
    target = TARGETS[name]
    _play_many(target)


def _play_many(target: Target) -> None:
    @settings(max_examples=few(150), deadline=None)
    @given(mutations(target.seeds))
    def play(text: bytes) -> None:
        target.play(text)

    play()


def test_the_command_fuzzes_what_is_named_and_fails_if_an_input_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m tests.fuzz`, with a fuzzer that finds something in one target: a line for each, and exit code 1."""
    kept = tmp_path / "kept"

    def fuzz(target: Target, runs: int, seed: int, folder: Path) -> fuzzing.Found:
        assert (runs, seed, folder) == (7, 3, kept) and folder.is_dir()
        return fuzzing.Found(runs, 1, 2, 3, "crash" if target.name == "roll" else "")

    monkeypatch.setattr(fuzzing, "fuzz", fuzz)
    for names, code in ((["decoder"], 0), (["decoder", "roll"], 1)):
        monkeypatch.setattr(sys, "argv", ["fuzz", "--runs", "7", "--seed", "3", "--kept", str(kept), *names])
        assert fuzzing.main() == code
        out, err = capsys.readouterr()
        assert [line.split(" | ")[0] for line in out.splitlines()[2:]] == [f"| {name}" for name in names]
        assert err.split() == ["crash"] * code
