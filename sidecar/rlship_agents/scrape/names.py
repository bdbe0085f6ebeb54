"""Maps names of inference servers and exporters to names of the catalogue, and to rules for their values.

The metric of a name comes from the catalogue's foreign names; only ratios of two counters are listed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlship_formats.catalogue.metrics import METRICS, Metric

START_TIME = "process_start_time_seconds"
SLEEP = "vllm:engine_sleep_state"
CACHE_CONFIG = "vllm:cache_config_info"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
WAITING = "vllm:num_requests_waiting"
HIT_RATE = "sglang:cache_hit_rate"

_FRAMEWORKS = ("vLLM", "SGLang", "Ray", "DCGM")
# A gauge by reason adds up to the total; a count of aborted requests becomes a ratio.
_LEFT_OUT = {WAITING_BY_REASON, "sglang:num_aborted_requests"}
# Through Ray, names have its prefix, and no colon. Escaped names have no colon either.
_SERVER = re.compile(r"(?:ray_)?(vllm|sglang)[_:]")
_SERVERS = re.compile(rf"^{_SERVER.pattern}", re.MULTILINE)
_PARTS = ("_bucket", "_count", "_sum")
# Metrics of a Prometheus client about its own process.
_RUNTIME = ("python_*", "process_*", "go_*", "promhttp_*")


@dataclass(frozen=True, slots=True)
class Source:
    """The metric of the catalogue for a name. A value times `scale` is in the metric's unit."""

    metric: Metric
    scale: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """`add` plus the increase of `part` over that of `whole`, or 1 minus this ratio; weighted by the whole's increase.

    Only the series of `part` with the labels `only` count.
    """

    metric: str
    part: str
    whole: str
    only: tuple[tuple[str, str], ...] = ()
    complement: bool = False
    add: float = 0.0


RATIOS = (
    Ratio("gen/kv_miss_rate", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries", complement=True),
    Ratio("gen/kv_miss_rate", "vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries", complement=True),
    Ratio("data/clip_ratio", "vllm:request_success", "vllm:request_success", (("finished_reason", "length"),)),
    Ratio("data/aborted_ratio", "vllm:request_success", "vllm:request_success", (("finished_reason", "abort"),)),
    Ratio("gen/spec_accept_len", "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_drafts", add=1.0),
    Ratio("gen/kv_miss_rate", "sglang:cached_tokens", "sglang:prompt_tokens", complement=True),
    Ratio("data/aborted_ratio", "sglang:num_aborted_requests", "sglang:num_requests"),
)


def _bare(name: str) -> str:
    return name.removesuffix("_total")


SOURCES: dict[str, Source] = {
    _bare(alias.name): Source(metric, alias.scale)
    for metric in METRICS
    for alias in metric.aliases
    if alias.framework in _FRAMEWORKS and _bare(alias.name) not in _LEFT_OUT
}
COUNTERS = frozenset(
    [name for name, source in SOURCES.items() if "rate" in source.metric.reduce]
    + ["vllm:request_success", "sglang:num_requests"]
    + [name for ratio in RATIOS for name in (ratio.part, ratio.whole)]
)
_OTHERS = {START_TIME, SLEEP, CACHE_CONFIG, WAITING_BY_REASON, HIT_RATE}
_KNOWN = SOURCES.keys() | COUNTERS | _OTHERS


def known(name: str) -> str | None:
    """The name of a family or sample without Ray's prefix and `_total`; None if it is not known."""
    server = _SERVER.match(name)
    name = f"{server[1]}:{name[server.end() :]}" if server else name
    if name in _KNOWN:
        return name
    name = _bare(name)
    return name if name in COUNTERS else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Selects names that the catalogue does not know, which are then logged as they are, by patterns with `*`.

    If `include` is None, it selects no name of an inference server. Of any other endpoint it selects all names but
    those of its own process.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    def takes(self, name: str, *, inference: bool) -> bool:
        """True if a name that is not known is selected; `inference`: it comes from an inference server."""
        if any(fnmatchcase(name, pattern) for pattern in self.exclude):
            return False
        if self.include is not None:
            return any(fnmatchcase(name, pattern) for pattern in self.include)
        return not inference and not any(fnmatchcase(name, pattern) for pattern in _RUNTIME)


def is_inference(text: str) -> bool:
    """True if an exposition comes from an inference server."""
    return _SERVERS.search(text) is not None


def base(name: str) -> str:
    """The family of a line, judging by its name: without the suffixes of histograms, summaries and counters."""
    for part in (*_PARTS, "_created"):
        if name.endswith(part):
            return name[: -len(part)]
    return name
