"""Many documents with one history: what is done once for each, however often their lines are read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlship_formats.foreign.trainer_state import READER
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.pipeline import rereading
from tests.foreign.made_up import reading
from tests.foreign.test_trainer_state import history
from tests.pipeline.simulated import Simulation, simulation

CHECKPOINTS, EACH = 30, 10


def checkpoints(sim: Simulation, first: int, end: int) -> None:
    for number in range(first, end):
        folder = sim.directory / f"checkpoint-{number * EACH}"
        folder.mkdir()
        state = {"global_step": number * EACH, "log_history": history(number * EACH)}
        (folder / "trainer_state.json").write_text(json.dumps(state))


def test_each_document_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps than are kept, in 30 checkpoints, and one more checkpoint that makes all of them dirty: none of the
    documents is parsed a second time, and of those that are read again only lines that may be wanted are decoded.
    """
    parsed: list[int] = []
    decoded: list[tuple[int, int]] = []

    def lines(text: bytes) -> Sequence[bytes]:
        assert READER.lines is not None
        parsed.append(len(text))
        return READER.lines(text)

    class Counting(Decoder):
        def decode(self, lines: Sequence[bytes], offsets: Sequence[int], **how: int) -> Batch:
            batch = super().decode(lines, offsets, **how)
            decoded.append((len(lines), len(batch.lines)))
            return batch

    monkeypatch.setattr(rereading, "Decoder", Counting)
    with reading(replace(READER, lines=lines)), simulation() as sim:
        sim.restart()
        checkpoints(sim, 1, CHECKPOINTS)
        sim.wait(20.0)
        sim.tick()
        sim.wait(20.0)
        sim.tick()
        checkpoints(sim, CHECKPOINTS, CHECKPOINTS + 1)
        for _ in range(10):
            sim.wait(20.0)
            sim.tick()
        sim.finish()
        assert len(sim.final()) == CHECKPOINTS * EACH
        assert sorted(set(parsed)) == sorted(parsed)
        assert len(parsed) == CHECKPOINTS
        assert decoded
        all_lines, wanted = (sum(column) for column in zip(*decoded))
        assert all_lines < 2 * wanted + CHECKPOINTS * len(decoded)
