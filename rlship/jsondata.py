"""Plain data as JSON, apart from metrics and their values. Long texts are shortened to fit a line."""

from __future__ import annotations

from collections import deque
from itertools import islice

from .encode import json_string, size_of, why_not_a_name
from .guard import raised_by_signal
from .values import UnusableError, count_of, number, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_MAX_DEPTH = 30
# The size of one entry of `cut` beside the name: a number of up to 12 digits, a colon, a comma, and room to spare.
_CUT_BYTES = 20
_SMALL = 64
_QUICK_TEXT = 256 << 10
_QUICK_LIST = 64 << 10
_QUICK_INT = 1 << 63
# The most lists, sets and so on in the reprs of one value: more would take the job a tenth of a second or longer.
_MAX_PARTS = 1 << 18
_TEXT_PART = 32  # this many characters of a text count as one part
_SAME_KEYS = "several of its keys are all written the same way, and the last one's value is kept:"
_SCALARS = frozenset((str, float, int, bool, type(None)))
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


def json_value(value: Any) -> str:
    """rlship's own plain data as JSON, with strings as in metric names."""
    if isinstance(value, str):
        return json_string(value)
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_string(str(key))}:{json_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(json_value, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, (int, float)):
        return number(value)
    return json_string(str(value))


def json_object(data: Mapping[Any, Any], room: int, report: Callable[[str, str], object]) -> tuple[str, str]:
    """A job's data as the members of a JSON object of at most `room` bytes, and the members of its `cut`.

    Keeps numbers, strings, bools, None, and lists and dicts of them. A value with a `tolist` (an array, a tensor)
    becomes the list of its numbers, and anything else its repr. Where the whole is too long, the longest values are
    shortened to one length: a text to its beginning, a list or dict to the beginning of its JSON, as a text. `cut`
    has the length of the original: characters of a text, elements of a list or dict. Of keys with one text (1 and
    "1") the last one's value is kept. Calls `report(name, why)` for each value that is not kept as it is. Raises
    UnusableError if even the names do not fit.
    """
    quick = _quick_object(data)
    if quick is not None and size_of(quick) <= room:
        return quick, ""
    cells: dict[str, _Cell] = {}
    for key, value in data.items():
        name = key if type(key) is str else str(key)
        if (wrong := why_not_a_name(name)) is not None:
            report(name[:40], f"{wrong}; it is left out")
            continue
        if name in cells:
            report(name, f"{_SAME_KEYS} {name[:40]!r}")
        cells[name] = _cell(name, value, room, report)
    found = [*cells.values()]
    if sum(cell.key + cell.size for cell in found) > room:
        _shorten(found, room)
    whole = ",".join([f"{json_string(cell.name)}:{cell.text}" for cell in found])
    return whole, ",".join([f"{json_string(cell.name)}:{cell.length}" for cell in found if cell.short])


def _quick_object(data: Mapping[Any, Any]) -> str | None:
    """The members if all are plain and short, as they nearly always are; else None."""
    if not isinstance(data, dict):  # other mappings may have a key twice
        return None
    parts = []
    for key, value in data.items():
        text = _quick(value)
        if text is None or type(key) is not str or why_not_a_name(key) is not None:
            return None
        parts.append(f"{json_string(key)}:{text}")
    return ",".join(parts)


def _quick(value: Any) -> str | None:
    kind = type(value)
    if kind is str:
        return json_string(value) if len(value) <= _QUICK_TEXT else None
    if kind is bool:
        return "true" if value else "false"
    if kind is float or value is None:
        return number(value)
    if kind is int:
        return int.__repr__(value) if -_QUICK_INT < value < _QUICK_INT else None
    if kind is list and len(value) <= _QUICK_LIST and _SCALARS.issuperset(map(type, value)):
        parts = [_quick(item) for item in value]
        return None if None in parts else f"[{','.join(parts)}]"  # type: ignore[arg-type]
    return None


class _Cell:
    """One value. If `whole`, `text` is its JSON of `size` bytes; otherwise there is more than fits in any line."""

    __slots__ = ("key", "length", "name", "plain", "short", "size", "text")

    def __init__(self, name: str, text: str, plain: str | None, length: int, room: int, whole: bool) -> None:
        self.name = name
        self.key = size_of(json_string(name)) + 2
        self.text = text
        self.plain = plain  # the text to shorten; None: the JSON itself
        self.length = length
        self.size = size_of(text) if whole else room + 1
        self.short = False


def _cell(name: str, value: Any, room: int, report: Callable[[str, str], object]) -> _Cell:
    if type(value) is str:
        kept = value[:room]
        return _Cell(name, json_string(kept), kept, len(value), room, len(kept) == len(value))
    pieces = _Pieces(room)
    whole = True
    try:
        pieces.add_value(value, 0)
    except _FullError:
        whole = False
    except Exception as error:  # noqa: BLE001 - the value's own code may raise anything: the others are good
        why = why_unusable(error)
        report(name, f"{why}; its type stands in its place")
        pieces = _Pieces(room)
        pieces.add_value(f"<{type(value).__name__}>", 0)
    if pieces.odd:
        report(name, pieces.odd)
    text = "".join(pieces.texts)
    try:
        length = len(value)
    except Exception as error:  # it has no length, or its own code raised
        if raised_by_signal(error):
            raise
        length = len(text)
    return _Cell(name, text, None, length, room, whole)


def _shorten(cells: list[_Cell], room: int) -> None:
    """Shorten the longest values to one size, so that all fit."""
    names = sum(cell.key for cell in cells)
    cut_size = sum(cell.key + _CUT_BYTES for cell in cells if cell.size > _SMALL)
    level = _level([cell.size for cell in cells], room - names - cut_size)
    if level < _SMALL:
        raise UnusableError(f"its {len(cells)} values do not fit in a line of 1 MiB")
    for cell in cells:
        if cell.size > level:
            cell.text = _beginning(cell.text if cell.plain is None else cell.plain, level)
            cell.short = True


def _level(sizes: list[int], room: int) -> int:
    """The greatest size such that all, shortened to it, take at most `room` together."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return room // left
        room -= size
        left -= 1
    return max(sizes, default=0)


def _beginning(text: str, limit: int) -> str:
    """A beginning of `text` as a JSON string of at most `limit` bytes."""
    kept = text[: limit - 2]
    encoded = json_string(kept)
    while (size := size_of(encoded)) > limit:  # escapes and other alphabets take more than one byte per character
        kept = kept[: max(0, len(kept) * limit // size - 1)]
        encoded = json_string(kept)
    return encoded


class _FullError(Exception):
    """The value is larger than fits in a line."""


class _Pieces:
    """The JSON of one value in pieces of at most `room` characters. `odd`: why the first part was changed, or ""."""

    __slots__ = ("odd", "parts", "room", "texts")

    def __init__(self, room: int) -> None:
        self.room = room
        self.parts = _MAX_PARTS
        self.texts: list[str] = []
        self.odd = ""

    def add(self, text: str) -> None:
        self.room -= len(text)
        self.texts.append(text)
        if self.room < 0:
            raise _FullError

    def add_value(self, value: Any, depth: int) -> None:
        if isinstance(value, str):
            self.add(json_string(value[: self.room + 1]))
        elif value is None or isinstance(value, (bool, int, float)):
            self._add_number(value)
        elif depth >= _MAX_DEPTH:
            self._add_repr(value, f"it is more than {_MAX_DEPTH} lists or dicts deep")
        elif isinstance(value, dict):
            self._add_dict(value, depth)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self.add("," if i else "[")
                self.add_value(item, depth + 1)
            self.add("]" if value else "[]")
        else:
            self._add_foreign(value, depth)

    def _add_dict(self, value: dict[Any, Any], depth: int) -> None:
        before = "{"
        for key in value:
            if type(key) is not str:
                value = self._with_texts(value)
                break
        for key, item in value.items():
            self.add(f"{before}{json_string(key[: self.room + 1])}:")
            self.add_value(item, depth + 1)
            before = ","
        self.add("}" if value else "{}")

    def _with_texts(self, value: dict[Any, Any]) -> dict[str, Any]:
        """The dict with texts as keys, for as many entries as may fit."""
        found: dict[str, Any] = {}
        for key, item in islice(value.items(), self.room):
            name = str(key)
            if name in found:
                self.odd = self.odd or f"{_SAME_KEYS} {name[:40]!r}"
            found[name] = item
        return found

    def _add_number(self, value: float | None) -> None:
        if isinstance(value, bool):
            self.add("true" if value else "false")
            return
        try:
            self.add(number(value))
        except UnusableError:  # an integer that no double can hold
            self._add_repr(value, "it is too large for a double")

    def _add_foreign(self, value: Any, depth: int) -> None:
        tolist = getattr(value, "tolist", None)
        if not callable(tolist):
            self._add_repr(value, f"it has a part of type {type(value).__name__}, which JSON does not have")
            return
        if getattr(value, "is_cuda", False):
            self.odd = self.odd or "it is on a GPU, and reading it waits for the device: call .cpu() at a better moment"
        if count_of(value) > self.room:
            self._add_beginning(value, depth)
            return
        plain = tolist()
        if isinstance(plain, (list, bool, int, float, str)):
            self.add_value(plain, depth + 1)
        else:
            self._add_repr(plain, f"it has a part of type {type(value).__name__}, which JSON does not have")

    def _add_beginning(self, value: Any, depth: int) -> None:
        """Add an array that has more elements than fit; only its first ones are read."""
        if len(value.shape) == 1:
            self.add_value(value[: self.room].tolist(), depth)
            return
        for i, item in enumerate(value):
            self.add("," if i else "[")
            self.add_value(item, depth + 1)

    def _add_repr(self, value: Any, why: str) -> None:
        if isinstance(value, _CONTAINERS):
            self._count_parts(value)
            if self.parts < 0:
                self.odd = self.odd or f"{why}, and is too large for its repr: its type and length stand in its place"
                self.add(json_string(f"<{type(value).__name__} of {len(value)}>"))
                return
        self.odd = self.odd or f"{why}: its repr stands in its place"
        self.add(json_string(repr(value)[: self.room + 1]))

    def _count_parts(self, value: Any) -> None:
        """Subtract from `parts` what a repr would show, shared values each time; below 0 the repr is too long."""
        todo = [value]
        while todo and self.parts >= 0:
            item = todo.pop()
            self.parts -= 1
            if isinstance(item, (str, bytes, bytearray)):
                self.parts -= len(item) // _TEXT_PART
            elif isinstance(item, _CONTAINERS):
                if len(item) + len(todo) > self.parts:
                    self.parts = -1
                    return
                todo += item
                todo += item.values() if isinstance(item, dict) else ()
