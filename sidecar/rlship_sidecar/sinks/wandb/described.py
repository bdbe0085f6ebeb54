"""What the job said of the run, as W&B shows it: config, summary, name and so on. Pure.

Settings win over the job: `[sink.wandb]`, then W&B's variables, then what the job said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec
import orjson

from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.run_data.trees import lay_under
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.names import EXTRAS

STORE_ID = "store_id"  # the key of our own mark in the config
DIGEST = "run_data"  # the name below EXTRAS of the digest, by which the server's answer shows what arrived
MAX_NAME = 128  # characters, as the client allows
MAX_TAG = 64
_ARTIFACT, _ARTIFACT_TYPE = "wandb-artifact://", "artifactVersion"


class RunWords(TypedDict):
    """What W&B calls the run; None leaves it to W&B."""

    name: str
    notes: str | None
    tags: list[str] | None
    group: str | None
    job_type: str | None


class Described(TypedDict):
    """All that W&B shows of the run beside its rows. `actors` are those whose keys may stand beside the lead's."""

    words: RunWords
    config: dict[str, Any]
    summary: dict[str, Any]
    actors: list[str]
    digest: str


def described(run: SinkContext, options: Mapping[str, Any], env: Mapping[str, str]) -> Described:
    """What to show of `run.run_data`."""
    data = run.run_data
    words = _words(run, options, env)
    digest = hashlib.sha256(msgspec.json.encode([data, words])).hexdigest()[:16] if not data.is_nothing else ""
    return {
        "words": words,
        "config": _config(data, digest),
        "summary": {_in_summary(name): _plain(value) for name, value in data.summary.items()},
        "actors": data.actors,
        "digest": digest,
    }


def digest_in(config: Mapping[str, Any]) -> str:
    """The digest in a run's config; "" without one."""
    own = config.get(EXTRAS)
    found = own.get(DIGEST) if isinstance(own, dict) else None
    return found if isinstance(found, str) else ""


def _words(run: SinkContext, options: Mapping[str, Any], env: Mapping[str, str]) -> RunWords:
    data = run.run_data
    name = f"{data.name}-replay" if data.name and run.is_replay else data.name
    group = options.get("group") or env.get("WANDB_RUN_GROUP") or data.group
    tags = [*(options.get("tags") or ()), *(data.tags or ())]
    return {
        "name": options.get("name") or env.get("WANDB_NAME") or _short(name) or run.name,
        "notes": data.notes,
        "tags": [*dict.fromkeys(tag[:MAX_TAG] for tag in tags if tag)] if tags or data.tags is not None else None,
        "group": _short(group),
        "job_type": _short(data.job_type),
    }


def _short(text: str | None) -> str | None:
    return text[:MAX_NAME] if text else None


def _config(data: RunData, digest: str) -> dict[str, Any]:
    """The configuration at top level, the labels by actor, and what rlship found out under its own name."""
    if data.is_nothing:
        return {}
    config = {_in_config(name): _plain(value) for name, value in data.config.items()}
    lay_under(config, {_in_config(actor): _plain(labels) for actor, labels in data.labels.items()})
    own: dict[str, Any] = {"facts": _plain(data.facts), "dropped": data.dropped, "left_out": data.left_out}
    own |= {"outcome": data.outcome, DIGEST: digest}
    config[EXTRAS] = {name: value for name, value in own.items() if value}
    return config


def _in_config(name: str) -> str:
    """A name at top level: not ours, and not the one that W&B keeps for itself."""
    return f"{EXTRAS}/{name}" if name in (STORE_ID, EXTRAS, "_wandb") else name


def _in_summary(name: str) -> str:
    """A name at top level: not ours, and not one of W&B's own, such as `_step`."""
    return f"{EXTRAS}/{name}" if name in (STORE_ID, EXTRAS) or name.startswith("_") else name


def _plain(value: Any) -> Any:
    """A value that the client takes for plain data. It would ask the server for an artifact that one names."""
    if b"artifact" not in orjson.dumps(value):
        return value
    if isinstance(value, str):
        return f" {value}" if value.startswith(_ARTIFACT) else value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        plain = {name: _plain(one) for name, one in value.items()}
        if plain.get("_type") == _ARTIFACT_TYPE:
            plain[f"{EXTRAS}/_type"] = plain.pop("_type")
        return plain
    return value
