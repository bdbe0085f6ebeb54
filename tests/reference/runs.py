"""What a run is: docs/semantics.md, "What a run is", read literally, on flat keys.

The bounds are not here: experiments of these tests do not meet them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.experiment import read_experiment
from tests.reference.order import rank_order
from tests.reference.records import Writer
from tests.reference.settings import NO_OVERRIDES, Settings

Keys = dict[tuple[str, ...], Any]
TEXTS = ("name", "notes", "group", "project", "entity", "job_type")
PARTS = ("config", "summary", "facts")


def run_data(files: Mapping[str, bytes], lead: str = "trainer") -> dict[str, Any]:
    """The merged data of the complete lines of all files."""
    actors = actors_of(files, lead)
    saying = {actor: [writer for writer in crew if writer.runs] for actor, crew in actors.items()}
    merged: dict[str, Any] = {part: merged_part(part, saying) for part in PARTS}
    every = [writer for crew in saying.values() for writer in crew]
    for name in (*TEXTS, "tags"):
        found = [last(writer, name) for writer in every if last(writer, name) is not None]
        merged[name] = found[0] if found else None
    merged["dropped"] = sorted(
        {path for writer in every for _, said in writer.runs for path in said.get("dropped", ())}
    )
    merged["outcome"] = outcome(next(iter(actors.values()), []))
    return merged


def run_changes(files: Mapping[str, bytes], lead: str = "trainer") -> list[tuple[Any, ...]]:
    """(t, file, part, key, before, after) of every change, in order."""
    return [change for crew in actors_of(files, lead).values() for change in changes_of(crew)]


def actors_of(files: Mapping[str, bytes], lead: str) -> dict[str, list[Writer]]:
    """The writers of each actor, those that decide first; the lead first, others by code point."""
    experiment = read_experiment(files, NO_OVERRIDES, Settings(lead=lead))
    names = sorted({writer.actor for writer in experiment.writers})
    names.sort(key=lambda name: name != lead)
    return {name: in_order(experiment.crew(name)) for name in names}


def in_order(crew: Sequence[Writer]) -> list[Writer]:
    """The higher start, then the lowest rank, then roots before children, then the process that opened later."""
    ordered = sorted(crew, key=lambda writer: (writer.t, writer.id, writer.file), reverse=True)
    ordered.sort(key=lambda writer: (rank_order(root_of(writer)), root_of(writer) is not writer))
    return sorted(ordered, key=lambda writer: start(writer), reverse=True)


def root_of(writer: Writer) -> Writer:
    assert writer.root is not None
    return writer.root


def start(writer: Writer) -> tuple[int, int]:
    return root_of(writer).submission, root_of(writer).attempt


def keys_of(tree: Any, above: tuple[str, ...] = ()) -> Keys:
    """The paths down to what is not a non-empty object."""
    if not isinstance(tree, dict) or not tree:
        return {above: tree}
    return {key: leaf for name, value in tree.items() for key, leaf in keys_of(value, (*above, name)).items()}


def part_of(record: Mapping[str, Any], part: str) -> Keys:
    return keys_of(record[part]) if record.get(part) else {}


def clashes(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """One of two keys is the other, or lies above it."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def said(writer: Writer, part: str) -> Keys:
    """What a writer said in the end: later records update key by key."""
    keys: Keys = {}
    for _, record in writer.runs:
        for key, value in part_of(record, part).items():
            keys = {other: one for other, one in keys.items() if not clashes(other, key)} | {key: value}
    return keys


def last(writer: Writer, name: str) -> Any:
    found = [record[name] for _, record in writer.runs if name in record]
    return found[-1] if found else None


def merged_part(part: str, saying: Mapping[str, Sequence[Writer]]) -> Keys:
    """One actor after the other; what meets another value stands under the actor's name too."""
    merged: Keys = {}
    prefixed: list[Keys] = []
    for actor, crew in saying.items():
        own: Keys = {}
        for writer in crew:
            own |= without_clashes(said(writer, part), own)
        against = {
            key: value
            for key, value in own.items()
            if not any(key == other and equal(value, one) for other, one in merged.items())
            and any(clashes(key, other) for other in merged)
        }
        merged |= without_clashes(own, merged)
        prefixed.append({(f"{actor}/{key[0]}", *key[1:]): value for key, value in against.items()})
    for keys in prefixed:
        merged |= without_clashes(keys, merged)
    return merged


