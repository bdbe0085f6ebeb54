"""What a process says of its run: configuration, summary, name and the like, and the `run` records that say it.

The writing thread makes the records. So a call only notes its values, many calls make one record, and a full buffer
drops none.
"""

from __future__ import annotations

from operator import index

from .encode import MAX_LINE_BYTES, json_string, size_of
from .settings import Settings, pairs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    from .settings import Path

    Tree: TypeAlias = dict[str, Any]  # of trees and JSON texts

MAX_KEYS = 10_000  # of config, and of summary
_MAX_BYTES = 4 << 20  # of the JSON of each
_MAX_DROPPED = 1000
_HEAD_BYTES = 64
_DROPPED = ("dropped",)

OBJECTS = ("config", "summary", "facts")
_TEXTS = ("name", "notes", "group", "project", "entity", "job_type")
MEMBERS = (*OBJECTS, *_TEXTS, "tags", "dropped", "exit_code")
MAX_EXIT_CODE = 255


class RunData:
    """The newest leaf at each path. It has no lock: the caller holds one.

    Attributes: `waits`, whether `take` may have something; `leads`, whether the records come before all other lines.
    """

    def __init__(self) -> None:
        self._leaves: dict[Path, str] = {}
        self._waiting: dict[Path, str] = {}  # those that no record has yet
        self._above: set[Path] = set()  # paths that are, or were, above a leaf
        self._emptied: dict[Path, str] = {}  # above a leaf, a leaf, and above other leaves again: no record says that
        self._dropped: dict[str, bool] = {}  # whether a record names the path
        self._keys: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._t = 0.0
        self.waits = False
        self.leads = True

    def put(self, found: Settings, t: float) -> list[Path]:
        """Note leaves and the paths of secrets at time `t`. Returns the paths that it leaves out as too much."""
        if not (self.leads and self.waits):  # lines that a record leads are not older than it
            self._t = t
        self.waits = True
        refused = [path for path, text in found.leaves.items() if not self._put(path, text)]
        for path in found.dropped:
            self._withdraw(path)
            if len(self._dropped) < _MAX_DROPPED:
                self._dropped.setdefault(".".join(path)[:200], False)
        return refused

    def take(self) -> list[str]:
        """The records of what none has said yet."""
        new = [path for path, named in self._dropped.items() if not named]
        self.waits = False
        if not self._waiting and not new:
            return []
        waiting, self._waiting = self._waiting, {}
        emptied, self._emptied = self._emptied, {}
        self._dropped |= dict.fromkeys(new, True)
        return lines(emptied, self._t) + lines(waiting | _named(new), self._t)

    def all(self) -> list[str]:
        """The records of everything. What waits goes on waiting: older lines may come between these and its own."""
        return lines(self._leaves | _named(self._dropped), self._t)

    def _put(self, path: Path, text: str) -> bool:
        member, before = path[0], self._leaves.get(path)
        if before is None:
            self._make_room(path)
        keys = self._keys.get(member, 0) + (before is None)
        size = self._bytes.get(member, 0) + len(text) - len(before or "")
        if keys > MAX_KEYS or size > _MAX_BYTES:
            return False
        self._keys[member], self._bytes[member] = keys, size
        self._leaves[path] = self._waiting[path] = text
        return True

    def _make_room(self, path: Path) -> None:
        """Remove the leaves that a leaf at `path` replaces: above it, and all below it."""
        for length in range(1, len(path)):
            above = path[:length]
            if above in self._waiting and above in self._above:
                self._empty(above)
            self._withdraw(above)
            self._above.add(above)
        if path in self._above:
            for below in [known for known in self._leaves if known[: len(path)] == path]:
                self._withdraw(below)

    def _empty(self, path: Path) -> None:
        """What records said below a path is gone. The leaf that took its place will be in none; `{}` is, instead."""
        if any(path[:length] in self._emptied for length in range(1, len(path) + 1)):
            return
        for below in [known for known in self._emptied if known[: len(path)] == path]:
            del self._emptied[below]
        self._emptied[path] = "{}"

    def _withdraw(self, path: Path) -> None:
        before = self._leaves.pop(path, None)
        self._waiting.pop(path, None)
        if before is not None:
            self._keys[path[0]] -= 1
            self._bytes[path[0]] -= len(before)


def _named(dropped: Iterable[str]) -> dict[Path, str]:
    texts = ",".join(map(json_string, dropped))
    return {_DROPPED: f"[{texts}]"} if texts else {}


def read(members: dict[str, Any], report: Callable[[str, str], object]) -> Settings:
    """The leaves of members of a `run` record, None for those that are not given. Calls `report(path, why)`."""
    found = Settings(report)
    for member, value in members.items():
        if value is None:
            continue
        if member in OBJECTS:
            _add_object(found, member, value, report)
        elif member in _TEXTS:
            found.add((member,), str(value))
        elif member == "tags" or member == "dropped":
            _add_texts(found, member, value, report)
        elif member == "exit_code":
            _add_code(found, value, report)
        else:
            report(member, f"it is not known: use {', '.join(MEMBERS)}; it is left out")
    return found


def _add_object(found: Settings, member: str, value: Any, report: Callable[[str, str], object]) -> None:
    pairs = pairs_of(value)
    if pairs is None and callable(getattr(value, "to_dict", None)):  # of transformers and ml_collections
        pairs = pairs_of(value.to_dict())
    if pairs is None:
        report(member, f"it takes names and values, as a dict, not {type(value).__name__}; it is left out")
    elif pairs:
        found.add((member,), dict(pairs))


def _add_texts(found: Settings, member: str, value: Any, report: Callable[[str, str], object]) -> None:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple, set, frozenset)):
        report(member, f"it takes a list of texts, not {type(value).__name__}; it is left out")
        return
    texts = sorted(map(str, value)) if isinstance(value, (set, frozenset)) else [*map(str, value)]
    if member == "dropped":
        found.dropped += [(text,) for text in texts]
    else:
        found.add((member,), texts)


def _add_code(found: Settings, value: Any, report: Callable[[str, str], object]) -> None:
    try:
        code = index(value)
    except TypeError:
        code = MAX_EXIT_CODE + 1
    if isinstance(value, bool) or not -MAX_EXIT_CODE <= code <= MAX_EXIT_CODE:
        report("exit_code", f"{value!r:.40} is not an integer from -255 to 255; it is left out")
    else:
        found.add(("exit_code",), code)


def lines(leaves: dict[Path, str], t: float) -> list[str]:
    """The `run` records of these leaves, as many as it takes for none to exceed a line."""
    found: list[str] = []
    tree: Tree = {}
    used = _HEAD_BYTES
    for path, text in leaves.items():
        size = size_of(text) + sum([size_of(json_string(name)) + 4 for name in path])
        if tree and used + size > MAX_LINE_BYTES:
            found.append(_line(tree, t))
            tree, used = {}, _HEAD_BYTES
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = text
        used += size
    return [*found, _line(tree, t)] if tree else found


def _line(tree: Tree, t: float) -> str:
    return f'{{"kind":"run","t":{t:.3f},{_object(tree)[1:]}\n'


def _object(tree: Tree) -> str:
    parts: Iterable[str] = (
        f"{json_string(name)}:{inner if isinstance(inner, str) else _object(inner)}" for name, inner in tree.items()
    )
    return "{" + ",".join(parts) + "}"
