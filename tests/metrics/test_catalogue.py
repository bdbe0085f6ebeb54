"""The catalogue of metrics as data, and looking names up in it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.metrics import METRICS, lookup
from rlship_formats.catalogue import evidence
from rlship_formats.catalogue.metrics import lookup_evidence

NAMES = [
    "train/loss",
    "train/loss_decomp/pg",
    "train/loss_decomp/kl",
    "train/loss_decomp/entropy",
    "train/loss_decomp/aux",
    "train/grad_norm",
    "train/grad_abs_max",
    "train/grad_ms_norm",
    "train/param_update_norm",
    "train/lr",
    "train/kl_ref",
    "train/ppo_kl",
    "train/entropy",
    "train/clip_frac",
    "train/advantage",
    "train/return",
    "train/value",
    "train/importance_ratio",
    "train/microbatch_tokens",
    "train/skipped_steps",
    "train/tokens_seen",
    "correctness/rollout_train_logp_diff",
    "correctness/rollout_train_prob_diff",
    "correctness/k3_kl",
    "correctness/is_ess",
    "correctness/chi2",
    "correctness/ratio_out_frac",
    "correctness/nonfinite_count",
    "correctness/mask_ratio",
    "correctness/response_mask_ratio",
    "correctness/shape_crc",
    "correctness/id_crc",
    "correctness/token_align_err",
    "reward/total",
    "reward/hist",
    "reward/zero_std_frac",
    "data/prompt_len",
    "data/response_len",
    "data/episode_len",
    "data/clip_ratio",
    "data/aborted_ratio",
    "data/num_turns",
    "data/tool_calls",
    "data/batch_create_s",
    "data/loading_s",
    "data/step_tokens",
    "data/unique_prompt_frac",
    "data/dup_ids",
    "perf/step_s",
    "perf/stage_s/rollout",
    "perf/stage_s/reward",
    "perf/stage_s/old_logp",
    "perf/stage_s/ref",
    "perf/stage_s/values",
    "perf/stage_s/adv",
    "perf/stage_s/update",
    "perf/stage_s/ckpt",
    "perf/stage_s/eval",
    "perf/tokens_per_s",
    "perf/tflops",
    "perf/samples_per_s",
    "perf/mfu",
    "perf/sm_active",
    "perf/bubble_ratio",
    "perf/idle_s",
    "perf/policy_updates",
    "sync/push_s",
    "sync/pull_s",
    "sync/wire_bytes",
    "sync/published_version",
    "sync/weights_fp",
    "gen/kv_usage",
    "gen/kv_capacity",
    "gen/kv_miss_rate",
    "gen/preemptions",
    "gen/decode_tokens_per_s",
    "gen/prefill_tokens_per_s",
    "gen/requests_running",
    "gen/requests_waiting",
    "gen/ttft_s",
    "gen/tpot_s",
    "gen/request_s",
    "gen/queue_s",
    "gen/tokenize_s",
    "gen/model_load_s",
    "gen/sampling/temperature",
    "gen/sampling/top_p",
    "gen/sampling/n",
    "gen/sampling/max_tokens",
    "gen/timeout_ratio",
    "gen/spec_accept_len",
    "gen/asleep",
    "policy_version",
    "async/staleness",
    "async/stale_dropped",
    "async/stale_ratio",
    "svc/replica_queue_depth",
    "svc/replica_failures",
    "svc/replica_restarts",
    "svc/scrape_s",
    "svc/recovery_s",
    "buf/size",
    "buf/queue_depth",
    "buf/evicted",
    "buf/write_per_s",
    "buf/read_per_s",
    "buf/get_s",
    "mem/allocated",
    "mem/reserved",
    "mem/frag_ratio",
    "mem/capacity",
    "mem/alloc_retries",
    "mem/ooms",
    "mem/activation_peak",
    "mem/comm_buffer_peak",
    "mem/kv_peak",
    "mem/kv_peak_bytes",
    "perf/tensor_active",
    "perf/dram_active",
    "node/cpu",
    "node/cpu_limit",
    "node/host_mem",
    "node/host_mem_limit",
    "node/host_mem_frac",
    "node/swap",
    "node/disk_read_per_s",
    "node/disk_write_per_s",
    "node/fs_free",
    "node/fs_used_frac",
    "node/fs_read_per_s",
    "node/fs_write_per_s",
    "node/net_recv_per_s",
    "node/net_sent_per_s",
    "node/rdma_recv_per_s",
    "node/rdma_sent_per_s",
    "node/gpus",
    "node/gpu_util",
    "node/gpu_mem",
    "node/gpu_mem_limit",
    "node/gpu_mem_frac",
    "node/gpu_mem_other",
    "node/gpu_power",
    "node/gpu_power_limit",
    "node/gpu_temp",
    "node/gpu_mem_temp",
    "node/gpu_sm_clock",
    "node/gpu_mem_clock",
    "node/gpu_pcie_recv_per_s",
    "node/gpu_pcie_sent_per_s",
    "node/gpu_nvlink_recv_per_s",
    "node/gpu_nvlink_sent_per_s",
    "node/gpu_ecc_corrected",
    "node/gpu_ecc_uncorrected",
    "node/xid",
    "node/gpu_throttle/app_clocks",
    "node/gpu_throttle/sw_power",
    "node/gpu_throttle/hw_slowdown",
    "node/gpu_throttle/sync_boost",
    "node/gpu_throttle/sw_thermal",
    "node/gpu_throttle/hw_thermal",
    "node/gpu_throttle/hw_power_brake",
    "node/gpu_throttle/display",
    "proc/cpu",
    "proc/host_mem",
    "proc/gpu_mem",
    "proc/gpu_util",
    "bal/rank_tokens",
    "bal/rank_active_s",
    "bal/rank_idle_s",
    "bal/straggler_rank",
    "rwd/latency_s",
    "rwd/batch_tokens",
    "rwd/tokens_per_s",
    "rwd/rule_exceptions",
    "rwd/timeouts",
    "rwd/part/<name>",
    "eval/score",
    "env/step_s",
    "env/timeouts",
    "moe/route_mismatch",
    "moe/load_imbalance",
    "lp/microbatch_tokens",
    "lp/forward_s",
    "upd/forward_s",
    "upd/backward_s",
    "upd/optim_s",
    "upd/comm_s",
]
REDUCTIONS = {
    *("mean", "sum", "min", "max", "first", "last", "std", "count", "p50", "p90", "p95", "p99", "hist", "rate"),
    "sum_last",
}
UNITS = {
    "",
    "0-1",
    "nats",
    "s",
    "1/s",
    "bytes",
    "tokens",
    "tokens/s",
    "count",
    "versions",
    "rank",
    "u32",
    "global_step",
    "W",
    "C",
    "MHz",
    "cores",
    "bytes/s",
    "TFLOP/s",
}
SCOPES = {"trainer", "generator", "reward", "reference", "buffer", "service", "controller", "node", "any"}
ALIASES = [alias for metric in METRICS for alias in metric.aliases]
NAMED = [*NAMES, *(alias.name for alias in ALIASES)]


def test_every_metric_is_there_once() -> None:
    """The catalogue has exactly the pinned names, in this order."""
    assert [metric.name for metric in METRICS] == NAMES


def test_no_name_is_the_beginning_of_another() -> None:
    """No name is a folder in another's path, which some stores of metrics cannot hold."""
    names = set(NAMES)
    assert not [
        name for name in NAMES if any("/".join(name.split("/")[:n]) in names for n in range(1, name.count("/") + 1))
    ]


