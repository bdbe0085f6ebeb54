"""What the demo prints while the job learns."""

from __future__ import annotations

from pathlib import Path

from rlship_sidecar.demo.learning import LearningReport
from rlship_sidecar.rows import Coverage, Row, Unit


def line(step: int, reward: float, actor: str = "trainer") -> bytes:
    """A row as the jsonl sink writes it."""
    unit = Unit(actor, "step", step)
    return Row(unit, 1763600000.0, {"global_step": step}, {f"{actor}/reward": reward}, Coverage(("0.0",), 1)).to_json()


def test_each_tenth_is_printed_once_when_its_rows_are_there(tmp_path: Path) -> None:
    """Nothing before the sink has its file; then a line for each tenth of the steps, with the mean reward of these."""
    said: list[str] = []
    rows = tmp_path / "rows.jsonl"
    look = LearningReport(rows, 20, said.append)
    look()
    assert said == []

    rows.write_bytes(line(0, 0.25) + b"\n" + line(0, 0.9, "generator") + b"\n" + line(1, 0.75)[:-9])
    look()
    assert said == []

    rows.write_bytes(line(0, 0.25) + b"\n" + line(0, 0.9, "generator") + b"\n" + line(1, 0.75) + b"\n")
    look()
    look()
    assert said == [f"  step    2 of 20   trainer/reward 0.50  {'█' * 20}"]

    with rows.open("ab") as file:
        file.write(b"".join(line(step, 1.0) + b"\n" for step in range(2, 20)))
    look()
    look()
    assert len(said) == 10 and said[-1] == f"  step   20 of 20   trainer/reward 1.00  {'█' * 40}"
