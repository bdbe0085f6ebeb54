"""TorchTitan's handler and metric logger, driven by records and classes with the fields of TorchTitan 0.3's.

TorchTitan needs torch, so `make frameworks` runs them in the real package, in two ranks.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlship import registry
from rlship.integrations import torchtitan
from rlship.integrations.torchtitan import MetricLogger, patch_metrics, register
from tests.writer.reading import metrics, records


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of another test."""
    monkeypatch.setattr(torchtitan, "_file", None)
    torchtitan._processor.cache_clear()
    yield
    torchtitan._processor.cache_clear()


def library(rank: int = 0) -> Any:
    """The module with TorchTitan's MetricsProcessor."""

    class LoggerContainer:
        def __init__(self) -> None:
            self._loggers: list[Any] = []

        def add_logger(self, logger: Any) -> None:
            self._loggers.append(logger)

        def log(self, metrics: Any, step: int) -> None:
            for logger in self._loggers:
                logger.log(metrics, step)

        def close(self) -> None:
            for logger in self._loggers:
                logger.close()

    class MetricsProcessor:
        @dataclass(kw_only=True, slots=True)
        class Config:
            log_freq: int = 10

        def __init__(self, **options: Any) -> None:
            self.logger = self._build_metric_logger(**options)

        def _build_metric_logger(self, **options: Any) -> Any:
            return LoggerContainer()

    return types.SimpleNamespace(
        LoggerContainer=LoggerContainer,
        MetricsProcessor=MetricsProcessor,
        _get_metrics_rank=lambda parallel_dims, pp_schedule: 4,
        torch=types.SimpleNamespace(distributed=types.SimpleNamespace(get_rank=lambda: rank)),
    )


def options(folder: Path, pp: int = 1) -> dict[str, Any]:
    """What a MetricsProcessor is made with."""
    dims = types.SimpleNamespace(pp_enabled=pp > 1, pp=pp, world_size=8)
    return {"parallel_dims": dims, "pp_schedule": "1F1B", "dump_folder": str(folder), "config_dict": {"seed": 1}}


def test_metrics_of_a_rank(tmp_path: Path) -> None:
    """Names are TorchTitan's. A step ends with the next one, so that its validation is in it; close ends the last."""
    module = library()
    patch_metrics(module)
    patch_metrics(module)
    logger = module.MetricsProcessor(**options(tmp_path)).logger
    assert [type(one) for one in logger._loggers] == [module.LoggerContainer, MetricLogger]
    for step in (1, 2):
        logger.log({"loss_metrics/global_avg_loss": 1 / step, "throughput(tps)": 100.0}, step)
        logger.log({"validation_metrics/loss": 3.0, "validation_metrics/memory/max_active(GiB)": 2.0}, step)
    logger.close()
    registry.current().close()
    found = records(tmp_path)
    assert (found[0]["actor"], found[0]["labels"]) == ("trainer", {"source": "torchtitan"})
    assert any(one.get("config") == {"seed": 1} for one in found)
    assert [(one["step"], len(one["m"])) for one in metrics(found)] == [(1, 2), (1, 2), (2, 2), (2, 2)]
    assert [one["step"] for one in found if one.get("kind") == "barrier"] == [1, 2]
    declared = {name: one for line in found if line.get("kind") == "define" for name, one in line["m"].items()}
    assert declared == {
        "loss_metrics/global_avg_loss": {"reduce": "last", "per_rank": False},
        "throughput(tps)": {"reduce": ["mean", "min"], "per_rank": True},
        "validation_metrics/loss": {"reduce": "last", "per_rank": False},
        "validation_metrics/memory/max_active(GiB)": {"reduce": ["max", "mean"], "per_rank": True},
    }


@pytest.mark.parametrize(("rank", "shown"), [(3, False), (4, True), (7, True)])
def test_a_stage_without_the_loss_leaves_it_out(tmp_path: Path, rank: int, shown: bool) -> None:
    """In a pipeline only the ranks of the stage that computes the loss log it; the others' is a made-up number."""
    module = library(rank)
    patch_metrics(module)
    logger = module.MetricsProcessor(**options(tmp_path, pp=2)).logger
    logger.log({"loss_metrics/global_avg_loss": -1.0, "grad_norm": 2.0}, 1)
    registry.current().close()
    (line,) = metrics(records(tmp_path))
    assert line["m"] == {"grad_norm": 2.0} | ({"loss_metrics/global_avg_loss": -1.0} if shown else {})