def test_entries_are_whole() -> None:
    """Each entry has known reductions, each once, a known unit and scope, and one sentence of meaning."""
    for metric in METRICS:
        assert metric.reduce, metric
        assert set(metric.reduce) <= REDUCTIONS, metric
        assert len(set(metric.reduce)) == len(metric.reduce), metric
        assert metric.unit in UNITS, metric
        assert metric.scope, metric
        assert set(metric.scope) <= SCOPES, metric
        assert metric.meaning.endswith("."), metric
        assert ". " not in metric.meaning, metric
        assert "|" not in metric.meaning, metric


def test_units_fit_names_and_reductions() -> None:
    """A name that ends in a unit has it, and a rate is per second."""
    for metric in METRICS:
        if metric.name.endswith("_per_s"):
            assert metric.unit.endswith("/s"), metric
        elif metric.name.endswith("_s") or "/stage_s/" in metric.name:
            assert metric.unit == "s", metric
        if metric.reduce[0] == "rate":
            assert metric.unit.endswith("/s"), metric


@pytest.mark.parametrize(
    ("name", "reduce", "per_rank"),
    [
        ("train/loss", ("mean",), False),
        ("train/kl_ref", ("mean", "min", "max"), False),
        ("train/grad_norm", ("last", "max"), False),
        ("reward/total", ("mean", "min", "max", "std", "sum"), True),
        ("reward/hist", ("hist",), False),
        ("data/response_len", ("mean", "min", "max", "p99", "hist"), False),
        ("perf/stage_s/update", ("max", "min"), False),
        ("perf/tokens_per_s", ("sum_last",), False),
        ("gen/preemptions", ("rate",), False),
        ("gen/kv_usage", ("max", "mean"), False),
        ("gen/ttft_s", ("p50", "p99"), False),
        ("policy_version", ("min", "max"), True),
        ("buf/size", ("sum_last", "max"), False),
        ("bal/rank_active_s", ("max",), True),
        ("buf/evicted", ("sum", "rate"), False),
        ("upd/comm_s", ("max", "min"), True),
        ("gen/requests_running", ("sum_last", "min", "max"), True),
        ("rwd/part/format", ("mean", "min", "max", "std"), False),
        ("node/gpu_util", ("mean", "max"), True),
    ],
)
def test_reductions(name: str, reduce: tuple[str, ...], per_rank: bool) -> None:
    """Entries of each kind are reduced as the catalogue means them."""
    found = lookup("anyone", name)
    assert found is not None
    assert (found.reduce, found.per_rank) == (reduce, per_rank)


