"""Wrong use: one helpful answer to each thing, on stderr once, counted, and once in the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlship
import rlship.logger
from rlship import Reduce
from tests.writer.reading import answers, logger_at, metrics, records, soon


def test_reductions_that_two_places_ask_for_differently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both calls' reductions and places in the code are named, with what becomes of them; asking alike is silent."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.record_metric("same", 1.0, Reduce.SUM)
        logger.define("same", "sum")
        logger.record_metric("mixed", 1.0, Reduce.MEAN)
        logger.record_metric("mixed", 1.0, "max")
        logger.define("replaced", ["min", "mean"])
        logger.define({"replaced": "last"})
        logger.define("unit", unit="s")
        logger.record_metric("unit", 1.0, "sum")
    logger.close()
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    place = r"test_misuse.py:"
    assert "'mixed' is declared twice differently: mean by record_metric at " + place in told[0]
    assert ", mean and max after record_metric at " + place in told[0]
    assert "both are kept, 'mixed' is the mean and mixed/max beside it" in told[0]
    assert "'replaced' is declared twice differently: min and mean by define at " + place in told[1]
    assert ", last after define at " + place in told[1]
    assert "from here on the later one holds" in told[1]
    assert [where for where, _ in answers(tmp_path)] == ["record_metric", "define"]
    assert logger.stream.notices.counts["reductions replaced"] == 3


@pytest.mark.parametrize("weight", [-1.0, -1, math.nan, math.inf, 10**400, [-1.0], "heavy"])
def test_a_weight_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], weight: Any) -> None:
    """The value is left out rather than counted wrongly, in log and in record_metric."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"loss": 1.5}, weight=weight)
        logger.record_metric("reward", 1.5, weight=weight)
    assert logger.dropped_values == 4
    logger.close()
    told = capsys.readouterr().err
    for name in ("loss", "reward"):
        assert told.count(f"{name!r} is left out: the weight ") == 1
    assert [where for where, _ in answers(tmp_path)] == ["value", "value"]
    assert not any(record["m"] for record in metrics(records(tmp_path)))


def test_wrong_use_amid_quick_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that take record_metric's quick way for plain numbers hear the same of what is wrong with them."""
    slow: list[Any] = []

    def counted(*args: Any) -> None:
        slow.append(args[2:])
        record(*args)

    record = rlship.logger.Logger._record
    monkeypatch.setattr(rlship.logger.Logger, "_record", counted)
    logger = logger_at(tmp_path)
    logger.set_step(1)
    logger.record_metric("a", 1.0, Reduce.SUM)
    slow.clear()
    logger.record_metric("a", 2.0, Reduce.SUM)
    logger.record_metric("a", 3)
    logger.record_metric("a", 4.0, weight=2)
    assert slow == []
    wrong: list[tuple[Any, ...]] = [
        ("x" * 1001, 1.0),
        ("", 1.0),
        ("a", 1.0, Reduce.SUM, -1.0),
        ("a", 1.0, None, 10**400),
        ("a", "yes"),
        ("b", 10**400),
        ("b", 5.0, "average"),
    ]
    for call in wrong * 2:
        logger.record_metric(*call)
    logger.record_metric("a", 6.0, Reduce.MAX)
    assert len(slow) == 2 * len(wrong) + 1
    logger.record_metric("a", 7.0, Reduce.MAX)
    logger.define("a", Reduce.MIN)
    logger.record_metric("a", 8.0, Reduce.MAX)
    assert len(slow) == 2 * len(wrong) + 2
    logger.set_step(0)
    assert logger.dropped_values == 12
    logger.close()
    told = capsys.readouterr().err
    assert told.count("\n") == 8
    texts = dict(answers(tmp_path))
    assert [where for where, _ in answers(tmp_path)] == [*["value"] * 5, "record_metric", "record_metric", "set_step"]
    assert "set_step(0) goes back behind set_step(1)" in texts["set_step"]
    found = records(tmp_path)
    assert [record["m"] for record in found if record.get("kind") == "define"] == [
        {"a": {"reduce": "sum"}},
        {"a": {"reduce": ["sum", "max"]}},
        {"a": {"reduce": "min"}},
        {"a": {"reduce": ["min", "max"]}},
    ]
    observed = [record["m"] for record in metrics(found)]
    seen: list[float] = []
    for m in observed:
        value = m["a"]
        seen += value["v"] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    assert seen == [1.0, 2.0, 3, 4.0, 6.0, 7.0, 8.0]