def without_clashes(keys: Keys, taken: Keys) -> Keys:
    return {key: value for key, value in keys.items() if not any(clashes(key, other) for other in taken)}


def equal(a: Any, b: Any) -> bool:
    """The same JSON value: an integer and a double are not, nor a boolean and a number."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


def outcome(crew: Sequence[Writer]) -> str:
    """How the newest start of an actor ended; of each rank its last life counts."""
    roots = [writer for writer in crew if root_of(writer) is writer]
    newest: dict[Any, Writer] = {}
    for writer in roots:
        if start(writer) == start(roots[0]):
            newest.setdefault(rank_order(writer), writer)
    ends = [end(writer) for writer in newest.values()]
    if not ends:
        return ""
    return "failed" if "failed" in ends else "open" if "open" in ends else "finished"


def end(writer: Writer) -> str:
    code = last(writer, "exit_code")
    if code is not None:
        return "failed" if code else "finished"
    return "failed" if writer.failed else "open" if writer.closed is None else "finished"


def tree_of(keys: Keys) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        place = tree
        for name in key[:-1]:
            place = place.setdefault(name, {})
        place[key[-1]] = value
    return tree


def changes_of(crew: Sequence[Writer]) -> list[tuple[Any, ...]]:
    """Of the lowest rank that said anything, in the order of its lives: each key that got another value."""
    saying = [writer for writer in crew if writer.runs and root_of(writer) is writer]
    lowest = min(map(rank_order, saying), default=None)
    lives = [writer for writer in saying if rank_order(writer) == lowest]
    lives.sort(key=lambda writer: (start(writer), writer.t, writer.id, writer.file))
    found: list[tuple[Any, ...]] = []
    known: dict[str, Keys] = {"config": {}, "facts": {}, "run": {}}
    for writer in lives:
        began = writer.runs[0][0]
        later: list[tuple[Any, ...]] = []
        first: dict[str, Keys] = {part: {} for part in known}
        now: dict[str, Keys] = {part: {} for part in known}
        for t, record in writer.runs:
            for part in ("config", "facts", "run"):
                given = own_part(record) if part == "run" else part_of(record, part)
                before = now[part]
                for key, value in given.items():
                    now[part] = {other: one for other, one in now[part].items() if not clashes(other, key)}
                    now[part][key] = value
                later += [(t, writer.file, part, *one) for one in differing(before, now[part], given)]
                first[part] |= without_clashes(now[part], first[part])
        for part in known:
            found += [(began, writer.file, part, *one) for one in differing(known[part], first[part], first[part])]
        found += later
        known = {part: now[part] | without_clashes(known[part], now[part]) for part in known}
    return found


def own_part(record: Mapping[str, Any]) -> Keys:
    return {(name,): record[name] for name in (*TEXTS, "tags") if name in record}


def differing(before: Keys, after: Keys, given: Keys) -> list[tuple[Any, ...]]:
    """(key, before, after) at the highest place where both have something, and not both a non-empty object."""
    found: dict[tuple[str, ...], tuple[Any, Any]] = {}
    for key in given:
        for length in range(1, len(key) + 1):
            place = key[:length]
            old, new = at(before, place), at(after, place)
            if old is NOTHING or new is NOTHING:
                break
            if isinstance(old, dict) and isinstance(new, dict) and old and new:
                continue
            if not equal(old, new):
                found.setdefault(place, (old, new))
            break
    return [(place, *values) for place, values in found.items()]


NOTHING = object()


def at(keys: Keys, place: tuple[str, ...]) -> Any:
    """What stands at a place: a leaf, or an object of what lies below."""
    if place in keys:
        return keys[place]
    below = {key[len(place) :]: value for key, value in keys.items() if key[: len(place)] == place}
    return tree_of(below) if below else NOTHING