def test_foreign_names_are_unambiguous() -> None:
    """No foreign name stands for two metrics, and no foreign name is a name of the catalogue."""
    assert [name for name, times in Counter(NAMED).items() if times > 1] == []


def test_foreign_names_are_whole() -> None:
    """Each leads to the metric it belongs to, with a known reduction, and says the unit whose values it scales."""
    for alias in ALIASES:
        assert alias.metric in NAMES, alias
        assert alias.reduce is None or alias.reduce in REDUCTIONS, alias
        assert alias.scale > 0, alias
        assert alias.unit is not None or alias.scale == 1, alias
        assert not set(alias.name) & set("{}* "), alias
        found = lookup("anyone", alias.name.replace("<name>", "x"))
        assert found is not None, alias
        assert found.name == alias.metric, alias


def test_the_frameworks() -> None:
    """Names of these frameworks and servers are known."""
    assert list(dict.fromkeys(alias.framework for alias in sorted(ALIASES, key=lambda alias: alias.framework))) == [
        "AReaL", "DCGM", "Forge", "NeMo-RL", "Ray", "SGLang", "SkyRL", "TRL", "TorchTitan", "prime-rl", "slime", "vLLM",
        "verl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("foreign", "name", "reduce", "unit"),
    [
        ("actor/pg_loss", "train/loss_decomp/pg", ("mean",), ""),
        ("actor/grad_norm", "train/grad_norm", ("last", "max"), ""),
        ("critic/rewards/mean", "reward/total", ("mean",), ""),
        ("critic/rewards/max", "reward/total", ("max",), ""),
        ("critic/rewards/min", "reward/total", ("min",), ""),
        ("training/rollout_probs_diff_std", "correctness/rollout_train_prob_diff", ("mean",), "0-1"),
        ("perf/max_memory_reserved_gb", "mem/reserved", ("max",), "GiB"),
        ("training/global_step", "perf/policy_updates", ("last",), "steps"),
        ("ppo_actor/task_reward/avg", "reward/total", ("mean",), ""),
        ("timeperf/train_step", "perf/stage_s/update", ("max", "min"), "s"),
        ("vllm:kv_cache_usage_perc", "gen/kv_usage", ("max", "mean"), "0-1"),
        ("vllm:generation_tokens_total", "gen/decode_tokens_per_s", ("rate",), "tokens/s"),
        ("sglang:num_queue_reqs", "gen/requests_waiting", ("sum_last", "max"), "count"),
        ("rollout_reward/_std", "reward/total", ("mean",), ""),
        ("generator/queue_time_ms", "gen/queue_s", ("p50", "p99"), "ms"),
        ("mfu(%)", "perf/mfu", ("mean", "min"), "%"),
        ("reward_std", "reward/total", ("mean",), ""),
        ("completions/min_length", "data/response_len", ("min",), "tokens"),
        ("optim/lr", "train/lr", ("last",), ""),
        ("sampling/sampling_logp_difference/max", "correctness/rollout_train_logp_diff", ("max",), "nats"),
        ("rollout_corr/k3_kl", "correctness/k3_kl", ("mean",), "nats"),
        ("rollout_corr/rollout_is_max", "train/importance_ratio", ("max",), ""),
        ("train/gen_kl_error", "correctness/k3_kl", ("mean",), "nats"),
        ("training/grad_norm_max", "train/grad_norm", ("max",), ""),
        ("rewards/accuracy/mean", "rwd/part/<name>", ("mean",), ""),
        ("ray_node_gram_used", "node/gpu_mem", ("mean", "max"), "MiB"),
    ],
)
def test_what_foreign_names_mean(foreign: str, name: str, reduce: tuple[str, ...], unit: str) -> None:
    """A foreign name has its own reduction and unit where it implies some, else the catalogue's."""
    found = lookup("anyone", foreign)
    assert found is not None
    assert (found.name, found.reduce, found.unit) == (name, reduce, unit)