@pytest.mark.parametrize("shape", [(3_000_000,), (3000, 1000), (3000, 1000, 1)])
def test_more_values_than_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: tuple[int, ...]
) -> None:
    """An array that no buffer holds is not even read, whichever way it is logged; its line has the other values."""
    array = Untouched(shape)
    logger = logger_at(tmp_path)
    logger.log({"logits": array, "loss": 0.5}, step=0)
    logger.record_metric("logprobs", array)
    logger.record_metric("rewards", [0.5] * 300_000)
    logger.close()
    assert [record["m"] for record in metrics(records(tmp_path))] == [{"loss": 0.5}]
    told = capsys.readouterr().err.splitlines()
    assert "'logits' is left out: it has 3000000 elements, 262144 are allowed: log a summary of them" in told[0]
    assert ["'logprobs'" in told[1], "'rewards'" in told[2], len(told)] == [True, True, 3]
    assert logger.dropped_values == 3


def test_dicts_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group that holds itself is left out and reported; its line has the other values."""
    group: dict[str, Any] = {"a": 1}
    group[""] = group
    logger = logger_at(tmp_path)
    logger.log({"loss": 0.5, "g": group}, step=0)
    logger.close()
    (record,) = metrics(records(tmp_path))
    assert (record["m"]["loss"], record["m"]["g/a"]) == (0.5, 1)
    assert "is left out: it is more than 30 dicts deep" in capsys.readouterr().err
    assert logger.errors == 0


class Untouched:
    """An array that may not be read."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.ndim = len(shape)

    def tolist(self) -> Any:
        raise AssertionError("read")

    reshape = item = tolist


def test_a_text_as_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer says how a text becomes a number and where texts go."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"a": "0.5", "b": 1.0}, step=1)
        logger.record_metric("c", "yes")
    assert logger.dropped_values == 4
    logger.close()
    told = capsys.readouterr().err
    assert told.count("'a' has a value of type str that is no metric; it is left out") == 1
    assert told.count("float() makes a number of a text; event() and sample() take texts as they are") == 2
    assert metrics(records(tmp_path)) == [{"step": 1, "m": {"b": 1.0}}] * 2


def test_none_as_value_is_no_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written as no observation, alone and in a list, and nothing is reported."""
    logger = logger_at(tmp_path)
    logger.log({"a": None, "b": [1.0, None]}, step=1)
    logger.close()
    assert (logger.dropped_values, answers(tmp_path), capsys.readouterr().err) == (0, [], "")
    assert metrics(records(tmp_path)) == [{"step": 1, "m": {"a": None, "b": [1.0, None]}}]


def test_a_configuration_as_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dict full of texts gets one answer, not one for each key, and its numbers are kept."""
    config = {
        "lr": 3e-4,
        "model": {"name": "qwen", "layers": 24, "dtype": "bf16"},
        "data": {"path": "/data", "split": "train", "files": ["a", "b"]},
        "tags": {"x"},
    }
    logger = logger_at(tmp_path)
    logger.log(config)
    logger.log(config)
    assert logger.dropped_values == 12
    logger.close()
    told = capsys.readouterr().err
    assert told.count("rlship: ") == 1
    assert "6 values of one call are no metrics, such as 'model/name' (str), 'model/dtype' (str), 'data/path'" in told
    assert "A configuration belongs into config(…), texts into sample()" in told
    assert len(answers(tmp_path)) == 1
    assert metrics(records(tmp_path)) == [{"m": {"lr": 3e-4, "model/layers": 24}}] * 2