def test_the_processor_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`MetricsProcessor` is TorchTitan's with a logger more; with the handler, too, there is one only."""
    module = library()
    monkeypatch.setattr(torchtitan, "import_module", lambda name: module)
    own = torchtitan.MetricsProcessor
    assert issubclass(own, module.MetricsProcessor) and own.Config().log_freq == 10
    assert [type(one) for one in own(**options(tmp_path)).logger._loggers] == [module.LoggerContainer, MetricLogger]
    patch_metrics(module)
    assert [type(one) for one in own(**options(tmp_path)).logger._loggers] == [module.LoggerContainer, MetricLogger]
    assert not hasattr(torchtitan, "Processor")


def record(name: str, kind: str = "event", **given: Any) -> logging.LogRecord:
    """A record as TorchTitan's `log_trace_…` makes it."""
    made = logging.LogRecord("titan", logging.INFO, "", 0, str(given.pop("message", "")), None, None)
    made.__dict__.update({"log_type": kind, "log_type_name": name, "step": None, **given})
    return made


def test_the_structured_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans nest by task, an error names the exception of its span, and tags belong to their step."""
    tags: list[str] = []
    state = types.SimpleNamespace(get_step=lambda: None, get_step_tags=lambda: tuple(tags))
    monkeypatch.setattr(torchtitan, "import_module", lambda name: state)
    target = logging.Logger("titan")
    register(structured_logger=target, rank=2, source="rl_generator", output_dir=str(tmp_path))
    target.handle(record("ready", "instant"))
    target.handle(record("step_start", step=1))
    target.handle(record("pull_start", step=1, task_name="a"))
    target.handle(record("wait_start", step=1, task_name="b"))
    tags.append("gc")
    target.handle(record("metric_value", "instant", event_name="tokens", value=3.0, step=1))
    try:
        raise OSError("gone")
    except OSError:
        target.handle(record("pull_error", step=1, task_name="a", message="[step 1] pull_error: OSError: gone"))
        target.handle(record("pull_end", step=1, task_name="a"))
        target.handle(record("wait_end", step=1, task_name="b"))
    target.handle(record("step_end", step=1))
    target.handle(record("never_began_end", step=2))
    target.handle(logging.LogRecord("titan", logging.INFO, "", 0, "plain text", None, None))
    registry.current().close()
    found = records(tmp_path)
    assert (found[0]["actor"], found[0]["rank"], found[0]["world"]) == ("generator", 0, 1)
    spans = {one["name"]: (one["step"], one.get("err")) for one in found if one.get("kind") == "span"}
    assert spans == {"pull": (1, "OSError"), "wait": (1, None), "step": (1, None)}
    events = [(one["name"], one.get("step"), one["attrs"]) for one in found if one.get("kind") == "event"]
    assert events == [
        ("ready", None, {}),
        ("step_tag", 1, {"tag": "gc"}),
        ("pull_error", 1, {"error": "OSError: gone"}),
        ("step_tag", 2, {"tag": "gc"}),
    ]
    assert [(one["step"], one["m"]) for one in metrics(found)] == [(1, {"tokens": 3.0})]
    assert [one["step"] for one in found if one.get("kind") == "barrier"] == [1]


def test_a_fault_never_reaches_torchtitan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without TorchTitan's module, or with options of another form, it is said once, and the loggers are its own."""
    target = logging.Logger("titan")
    for _ in range(2):
        register(structured_logger=target, rank=0, source="training", output_dir=str(tmp_path))
    module = library()
    patch_metrics(module)
    built = module.MetricsProcessor(new_option=1).logger
    assert built._loggers == [] and target.handlers == []
    said = capsys.readouterr().err
    assert said.count("integration of torchtitan: register: ModuleNotFoundError") == 1
    assert said.count("integration of torchtitan: with_ours: KeyError") == 1
