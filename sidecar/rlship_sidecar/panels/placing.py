"""Which section of the panels a metric belongs to, and where in it: for the view at W&B and for the page alike. Pure.

A metric that the catalogue knows has its section by the catalogue's name, any other one by the last part of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from rlship_formats.catalogue.metrics import lookup, lookup_evidence
from rlship_formats.values import is_reduction
from rlship_sidecar.reduce import per_rank
from rlship_sidecar.report.trends import SLOTS
from rlship_sidecar.sinks.names import place

HEADLINE, STAGES, LOAD, MEMORY, STABILITY = (
    "Headline",
    "Stages of a step",
    "Load of each rank",
    "Memory",
    "Training stability",
)
TITLES = (HEADLINE, STAGES, LOAD, MEMORY, STABILITY)

PART = "perf/stage_s/*"
STEP_S = "perf/step_s"
# Patterns of the catalogue's names, in the order of a section; the first section that has one of them counts.
PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        STAGES,
        (
            *(STEP_S, PART, "perf/bubble_ratio", "data/batch_create_s", "data/loading_s", "upd/forward_s"),
            *("upd/backward_s", "upd/optim_s", "lp/forward_s", "sync/push_s", "sync/pull_s", "rwd/latency_s"),
            *("env/step_s", "gen/request_s", "gen/queue_s", "buf/get_s"),
        ),
    ),
    (
        LOAD,
        (
            *("bal/rank_tokens", "bal/rank_active_s", "bal/rank_idle_s", "upd/comm_s", "bal/*", "perf/*"),
            *("gen/decode_tokens_per_s", "gen/requests_*", "node/gpu_util", "proc/gpu_util", "node/cpu", "proc/cpu"),
            *("rwd/batch_tokens", "rwd/tokens_per_s", "svc/replica_queue_depth", "buf/size", "buf/queue_depth"),
            *("train/microbatch_tokens", "lp/microbatch_tokens", "data/step_tokens"),
        ),
    ),
    (
        MEMORY,
        (
            *("mem/allocated", "mem/reserved", "mem/capacity", "mem/*", "gen/kv_*", "node/gpu_mem"),
            *("node/gpu_mem_limit", "node/gpu_mem_frac", "node/gpu_mem_other", "node/host_mem", "node/host_mem_limit"),
            *("node/host_mem_frac", "node/swap", "proc/host_mem", "proc/gpu_mem"),
        ),
    ),
    (
        STABILITY,
        (
            *("reward/*", "rwd/part/*", "train/*", "correctness/*", "eval/*", "moe/*", "policy_version", "async/*"),
            *("data/response_len", "data/episode_len", "data/clip_ratio", "data/aborted_ratio", "data/dup_ids"),
        ),
    ),
)
_PATTERNS = dict(PATTERNS)
# The same for names that the catalogue lacks, by their last part.
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MEMORY, re.compile(r"(^|_)(mem|memory|vram|kv_cache|kv_usage|allocated|reserved)(_|$)")),
    (LOAD, re.compile(r"(^|_)(tokens?|busy|idle|active|comm|wait|waiting|straggler|last_rank|spread)(_|$)")),
    (STAGES, re.compile(r"_s$")),
    (
        STABILITY,
        re.compile(
            r"(^|_)(rewards?|score|return|kl|entropy|clip|clipfrac|loss|grad|norm|ratio|advantages?|mismatch|lag|"
            r"staleness|accuracy)(_|$)"
        ),
    ),
)
_WHOLE = re.compile(r"(^|_)(step|total|iter|iteration|epoch|round)(_|$)")  # no stage of a step, but all of it
_REWARD, _LOSS, _SPEED = SLOTS
# What a person looks at first, in this order: names of the catalogue, and last parts of names that it lacks.
FIRST: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    _REWARD,
    _LOSS,
    (("train/kl_ref",), frozenset(("kl", "kl_loss", "approx_kl", "kl_divergence"))),
    (("train/ppo_kl",), frozenset(("ppo_kl",))),
    (("train/entropy",), frozenset(("entropy", "entropy_loss"))),
    (("train/grad_norm",), frozenset(("grad_norm", "gradient_norm"))),
    (("train/clip_frac",), frozenset(("clip_frac", "clipfrac", "clip_fraction", "clip_ratio"))),
    (("correctness/rollout_train_logp_diff",), frozenset(("logp_diff", "logprob_diff", "mismatch_kl"))),
    (("correctness/k3_kl",), frozenset(("k3_kl",))),
    (("correctness/is_ess",), frozenset(("ess",))),
    (("reward/zero_std_frac",), frozenset()),
    (("data/response_len",), frozenset(("response_len", "response_length", "completion_length"))),
    _SPEED,
    ((STEP_S,), frozenset(("step_s", "step_time"))),
    (("train/lr",), frozenset(("lr", "learning_rate"))),
)
_FIRST_NAMES = {name: at for at, (names, _) in enumerate(FIRST) for name in names}
_FIRST_ENDS = {end: at for at, (_, ends) in enumerate(FIRST) for end in ends}
# What memory can have at most, and of what is reserved the part that is in use.
LIMITS = {
    **dict.fromkeys(("mem/allocated", "mem/reserved", "mem/activation_peak", "mem/comm_buffer_peak"), "mem/capacity"),
    **dict.fromkeys(("mem/kv_peak_bytes", "proc/gpu_mem"), "mem/capacity"),
    "node/gpu_mem": "node/gpu_mem_limit",
    "node/host_mem": "node/host_mem_limit",
}
IN_USE = {"mem/reserved": "mem/allocated"}


class MetricPlace(NamedTuple):
    """The section of a metric, "" for one that has none, and its name in the catalogue, "" for one that it lacks."""

    section: str
    catalogued: str


@lru_cache(maxsize=20_000)
def placed(actor: str, metric: str, lead: str, *, by_rank: bool) -> MetricPlace:
    """Where a metric of an actor belongs. `by_rank`: rows have its values by rank."""
    entry = lookup_evidence(actor, metric, lead) if actor else None
    name = "" if entry is None else entry.name
    last = last_part(metric)
    if not actor or metric.startswith(("ranks/", "event/")) or metric == "revision":
        section = ""  # what rlship counts, of which the headline shows the most important
    elif name:
        section = next((title for title, patterns in PATTERNS if place(name, patterns) is not None), "")
    else:
        section = next((title for title, words in _WORDS if words.search(last.lower())), "")
        section = section or (LOAD if by_rank else "")
    return MetricPlace(section, name)


def order(found: MetricPlace, actor: str, metric: str, lead: str) -> tuple[bool, str, int, int, str]:
    """Where a metric comes in its section: the lead's before those of other actors, then what a person looks at first,
    then in the order of the section's patterns.
    """
    patterns = _PATTERNS.get(found.section, ())
    at = place(found.catalogued, patterns) if found.catalogued else None
    top = first_place(actor, metric)
    nth = len(FIRST) if top is None else top
    return actor != lead, actor, nth, len(patterns) if at is None else at, metric


@lru_cache(maxsize=20_000)
def first_place(actor: str, metric: str) -> int | None:
    """The place of a metric among those that a person looks at first; None for others. Less is earlier."""
    if not actor:
        return None  # what rlship counts
    plain = metric.removesuffix("/mean")
    entry = lookup(actor, metric) or lookup(actor, plain)
    return _FIRST_NAMES.get(entry.name) if entry is not None else _FIRST_ENDS.get(last_part(plain).lower())


def is_stage(found: MetricPlace, metric: str) -> bool:
    """Whether a metric is the duration of a stage of a step."""
    if found.section != STAGES:
        return False
    if found.catalogued:
        return place(found.catalogued, (PART,)) is not None
    return last_part(metric).endswith("_s") and _WHOLE.search(last_part(metric)) is None


def last_part(metric: str) -> str:
    """The last part of a name."""
    return metric.rpartition("/")[2]


def parts(key: str, is_there: Callable[[str], bool]) -> tuple[str, str]:
    """A key as the key of its metric and its reduction, "" for the first one. `is_there`: whether rows have a key."""
    base, _, last = key.rpartition("/")
    if (last in (*per_rank.NAMES, "nonfinite", "aligned") or is_reduction(last)) and is_there(base):
        return base, last
    return key, ""
