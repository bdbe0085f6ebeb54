"""vLLM's statistics of two engines through its own StatLoggerManager, which loads rlship's plug-in by its entry point:
`python vllm_native.py DIR TRUTH`. `RLSHIP_DIR` is DIR. TRUTH stays empty, as nothing of this has a step.

The manager, the plug-in's base class, the statistics and the Prometheus logger beside it are vLLM's own. No model runs:
outputs of requests are made up and handed to the statistics as vLLM's output processor does it. What rlship wrote is
compared with what vLLM's Prometheus logger counted.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import REGISTRY
from vllm.config import DeviceConfig, VllmConfig
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.metrics.loggers import StatLoggerManager, load_stat_logger_plugin_factories
from vllm.v1.metrics.stats import (
    IterationStats,
    LoRARequestStates,
    PrefillStats,
    PrefixCacheStats,
    RequestStateStats,
    SchedulerStats,
)

ENGINES, REQUESTS, TOKENS = 2, 40, 12


def manager() -> StatLoggerManager:
    """As AsyncLLM makes it, for a model that is never loaded."""
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = SimpleNamespace(served_model_name="tiny", max_model_len=4096, is_diffusion=False)
    return StatLoggerManager(
        config, engine_idxs=list(range(ENGINES)), custom_stat_loggers=load_stat_logger_plugin_factories()
    )


def generate(made: StatLoggerManager, engine: int, random: random.Random) -> None:
    """The iterations of one engine: a request's prompt, then its tokens, one each iteration."""
    lora = LoRARequestStates()
    for number in range(REQUESTS):
        state, prompt = RequestStateStats(arrival_time=time.time() - random.uniform(0.01, 3.0)), random.randrange(8, 64)
        state.queued_ts, state.scheduled_ts = 1.0, 1.0 + random.random()
        last = random.choice((FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT))
        now = state.scheduled_ts
        for token in range(TOKENS):
            now += random.uniform(0.001, 0.2)
            stats, prefill = IterationStats(), PrefillStats()
            prefill.set(prompt, num_local_cached_tokens=prompt // 4, num_external_cached_tokens=0)
            output = EngineCoreOutput(request_id=str(number), new_token_ids=[token], prefill_stats=prefill)
            stats.update_from_output(output, now, token == 0, state, lora, None)
            if token == TOKENS - 1:
                stats.update_from_finished_request(last, str(number), prompt, None, state)
            cache = PrefixCacheStats(requests=1, queries=prompt, hits=prompt // 4) if token == 0 else PrefixCacheStats()
            running = 0 if token == TOKENS - 1 else 1
            scheduled = SchedulerStats(num_running_reqs=running, kv_cache_usage=0.25, prefix_cache_stats=cache)
            made.record(scheduled, stats, engine_idx=engine)


def counted(name: str, **labels: str) -> float:
    """The sum over engines of one of vLLM's own counters."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == name and all(sample.labels.get(label) == value for label, value in labels.items())
    )


def figures(folder: Path) -> dict[str, list]:
    """The values in the plug-in's only file, by metric."""
    (path,) = (folder / "rlship").glob("generator-*.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["labels"]["source"] == "vllm" and lines[0]["world"] == 1, lines[0]
    found: dict[str, list] = {}
    for one in lines:
        assert "step" not in one, one
        for name, value in one.get("m", {}).items() if one.get("kind", "metrics") == "metrics" else ():
            found.setdefault(name, []).append(value)
    return found


def shares(values: list) -> tuple[float, float]:
    """Part and whole of weighted means."""
    return sum(v * w for one in values for v, w in zip(one["v"], one["w"])), sum(w for one in values for w in one["w"])


def listed(values: list) -> list[float]:
    return [x for value in values for x in (value if isinstance(value, list) else [value])]


def main(folder: str, truth: str) -> None:
    made = manager()
    names = [type(one).__name__ for one in made.stat_loggers]
    assert "RlshipStatLogger" in names and "PrometheusStatLogger" in names, names
    for engine in range(ENGINES):
        generate(made, engine, random.Random(engine))
    made.log()
    made.record_sleep_state(1, 1)
    import rlship

    rlship.close()
    from rlship import registry

    for logger in registry._of_facades:
        logger.close()
    found = figures(Path(folder))
    assert sum(listed(found["gen/decode_tokens_per_s"])) == counted("vllm:generation_tokens_total") > 0
    assert sum(listed(found["gen/prefill_tokens_per_s"])) == counted("vllm:prompt_tokens_total") > 0
    assert sum(listed(found["perf/samples_per_s"])) == counted("vllm:request_success_total") == ENGINES * REQUESTS
    cut, all_of = shares(found["data/clip_ratio"])
    assert (round(cut), all_of) == (counted("vllm:request_success_total", finished_reason="length"), ENGINES * REQUESTS)
    missed, asked = shares(found["gen/kv_miss_rate"])
    assert asked == counted("vllm:prefix_cache_queries_total") > 0
    assert abs(asked - missed - counted("vllm:prefix_cache_hits_total")) < 1e-6
    assert sum(listed(found["data/response_len"])) == counted("vllm:request_generation_tokens_sum")
    for name, family in (("gen/ttft_s", "time_to_first_token_seconds"), ("gen/tpot_s", "inter_token_latency_seconds")):
        total, count = shares(found[name])
        assert count == counted(f"vllm:{family}_count") > 0, (name, count)
        assert 1.0 <= total / counted(f"vllm:{family}_sum") <= 1.1, (name, total)  # each bound is at most 10 % above
    assert found["gen/asleep"] == [1] and set(listed(found["gen/kv_usage"])) == {0.25}
    Path(truth).write_text("{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
