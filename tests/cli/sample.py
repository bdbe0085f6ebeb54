"""A status as the daemon would write it, for tests to vary."""

from __future__ import annotations

from typing import Any

from rlship_sidecar.report.status import ActorStatus, DeadLetterStatus, SinkStatus, Status, WriterStatus


def an_actor(**changes: Any) -> ActorStatus:
    """Trainer at step 12 with four ranks."""
    values: dict[str, Any] = {
        "actor": "trainer",
        "ranks_seen": 4,
        "ranks_expected": 4,
        "step": 12,
        "open_step": 13,
        "open_units": 1,
        "lag_s": 0.84,
    }
    return ActorStatus(**(values | changes))


def a_writer(**changes: Any) -> WriterStatus:
    """Rank 0 of the trainer."""
    values: dict[str, Any] = {
        "file": "trainer-0-r0-n07-4121-9f2c.jsonl",
        "actor": "trainer",
        "replica": "0",
        "rank": 0,
        "attempt": 0,
        "step": 13,
        "barrier": 12,
        "silent_s": 0.2,
        "unread": 17,
        "closed": False,
    }
    return WriterStatus(**(values | changes))


def a_sink(**changes: Any) -> SinkStatus:
    """The W&B sink, two rows behind. Everything sent is confirmed, unless `sent` says otherwise."""
    values: dict[str, Any] = {
        "name": "wandb",
        "state": "shipping",
        "next_row": 118,
        "where": "wandb/x",
    } | changes
    return SinkStatus(**({"sent": values["next_row"]} | values))


def a_dead_letter(**changes: Any) -> DeadLetterStatus:
    """A line that is not JSON."""
    values: dict[str, Any] = {
        "file": "reward.jsonl",
        "reason": "not JSON",
        "count": 3,
        "offset": 812,
        "excerpt": "{oops",
    }
    return DeadLetterStatus(**(values | changes))


def a_status(**changes: Any) -> Status:
    """An experiment of one actor with 120 rows; `changes` replace fields."""
    values: dict[str, Any] = {
        "experiment": "/outputs/grpo-7b",
        "t": 1763600000.0,
        "store_id": "5f3a",
        "filesystem": "ext4",
        "rows": 120,
        "complete": True,
        "actors": [an_actor()],
        "writers": [a_writer()],
        "sinks": [a_sink()],
        "dead_letters": [],
        "dead_letter_count": 0,
        "dead_value_count": 0,
    }
    return Status(**(values | changes))
