"""Encodes values as lines: the only module that knows the form of a metrics record.

Formatting floats is most of what logging costs, so `Encoder.line` keeps one format string per set of keys. Everything
that is not a plain finite number takes `Encoder.lines`.
"""

from __future__ import annotations

from .values import INT64, SUMMARY, Observations, UnusableError, observed, plain, plain_weights, summary, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    LeftOut: TypeAlias = tuple[str, Any, str]  # name, value, why
    # A record that is encoded later: the metrics of a metrics record, or whether a barrier adopts; its time; about how
    # many bytes its line has, at most.
    Note: TypeAlias = tuple[dict[str, Any] | bool, float, int]

MAX_LINE_BYTES = 1 << 20  # the format's; the LF is counted here too
MAX_NAME = 1000  # of a metric, an event, a table or a column, in characters
_MAX_DEPTH = 30  # dicts in dicts
_MAX_TEMPLATES = 256
_MAX_REMEMBERED = 4096  # names
_STEPPED = '{"t":%.3f,"step":%d,'
_PLAIN = frozenset((float, int, bool))
_NAMES = frozenset((str,))
# Of a note.
_MAX_METRICS = 64
_HEAD_BYTES = 64
_VALUE_BYTES = 28  # any double, and the quotes, colon and comma of its name
_FAR = 1e18  # below it every integer fits in the format's

# Not `json`: importing it takes as long as this whole package. A late import, while another thread forks, could leave
# the child with an import lock that is never released.
_CONTROL = {code: f"\\u{code:04x}" for code in range(32)}


def why_not_a_name(name: str) -> str | None:
    """The reason why a name cannot be used; None if it can."""
    if not name:
        return "the name is empty"
    return f"the name has {len(name)} characters, {MAX_NAME} are allowed" if len(name) > MAX_NAME else None