def test_a_step_that_goes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind a barrier or only behind set_step: both ways out are named. Inside `with step(n)` any step may be set."""
    logger = logger_at(tmp_path)
    logger.set_step(9)
    with logger.step(3):
        logger.set_step(2)
    logger.log({"a": 1}, step=1)
    assert capsys.readouterr().err == ""
    logger.set_step(8)
    told = capsys.readouterr().err
    assert "set_step(8) goes back behind set_step(9): call rollback(8) first if the job resumed from an older" in told
    assert "to add to an earlier step, use log(…, step=8) or `with step(8)`" in told
    logger.barrier(8)
    logger.set_step(7)
    logger.barrier(7)
    assert capsys.readouterr().err == ""
    assert logger.stream.notices.counts["back"] == 3
    logger.rollback(2)
    logger.set_step(2)
    logger.barrier(2)
    assert logger.stream.notices.counts["back"] == 3
    logger.close()
    assert len(answers(tmp_path)) == 1


def test_a_barrier_that_goes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same barrier again is no mistake, an earlier one is."""
    logger = logger_at(tmp_path)
    logger.barrier(5)
    logger.barrier(5)
    assert capsys.readouterr().err == ""
    logger.barrier(4)
    logger.close()
    assert "barrier(4) goes back behind barrier(5): call rollback(4) first" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "x" * 1001])
def test_names_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """In log, record_metric and define: the rest of the call is used."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({name: 1.0, "a": 2.0}, step=1)
        logger.record_metric(name, 1.0)
        logger.define({name: "sum", "a": "sum"})
    logger.close()
    told = capsys.readouterr().err
    why = "the name is empty" if not name else "the name has 1001 characters, 1000 are allowed"
    assert told.count(f"{name[:200]!r} is left out: {why}") == 1
    assert told.count(f"define({name[:40]!r}): {why}; it is left out") == 1
    assert [where for where, _ in answers(tmp_path)] == ["value", "define"]
    found = records(tmp_path)
    assert metrics(found) == [{"step": 1, "m": {"a": 2.0}}] * 2
    assert all(record["m"] == {"a": {"reduce": "sum"}} for record in found if record.get("kind") == "define")


@pytest.mark.parametrize("step", [1.5, np.float32(0.5), np.array([1, 2]), np.array([1.0, 2.0]), np.array("x"), "7"])
def test_a_step_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], step: Any) -> None:
    """Floats, arrays and texts that are no step: the value is shown, and what is allowed."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"a": 1.0}, step=step)
        logger.barrier(step)
    logger.close()
    told = capsys.readouterr().err
    assert told.count("is not a step: use an integer from 0 to 2**53-1, or None for no step") == 2
    assert f"log: step={step!r}" in told
    assert [where for where, _ in answers(tmp_path)] == ["log", "barrier"]


