"""Objects of JSON as trees of keys. Pure.

A key is the path of names down to a leaf, and a leaf is whatever is not a non-empty object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import orjson

MAX_DEPTH = 100  # names of a key, and arrays and objects around any value: more cannot be written as JSON everywhere
_NUMBER_SIZE = 8

Tree: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, ...]


def is_inner(value: object) -> bool:
    """Whether a value is a non-empty object, and so no leaf."""
    return type(value) is dict and bool(value)


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same in JSON. An integer and a double are not; the order of members does not count."""
    options = orjson.OPT_SORT_KEYS
    return orjson.dumps(a, option=options) == orjson.dumps(b, option=options)


def leaves(tree: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
    """Every key with its value, in the tree's order. What lies below `MAX_DEPTH` names is one value."""
    waiting: list[Iterator[tuple[Key, Any]]] = [iter([((name,), value) for name, value in tree.items()])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
            continue
        key, value = found
        if is_inner(value) and len(key) < MAX_DEPTH:
            waiting.append(iter([((*key, name), below) for name, below in value.items()]))
        else:
            yield key, value


def depth_and_size(value: Any) -> tuple[int, int]:
    """How deep arrays and objects are nested in a value, and how long it is: characters of texts and names, and 8 for
    anything else.
    """
    deepest = size = 0
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if type(one) is str:
            size += len(one)
        elif type(one) is dict:
            size += sum(map(len, one))
            waiting += [(below, depth + 1) for below in one.values()]
            deepest = max(deepest, depth + 1)
        elif type(one) is list:
            waiting += [(below, depth + 1) for below in one]
            deepest = max(deepest, depth + 1)
        else:
            size += _NUMBER_SIZE
    return deepest, size


def put(tree: Tree, key: Key, value: Any) -> None:
    """Set a key. A leaf on the way to it, or an object in its place, is replaced."""
    for name in key[:-1]:
        if not is_inner(tree.get(name)):
            tree[name] = {}
        tree = tree[name]
    tree[key[-1]] = value


def replaced_by(tree: Tree, key: Key) -> Tree:
    """What `put` would replace: the leaf on the way, or what is at the key, as a tree of its own; {} if nothing."""
    found: Tree = {}
    for place, name in enumerate(key):
        if name not in tree:
            return {}
        value = tree[name]
        if not is_inner(value) or place == len(key) - 1:
            put(found, key[: place + 1], value)
            return found
        tree = value
    return {}


def lay_under(tree: Tree, lower: Mapping[str, Any]) -> None:
    """Add those keys of `lower` that meet nothing in the tree. Its objects become parts of the tree."""
    for name, value in lower.items():
        if name not in tree:
            tree[name] = value
        elif is_inner(tree[name]) and is_inner(value):
            lay_under(tree[name], value)


def contradictions(tree: Mapping[str, Any], other: Mapping[str, Any]) -> Tree:
    """The part of `other` in whose place the tree has another value."""
    found: Tree = {}
    for name, value in other.items():
        if name not in tree:
            continue
        if is_inner(tree[name]) and is_inner(value):
            if below := contradictions(tree[name], value):
                found[name] = below
        elif not same(tree[name], value):
            found[name] = value
    return found


def changed(
    before: Mapping[str, Any], after: Mapping[str, Any], by: Mapping[str, Any]
) -> Iterator[tuple[Key, Any, Any]]:
    """(key, value before, value after) where both trees have a value, they differ, and the tree `by` has the key."""
    for name in by:
        if name not in before or name not in after:
            continue
        old, new = before[name], after[name]
        if is_inner(old) and is_inner(new):
            below = by[name] if is_inner(by[name]) else new
            yield from (((name, *key), *values) for key, *values in changed(old, new, below))
        elif not same(old, new):
            yield (name,), old, new
