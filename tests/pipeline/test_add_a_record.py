"""What CONTRIBUTING.md says is all that a new kind of record takes: its code is run as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlship_formats import reading
from rlship_formats.reading import DeadLetter, FileReader, Unknown
from rlship_sidecar.checking.file import FileCheck
from rlship_sidecar.decode import decoder
from rlship_sidecar.export.reading import entries, files_of
from rlship_sidecar.sinks.observing import FilePlace, observation
from tests.contributing.page import code_below
from tests.pipeline.simulated import simulation

READER, TAKER = code_below("Add a kind of record")

T = 1763600000.0
OPEN = b'{"kind":"open","rlship":1,"id":"0123456789abcdef","actor":"trainer","t":1763600000.0}'
NOTE = b'{"kind":"note","t":1763600005.0,"text":"the learning rate is halved"}'
BAD = b'{"kind":"note","t":1763600900.0,"text":7}'
VALUE = b'{"m":{"x":1}}'


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The code of the page, run in the modules that it names; they are as before afterwards."""
    monkeypatch.setattr(reading, "READERS", dict(reading.READERS))
    monkeypatch.setattr(decoder, "TAKERS", dict(decoder.TAKERS))
    names = dict(vars(reading))
    exec(READER, names)
    exec(TAKER, {**vars(decoder), "Note": names["Note"]})
    yield names


def test_a_kind_that_is_not_added_is_ignored() -> None:
    """Without the page's code the line is of an unknown kind, and hands no time on."""
    reader = FileReader()
    assert [type(reader.read(line)) for line in (OPEN, NOTE, BAD)][1:] == [Unknown, Unknown]
    assert reader.t == T


def test_a_kind_that_is_added_is_read(added: dict[str, Any]) -> None:
    """The record is read as its class says and hands its time on; one that cannot be used is a dead letter."""
    reader = FileReader()
    reader.read(OPEN)
    assert reader.read(NOTE) == added["Note"](T + 5, "the learning rate is halved")
    assert reader.read(BAD) == DeadLetter("bad note", "text")
    assert reader.t == T + 5


def test_everything_that_reads_files_knows_it(added: dict[str, Any]) -> None:
    """The pipeline counts it, and has the bad one as a dead letter; exports, observations and `check` read the same."""
    with simulation() as running:
        running.write("a.jsonl", b"".join(line + b"\n" for line in (OPEN, NOTE, NOTE, BAD, VALUE)))
        running.finish()
        assert running.store.counts() == {"notes": 2}
        assert [(reason, metric) for _, _, reason, metric in running.dead()] == [("bad note", None)]
        assert {row.t for row in running.rows()} == {T + 5}
        with files_of(running.directory) as files:
            (file,) = files
            assert [(entry.kind, entry.t) for entry in entries(file)] == [("metrics", T + 5)]
            assert file.unusable == {"bad note": 1}
    place = FilePlace()
    found = [observation(place, line) for line in (OPEN, NOTE, BAD, VALUE)]
    assert found[:3] == [None, None, None] and found[3] is not None and place.t == T + 5
    check = FileCheck()
    said = [finding for at, line in enumerate((OPEN, NOTE, BAD)) for finding in check.line(line, at)]
    assert [(finding.what, finding.why) for finding in said if finding.line > 1] == [("bad note", "`text` is 7")]
