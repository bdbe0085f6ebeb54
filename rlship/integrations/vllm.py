"""vLLM's plug-in: what an engine does, from the statistics that vLLM hands to each of its loggers of statistics.

vLLM asks for a class that derives from its own, so this one is made when vLLM loads the plug-in.
"""

from __future__ import annotations

import math
import os
import socket
import time
from functools import cache
from importlib import import_module

from .source import is_on, open_beside, safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..logger import Logger

SOURCE = "vllm"
ACTOR = "generator"
INTERVAL_S = 1.0  # between two lines of a busy engine
IDLE_S = 0.05  # the least between two lines, when the engine has nothing left to do
WIDTH = math.log(1.1)  # of a bucket of durations: each bound is 1.1 times the one below
LEAST_S = 1e-5  # the bound of the lowest bucket

_PER_RANK = (
    "gen/kv_usage",
    "gen/kv_miss_rate",
    "gen/decode_tokens_per_s",
    "gen/requests_running",
    "gen/requests_waiting",
)
_DURATIONS = ("gen/ttft_s", "gen/tpot_s", "gen/request_s", "gen/queue_s")


def declare(logger: Logger) -> None:
    """Declare what the catalogue does not say by the metric's name alone."""
    for name in _PER_RANK:
        logger.define(name, per_rank=True)
    logger.define({"perf/samples_per_s": "rate"}, unit="1/s")
    for name in _DURATIONS:
        logger.define({name: "buckets.p50", f"{name}/p99": "buckets.p99"}, unit="s", per_rank=name in _DURATIONS[:2])