def test_scales() -> None:
    """A value times the scale is in the catalogue's unit: milliseconds to seconds, GiB to bytes, percent to a share."""
    scales = {alias.name: alias.scale for alias in ALIASES}
    assert scales["generator/queue_time_ms"] == 0.001
    assert scales["perf/max_memory_allocated_gb"] == 1073741824
    assert scales["ray_node_gpus_utilization"] == 0.01
    assert scales["actor/lr"] == 1


def test_a_foreign_entry_has_its_scale() -> None:
    """Looking a foreign name up says by which factor its values are in the catalogue's unit."""
    gib, own = lookup("trainer", "perf/max_memory_reserved_gb"), lookup("trainer", "mem/reserved")
    assert gib is not None and own is not None
    assert (gib.scale, own.scale) == (1073741824, 1)


def test_any_word_may_stand_in_a_family() -> None:
    """Parts of the reward have the entry of their family, whatever they are called; it is one word, and not empty."""
    family = next(metric for metric in METRICS if metric.name == "rwd/part/<name>")
    assert lookup("reward", "rwd/part/format") is lookup("reward", "rwd/part/длина") is family
    assert lookup("rwd", "part/format") is family
    for name in ("rwd/part/", "rwd/part/a/b", "rwd/part", "rewards/mean", "rewards//mean"):
        assert lookup("reward", name) is None


def test_every_metric_is_evidence_of_something() -> None:
    """Each has a kind, a direction and a source once; a size where the kind has one; a floor where there are peers."""
    named = [name for *_, names in evidence.ROWS for name in names.split()]
    assert [name for name, times in Counter(named).items() if times > 1] == []
    assert set(named) == set(NAMES)
    for metric in METRICS:
        found = metric.evidence
        assert found.kind in evidence.KINDS and found.direction in evidence.DIRECTIONS, metric
        assert found.source and "|" not in found.source, metric
        assert (found.direction == "") == (found.kind == "claim"), metric
        assert found.size > 1 if found.kind in ("level", "peer") else found.size >= 0, metric
        assert (found.floor > 0) == (found.kind == "peer"), metric
        assert found.size > 0 or found.kind in ("invariant", "claim"), metric


