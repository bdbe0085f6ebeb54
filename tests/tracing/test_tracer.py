"""Tracer: a stretch of work in steps, and calls out of order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.writer.reading import files, program, whole


def spans(folder: Path) -> list[dict[str, Any]]:
    (path,) = files(folder)
    return [record for record in map(json.loads, whole(path)) if record.get("kind") == "span"]


def test_steps_and_the_whole(tmp_path: Path) -> None:
    """Each step is timed from the one before, the whole from start to stop, again and again."""
    program(
        """
import sys, time, rlship
rlship.init(sys.argv[1], "trainer")
rlship.set_step(3)
tracer = rlship.Tracer("train")
for _ in range(2):
    tracer.start()
    time.sleep(0.02)
    tracer.step("fetch")
    tracer.step("forward")
    time.sleep(0.01)
    tracer.stop()
""",
        tmp_path,
    )
    found = spans(tmp_path)
    assert [span["name"] for span in found] == ["train/fetch", "train/forward", "train"] * 2
    assert {span["step"] for span in found} == {3}
    fetch, forward, whole_one = found[:3]
    assert fetch["dur"] >= 0.02 > 0.01 > forward["dur"]
    assert whole_one["dur"] >= 0.03
    assert whole_one["t"] <= fetch["t"] <= forward["t"]


def test_as_a_context_manager(tmp_path: Path) -> None:
    """It starts and stops itself, and names the exception that ended it."""
    program(
        """
import sys, rlship
rlship.init(sys.argv[1], "trainer")
try:
    with rlship.Tracer("train") as tracer:
        tracer.step("a")
        raise ValueError
except ValueError:
    pass
""",
        tmp_path,
    )
    assert [(span["name"], span.get("err")) for span in spans(tmp_path)] == [("train/a", None), ("train", "ValueError")]


def test_calls_out_of_order_are_said_once_and_do_no_harm(tmp_path: Path) -> None:
    """step and stop before start are left out; a second start begins anew; each object says one thing."""
    done = program(
        """
import sys, rlship
rlship.init(sys.argv[1], "trainer")
early = rlship.Tracer("early")
for _ in range(3): early.step("x")
late = rlship.Tracer("late")
for _ in range(3): late.stop()
twice = rlship.Tracer("twice")
twice.start(); twice.step("a"); twice.start(); twice.step("b"); twice.stop(); twice.stop()
""",
        tmp_path,
    )
    assert [span["name"] for span in spans(tmp_path)] == ["twice/a", "twice/b", "twice"]
    said = [line for line in done.stderr.splitlines() if "span(" in line]
    assert [line.partition(": ")[2].partition(": ")[0] for line in said] == [
        "span('early')",
        "span('late')",
        "span('twice')",
    ]


def test_on_the_gpu_and_with_memory(tmp_path: Path) -> None:
    """Steps and the whole take the GPU's time, and the whole its memory, without a synchronisation."""
    program(
        """
import sys, rlship
from tests.tracing import fake_torch
torch = sys.modules["torch"] = fake_torch.make()
rlship.init(sys.argv[1], "trainer")
tracer = rlship.Tracer("train", timer="gpu", memory=True)
tracer.start()
torch.clock_ms += 5.0
tracer.step("a")
torch.clock_ms += 2.0
tracer.stop()
torch.cuda.streams[0].run()
rlship.close()
assert torch.synchronisations == 0
""",
        tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert [(span["name"], span["dur"], span["lane"]) for span in spans(tmp_path)] == [
        ("train/a", 0.005, "main (gpu)"),
        ("train", 0.007, "main (gpu)"),
    ]
    (path,) = files(tmp_path)
    assert "train/mem_peak_bytes" in path.read_text()
    assert "train/a/mem" not in path.read_text()


def test_disabled_or_early_it_does_nothing(tmp_path: Path) -> None:
    """Without `init` and with RLSHIP_DISABLE=1 every call is a no-op."""
    source = """
import rlship
with rlship.Tracer("t", timer="gpu", memory=True) as tracer: tracer.step("a")
"""
    program(source, tmp_path)
    assert program(source, tmp_path, env={"RLSHIP_DISABLE": "1"}).stderr == ""
    assert list(tmp_path.iterdir()) == []