class Figures:
    """What the engines of this process did since the last line. Nothing here waits, or reads a device."""

    def __init__(self) -> None:
        self._levels: dict[int, tuple[int, int, float]] = {}  # by engine: running, waiting, use of the cache
        self._clear()

    def _clear(self) -> None:
        self._counts: dict[str, float] = {}
        self._shares: dict[str, tuple[float, float]] = {}  # part, whole
        self._buckets: dict[str, dict[int, int]] = {name: {} for name in _DURATIONS}
        self._lengths: dict[str, list[int]] = {"data/prompt_len": [], "data/response_len": []}

    @property
    def idle(self) -> bool:
        """Whether no engine has a request."""
        return not any(running or waiting for running, waiting, _ in self._levels.values())

    def schedule(self, engine: int, stats: Any) -> None:
        """Take vLLM's SchedulerStats of one iteration."""
        waiting = stats.num_waiting_reqs + getattr(stats, "num_skipped_waiting_reqs", 0)
        self._levels[engine] = stats.num_running_reqs, waiting, stats.kv_cache_usage
        cache = stats.prefix_cache_stats
        if cache is not None and cache.queries:
            self._share("gen/kv_miss_rate", cache.queries - cache.hits, cache.queries)
        drafts = stats.spec_decoding_stats
        if drafts is not None and drafts.num_drafts:
            self._share("gen/spec_accept_len", drafts.num_accepted_tokens + drafts.num_drafts, drafts.num_drafts)

    def iterate(self, stats: Any) -> None:
        """Take vLLM's IterationStats of one iteration."""
        self._count("gen/decode_tokens_per_s", stats.num_generation_tokens)
        self._count("gen/prefill_tokens_per_s", stats.num_prompt_tokens)
        self._count("gen/preemptions", stats.num_preempted_reqs)
        self._observe("gen/ttft_s", stats.time_to_first_tokens_iter)
        self._observe("gen/tpot_s", stats.inter_token_latencies_iter)
        finished = stats.finished_requests
        self._count("perf/samples_per_s", len(finished))
        for one in finished:
            reason = str(one.finish_reason)
            self._share("data/clip_ratio", reason == "length", 1)
            self._share("data/aborted_ratio", reason == "abort", 1)
            self._lengths["data/prompt_len"].append(one.num_prompt_tokens)
            self._lengths["data/response_len"].append(one.num_generation_tokens)
        self._observe("gen/request_s", [one.e2e_latency for one in finished])
        self._observe("gen/queue_s", [one.queued_time for one in finished])

    def take(self) -> dict[str, Any]:
        """The values to log, as `rlship.log` takes them. Counts begin anew."""
        found: dict[str, Any] = dict(self._counts)
        if self._levels:
            running, waiting, usage = zip(*self._levels.values())
            found |= {"gen/requests_running": sum(running), "gen/requests_waiting": sum(waiting)}
            found["gen/kv_usage"] = list(usage) if len(usage) > 1 else usage[0]
        found |= {name: {"v": [part / whole], "w": [whole]} for name, (part, whole) in self._shares.items()}
        found |= {name: values for name, values in self._lengths.items() if values}
        for name, buckets in self._buckets.items():
            if buckets:
                found[name] = found[f"{name}/p99"] = _bounds(buckets)
        self._clear()
        return found

    def _count(self, name: str, more: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + more

    def _share(self, name: str, part: float, whole: float) -> None:
        before = self._shares.get(name, (0, 0))
        self._shares[name] = before[0] + part, before[1] + whole

    def _observe(self, name: str, seconds: Iterable[float]) -> None:
        buckets = self._buckets[name]
        for one in seconds:
            bucket = math.ceil(math.log(one / LEAST_S) / WIDTH) if one > LEAST_S else 0
            buckets[bucket] = buckets.get(bucket, 0) + 1


def _bounds(buckets: dict[int, int]) -> dict[str, list[float]]:
    """Buckets as their upper bounds and counts. The bound below each stands there, too, as quantiles begin at it."""
    counts = {below - 1: 0 for below in buckets if below} | buckets
    return {
        "v": [LEAST_S * math.exp(bucket * WIDTH) for bucket in sorted(counts)],
        "w": [float(counts[bucket]) for bucket in sorted(counts)],
    }


class Recorder:
    """Writes the figures of this process's engines, at most once a second while they work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        own = os.environ.get("RLSHIP_REPLICA") or f"{socket.gethostname()}-{os.getpid()}"
        self._logger = open_beside(SOURCE, ACTOR, replica=own, rank=0, world=1)
        declare(self._logger)
        self._figures = Figures()
        self._clock = clock
        self._last = clock()

    def record(self, scheduled: Any, iterated: Any, engine: int) -> None:
        """Take the statistics of one iteration; either may be None."""
        if scheduled is not None:
            self._figures.schedule(engine, scheduled)
        if iterated is not None:
            self._figures.iterate(iterated)
        since = self._clock() - self._last
        if since >= INTERVAL_S or (since >= IDLE_S and self._figures.idle):
            self.write()

    def write(self) -> None:
        """Write what is there."""
        self._last = self._clock()
        found = self._figures.take()
        if found:
            self._logger.log(found)

    def sleep(self, asleep: int) -> None:
        """Note whether the engines sleep."""
        self.write()
        self._logger.log({"gen/asleep": int(asleep > 0)})


@cache
def _made() -> type:
    loggers: Any = import_module("vllm.v1.metrics.loggers")
    base: Any = getattr(loggers, "AggregateStatLoggerBase", loggers.StatLoggerBase)

    class RlshipStatLogger(base):  # type: ignore[misc]
        """What vLLM calls after each iteration of an engine. Without `RLSHIP_DIR` it does nothing."""

        def __init__(self, vllm_config: Any, engine_indexes: Any = 0) -> None:
            self._recorder = safely(SOURCE, Recorder) if is_on() else None

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0, **_: Any
        ) -> None:
            """Take the statistics of one iteration."""
            if self._recorder is not None:
                safely(SOURCE, self._recorder.record, scheduler_stats, iteration_stats, engine_idx)

        def log(self) -> None:
            """Write what is there."""
            if self._recorder is not None:
                safely(SOURCE, self._recorder.write)

        def log_engine_initialized(self) -> None:
            """Nothing is written about it."""

        def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
            """Note whether the engines sleep."""
            if self._recorder is not None:
                safely(SOURCE, self._recorder.sleep, sleep)

    return RlshipStatLogger


def __getattr__(name: str) -> Any:
    if name == "RlshipStatLogger":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