def test_bare_names_are_evidence_only() -> None:
    """Each stands for one metric of the catalogue, is a single word that no lookup knows for every actor, and means
    that metric of the lead and of the actors in its scope alone.
    """
    named = [(name, metric) for metric, names in evidence.BARE for name in names.split()]
    assert len(dict(named)) == len(named)
    for name, metric in named:
        assert metric in NAMES and "/" not in name and lookup("anyone", name) is None
        found = lookup_evidence("learner", name, "learner")
        assert found is not None and found.name == metric
        for actor in found.scope:
            assert (lookup_evidence(actor, name, "learner") or found).name == metric
        assert lookup_evidence("reward_model", name, "learner") is lookup("reward_model", name)


@given(actor=st.text() | st.sampled_from(["trainer", "gen"]), metric=st.text() | st.sampled_from(NAMED), lead=st.text())
def test_what_the_catalogue_knows_is_evidence_of_itself(actor: str, metric: str, lead: str) -> None:
    """Where `lookup` has an entry, that is the one; else only a bare name has one."""
    found = lookup(actor, metric)
    bare = {name for _, names in evidence.BARE for name in names.split()}
    assert (found is None and metric in bare) or lookup_evidence(actor, metric, lead) is found


@pytest.mark.parametrize(
    ("name", "kind", "direction", "size"),
    [
        ("correctness/nonfinite_count", "invariant", "up", 0),
        ("correctness/is_ess", "invariant", "down", 0.3),
        ("correctness/rollout_train_logp_diff", "level", "up", 2),
        ("reward/total", "curve", "down", 0.1),
        ("bal/rank_active_s", "peer", "up", 1.2),
        ("policy_version", "claim", "", 0),
    ],
)
def test_evidence(name: str, kind: str, direction: str, size: float) -> None:
    """Metrics of each kind of evidence have the direction and the size that matter."""
    found = lookup("anyone", name)
    assert found is not None
    assert (found.evidence.kind, found.evidence.direction, found.evidence.size) == (kind, direction, size)


def test_the_order_of_looking() -> None:
    """A name of the catalogue comes before one made with the actor's, and own names before foreign ones."""
    assert lookup("train", "loss") is lookup("x", "train/loss")
    assert lookup("trainer", "lr") is lookup("x", "trainer/lr")  # TorchTitan's
    own, foreign = lookup("perf", "mfu"), lookup("perf", "mfu/actor")
    assert own is not None
    assert foreign is not None
    assert own.name == foreign.name == "perf/mfu"
    # As `<actor>/<metric>` it is the catalogue's, on its own it is TRL's name of another metric.
    both, alone = lookup("reward", "hist"), lookup("trainer", "reward")
    assert both is not None
    assert alone is not None
    assert (both.name, alone.name) == ("reward/hist", "reward/total")


def test_unknown_names() -> None:
    """What the catalogue does not have is None: no part of a name is enough, and case counts."""
    for name in (
        "",
        "/",
        "train",
        "train/",
        "loss_decomp",
        "Train/Loss",
        "critic/rewards",
        "critic/rewards/std",
        "my/own",
    ):
        assert lookup("anyone", name) is None


@given(actor=st.text() | st.sampled_from(["trainer", "train", "gen"]), metric=st.text() | st.sampled_from(NAMED))
def test_lookup_is_total_and_pure(actor: str, metric: str) -> None:
    """Any two strings have an answer, twice the same, and it is a metric of the catalogue or None."""
    found = lookup(actor, metric)
    assert found is lookup(actor, metric)
    assert found is None or found.name in NAMES


def test_lookup_builds_nothing() -> None:
    """What is known is a dictionary's own value: the same object at each call, for foreign names too."""
    assert lookup("x", "train/loss") is METRICS[0]
    for alias in ALIASES:
        assert lookup("x", alias.name) is lookup("y", alias.name) is not None


def test_importing_rlship_does_not_import_it() -> None:
    """The catalogue costs a worker nothing: only its import loads it, and then only the standard library."""
    code = (
        "import sys, rlship; before = 'rlship_formats' in sys.modules\n"
        "import rlship.metrics\n"
        "lazy = 'rlship_formats' not in sys.modules and len(rlship.metrics.METRICS) > 100\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'rlship', '__main__'}\n"
        "print(before, lazy, any(name in roots for name in ('orjson', 'msgspec', 'numpy', 'rlship_sidecar')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False True False\n", done.stderr
