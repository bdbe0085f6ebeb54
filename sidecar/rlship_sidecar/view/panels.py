"""Which metrics a person looks at first, by the catalogue and by common names. Pure."""

from __future__ import annotations

from functools import lru_cache

from rlship_formats.catalogue.metrics import Metric as CatalogueMetric
from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.rows import ALIGNED, CLOCK, POINT

# (name in the catalogue, last parts of names that frameworks use), the first first.
_STABILITY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reward/total", ("reward", "rewards", "score", "return")),
    ("train/loss", ("loss", "total_loss", "train_loss", "pg_loss", "actor_loss")),
    ("train/kl_ref", ("kl", "kl_loss", "approx_kl", "kl_divergence")),
    ("train/ppo_kl", ("ppo_kl",)),
    ("train/entropy", ("entropy", "entropy_loss")),
    ("train/grad_norm", ("grad_norm", "gradient_norm")),
    ("train/clip_frac", ("clip_frac", "clipfrac", "clip_fraction", "clip_ratio")),
    ("correctness/rollout_train_logp_diff", ("logp_diff", "logprob_diff", "mismatch_kl")),
    ("correctness/k3_kl", ("k3_kl",)),
    ("correctness/is_ess", ("ess",)),
    ("reward/zero_std_frac", ()),
    ("data/response_len", ("response_len", "response_length", "completion_length")),
    ("perf/tokens_per_s", ("tokens_per_s", "tokens_per_sec", "tokens_per_second", "tps", "throughput")),
    ("gen/decode_tokens_per_s", ()),
    ("perf/step_s", ("step_s", "step_time")),
    ("train/lr", ("lr", "learning_rate")),
)
_RANKS = ("bal/rank_tokens", "bal/rank_active_s", "bal/rank_idle_s", "upd/comm_s", "sync/pull_s")
_MEMORY = ("mem/allocated", "mem/reserved", "mem/capacity", "mem/frag_ratio", "mem/activation_peak")
_MORE_MEMORY = ("mem/kv_peak_bytes", "mem/kv_peak", "mem/comm_buffer_peak", "proc/gpu_mem", "node/gpu_mem")
_STAGES = "perf/stage_s/"
_ENDS = {end: place for place, (_, ends) in enumerate(_STABILITY) for end in ends}
_NAMES = {name: place for place, (name, _) in enumerate(_STABILITY)}
STABILITY, MEMORY, RANKS, STAGES = "stability", "memory", "ranks", "stages"


def bare(actor: str, kind: str, key: str) -> str:
    """A key without its actor, and without what only says of which kind its rows are."""
    name = key.removeprefix("clock/" if kind == CLOCK else f"{POINT}/" if kind == POINT else "")
    name = name.removeprefix(f"{actor}/")
    return name.removesuffix("/aligned") if kind == ALIGNED else name


@lru_cache(maxsize=20_000)
def known(actor: str, kind: str, key: str) -> CatalogueMetric | None:
    """The catalogue's entry of a key, also of a further reduction."""
    name = bare(actor, kind, key)
    return lookup(actor, name) or lookup(actor, name.rpartition("/")[0])


def headline(actor: str, kind: str, key: str) -> int | None:
    """The place of a key among those that a person looks at first; None for others. Less is earlier."""
    name = bare(actor, kind, key)
    entry = lookup(actor, name)
    if entry is not None:
        return _NAMES.get(entry.name)
    plain = name.removesuffix("/mean").rpartition("/")[2].lower()
    return _ENDS.get(plain)


def panels_of(actor: str, kind: str, key: str, *, per_rank: bool) -> list[str]:
    """The panels that show a key."""
    found = []
    name = bare(actor, kind, key)
    entry = lookup(actor, name)
    catalogued = entry.name if entry is not None else ""
    if headline(actor, kind, key) is not None:
        found.append(STABILITY)
    if catalogued in _MEMORY or catalogued in _MORE_MEMORY:
        found.append(MEMORY)
    if per_rank and catalogued not in _MEMORY and name.rpartition("/")[2] not in ("max", "min"):
        found.append(RANKS)
    if catalogued.startswith(_STAGES) or (entry is None and name.endswith("_s") and not per_rank):
        found.append(STAGES)
    return found


def order_in(panel: str, actor: str, kind: str, key: str) -> tuple[object, ...]:
    """Where a key comes in a panel."""
    name = bare(actor, kind, key)
    entry = lookup(actor, name)
    catalogued = entry.name if entry is not None else name
    first = {RANKS: _RANKS, MEMORY: (*_MEMORY, *_MORE_MEMORY)}.get(panel, ())
    place = first.index(catalogued) if catalogued in first else len(first)
    top = headline(actor, kind, key)
    return place, 1 << 30 if top is None else top, kind, key
