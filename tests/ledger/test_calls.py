"""Calls of `ledger`, `weights` and `fingerprint` in a process: what is in the file, and what never happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlship
from rlship.logger import Logger
from tests.ledger.groups import REWARD, TOKENS, record
from tests.spec.schemas import faults
from tests.tracing import fake_torch
from tests.writer.reading import NOW, answers, logger_at, program, records, soon


def entered(folder: Path) -> list[dict[str, Any]]:
    """The `ledger` records of the only file, which are valid."""
    found = [one for one in records(folder) if one.get("kind") == "ledger"]
    assert not [faults("record", one) for one in found if faults("record", one)]
    return found


def whole(folder: Path, **more: Any) -> Logger:
    """A Logger that keeps every group."""
    logger = logger_at(folder, **more)
    logger.ledger_share = 1.0
    return logger


def test_a_call_is_one_record_at_the_implicit_step(tmp_path: Path) -> None:
    """The record has the step that `log` would have, or the one that is given, before the barrier of the step."""
    logger = whole(tmp_path)
    logger.set_step(7)
    logger.ledger("trained", "p", tokens=TOKENS, reward=REWARD)
    logger.ledger("trained", "p", step=3, n=0)
    logger.barrier(7)
    logger.close()
    first, second = entered(tmp_path)
    assert first == record("trained", "p", step=7, tokens=TOKENS, reward=REWARD) | {"t": round(NOW, 3)}
    assert (second["step"], second["n"]) == (3, 0)
    assert [one.get("kind") for one in records(tmp_path)] == ["open", "ledger", "ledger", "barrier", "close"]


def test_a_share_of_the_keys_is_kept(tmp_path: Path) -> None:
    """By default an eighth of the groups is recorded; all processes keep the same ones."""
    for rank in range(2):
        logger = logger_at(tmp_path / str(rank), rank=rank)
        for number in range(400):
            logger.ledger("trained", f"p{number}", n=1)
        logger.ledger("trained", [f"p{number}" for number in range(400)], tokens=[[number] for number in range(400)])
        logger.close()
    one, other = ([found["key"] for found in entered(tmp_path / rank)] for rank in "01")
    assert one == other
    assert 60 < len(one) < 140
    assert len(set(one)) == len(one) // 2


@pytest.mark.parametrize("share", ["1", "0", "2", "x", ""])
def test_the_share_of_the_environment(tmp_path: Path, share: str) -> None:
    """`RLSHIP_LEDGER_SHARE` sets it; what is no share is reported, and the default stays."""
    text = (
        "import rlship, sys; rlship.init(sys.argv[1], 'trainer')\nfor k in range(80): rlship.ledger('trained', k, n=1)"
    )
    done = program(text, tmp_path, env={"RLSHIP_LEDGER_SHARE": share})
    found = len(entered(tmp_path))
    expected = {"1": 80, "0": 0}.get(share)
    assert found == expected if expected is not None else 2 < found < 25
    assert ("ledger_share" in done.stderr) == (share in ("2", "x"))


def test_what_cannot_be_used_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call never raises; it is said once for each hop, and leaves a gap."""
    logger = whole(tmp_path)
    for _ in range(3):
        logger.ledger("trained", "p")
        logger.ledger("rewarded", "p", tokens=[[0.5]])
        logger.ledger("", "p", n=1)
        logger.ledger("trained", "", n=1)
        logger.ledger("trained", "p", n=1, step=-1)
        logger.ledger("trained", object(), n=1)
        logger.weights("x")
        logger.weights(-1)
    logger.ledger("trained", "p", n=2)
    logger.close()
    assert [one["n"] for one in entered(tmp_path)] == [2]
    told = [text for _, text in answers(tmp_path)]
    assert len(told) == len(set(told)) and any("n= is needed" in text for text in told)
    assert capsys.readouterr().err.count("n= is needed") == 1


