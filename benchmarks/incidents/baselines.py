"""What simpler ways find: a limit on each metric's deviation, and rankings of metrics with a cause for each.

The rankings are given the step at which the fault really began, which `rlship why` is not.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rlship_sidecar.rows import LEDGER, STEP, Row

WINDOW, Z, NEED = 50, 4.0, (3, 5)
AFTER = 20  # frames behind the beginning that rankings look at

Numbers = NDArray[np.float64]

# By the parts of a metric's name, the cause that its change suggests first of all. The first entry that fits counts.
SUGGESTS: Mapping[str, str] = {
    "sign_wrong": "advantage_sign_flipped",
    "reward_differs": "rewards_misassigned",
    "mask_wrong": "wrong_loss_mask",
    "tokens_differs": "retokenisation_drift",
    "version_disagrees": "weights_not_reloaded",
    "token_align_err": "retokenisation_drift",
    "mask_ratio": "wrong_loss_mask",
    "nonfinite": "nonfinite_gradient",
    "skipped_steps": "nonfinite_gradient",
    "train/lr": "lr_reset_at_resume",
    "train/kl_ref": "kl_explosion",
    "train/grad_norm": "kl_explosion",
    "train/ppo_kl": "lr_reset_at_resume",
    "train/entropy": "entropy_collapse",
    "zero_std": "constant_reward",
    "logp_diff": "weights_not_reloaded",
    "k3_kl": "sync_corrupts_weights",
    "is_ess": "sync_corrupts_weights",
    "chi2": "prefix_cache_survives_update",
    "importance_ratio": "prefix_cache_survives_update",
    "clip_frac": "too_off_policy",
    "staleness": "too_off_policy",
    "buf/queue": "too_off_policy",
    "buf/size": "too_off_policy",
    "policy_lag": "stale_replica",
    "policy_version": "stale_replica",
    "evicted": "stale_replica",
    "stale_dropped": "stale_replica",
    "dup_ids": "prompts_repeated",
    "unique_prompt": "prompts_repeated",
    "clip_ratio": "truncation_zeroes_reward",
    "response_len": "length_blowup",
    "step_tokens": "length_blowup",
    "rwd/latency": "reward_timeout",
    "rwd/timeouts": "reward_timeout",
    "rwd/part": "reward_hacking",
    "eval/score": "reward_hacking",
    "reward/total": "constant_reward",
    "kv_usage": "kv_thrash",
    "preemptions": "kv_thrash",
    "gen/tpot": "kv_thrash",
    "gen/queue": "kv_thrash",
    "requests_": "kv_thrash",
    "decode_tokens": "dead_rank",
    "coverage/missing": "dead_rank",
    "rank_active": "thermal_straggler",
    "gpu_temp": "thermal_straggler",
    "gpu_sm_clock": "thermal_straggler",
    "throttle": "thermal_straggler",
    "upd/comm": "network_fail_slow",
    "rank_tokens": "unequal_lengths",
    "rank_idle": "unequal_lengths",
    "mem/": "fragmentation",
}

# By rule, the causes that it suggests.
RULES: Mapping[str, tuple[str, ...]] = {
    "divergence": ("kl_explosion", "lr_reset_at_resume", "nonfinite_gradient"),
    "memory": ("fragmentation",),
    "allocation": ("fragmentation",),
    "dynamic_batch": ("length_blowup", "unequal_lengths"),
    "imbalance": ("thermal_straggler", "unequal_lengths"),
    "inference": ("truncation_zeroes_reward", "length_blowup"),
    "mismatch": ("weights_not_reloaded", "sync_corrupts_weights", "wrong_loss_mask"),
    "stale_policy": ("too_off_policy", "stale_replica", "recovered_engine_old_weights"),
    "reward_fault": ("reward_timeout", "constant_reward", "truncation_zeroes_reward"),
    "ledger_breach": ("retokenisation_drift", "prompts_repeated", "weights_not_reloaded"),
    "kv_thrash": ("kv_thrash",),
    "stall": ("network_fail_slow", "dead_rank"),
    "lost_or_slow_place": ("dead_rank", "recovered_engine_old_weights"),
}


class Series:
    """The newest values of a run as one column for each key, by step of the trainer; NaN where a step lacks it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        found: dict[int, dict[str, float]] = {}
        for row in rows:
            if row.unit.kind in (STEP, LEDGER, "aligned"):
                found.setdefault(row.unit.index, {}).update(_values(row))
        self.keys = sorted({key for values in found.values() for key in values})
        self.steps = sorted(found)
        place = {key: at for at, key in enumerate(self.keys)}
        self.values: Numbers = np.full((len(found), len(self.keys)), np.nan)
        for at, step in enumerate(self.steps):
            for key, value in found[step].items():
                self.values[at, place[key]] = value

    def deviations(self) -> Numbers:
        """Each value's distance from the median of the WINDOW before it, in its median absolute deviations."""
        z = np.zeros_like(self.values)
        if len(self.values) <= WINDOW:
            return z
        windows = sliding_window_view(self.values[:-1], WINDOW, axis=0)
        with np.errstate(all="ignore"):
            middle = np.median(windows, axis=-1)
            spread = 1.4826 * np.median(np.abs(windows - middle[..., None]), axis=-1)
            z[WINDOW:] = np.abs(self.values[WINDOW:] - middle) / np.maximum(spread, 1e-9)
        return np.nan_to_num(z, nan=0.0, posinf=1e9)

    def alarms(self) -> list[int]:
        """The steps at which some metric begins to be far, in NEED[0] of NEED[1] frames."""
        far = self.deviations() >= Z
        counts = np.cumsum(far.astype(np.int64), axis=0)
        counts[NEED[1] :] -= counts[: -NEED[1]].copy()
        firing = counts >= NEED[0]
        begins = firing & ~np.vstack([np.zeros((1, firing.shape[1]), bool), firing[:-1]])
        return [self.steps[at] for at, _ in zip(*np.nonzero(begins))]

    def ranked(self, onset: int, how: str) -> list[str]:
        """Keys, the most suspect first: by the time of their first deviation, by the greatest, or by BARO's score."""
        at = int(np.searchsorted(self.steps, onset))
        if how == "BARO":
            before, after = self.values[max(0, at - WINDOW) : at], self.values[at : at + AFTER]
            with warnings.catch_warnings():  # of keys without any value
                warnings.simplefilter("ignore", RuntimeWarning)
                low, middle, high = np.nanpercentile(before, (25, 50, 75), axis=0)
                width = np.where(high - low > 0, high - low, 1.0)
                score = np.nanmax(np.abs(after - middle), axis=0) / width
            order = np.argsort(-np.nan_to_num(score, nan=-1.0), kind="stable")
            return [self.keys[one] for one in order]
        z = self.deviations()[at : at + AFTER]
        if how == "largest":
            return [self.keys[one] for one in np.argsort(-z.max(axis=0), kind="stable")]
        far = z >= 6
        first = np.where(far.any(axis=0), far.argmax(axis=0), AFTER)
        order = np.lexsort((-z.max(axis=0), first))
        return [self.keys[one] for one in order]


def _values(row: Row) -> dict[str, float]:
    values: dict[str, Any] = {key: value for key, value in row.values.items() if "argm" not in key}
    return values


def causes_of(keys: Sequence[str]) -> list[str]:
    """The causes that keys suggest, each once, in their order."""
    found: dict[str, None] = {}
    for key in keys:
        for part, cause in SUGGESTS.items():
            if part in key:
                found.setdefault(cause)
                break
    return list(found)
