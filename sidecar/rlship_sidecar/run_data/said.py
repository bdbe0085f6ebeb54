"""What one writer said of the run, record by record, within bounds. Pure.

docs/semantics.md, "What a run is", has the rules. A part is kept as its JSON: most ranks of an actor say the same, and
then share it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import orjson

from rlship_formats.reading import RUN_TEXTS, Run
from rlship_formats.records import MAX_RUN_KEYS
from rlship_sidecar.run_data.trees import (
    MAX_DEPTH,
    Key,
    Tree,
    changed,
    depth_and_size,
    lay_under,
    leaves,
    put,
    replaced_by,
)

PARTS = ("config", "summary", "facts")
TRACED = ("config", "facts")  # parts whose changes are listed: a summary is there to change
OWN = "run"  # the part of a change of a text, or of the tags
MAX_PART_SIZE = 1 << 22  # of one part of one writer, by `depth_and_size`
MAX_CHANGES = 1000  # of one writer
MAX_CHANGE_SIZE = 1000  # a longer value is null in a change
MAX_DROPPED = 1000
MAX_FIRST = 1 << 24  # characters of the first values of a part
NOTHING = b"{}"
MAX_WHOLE = 1 << 53  # from here on readers of JSON may round


class Edit(NamedTuple):
    """At `t` a key got another value. `part` is one of TRACED, or OWN; then `key` has one name, such as `tags`."""

    t: float
    part: str
    key: Key
    before: Any
    after: Any


class About(msgspec.Struct):
    """All of what a writer said but for PARTS. `began` is the time of its first record, None before it.

    `left_out` counts values that met a bound, and changes that are not listed. `edits` are those within its own file.
    `first` has, for each part with an edit, the first value of every key, in JSON.
    """

    began: float | None = None
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    tags: list[str] | None = None
    exit_code: int | None = None
    dropped: list[str] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    edits: list[Edit] = msgspec.field(default_factory=list)
    first: dict[str, str] = msgspec.field(default_factory=dict)
    left_out: int = 0


class Said(msgspec.Struct):
    """What a writer said so far. PARTS are JSON objects."""

    config: bytes = NOTHING
    summary: bytes = NOTHING
    facts: bytes = NOTHING
    about: About = msgspec.field(default_factory=About)

    @property
    def is_nothing(self) -> bool:
        """Whether it said nothing of the run yet."""
        return self.about.began is None

    def tree(self, part: str) -> Tree:
        """One of PARTS, in a copy."""
        found: Tree = orjson.loads(getattr(self, part))
        return found

    def own(self) -> Tree:
        """The texts and the tags."""
        own: Tree = dict(self.about.texts)
        return own if self.about.tags is None else {**own, "tags": list(self.about.tags)}

    def first(self, part: str) -> Tree:
        """The first value of each key of a part, or of OWN."""
        kept = self.about.first.get(part)
        if kept is not None:
            found: Tree = orjson.loads(kept)
            return found
        return self.own() if part == OWN else self.tree(part)

    def take(self, record: Run) -> None:
        """Take the writer's next record."""
        about = self.about
        about.began = record.t if about.began is None else about.began
        for part in PARTS:
            if given := getattr(record, part):
                self._update(part, given, record.t)
        own = {name: text for name in RUN_TEXTS if (text := getattr(record, name)) is not None}
        if own or record.tags is not None:
            self._rename(own, record)
        if record.exit_code is not None:
            about.exit_code = record.exit_code
        if record.dropped:
            new = [path for path in dict.fromkeys(record.dropped) if path not in about.dropped]
            about.dropped += new[: MAX_DROPPED - len(about.dropped)]

    def _update(self, part: str, given: Mapping[str, Any], t: float) -> None:
        before = getattr(self, part)
        after, left_out = updated(before, given)
        self.about.left_out += left_out
        if part in TRACED and before != NOTHING:
            self._trace(part, t, orjson.loads(before), orjson.loads(after), given)
        setattr(self, part, after)

    def _rename(self, own: Tree, record: Run) -> None:
        before, about = self.own(), self.about
        about.texts.update(own)
        if record.tags is not None:
            own["tags"] = about.tags = list(record.tags)
        self._trace(OWN, record.t, before, self.own(), own)

    def _trace(self, part: str, t: float, before: Tree, after: Tree, given: Mapping[str, Any]) -> None:
        """Note the edits of a record that gave these values to a part."""
        about, found = self.about, [*changed(before, after, given)]
        for key, old, new in found:
            if len(about.edits) < MAX_CHANGES:
                about.edits.append(Edit(t, part, key, brief(old), brief(new)))
            else:
                about.left_out += 1
        known = about.first.get(part)
        if found or known is not None:
            first = before if known is None else orjson.loads(known)
            if known is None or len(known) <= MAX_FIRST:
                lay_under(first, after)
                about.first[part] = orjson.dumps(first).decode()


def updated(before: bytes, given: Mapping[str, Any]) -> tuple[bytes, int]:
    """A part with the keys of `given`, and how many of them do not fit."""
    try:
        text = orjson.dumps(given)
    except TypeError:  # nested too deeply to be written
        tree = orjson.loads(before)
        left_out = update(tree, given)
        return orjson.dumps(tree), left_out
    return _updated(before, text)


@lru_cache(16)
def _updated(before: bytes, given: bytes) -> tuple[bytes, int]:
    """Ranks say the same one after the other, so that most of them cost a look."""
    tree = orjson.loads(before)
    left_out = update(tree, orjson.loads(given))
    return orjson.dumps(tree), left_out


def update(tree: Tree, given: Mapping[str, Any]) -> int:
    """Set every key of `given` that fits, in its order; returns how many do not."""
    sizes = [_size(key, value) for key, value in leaves(tree)]
    keys, size, left_out = len(sizes), sum(sizes), 0
    for key, value in leaves(given):
        depth, long = depth_and_size(value)
        long += sum(map(len, key))
        gone = [_size(below, one) for below, one in leaves(replaced_by(tree, key))]
        if (
            len(key) + depth > MAX_DEPTH
            or keys - len(gone) + 1 > MAX_RUN_KEYS
            or size - sum(gone) + long > MAX_PART_SIZE
        ):
            left_out += 1
            continue
        put(tree, key, value)
        keys, size = keys - len(gone) + 1, size - sum(gone) + long
    return left_out


def _size(key: Key, value: Any) -> int:
    return sum(map(len, key)) + depth_and_size(value)[1]


def brief(value: Any) -> Any:
    """A value as a change shows it: None if it is too long."""
    return value if depth_and_size(value)[1] <= MAX_CHANGE_SIZE else None


def typed(labels: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    """Labels with the numbers and bools of which they are the texts, because files keep labels as text.

    Only the text that `str` gives counts. So "007" and "1.10" stay as they are, and so does a number that no JSON has.
    """
    return {name: _typed(text) for name, text in labels.items()}


def _typed(text: str) -> str | int | float | bool:
    if text in ("True", "False"):
        return text == "True"
    with suppress(ValueError):
        if str(whole := int(text)) == text and abs(whole) < MAX_WHOLE:
            return whole
    with suppress(ValueError):
        if repr(real := float(text)) == text and math.isfinite(real):
            return real
    return text
