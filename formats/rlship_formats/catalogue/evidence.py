"""What a change of each metric of the catalogue is evidence of: its kind, its direction, and how much of it matters.

Statistics alone cannot say that a change matters: learning curves move, and a constant that moves a little is many
deviations away. So each metric has a practical size, below which a change is no evidence whatever its deviation.

Kinds:

- `invariant`: the healthy value is known. `size` is the bound that a healthy value does not pass.
- `level`: the metric keeps a level. `size` is a ratio to that level.
- `curve`: the metric is expected to move. `size` is a break with its own recent trend, in the metric's unit.
- `peer`: ranks or replicas are alike. `size` is a ratio to the median of the others, and `floor` the least difference.
- `claim`: a value that a process reports about itself, or that explains other metrics. It has no practical size.
"""

from __future__ import annotations

KINDS = ("invariant", "level", "curve", "peer", "claim")
DIRECTIONS = ("up", "down", "both", "")

# Metric, bare names that are evidence of it if the lead logs them, or an actor that is expected to write the metric.
# They get neither its reductions nor its unit. A name that means several things, such as clip_ratio, is not here.
BARE: tuple[tuple[str, str], ...] = (
    ("train/loss", "loss"),
    ("train/grad_norm", "grad_norm"),
    ("train/lr", "lr learning_rate"),
    ("train/kl_ref", "kl_ref"),
    ("train/ppo_kl", "ppo_kl approx_kl"),
    ("train/entropy", "entropy"),
    ("train/clip_frac", "clip_frac"),
    ("train/importance_ratio", "importance_ratio"),
)

# Sources that are not threads or papers.
SIMULATED = "simulated runs: docs/alerts.md"
PROPOSED = "proposed, not measured"