def json_string(text: str) -> str:
    """`text` as a JSON string with only the escapes that JSON requires. Half surrogate pairs become U+FFFD."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    # Each replacement is one search through the text, while `translate` looks up each character.
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{text}"' if text.isprintable() else f'"{text.translate(_CONTROL)}"'


def size_of(line: str) -> int:
    """Bytes of `line` in UTF-8."""
    return len(line) if line.isascii() else len(line.encode())


def metrics_note(metrics: Any, t: float) -> Note | None:
    """A note of metrics; None if the call has to encode them now.

    In a job that logs now and then the caches are cold, and most of what a call costs is to encode its line. So a call
    only copies the values, and the writing thread encodes many lines at once.

    Only finite plain numbers under short names can wait: what the job does meanwhile does not change them, and there is
    nothing about them to report to the caller.
    """
    if type(metrics) is not dict or len(metrics) > _MAX_METRICS:
        return None
    own = metrics.copy()
    if not (_NAMES.issuperset(map(type, own)) and _PLAIN.issuperset(map(type, own.values()))):
        return None
    try:
        if not -_FAR < sum(own.values()) < _FAR:
            return None
    except OverflowError:
        return None
    names = sum(map(len, own))
    if names > MAX_NAME or "" in own:
        return None
    return own, t, _HEAD_BYTES + names + _VALUE_BYTES * len(own)


class _Template:
    """The format strings for one set of keys with one set of types: see `Encoder._learn`."""

    __slots__ = ("exact", "integers", "quick")

    def __init__(self, integers: list[int], quick: str, exact: str) -> None:
        self.integers = integers
        self.quick = _STEPPED + quick
        self.exact = _STEPPED + exact


class Encoder:
    """Makes metrics records. Calls `unusable(name, value, why)` for each value that is left out.

    `several` gets all values that one call leaves out. It may report some of them together, and returns the others.
    `renamed(key)` gets each name that is no text.
    """

    def __init__(
        self,
        unusable: Callable[[str, Any, str], None],
        limit: int = MAX_LINE_BYTES,
        several: Callable[[list[LeftOut]], list[LeftOut]] = lambda left_out: left_out,
        renamed: Callable[[Any], None] = lambda key: None,
    ) -> None:
        self._unusable = unusable
        self._renamed = renamed
        self._several = several
        self._limit, self._surely_short = limit, limit >> 2  # in bytes, and in characters of up to four bytes
        self._templates: dict[tuple[Any, ...], _Template] = {}
        self.names: set[str] = set()  # of metrics that were encoded: many, not all of them

    def line(self, metrics: Mapping[Any, Any], step: int | None, t: float) -> str | None:
        """One line for finite plain numbers under string keys; None for anything else, which `lines` encodes."""
        if type(metrics) is not dict:
            return None
        values = [*metrics.values()]
        template = self._templates.get((*metrics, *map(type, values)))
        if template is None:
            template = self._learn(metrics, values)
            if template is None:
                return None
        try:
            total = sum(values)
        except OverflowError:
            return None
        if total - total != 0:
            return None
        for i in template.integers:
            if not -INT64 <= values[i] < INT64:
                return None
        # %.17g writes -0.0 as -0, which a JSON reader takes for the integer.
        form = template.exact if 0.0 in values else template.quick
        if step is None:
            line = f'{{"t":{t:.3f},' + form[len(_STEPPED) :] % (*values,)
        else:
            line = form % (t, step, *values)
        return line if len(line) < self._surely_short or size_of(line) <= self._limit else None

    def relearn(self) -> None:
        """Forget all templates: values that needed all their digits may be short by now, or the reverse."""
        self._templates.clear()

    def _learn(self, metrics: dict[Any, Any], values: list[Any]) -> _Template | None:
        """Make the format string for these keys and types.

        A column whose value needs all its digits is written with %.17g, which is as exact as repr and faster. A column
        with a short repr keeps it, so that a learning rate reads 0.0003.
        """
        named = all(type(key) is str and 0 < len(key) <= MAX_NAME for key in metrics)
        if not (named and _PLAIN.issuperset(map(type, values))):
            return None
        self._remember(metrics)
        quick, exact, integers = [], [], []
        for i, (key, value) in enumerate(metrics.items()):
            name = json_string(key).replace("%", "%%")
            if type(value) is float:
                quick.append(f"{name}:{'%.17g' if len(repr(value)) > 16 else '%r'}")
                exact.append(f"{name}:%r")
            else:
                integers.append(i)
                quick.append(f"{name}:%d")
                exact.append(f"{name}:%d")
        template = _Template(integers, f'"m":{{{",".join(quick)}}}}}\n', f'"m":{{{",".join(exact)}}}}}\n')
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        key = (*metrics, *map(type, values))
        self._templates[key] = template
        return template

    def _remember(self, names: Iterable[str]) -> None:
        if len(self.names) < _MAX_REMEMBERED:
            self.names.update(names)

    def lines(self, metrics: Mapping[Any, Any], step: int | None, t: float, weight: Any = None) -> list[str]:
        """Lines for any metrics: one, or several where one would be too long. Nested dicts are flattened with "/".

        Leaves out a value that cannot be used and reports it to `unusable`. The line is written even if it is empty,
        because it shows that this step was reached.
        """
        found: dict[str, str | Observations] = {}
        left_out: list[LeftOut] = []
        self._collect("", metrics, weight, found, left_out)
        if left_out:
            for name, value, why in self._several(left_out):
                self._unusable(name, value, why)
        return self.pack(found, step, t)

    def pack(self, found: dict[str, str | Observations], step: int | None, t: float) -> list[str]:
        """Lines that hold the encoded values of `found`, none longer than the limit."""
        self._remember(found)
        head = f'{{"t":{t:.3f},' + ("" if step is None else f'"step":{step},') + '"m":{'
        room = self._limit - len(head) - 3
        lines: list[str] = []
        parts: list[str] = []
        used = 0
        for name, value in found.items():
            key = json_string(name) + ":"
            key_size = size_of(key) + 1
            pieces: Sequence[str | Observations] = [value]
            if key_size + len(value) > room and isinstance(value, Observations):
                pieces = value.cut(room - key_size)
            for i, piece in enumerate(pieces):
                size = key_size + len(piece)
                if size > room:
                    self._unusable(name[:200], value, "it does not fit in a line of 1 MiB")
                    continue
                if parts and (used + size > room or i):
                    lines.append(head + ",".join(parts) + "}}\n")
                    parts, used = [], 0
                parts.append(f"{key}{piece}")
                used += size
        if parts or not lines:
            lines.append(head + ",".join(parts) + "}}\n")
        return lines

    def _collect(
        self,
        prefix: str,
        metrics: Mapping[Any, Any],
        weight: Any,
        found: dict[str, str | Observations],
        left_out: list[LeftOut],
    ) -> None:
        for key, value in metrics.items():
            name = prefix + (key if type(key) is str else str(key))
            try:
                if key is None or not (prefix or isinstance(key, str)):  # a dict of numbers inside is a family
                    self._renamed(key)
                if not isinstance(value, dict):
                    encoded: str | Observations = observed(plain(value), weight)
                elif "n" in value and SUMMARY.issuperset(value):
                    if weight is not None:
                        raise UnusableError("a summary carries its own weight: leave `weight` out")
                    encoded = summary(value)
                elif value.keys() == {"v", "w"} and isinstance(v := plain(value["v"]), list):
                    if weight is not None:
                        raise UnusableError("the value carries its own weights: leave `weight` out")
                    weights = plain_weights(value["w"])
                    encoded = observed(v, weights if isinstance(weights, list) else [weights])
                elif prefix.count("/") >= _MAX_DEPTH:
                    raise UnusableError(f"it is more than {_MAX_DEPTH} dicts deep")
                else:
                    self._collect(name + "/", value, weight, found, left_out)
                    continue
                if (wrong := why_not_a_name(name)) is not None:
                    raise UnusableError(wrong)
                found[name] = encoded
            except Exception as error:  # noqa: BLE001 - the value's own code may raise anything: the others are good
                left_out.append((name, value, why_unusable(error)))
