"""The JSON Schemas in formats/schema, ready to validate with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.spec.vectors import SCHEMAS


@lru_cache(1)
def documents() -> dict[str, dict[str, Any]]:
    """All schemas by the names of their files."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.json"))}


@lru_cache(None)
def _validator(name: str) -> Draft202012Validator:
    resources = [Resource.from_contents(document) for document in documents().values()]
    registry: Registry[Any] = Registry().with_resources([(resource.id() or "", resource) for resource in resources])
    return Draft202012Validator(documents()[name], registry=registry)


def faults(name: str, value: Any) -> list[str]:
    """What a schema finds wrong with a value, nothing if it is valid."""
    return [f"{error.json_path}: {error.message}"[:300] for error in _validator(name).iter_errors(value)]


_OF_ALIKE = 20


def faults_in(folder: Path) -> list[str]:
    """Lines of writers' files anywhere below a folder that are JSON and not valid: of many that are alike only some are
    looked at. `t` is not, as tests have clocks of their own.
    """
    told = []
    for path in sorted(folder.rglob("rlship/*.jsonl")):
        looked_at: dict[tuple[str, ...], int] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            record = _read(line)
            if record is None:
                continue
            alike = (str(record.get("kind")), *record)
            looked_at[alike] = looked_at.get(alike, 0) + 1
            if looked_at[alike] <= _OF_ALIKE:
                found = [fault for fault in faults("record", record) if not fault.startswith("$.t:")]
                told += [f"{path.name}: {line[:200]!r}: {fault}" for fault in found]
    return told


def _read(line: bytes) -> dict[str, Any] | None:
    """A record; None for lines that a full disk or another hand tore, which are no business of schemas."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def valid_lines(folder: Path) -> Iterator[None]:
    """For fixtures: what a test leaves in a folder is valid."""
    yield
    told = faults_in(folder)
    if told:
        raise AssertionError("\n".join(told))
