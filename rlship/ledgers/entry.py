"""A call of `ledger` as the `ledger` records of the groups that are kept. Pure."""

from __future__ import annotations

from math import fsum, isfinite
from operator import index
from zlib import crc32

from ..encode import json_string
from ..values import UnusableError
from . import canonical
from .canonical import Rows
from .digest import field_digest, keeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    _Found = TypeVar("_Found")

_OF_TOKENS = ("tokens", "mask")
MAX_SAMPLES = 1 << 21  # of a group: up to here the sums of a digest fit in a double
MAX_KEY = 200  # characters
_MAX_FIELDS = 32
_MAX_INTEGER = (1 << 53) - 1
# What a call may say beside fields with a value for each sample.
MEMBERS = (
    *("n", "sample", "lengths", "attention_mask", "response", "version", "why", "part", "retry", "passes"),
    "precision",
)


class Given:
    """The arguments of one call of `rlship.ledger`, by their names there; None for those that are left out. `fields`
    are those with a value for each sample, by name. `samples` is how many samples have a key of their own.
    """

    __slots__ = ("fields", "hop", "key", "samples", *MEMBERS)

    def __init__(self, hop: str, key: Any, given: dict[str, Any]) -> None:
        self.hop = hop
        self.key = key
        self.samples: int | None = None
        self.n = given.get("n")
        self.sample = given.get("sample")
        self.lengths = given.get("lengths")
        self.attention_mask = given.get("attention_mask")
        self.response = given.get("response")
        self.version = given.get("version")
        self.why = given.get("why")
        self.part = given.get("part")
        self.retry = given.get("retry")
        self.passes = given.get("passes")
        self.precision = given.get("precision") or ""
        self.fields = {name: value for name, value in given.items() if name not in MEMBERS and value is not None}


def groups_of(given: Given, share: float) -> list[tuple[str, list[int] | None]]:
    """The keys of a call that are kept, each with the places of its samples; None for all of them.

    Raises UnusableError.
    """
    keys = given.key.tolist() if hasattr(given.key, "tolist") else given.key
    if isinstance(keys, (str, int)):
        name = _key(keys)
        return [(name, None)] if keeps(name, share) else []
    if isinstance(keys, (bytes, dict, set)) or not hasattr(keys, "__iter__"):
        raise UnusableError(f"key= is of type {type(keys).__name__}: give a text, an integer, or a list of them")
    keys = list(keys)
    given.samples = len(keys)
    places: dict[str, list[int]] = {}
    for place, one in enumerate(keys):
        places.setdefault(_key(one), []).append(place)
    return [(name, of) for name, of in places.items() if keeps(name, share)]


def lines(given: Given, groups: Sequence[tuple[str, list[int] | None]], step: int | None, t: float) -> list[str]:
    """The records of these groups. Raises UnusableError."""
    _check(given)
    rows = {name: Rows(name, value) for name, value in given.fields.items()}
    others = {"sample": given.sample, "lengths": given.lengths, "attention_mask": given.attention_mask}
    columns = rows | {name: Rows(name, value) for name, value in others.items() if value is not None}
    place = "" if step is None else f'"step":{step},'
    head = f'{{"kind":"ledger","t":{t:.3f},{place}"hop":{json_string(given.hop)}'
    return [f"{head},{_group(given, name, places, rows, columns)}}}\n" for name, places in groups]


def weights_line(version: int, fingerprint: str, step: int | None, t: float) -> str:
    """The record by which one side of a weight sync says which weights a version has."""
    place = "" if step is None else f'"step":{step},'
    known = f',"fingerprint":{json_string(fingerprint)}' if fingerprint else ""
    head = f'{{"kind":"ledger","t":{t:.3f},{place}"hop":"weights"'
    return f'{head},"key":"{version}","n":0,"version":[{version},{version}]{known}}}\n'


def whole(name: str, value: Any, least: int) -> int:
    """An argument that has to be an integer from `least` to 2^53-1. Raises UnusableError."""
    try:
        found = index(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError):
        found = -1
    if not least <= found <= _MAX_INTEGER:
        raise UnusableError(f"{name}={value!r:.40} is not an integer from {least} to 2^53-1")
    return found


def _key(key: Any) -> str:
    name = str(key)
    if not 0 < len(name) <= MAX_KEY:
        raise UnusableError(f"a key has {len(name)} characters, 1 to {MAX_KEY} are allowed")
    return name


def _check(given: Given) -> None:
    if given.precision not in canonical.PRECISIONS:
        raise UnusableError(f'precision={given.precision!r:.40} is not known: use "bf16", or leave it out for float32')
    if len(given.fields) > _MAX_FIELDS:
        raise UnusableError(f"there are {len(given.fields)} fields, {_MAX_FIELDS} are allowed")
    if given.version is not None and given.hop == "weights":
        raise UnusableError("the hop 'weights' is what rlship.weights(version) writes")


