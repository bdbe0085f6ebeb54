"""A job's configuration and results as the leaves of JSON objects: whatever a job passes is taken, but for secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from .encode import json_string, size_of, why_not_a_name
from .hidden import IN_ITS_PLACE, has_secret, is_secret, is_secret_argument
from .values import INT64, count_of, number, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    Path: TypeAlias = tuple[str, ...]
    Report: TypeAlias = Callable[[str, str], object]

MAX_TEXT = 64 << 10  # characters of a text
_MAX_LEAF = 512 << 10  # bytes of the JSON of any leaf: with its path it has to fit in a line
_MAX_REPR = 1000
_MAX_DEPTH = 30
_MAX_ELEMENTS = 10_000  # of an array that is written with all its elements
_MAX_PARTS = 100_000  # keys and elements of one call
_NOT: Any = object()
_PLAIN = frozenset((float, int, bool, type(None)))


class Settings:
    """Reads the values of one call.

    Attributes: `leaves`, the JSON of each leaf by its path; `dropped`, the paths of secrets. Calls `report(path, why)`
    for what is changed or left out.
    """

    def __init__(self, report: Report) -> None:
        self.leaves: dict[Path, str] = {}
        self.dropped: list[Path] = []
        self._report = report
        self._parts = _MAX_PARTS

    def add(self, path: Path, value: Any) -> None:
        """Add a value and all that is in it. An empty object is a leaf."""
        try:
            pairs = pairs_of(value) if len(path) < _MAX_DEPTH else None
            if pairs is None:
                text = self._leaf(path, value, 0)
                if text is not None:
                    self.leaves[path] = self._bounded(path, text)
                return
        except Exception as error:  # noqa: BLE001 - the value's own code may raise anything: the others are good
            why = why_unusable(error)
            why = type(error).__name__ if has_secret(why) else why
            self._report(".".join(path), f"{why}; its type stands in its place")
            self.leaves[path] = json_string(_type_of(value))
            return
        if not pairs:
            self.leaves[path] = "{}"
        for key, item in pairs:
            name = key if type(key) is str else str(key)
            if self._has_name(path, name):
                self.add((*path, name), item)

    def _has_room(self, path: Path) -> bool:
        self._parts -= 1
        if self._parts < 0:
            self._report(".".join(path), f"one call has more than {_MAX_PARTS} keys and elements: the rest is left out")
        return self._parts >= 0

    def _has_name(self, path: Path, name: str) -> bool:
        if not self._has_room(path):
            return False
        if (wrong := why_not_a_name(name)) is not None:
            self._report(".".join((*path, name[:40])), f"{wrong}; it is left out")
            return False
        return True

    def _bounded(self, path: Path, text: str) -> str:
        if len(text) <= _MAX_LEAF >> 2 or size_of(text) <= _MAX_LEAF:
            return text
        self._report(".".join(path), f"its JSON has more than {_MAX_LEAF} bytes: its beginning is kept, as a text")
        return json_string(text[:MAX_TEXT])

    def _leaf(self, path: Path, value: Any, depth: int) -> str | None:
        """The JSON of a value that is no object with members, or is inside an array; None for a secret."""
        if isinstance(value, str) and not _is_enum(value):
            return self._text(path, str.__str__(value))
        plain = _scalar(value)
        if plain is not _NOT:
            if isinstance(plain, str):
                return self._text(path, plain)
            return number(plain) if not isinstance(plain, bool) else "true" if plain else "false"
        if depth < _MAX_DEPTH:
            items = _items(value)
            if items is not None:
                return self._array(path, items, depth)
            pairs = pairs_of(value)
            if pairs is not None:
                return self._object(path, pairs, depth)
        return self._text(path, _described(value))

    def _text(self, path: Path, text: str) -> str | None:
        if is_secret(path, text):
            self.dropped.append(path)
            return None
        if len(text) > MAX_TEXT:
            self._report(".".join(path), f"it has {len(text)} characters: the first {MAX_TEXT} are kept")
        return json_string(text[:MAX_TEXT])

    def _array(self, path: Path, items: Sequence[Any], depth: int) -> str:
        texts: list[str] = []
        room, before = _MAX_LEAF, ""
        names = getattr(items, "_fields", ())  # of a named tuple
        for i, item in enumerate(items):
            place = (*path, str(names[i]) if len(names) == len(items) else str(i))
            if room < 0 or not self._has_room(path):
                break
            if isinstance(item, str) and is_secret_argument(before, item):
                self.dropped.append(place)
                text: str | None = None
            else:
                text = self._leaf(place, item, depth + 1)
            texts.append(json_string(IN_ITS_PLACE) if text is None else text)
            room -= len(texts[-1])
            before = item if isinstance(item, str) else ""
        if isinstance(items, _Unordered):
            texts.sort()
        return f"[{','.join(texts)}]"

    def _object(self, path: Path, pairs: Iterable[tuple[Any, Any]], depth: int) -> str:
        parts: dict[str, str] = {}
        for key, item in pairs:
            name = key if type(key) is str else str(key)
            if self._has_name(path, name):
                text = self._leaf((*path, name), item, depth + 1)
                if text is not None:
                    parts[name] = text
        return "{" + ",".join([f"{json_string(name)}:{text}" for name, text in parts.items()]) + "}"


def pairs_of(value: Any) -> list[tuple[Any, Any]] | None:
    """The names and values of a mapping, a namespace, or an object of declared fields; None for anything else.

    An item whose own code raises, as a value that is missing in a configuration of OmegaConf, is the error's name.
    """
    if isinstance(value, dict):
        return list(value.items())
    kind = type(value)
    if kind in _PLAIN or isinstance(value, (str, list, tuple, type)):
        return None
    if hasattr(kind, "flag_values_dict"):  # of absl
        return list(value.flag_values_dict().items())
    if isinstance(value, Mapping) or (hasattr(kind, "keys") and hasattr(kind, "__getitem__")):
        return [(name, _got(value.__getitem__, name)) for name in list(value.keys())]
    if isinstance(value, type(sys.implementation)) or _is_namespace(value):
        return list(vars(value).items())
    names = _fields(kind)
    return None if names is None else [(name, _got(value.__getattribute__, name)) for name in names]


def as_data(path: Path, value: Mapping[str, Any], report: Report) -> tuple[Any, list[Path]]:
    """A configuration as JSON data, and the paths of its secrets, which are left out of it."""
    from json import loads  # few jobs need it

    found = Settings(report)
    found.add(path, value)
    tree: dict[str, Any] = {}
    for (*above, name), text in found.leaves.items():
        inner = tree
        for one in above:
            inner = inner.setdefault(one, {})
        inner[name] = loads(text)
    for name in path:
        tree = tree.get(name, {})
    return tree, found.dropped


def _got(get: Callable[[Any], Any], name: Any) -> Any:
    try:
        return get(name)
    except Exception as error:  # noqa: BLE001 - the value's own code may raise anything
        why_unusable(error)
        return f"<{type(error).__name__}>"


def _is_namespace(value: Any) -> bool:
    argparse = sys.modules.get("argparse")
    return argparse is not None and isinstance(value, argparse.Namespace)


def _fields(kind: type) -> list[str] | None:
    """The names of the fields that a class declares: of dataclasses, attrs and pydantic."""
    attrs = getattr(kind, "__attrs_attrs__", None)
    if isinstance(attrs, tuple):
        return [one.name for one in attrs]
    for member in ("__dataclass_fields__", "model_fields", "__fields__"):
        found = getattr(kind, member, None)
        if isinstance(found, dict):
            return list(found)
    return None


def _scalar(value: Any) -> Any:
    """A number, a text, None or a bool for a value that stands for one; `_NOT` for anything else."""
    kind = type(value)
    if kind is int:
        return value if -INT64 <= value < INT64 else str(value)
    if kind in _PLAIN:
        return value
    if _is_enum(value):
        mixed = isinstance(value, (str, int, float))
        return _scalar_of_enum(value) if mixed else f"{kind.__name__}.{value.name}"
    if isinstance(value, int):
        return _scalar(int.__index__(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(value))
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)) and not _on_device(value):
        found = value.item()
        return found if type(found) in _PLAIN or isinstance(found, str) else _NOT
    return _NOT


def _scalar_of_enum(value: Any) -> Any:
    inner = value.value
    return inner if isinstance(inner, str) else _scalar(inner)


def _is_enum(value: Any) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(value, enum.Enum)


class _Unordered(list):  # type: ignore[type-arg]
    """The elements of a set: their order differs from process to process."""


def _items(value: Any) -> Sequence[Any] | None:
    """The elements of a list, a set or a small array; None for anything else."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return _Unordered(value)
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return None
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        if _on_device(value) or count_of(value) > _MAX_ELEMENTS:
            return None
        found = tolist()
        return found if isinstance(found, list) else None
    if isinstance(value, Sequence):  # range and deque, and lists of OmegaConf
        return [_got(value.__getitem__, i) for i in range(min(len(value), _MAX_ELEMENTS))]
    return None


def _on_device(value: Any) -> bool:
    """Whether reading it would wait for a device."""
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return True
    return getattr(value, "is_cpu", True) is not True


def _described(value: Any) -> str:
    """A text in place of a value that JSON has no form for. It is the same in all processes: it has no addresses."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str) and callable(value):
        return f"{getattr(value, '__module__', '')}.{name}"[:_MAX_REPR]
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and callable(getattr(value, "tolist", None)):
        return f"{_type_of(value)[:-1]} of shape {tuple(shape)}>"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"{_type_of(value)[:-1]} of {len(value)}>"
    if isinstance(value, (bytes, bytearray)):
        return repr(bytes(value[:_MAX_REPR]))[:_MAX_REPR]
    return _without_addresses(repr(value)[: 2 * _MAX_REPR])[:_MAX_REPR]


def _without_addresses(text: str) -> str:
    first, *rest = text.split(" at 0x")
    return first + "".join([part.lstrip("0123456789abcdefABCDEF") for part in rest])


def _type_of(value: Any) -> str:
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"