# Kind, direction in which a change counts against the job, size, floor, source, names.
ROWS: tuple[tuple[str, str, float, float, str, str], ...] = (
    ("invariant", "up", 0, 0, "a count that is 0 in a healthy run", "correctness/nonfinite_count train/skipped_steps"),
    ("invariant", "up", 0, 0, "trl#5224, sglang#26555", "correctness/token_align_err"),
    ("invariant", "both", 0, 0, "ranks agree: min is max", "correctness/shape_crc correctness/id_crc sync/weights_fp"),
    ("invariant", "up", 0, 0, "prime-rl#3164", "data/dup_ids"),
    ("invariant", "up", 0, 0, "a count that is 0 in a healthy run", "mem/alloc_retries mem/ooms node/xid"),
    ("invariant", "up", 0, 0, "a count that is 0 in a healthy run", "node/gpu_ecc_uncorrected svc/replica_failures"),
    ("invariant", "up", 0, 0, "AReaL#548", "rwd/timeouts rwd/rule_exceptions"),
    ("invariant", "up", 0, 0, "SkyRL#9, prime-rl#1482", "env/timeouts"),
    ("invariant", "down", 0.3, 0, "verl docs/algo/rollout_corr.md", "correctness/is_ess"),
    ("invariant", "up", 0.95, 0, "vllm#54644", "gen/kv_usage mem/kv_peak"),
    ("invariant", "up", 0.95, 0, PROPOSED, "node/host_mem_frac node/fs_used_frac node/gpu_mem_frac"),
    ("invariant", "down", 0.99, 0, "prime-rl#3164", "data/unique_prompt_frac"),
    ("level", "up", 2, 0, "trl#5312: 0.015 against 0.201", "correctness/rollout_train_logp_diff correctness/k3_kl"),
    ("level", "up", 2, 0, PROPOSED, "correctness/rollout_train_prob_diff"),
    ("level", "up", 3, 0, "verl docs/algo/rollout_corr.md", "correctness/chi2 correctness/ratio_out_frac"),
    ("level", "up", 2, 0, "Megatron-LM#4168", "moe/route_mismatch moe/load_imbalance"),
    ("level", "both", 1.3, 0, "verl#2506, slime#1370", "correctness/mask_ratio correctness/response_mask_ratio"),
    ("level", "both", 1.1, 0, "trl#7269: 0.896", "train/importance_ratio"),
    ("level", "up", 4, 0, SIMULATED, "train/grad_norm train/grad_abs_max train/grad_ms_norm train/param_update_norm"),
    ("level", "up", 2, 0, SIMULATED, "train/ppo_kl train/clip_frac train/loss_decomp/kl"),
    ("level", "up", 1.5, 0, SIMULATED, "perf/step_s data/batch_create_s data/loading_s perf/idle_s buf/get_s"),
    ("level", "up", 1.5, 0, SIMULATED, "perf/stage_s/rollout perf/stage_s/reward perf/stage_s/old_logp"),
    ("level", "up", 1.5, 0, SIMULATED, "perf/stage_s/ref perf/stage_s/values perf/stage_s/adv perf/stage_s/update"),
    ("level", "up", 2, 0, PROPOSED, "perf/stage_s/ckpt perf/stage_s/eval sync/push_s sync/pull_s"),
    ("level", "up", 1.5, 0, PROPOSED, "lp/forward_s upd/optim_s"),
    ("level", "down", 1.5, 0, "verl#7029, vllm#54644", "gen/decode_tokens_per_s gen/prefill_tokens_per_s"),
    ("level", "down", 1.5, 0, SIMULATED, "perf/tokens_per_s perf/samples_per_s perf/tflops perf/mfu"),
    ("level", "down", 1.5, 0, PROPOSED, "perf/sm_active perf/tensor_active perf/dram_active perf/policy_updates"),
    ("level", "up", 2, 0, "vllm#54644", "gen/preemptions gen/requests_waiting gen/queue_s svc/replica_queue_depth"),
    ("level", "up", 2, 0, PROPOSED, "gen/ttft_s gen/tpot_s gen/request_s gen/tokenize_s"),
    ("level", "up", 1.5, 0, PROPOSED, "gen/kv_miss_rate"),
    ("level", "down", 1.3, 0, PROPOSED, "gen/spec_accept_len"),
    ("level", "up", 1.5, 0, "arXiv 2602.17616", "async/staleness async/stale_ratio async/stale_dropped"),
    ("level", "up", 2, 0, "SkyRL#9, prime-rl#1482", "env/step_s"),
    ("level", "both", 2, 0, "verl#7601", "buf/size buf/queue_depth buf/write_per_s buf/read_per_s perf/bubble_ratio"),
    ("level", "up", 2, 0, PROPOSED, "buf/evicted gen/timeout_ratio data/aborted_ratio svc/scrape_s"),
    ("level", "both", 1.5, 0, "reasoned from dynamic batches", "data/step_tokens train/microbatch_tokens"),
    ("level", "both", 1.5, 0, PROPOSED, "lp/microbatch_tokens rwd/batch_tokens rwd/tokens_per_s sync/wire_bytes"),
    ("level", "up", 1.2, 0, "verl#429, OpenRLHF#1065", "node/host_mem proc/host_mem node/swap"),
    ("level", "up", 1.2, 0, PROPOSED, "mem/allocated mem/activation_peak mem/comm_buffer_peak mem/kv_peak_bytes"),
    ("level", "up", 1.2, 0, PROPOSED, "mem/reserved mem/frag_ratio node/gpu_mem node/gpu_mem_other proc/gpu_mem"),
    ("curve", "down", 0.1, 0, SIMULATED, "reward/total eval/score"),
    ("curve", "both", 0.1, 0, "rllm#143", "rwd/part/<name>"),
    ("curve", "both", 0.1, 0, PROPOSED, "reward/hist train/return train/value"),
    ("curve", "up", 0.2, 0, "verl#5953, DAPO", "reward/zero_std_frac"),
    ("curve", "both", 0.3, 0, "verl#5953, rllm#116", "train/entropy"),
    ("curve", "up", 0.05, 0, "ms-swift#6550", "train/kl_ref"),
    ("curve", "both", 0.5, 0, PROPOSED, "train/loss train/loss_decomp/pg train/loss_decomp/entropy"),
    ("curve", "both", 0.5, 0, PROPOSED, "train/loss_decomp/aux train/advantage"),
    ("curve", "up", 0.1, 0, "UniRL#19: 0.53 to 0.36 of reward", "data/clip_ratio"),
    ("curve", "up", 200, 0, "Trinity-RFT#176", "data/response_len data/episode_len"),
    ("curve", "both", 100, 0, PROPOSED, "data/prompt_len"),
    ("curve", "both", 1, 0, PROPOSED, "data/num_turns data/tool_calls"),
    ("peer", "up", 1.2, 0.05, "Minder, arXiv 2505.05713", "bal/rank_active_s bal/rank_idle_s"),
    ("peer", "up", 1.2, 256, "arXiv 2505.05713", "bal/rank_tokens"),
    ("peer", "up", 1.2, 0.05, "Greyhound", "upd/comm_s upd/forward_s upd/backward_s"),
    ("peer", "up", 2, 0.5, "AReaL#548, verl#6673", "rwd/latency_s"),
    ("peer", "up", 1.5, 4, PROPOSED, "gen/requests_running"),
    ("peer", "up", 1.2, 10, "Minder", "node/gpu_temp node/gpu_mem_temp"),
    ("peer", "down", 1.2, 100, "Minder", "node/gpu_sm_clock node/gpu_mem_clock"),
    ("peer", "down", 1.5, 0.2, "Minder", "node/gpu_util proc/gpu_util"),
    ("peer", "both", 1.5, 0.2, "Minder", "node/cpu"),
    ("peer", "both", 1.5, 1, "Minder", "proc/cpu"),
    ("peer", "both", 1.5, 50, "Minder", "node/gpu_power"),
    ("claim", "", 0, 0, "slime#1152, prime-rl#1095", "train/lr"),
    ("claim", "", 0, 0, "rllm#622, vllm#54443: labels may be wrong", "policy_version sync/published_version"),
    ("claim", "", 0, 0, "miles#1724", "svc/replica_restarts svc/recovery_s gen/model_load_s"),
    ("claim", "", 0, 0, "a sleeping engine looks idle", "gen/asleep"),
    ("claim", "", 0, 0, "a setting or a limit", "gen/sampling/temperature gen/sampling/top_p gen/sampling/n"),
    ("claim", "", 0, 0, "a setting or a limit", "gen/sampling/max_tokens gen/kv_capacity mem/capacity node/cpu_limit"),
    ("claim", "", 0, 0, "a setting or a limit", "node/host_mem_limit node/gpu_mem_limit node/gpu_power_limit"),
    ("claim", "", 0, 0, "a counter of what was done", "train/tokens_seen node/gpu_ecc_corrected bal/straggler_rank"),
    ("claim", "", 0, 0, "what the machine did", "node/disk_read_per_s node/disk_write_per_s node/fs_free node/gpus"),
    ("claim", "", 0, 0, "what the machine did", "node/fs_read_per_s node/fs_write_per_s node/net_recv_per_s"),
    ("claim", "", 0, 0, "what the machine did", "node/net_sent_per_s node/rdma_recv_per_s node/rdma_sent_per_s"),
    ("claim", "", 0, 0, "what the machine did", "node/gpu_pcie_recv_per_s node/gpu_pcie_sent_per_s"),
    ("claim", "", 0, 0, "what the machine did", "node/gpu_nvlink_recv_per_s node/gpu_nvlink_sent_per_s"),
    ("claim", "", 0, 0, "why a GPU is slow", "node/gpu_throttle/app_clocks node/gpu_throttle/sw_power"),
    ("claim", "", 0, 0, "why a GPU is slow", "node/gpu_throttle/hw_slowdown node/gpu_throttle/sync_boost"),
    ("claim", "", 0, 0, "why a GPU is slow", "node/gpu_throttle/sw_thermal node/gpu_throttle/hw_thermal"),
    ("claim", "", 0, 0, "why a GPU is slow", "node/gpu_throttle/hw_power_brake node/gpu_throttle/display"),
)