def _group(given: Given, key: str, places: list[int] | None, rows: dict[str, Rows], columns: dict[str, Rows]) -> str:
    """The members of one group's record after its hop."""
    count = _count(given, places, columns)
    chosen = range(count) if places is None else places
    parts = [f'"key":{json_string(key)},"n":{count}']
    samples = _Samples(given, chosen, columns)
    digests = samples.digests(rows)
    if digests:
        if samples.by:
            parts.append(f'"by":"{samples.by}"')
        parts.append(f'"d":{{{",".join(f"{json_string(n)}:[{low},{high}]" for n, (low, high) in digests.items())}}}')
        if given.precision:
            parts.append(f'"precision":"{given.precision}"')
    parts += _sums(rows, chosen, samples)
    if given.version is not None:
        low, high = _versions(given, chosen)
        parts.append(f'"version":[{low},{high}]')
    if given.response is not None:
        parts.append(f'"response":{_response(given, chosen)}')
    if given.part is not None:
        first, of = _part(given.part)
        parts.append(f'"part":[{first},{of}]')
    for name, value, least in (("try", given.retry, 0), ("passes", given.passes, 1)):
        if value is not None:
            parts.append(f'"{name}":{whole("retry" if name == "try" else name, value, least)}')
    if given.why is not None:
        parts.append(f'"why":{json_string(str(given.why)[:MAX_KEY])}')
    return ",".join(parts)


def _count(given: Given, places: list[int] | None, columns: dict[str, Rows]) -> int:
    """How many samples the group has. Every argument with a value for each sample must agree."""
    if places is None:
        counts = {name: rows.count for name, rows in columns.items()}
        count = whole("n", given.n, 0) if given.n is not None else next(iter(counts.values()), -1)
        if count < 0:
            raise UnusableError("n= is needed where no argument has a value for each sample")
        for name, found in counts.items():
            if found != count:
                raise UnusableError(f"{name}= has values of {found} samples, and n is {count}")
    else:
        count = len(places)
        for name, one in columns.items():
            if one.count != given.samples:
                raise UnusableError(f"{name}= has values of {one.count} samples, and key= of {given.samples}")
    if count > MAX_SAMPLES:
        raise UnusableError(f"a group has {count} samples, {MAX_SAMPLES} are allowed")
    return count


def _versions(given: Given, chosen: Sequence[int]) -> tuple[int, int]:
    version = given.version
    if not hasattr(version, "__len__"):
        found = [version]
    elif isinstance(version, tuple) and len(version) == 2:
        found = [*version]
    else:
        found = _chosen(given, "version", version, chosen) or [0]
    known = [whole("version", one, 0) for one in found]
    return min(known), max(known)


def _response(given: Given, chosen: Sequence[int]) -> int:
    response = given.response
    if not hasattr(response, "__len__"):
        return whole("response", response, 0)
    return sum([whole("response", one, 0) for one in _chosen(given, "response", response, chosen)])


def _chosen(given: Given, name: str, values: Any, chosen: Sequence[int]) -> list[Any]:
    """The values of a group's samples."""
    every = values.tolist() if hasattr(values, "tolist") else values
    count = len(chosen) if given.samples is None else given.samples
    if len(every) != count:
        raise UnusableError(f"{name}= has values of {len(every)} samples, and the call has {count}")
    return [every[place] for place in chosen]


def _part(part: Any) -> tuple[int, int]:
    try:
        first, of = part
    except (TypeError, ValueError):
        first, of = -1, 0
    try:
        found = whole("part", first, 0), whole("part", of, 1)
    except UnusableError:
        found = 0, 0
    if not found[0] < found[1]:
        raise UnusableError(f"part={part!r:.40} is not (i, k) with i below k")
    return found