def test_a_step_on_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tensor on a GPU is a step, but reading it waits for the device, which is said once."""

    class Tensor:
        is_cuda = True

        def __index__(self) -> int:
            return 4

    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"a": 1.0}, step=Tensor())
    logger.set_step(Tensor())
    logger.close()
    assert capsys.readouterr().err.count("the step is a tensor on a GPU, and reading it waits for the device") == 1
    assert metrics(records(tmp_path)) == [{"step": 4, "m": {"a": 1.0}}] * 2


def test_each_different_misuse_of_one_call_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong step hides no wrong value, a configuration no weight, a text no array, and one bad name no other."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"a": "text"}, step=1.5)  # type: ignore[arg-type]
        logger.log("no dict")  # type: ignore[arg-type]
        logger.log({**dict.fromkeys("bcdef", "text"), "g": {"v": [1], "w": [-1]}})
        logger.log({"a": [0] * 300_000})
        logger.event("", step=-1)
        logger.event("x" * 1001)
        logger.sample("", "no row", step="7")  # type: ignore[arg-type]
    logger.close()
    told = capsys.readouterr().err.splitlines()
    for part in (
        "log: step=1.5 is not a step",
        "'a' has a value of type str that is no metric",
        "log() takes a dict of names and values, not 'no dict'",
        "5 values of one call are no metrics",
        "'g' is left out: the weight -1 is not a finite number >= 0",
        "'a' is left out: it has 300000 elements",
        "event: step=-1 is not a step",
        "event(''): the name is empty",
        "event('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'): the name has 1001 characters",
        "sample: step='7' is not a step",
        "sample(''): the name is empty",
        "sample('') takes a row as a dict of columns",
    ):
        assert [line for line in told if part in line] == [line for line in told if part in line][:1] != [], part
    assert len(told) == len(answers(tmp_path)) == 12


TWINS = [
    ("loss/totl", "loss/total"),
    ("loss_total", "loss/total"),
    ("reawrd", "reward"),
    ("rewards", "reward"),
    ("Loss", "loss"),
    ("tokens_per_sec", "tokens_per_s"),
]
STRANGERS = [
    ("loss/pg", "loss/kl"),
    ("q/loss", "v/loss"),
    ("layer1/norm", "layer2/norm"),
    ("layer9/norm", "layer10/norm"),
    ("p50", "p90"),
    ("min", "max"),
    ("lr", "kl"),
    ("reward/mean", "reward/max"),
    ("eval/loss", "loss"),
]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(("declared", "logged"), TWINS)
def test_a_misspelt_definition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], declared: str, logged: str, flushed: bool
) -> None:
    """A name that is declared and never logged is reported with the logged name that it probably means."""
    logger = logger_at(tmp_path)
    logger.define({declared: "max", "later": "sum", "used": "sum"})
    logger.log({logged: 1.0, "used": 2.0})
    if flushed:
        assert logger.flush()
    logger.close()
    ((where, told),) = answers(tmp_path)
    assert where == "define"
    assert f"{declared!r} is declared by define at test_misuse.py:" in told
    assert f"{logged!r} is logged but not declared" in told
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.parametrize(("declared", "logged"), STRANGERS)
def test_a_definition_that_waits_for_its_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], declared: str, logged: str
) -> None:
    """Names that are merely alike, families with numbers, and what was logged in any way, are no misuse."""
    logger = logger_at(tmp_path)
    logger.define({declared: "max", "batched": "sum", "array": "sum", "work_s": "max"})
    logger.log({logged: 1.0, "array": [1.0, 2.0], "arrays": 1.0})
    logger.record_metric("batched", 1.0)
    logger.record_metric("batchd", 1.0)
    with logger.span("work"):
        pass
    logger.log({"works_s": 1.0})
    assert logger.flush()
    logger.close()
    assert (answers(tmp_path), capsys.readouterr().err) == ([], "")


def test_only_one_rank_reports_a_misspelt_definition(tmp_path: Path) -> None:
    """The others, and children, declare the same."""
    for changes in ({"rank": 1, "world": 2}, {"replica": "1"}, {"parent": "0123456789abcdef"}):
        folder = tmp_path / "-".join(changes)
        logger = logger_at(folder, **changes)
        logger.define("loss/totl", "max")
        logger.log({"loss/total": 1.0})
        logger.close()
        assert answers(folder) == []


def test_a_misspelt_definition_is_reported_while_the_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writing thread looks after a minute, so that a long job need not end first."""
    monkeypatch.setattr("rlship.stream._RELEARN_S", 0.01)
    logger = logger_at(tmp_path)
    logger.define("loss/totl", "max")
    logger.log({"loss/total": 1.0})
    soon(tmp_path, lambda found: any(record.get("name") == "rlship_error" for record in found))
    logger.close()
    assert len(answers(tmp_path)) == 1


