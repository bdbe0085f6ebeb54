"""What the job said of the run, as a status has it and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

import orjson

from rlship_formats.reading import RUN_TEXTS
from rlship_sidecar.report.ended import patience_s
from rlship_sidecar.report.status import RunStatus, WriterStatus
from rlship_sidecar.report.terminal import clean, counted
from rlship_sidecar.run_data.merging import OPEN, RunData
from rlship_sidecar.run_data.said import brief
from rlship_sidecar.run_data.trees import leaves

RUNNING, UNKNOWN = "running", "unknown"
MAX_KEYS = 100  # of a part in a status
MAX_SHOWN = 1000  # characters of a line
MAX_VALUE = 60
COMMIT = 12  # characters
SHOWN_FACTS = ("host", "python", "job")
SHOWN_PACKAGES = ("torch", "transformers", "vllm", "verl")


def run_status(data: RunData, changes: int, writers: Collection[WriterStatus], lead: str) -> RunStatus | None:
    """The status of the data; None if no writer said anything. `changes` counts those of its keys."""
    if data.is_nothing:
        return None
    config, summary = dict(leaves(data.config)), dict(leaves(data.summary))
    texts: dict[str, Any] = {name: getattr(data, name) for name in RUN_TEXTS}
    return RunStatus(
        outcome=_outcome(data, writers, lead),
        **texts,
        tags=data.tags,
        config=_first(config),
        config_keys=len(config),
        summary=_first(summary),
        summary_keys=len(summary),
        facts=_first(dict(leaves(data.facts))),
        labels=data.labels,
        changes=changes,
        dropped=data.dropped,
        left_out=data.left_out,
    )


def _first(keys: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    return {".".join(key): brief(value) for key, value in islice(keys.items(), MAX_KEYS)}


def _outcome(data: RunData, writers: Collection[WriterStatus], lead: str) -> str:
    """An open outcome is that of a job that runs while a process of the actor that decides lives."""
    if data.outcome != OPEN:
        return data.outcome
    actors = {writer.actor for writer in writers if not writer.observes}
    deciding = lead if lead in actors else min(actors, default="")
    awaited = [writer for writer in writers if writer.awaited and writer.actor == deciding and not writer.failure]
    return RUNNING if any(writer.silent_s < patience_s(writer) and not writer.gone for writer in awaited) else UNKNOWN


def run_lines(run: RunStatus, *, over: bool) -> list[str]:
    """The lines that a person sees. `over`: every process of the job has ended since the status was made."""
    outcome = UNKNOWN if over and run.outcome == RUNNING else run.outcome
    about = [outcome]
    if run.tags:
        about.append(f"tags {', '.join(run.tags)}")
    if run.group:
        about.append(f"group {run.group}")
    if commit := run.facts.get("git"):
        about.append(f"git {_brief(commit)[:COMMIT]}{' (changed)' if run.facts.get('git_dirty') is True else ''}")
    about += [f"{name} {_brief(run.facts[name])}" for name in SHOWN_FACTS if run.facts.get(name)]
    versions = {name: run.facts.get(f"packages.{name}") for name in SHOWN_PACKAGES}
    about += [f"{name} {_brief(version)}" for name, version in versions.items() if version]
    if run.changes:
        about.append(f"{counted(run.changes, 'change')} of what was said first: rlship query, table run_changes")
    lines = [_line(f"{f'run {run.name}' if run.name else 'run'}: {'; '.join(about)}")]
    for part, keys, count in (("config", run.config, run.config_keys), ("summary", run.summary, run.summary_keys)):
        if keys:
            more = f" (all {count}: rlship query, table run)" if count > len(keys) else ""
            lines.append(_line(f"{part}: {_pairs(keys)}{more}"))
    lines += [_line(f"labels {actor}: {_pairs(labels)}") for actor, labels in sorted(run.labels.items())]
    if run.dropped:
        lines.append(_line(f"not written because they look like secrets: {', '.join(run.dropped)}"))
    if run.left_out:
        lines.append(f"{counted(run.left_out, 'value')} left out: docs/semantics.md has the bounds of a run's data")
    return lines


def _pairs(keys: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_brief(value)}" for key, value in keys.items())


def _brief(value: Any) -> str:
    return clean(value if isinstance(value, str) else orjson.dumps(value).decode(), MAX_VALUE)


def _line(text: str) -> str:
    return clean(text, MAX_SHOWN)