def test_weights_have_the_text_of_their_fingerprint(tmp_path: Path) -> None:
    """Both sides of a sync write one text for equal weights, whatever wraps their names, and another one for others."""
    names = ("layers.0.input_layernorm.weight", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight")
    model = {f"model.{name}": np.arange(12, dtype=np.float32).reshape(3, 4) + at for at, name in enumerate(names)}
    other = {f"_orig_mod.{name}": value.copy() for name, value in reversed(model.items())}
    other["model.layers.0.self_attn.q_proj.weight"] = np.zeros((2, 2), np.float32)
    first, same = str(rlship.fingerprint(model)), str(rlship.fingerprint(other))
    other["_orig_mod.model.layers.0.mlp.down_proj.weight"][0, 1] += 1
    changed = str(rlship.fingerprint(other))
    assert first == same != changed
    assert first.rpartition(":")[0] == changed.rpartition(":")[0]
    assert str(rlship.fingerprint(model, dtype="bf16")).startswith("bfloat16:3:")
    for unknown in ({}, {"a.weight": np.zeros(2)}, {"norm.weight": np.zeros(2, np.int8)}, 17):
        assert rlship.fingerprint(unknown) == "unknown"
    logger = whole(tmp_path)
    logger.weights(42, rlship.fingerprint(model), step=3)
    logger.weights(43)
    logger.close()
    one, two = entered(tmp_path)
    assert (one["key"], one["version"], one["fingerprint"], one["step"]) == ("42", [42, 42], first, 3)
    assert "fingerprint" not in two


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for torch whose tensors on the host are arrays of numpy."""
    made = fake_torch.make()

    class Tensor(fake_torch.Tensor):
        torch = made
        ndim = 2
        dtype: Any = None

        def to(self, device: str, non_blocking: bool = False) -> Any:
            copy = super().to(device, non_blocking)
            copy.__class__ = Tensor
            return copy

        def numpy(self) -> Any:
            assert self.device.type == "cpu", "a synchronisation"
            assert not isinstance(self.value, str), "read before it was copied"
            return np.array(self.value)

        def __len__(self) -> int:
            return len(self.value)

        def __getitem__(self, place: Any) -> Any:
            return self.numpy()[place]

    made.Tensor = Tensor
    made.bfloat16 = object()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_tensors_of_a_device_are_recorded_once_they_have_arrived(tmp_path: Path, torch: Any) -> None:
    """The call starts the copies and returns; the record comes before the barrier of its step, as from the host."""
    logger = whole(tmp_path)
    padded = [[1, 2, 3, 0], [4, 5, 0, 0]]
    logger.ledger("trained", "p", tokens=torch.on_gpu(padded), lengths=[3, 2], reward=torch.on_gpu([0.5, 1.0]), step=4)
    logger.barrier(4)
    logger.log({"later": 1.0})
    soon(tmp_path, lambda found: any("m" in one for one in found))
    assert not entered(tmp_path)
    torch.cuda.streams[0].run()
    soon(tmp_path, lambda found: any(one.get("kind") == "barrier" for one in found))
    logger.close()
    (found,) = entered(tmp_path)
    assert found["d"] == record("trained", "p", tokens=[[1, 2, 3], [4, 5]], reward=[0.5, 1.0])["d"]
    kinds = [one.get("kind") for one in records(tmp_path)]
    assert kinds.index("ledger") < kinds.index("barrier")
    assert torch.synchronisations == 0


def test_a_range_of_versions_stays_one_beside_tensors_of_a_device(tmp_path: Path, torch: Any) -> None:
    """A tuple (least, greatest) is that of all samples, also where the record is made once tensors have arrived."""
    logger = whole(tmp_path)
    logger.ledger("trained", "p", reward=torch.on_gpu([0.5, 1.0, 0.0]), version=(3, 5), step=4)
    torch.cuda.streams[0].run()
    logger.close()
    (found,) = entered(tmp_path)
    assert (found["n"], found["version"]) == (3, [3, 5])


def test_what_would_wait_for_a_device_is_left_out(tmp_path: Path, torch: Any) -> None:
    """Other devices, and too much at once, are reported, and not read."""
    logger = whole(tmp_path)
    logger.ledger("trained", "p", tokens=torch.Tensor([[1]], "mps"))
    logger.ledger("rewarded", "p", tokens=torch.on_gpu([list(range(1000))] * 3000), reward=[1.0] * 3000)
    torch.cuda.capturing = True
    logger.ledger("buffered", "p", tokens=torch.on_gpu([[1]]))
    torch.cuda.capturing = False
    logger.close()
    assert not entered(tmp_path)
    told = " ".join(text for _, text in answers(tmp_path))
    assert "without waiting for the device" in told and "CUDA graph" in told
    assert torch.synchronisations == 0


def test_disabled_calls_do_nothing(tmp_path: Path) -> None:
    """With RLSHIP_DISABLE, or before `init`, no call raises."""
    text = "import rlship; rlship.ledger('trained', 'p', n=1); rlship.weights(1)"
    assert program(text, tmp_path, env={"RLSHIP_DISABLE": "1"}).stderr == ""


def test_a_job_without_a_ledger_imports_nothing_of_it(tmp_path: Path) -> None:
    """`import rlship` leaves the ledger's modules alone, and so does a job that logs."""
    text = "import sys, rlship, json; print(json.dumps([name for name in sys.modules if 'ledgers' in name]))"
    assert json.loads(program(text, tmp_path).stdout) == []
