"""vLLM's plug-in, driven by classes of our own with the fields of vLLM 0.33's.

vLLM is too large for the tests' environment, so `make frameworks` runs the plug-in in the real package.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlship import registry
from rlship.integrations import vllm
from tests.writer.reading import files, whole


def scheduled(**given: Any) -> Any:
    """A SchedulerStats."""
    known = {"num_running_reqs": 0, "num_waiting_reqs": 0, "num_skipped_waiting_reqs": 0, "kv_cache_usage": 0.0}
    caches = {"prefix_cache_stats": types.SimpleNamespace(queries=0, hits=0), "spec_decoding_stats": None}
    return types.SimpleNamespace(**{**known, **caches, **given})


def iterated(**given: Any) -> Any:
    """An IterationStats."""
    counts = dict.fromkeys(("num_generation_tokens", "num_prompt_tokens", "num_preempted_reqs"), 0)
    lists: dict[str, Any] = {"time_to_first_tokens_iter": [], "inter_token_latencies_iter": [], "finished_requests": []}
    return types.SimpleNamespace(**{**counts, **lists, **given})


def finished(reason: str, tokens: int) -> Any:
    """A FinishedRequestStats."""
    return types.SimpleNamespace(
        finish_reason=reason, num_prompt_tokens=10, num_generation_tokens=tokens, e2e_latency=2.0, queued_time=0.0
    )


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module with vLLM's base class, while the plug-in is made of it."""

    class StatLoggerBase:
        pass

    class AggregateStatLoggerBase(StatLoggerBase):
        pass

    module = types.SimpleNamespace(StatLoggerBase=StatLoggerBase, AggregateStatLoggerBase=AggregateStatLoggerBase)
    monkeypatch.setattr(vllm, "import_module", lambda name: module)
    monkeypatch.setattr(registry, "_of_facades", [])
    vllm._made.cache_clear()
    yield module
    for logger in registry._of_facades:
        logger.close()
    vllm._made.cache_clear()


def written(folder: Path) -> list[dict[str, Any]]:
    """The metrics that were written, line by line."""
    for logger in registry._of_facades:
        logger.close()
    (path,) = files(folder)
    found = [json.loads(line) for line in whole(path)]
    assert (found[0]["actor"], found[0]["labels"]) == ("generator", {"source": "vllm"})
    assert not [one for one in found if "step" in one]
    return [one["m"] for one in found if "m" in one and one.get("kind", "metrics") == "metrics"]


def test_engines_write_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loggers: Any) -> None:
    """Counts since the last line, levels of all engines, shares with what they are shares of, durations in buckets."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    kind = vllm.RlshipStatLogger
    assert issubclass(kind, loggers.StatLoggerBase) and kind is vllm.RlshipStatLogger
    made = kind(None, [0, 1])
    cache = types.SimpleNamespace(queries=40, hits=10)
    drafts = types.SimpleNamespace(num_drafts=4, num_accepted_tokens=6)
    made.record(
        scheduled(num_running_reqs=3, num_waiting_reqs=1, num_skipped_waiting_reqs=1, kv_cache_usage=0.5),
        iterated(num_generation_tokens=3, num_prompt_tokens=40, time_to_first_tokens_iter=[0.2, 0.0]),
    )
    made.record(
        scheduled(num_running_reqs=2, kv_cache_usage=0.25, prefix_cache_stats=cache, spec_decoding_stats=drafts),
        iterated(num_generation_tokens=2, finished_requests=[finished("length", 9), finished("stop", 5)]),
        engine_idx=1,
    )
    made.record(None, None)
    made.log()
    made.record_sleep_state(1, level=1)
    made.log_engine_initialized()
    first, second, third = written(tmp_path)
    ttft = first.pop("gen/ttft_s")
    assert first.pop("gen/ttft_s/p99") == ttft
    assert sum(ttft["w"]) == 2 and ttft["w"][0] == 1 and ttft["v"][0] == pytest.approx(vllm.LEAST_S)
    assert ttft["v"][-2] < 0.2 <= ttft["v"][-1] < 0.2 * 1.1 and ttft["w"][-2:] == [0, 1]
    for name in ("gen/request_s", "gen/queue_s"):
        assert sum(first.pop(name)["w"]) == sum(first.pop(f"{name}/p99")["w"]) == 2
    assert first == {
        "gen/decode_tokens_per_s": 5,
        "gen/prefill_tokens_per_s": 40,
        "gen/preemptions": 0,
        "perf/samples_per_s": 2,
        "gen/requests_running": 5,
        "gen/requests_waiting": 2,
        "gen/kv_usage": [0.5, 0.25],
        "gen/kv_miss_rate": {"v": [0.75], "w": [40]},
        "gen/spec_accept_len": {"v": [2.5], "w": [4]},
        "data/clip_ratio": {"v": [0.5], "w": [2]},
        "data/aborted_ratio": {"v": [0.0], "w": [2]},
        "data/prompt_len": [10, 10],
        "data/response_len": [9, 5],
    }
    assert second == {"gen/requests_running": 5, "gen/requests_waiting": 2, "gen/kv_usage": [0.5, 0.25]}
    assert third == {"gen/asleep": 1}


def test_lines_are_few_and_none_waits_for_more_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loggers: Any
) -> None:
    """A busy engine writes once a second; one that has nothing left to do writes what there is."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    now = [100.0]
    made = vllm.Recorder(clock=lambda: now[0])
    for _ in range(30):
        now[0] += 0.125
        made.record(scheduled(num_running_reqs=1), iterated(num_generation_tokens=1), 0)
    now[0] += 0.06
    made.record(scheduled(), iterated(num_generation_tokens=1), 0)
    assert [one["gen/decode_tokens_per_s"] for one in written(tmp_path)] == [8, 8, 8, 7]


def test_without_a_folder_the_plug_in_does_nothing(loggers: Any, tmp_path: Path) -> None:
    """vLLM gets its class, which opens nothing."""
    made = vllm.RlshipStatLogger(None, 0)
    made.record(scheduled(), iterated())
    made.log()
    made.record_sleep_state(1)
    assert not registry._of_facades


def test_a_fault_never_reaches_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loggers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statistics of another form, as a newer vLLM may have, are said once."""
    monkeypatch.setenv("RLSHIP_DIR", str(tmp_path))
    made = vllm.RlshipStatLogger(None, 0)
    for _ in range(2):
        made.record(object(), None, something_new=1)
    assert capsys.readouterr().err.count("integration of vllm: record: AttributeError") == 1


def test_another_name_is_no_attribute() -> None:
    """Only the plug-in's class is made on demand."""
    assert not hasattr(vllm, "StatLogger")
    assert math.exp(vllm.WIDTH) == pytest.approx(1.1)