@pytest.mark.parametrize("defined_first", [True, False])
def test_a_metric_under_the_key_of_a_reduction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], defined_first: bool
) -> None:
    """The clash is reported once, with what the rows lack; a further reduction without such a metric is silent."""
    logger = logger_at(tmp_path)
    for part in range(2):
        if defined_first == (part == 0):
            logger.define({"t": ["mean", "max"], "u": ["mean", "max"], "v": "mean"})
        else:
            for step in range(3):
                logger.log({"t": 5.0, "t/max": -9.0, "u": 1.0, "v": 1.0, "v/max": 2.0}, step=step)
    logger.close()
    ((where, text),) = answers(tmp_path)
    assert where == "define"
    assert text.startswith("the max of 't', which define at test_misuse.py:")
    assert (
        "would have the key of the metric 't/max', which is logged too: rows have the metric, and lack the max" in text
    )
    assert capsys.readouterr().err.count("rows have the metric, and lack the max") == 1


def test_a_clash_is_reported_while_the_job_runs(tmp_path: Path) -> None:
    """The report does not wait for the end of the job."""
    logger = logger_at(tmp_path)
    logger.define({"t": ["mean", "max"]})
    logger.log({"t": 5.0, "t/max": -9.0}, step=0)
    logger.flush()
    logger.stream.compare_keys()
    soon(tmp_path, lambda found: any(record.get("name") == "rlship_error" for record in found))
    logger.close()


@pytest.mark.parametrize(
    ("metrics_", "weight", "why"),
    [
        ({"": 1.0}, None, "'' is left out: the name is empty"),
        ({"loss": 1.0}, -1.0, "'loss' is left out: the weight -1.0 is not a finite number >= 0"),
        ({"loss": [1.0, 2.0]}, [1.0], "'loss' is left out: 2 values have 1 weights"),
        ({"n" * 1001: 1.0}, None, f"{'n' * 200!r} is left out: the name has 1001 characters, 1000 are allowed"),
    ],
)
def test_a_fault_that_is_not_of_the_value(tmp_path: Path, metrics_: Any, weight: Any, why: str) -> None:
    """The message does not list the values that are allowed where a name or a weight is at fault."""
    logger = logger_at(tmp_path)
    logger.log(metrics_, step=0, weight=weight)
    logger.close()
    assert answers(tmp_path) == [("value", why)]


def test_names_that_are_no_texts(tmp_path: Path) -> None:
    """A number or None as a name is written as a text, which is reported; numbers in a dict inside are a family."""
    logger = logger_at(tmp_path)
    for step in range(2):
        logger.log({1: 1.0, None: 2.0, "acc": {0: 3.0}}, step=step)
    logger.close()
    assert [text.partition(":")[0] for _, text in answers(tmp_path)] == [
        "the name 1 is of type int, and is written as '1'",
        "the name None is of type NoneType, and is written as 'None'",
    ]
    assert metrics(records(tmp_path))[0]["m"] == {"1": 1.0, "None": 2.0, "acc/0": 3.0}


def test_a_rollback_that_goes_forward(tmp_path: Path) -> None:
    """It is carried out and reported; one to a known step, or the first call of a restarted process, is silent."""
    logger = logger_at(tmp_path)
    logger.rollback(50)
    for step in (50, 51):
        logger.log({"loss": 1.0}, step=step)
        logger.barrier(step)
    logger.rollback(51)
    logger.rollback(99)
    logger.close()
    ((where, text),) = answers(tmp_path)
    assert where == "rollback"
    assert text.startswith("rollback(99) goes forward: the step of this process is 51.")
    assert [record["step"] for record in records(tmp_path) if record.get("kind") == "rollback"] == [50, 51, 99]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rank": "x", "world": -1}, ["rank='x' is not an integer", "world=-1 is not an integer"]),
        ({"rank": 5, "world": 2}, ["world 2 is not above rank 5"]),
    ],
)
def test_arguments_of_init_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], said: list[str]
) -> None:
    """They are reported on stderr, and in the file, where the status finds them."""
    logger = rlship.init(tmp_path, actor="worker", **arguments)
    logger.close()
    told = capsys.readouterr().err
    found = answers(tmp_path)
    assert [where for where, _ in found] == ["init"] * len(said)
    for (_, text), words in zip(found, said):
        assert words in text
        assert told.count(words) == 1
