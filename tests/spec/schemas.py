"""The JSON Schemas in formats/schema, ready to validate with."""

from __future__ import annotations

import json
from functools import lru_cache
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