class _Samples:
    """The samples of one group: their ids, and how far their rows go.

    Attributes: `by`, what ids are made of: "sample", "tokens", or "" for samples without ids.
    """

    def __init__(self, given: Given, chosen: Sequence[int], columns: dict[str, Rows]) -> None:
        self._chosen = chosen
        self._columns = columns
        self._precision = given.precision
        self._tokens: list[int] | None = None
        self._totals: list[float] | None = None
        self._lengths = [self._length(place) for place in chosen]
        self.by = "sample" if "sample" in columns else "tokens" if "tokens" in columns else ""

    def _length(self, place: int) -> int | None:
        columns = self._columns
        if "attention_mask" in columns:
            return None
        if "lengths" in columns:
            return whole("lengths", columns["lengths"][place], 0)
        mask = columns.get("mask")
        return canonical.last_nonzero(mask[place]) if mask is not None and mask.padded else None

    def row(self, rows: Rows, at: int) -> Any:
        """A sample's value without padding; `at` counts the group's samples."""
        place = self._chosen[at]
        real = self._columns.get("attention_mask")
        found = rows[place]
        # Other fields that are as long as the mask have a value for each token; the rest have no padding.
        if real is not None and rows.wide:
            of_tokens = rows.name in _OF_TOKENS or canonical.length_of(found) == canonical.length_of(real[place])
            return canonical.cut(found, None, real[place]) if of_tokens else found
        return canonical.cut(found, self._lengths[at] if rows.wide else None, None)

    def tokens(self) -> list[int]:
        """The CRC-32 of each sample's tokens."""
        if self._tokens is None:
            self._tokens = self._each(self._columns["tokens"], canonical.integers_crc)
        return self._tokens

    def _each(self, rows: Rows, of: Callable[[Any], _Found]) -> list[_Found]:
        """What `of` gives for the row of each sample."""
        try:
            if not rows.wide:
                return [of(rows[place]) for place in self._chosen]
            return [of(self.row(rows, at)) for at in range(len(self._chosen))]
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UnusableError):
                raise
            raise UnusableError(f"{rows.name}= holds something that is no number") from None

    def digests(self, rows: dict[str, Rows]) -> dict[str, tuple[int, int]]:
        """The digest of each field, and of the ids where they are not the tokens."""
        if self.by == "sample":
            names = self._columns["sample"]
            ids = [crc32(str(names[place]).encode(errors="surrogatepass")) for place in self._chosen]
        else:
            ids = self.tokens() if self.by else [0] * len(self._chosen)
        found = {"sample": field_digest("sample", ids, ids)} if self.by == "sample" else {}
        for name, one in rows.items():
            if name == "tokens":
                crcs = self.tokens()
            elif name == "mask":
                crcs = self._each(one, canonical.mask_crc)
            elif name == "reward":
                crcs = canonical.each_float_crc(self.totals(one), self._precision)
            elif not one.wide:
                crcs = canonical.each_float_crc(self._each(one, float), self._precision)
            else:
                crcs = self._each(one, self._floats_crc)
            found[name] = field_digest(name, ids, crcs)
        return found

    def _floats_crc(self, row: Any) -> int:
        return canonical.floats_crc(row, self._precision)

    def totals(self, rows: Rows) -> list[float]:
        """The reward of each sample."""
        if self._totals is None:
            self._totals = self._each(rows, canonical.total)
        return self._totals

    def firsts(self, rows: Rows, mask: Rows | None) -> list[float]:
        """The advantage of each sample."""
        masks = [None if mask is None else self.row(mask, at) for at in range(len(self._chosen))]
        of = iter(masks)
        return self._each(rows, lambda row: canonical.first_counted(row, next(of)))

    def lengths(self, rows: Rows) -> list[int]:
        """The number of real elements of each sample's row."""
        return [canonical.length_of(self.row(rows, at)) for at in range(len(self._chosen))]


def _sums(rows: dict[str, Rows], chosen: Sequence[int], samples: _Samples) -> list[str]:
    """The members that hold sums: of rewards, of advantages, of the mask."""
    parts: list[str] = []
    rewards: list[float] | None = None
    if "reward" in rows:
        rewards = samples.totals(rows["reward"])
        parts += _numbers("reward", [fsum(rewards), fsum([r * r for r in rewards])] if _finite(rewards) else [])
    mask = rows.get("mask")
    if "advantage" in rows:
        advantages = samples.firsts(rows["advantage"], mask)
        if _finite(advantages):
            sums = [fsum(advantages), fsum([a * a for a in advantages])]
            if rewards and _finite(rewards):
                mean = fsum(rewards) / len(rewards)
                sums.append(fsum([(r - mean) * a for r, a in zip(rewards, advantages)]))
            parts += _numbers("advantage", sums)
    if mask is not None:
        counts = [canonical.ones(samples.row(mask, at)) for at in range(len(chosen))]
        tokens = samples.lengths(rows.get("tokens", mask))
        parts.append(f'"mask":[{sum(counts)},{sum(tokens)},{counts.count(0)}]')
    return parts


def _finite(numbers: list[float]) -> bool:
    return all(map(isfinite, numbers)) and isfinite(sum([x * x for x in numbers]))


def _numbers(name: str, numbers: list[float]) -> list[str]:
    return [f'"{name}":[{",".join([float.__repr__(x) for x in numbers])}]'] if numbers else []
