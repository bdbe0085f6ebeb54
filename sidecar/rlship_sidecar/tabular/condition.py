"""Which records and columns of a table a query can need, taken from the query's plan.

A condition on columns is necessary, not sufficient: a record that fails it is in no answer. What a plan says and this
module does not understand is left out of the condition, so that too many records are read rather than too few.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlship_sidecar.tabular.columns import Column

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a constant; null compares with nothing."""

    column: str
    sign: str
    constant: str | int


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; without parts, any record will do."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part holds; without parts, no record will do."""

    parts: tuple[Condition, ...] = ()


Condition = Compare | AllOf | AnyOf
EVERYTHING, NOTHING = AllOf(), AnyOf()


def possible(condition: Condition, known: Mapping[str, Any]) -> bool:
    """Whether a record with these columns can hold the condition, whatever its other columns are."""
    if isinstance(condition, Compare):
        if condition.column not in known:
            return True
        value = known[condition.column]
        return value is not None and _OPERATORS[condition.sign](value, condition.constant)
    check = all if isinstance(condition, AllOf) else any
    return check(possible(part, known) for part in condition.parts)


def given(condition: Condition, known: Mapping[str, Any]) -> Condition:
    """What is left of the condition for records with these columns."""
    if isinstance(condition, Compare):
        if condition.column not in known:
            return condition
        return EVERYTHING if possible(condition, known) else NOTHING
    parts = [given(part, known) for part in condition.parts]
    if isinstance(condition, AllOf):
        return NOTHING if NOTHING in parts else AllOf(tuple(part for part in parts if part != EVERYTHING))
    return EVERYTHING if EVERYTHING in parts else AnyOf(tuple(part for part in parts if part != NOTHING))


def constants(condition: Condition, column: str) -> frozenset[str | int] | None:
    """The values to which the condition limits a column; None if there may be others."""
    if isinstance(condition, Compare):
        return frozenset([condition.constant]) if (condition.column, condition.sign) == (column, "=") else None
    found = [constants(part, column) for part in condition.parts]
    if isinstance(condition, AllOf):
        limits = [limit for limit in found if limit is not None]
        return frozenset.intersection(*limits) if limits else None
    return None if None in found else frozenset().union(*(limit for limit in found if limit is not None))


def one_of(column: str, values: Iterable[str | int]) -> Condition:
    """The condition that a column has one of these values."""
    return AnyOf(tuple(Compare(column, "=", value) for value in values))


# The plan of DuckDB ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Need:
    """What a query needs of a table: the condition on its records, and the names of columns; None for all columns."""

    condition: Condition = EVERYTHING
    columns: frozenset[str] | None = None


def needs(plan: Iterable[Mapping[str, Any]], tables: Mapping[str, Collection[Column]]) -> dict[str, Need]:
    """What is needed of each table, from the plan as DuckDB explains it in JSON: NOTHING of a table that the plan does
    not scan.
    """
    scans: dict[str, list[Need]] = {name: [] for name in tables}
    left = list(plan)
    while left:
        node = left.pop()
        left += node.get("children", ())
        about = node.get("extra_info")
        scanned = about.get("Table") if isinstance(about, dict) else None
        if isinstance(about, dict) and isinstance(scanned, str):
            for name, columns in tables.items():
                if scanned == name or scanned.endswith(f".{name}"):
                    scans[name].append(Need(_of_filters(about.get("Filters", []), columns), _columns(about, columns)))
    return {name: _together(found) for name, found in scans.items()}


def _together(scans: Sequence[Need]) -> Need:
    """What several scans of one table need."""
    columns = [scan.columns for scan in scans if scan.columns is not None]
    whole = None if len(columns) < len(scans) else frozenset[str]().union(*columns)
    return Need(_any_of([scan.condition for scan in scans]), whole)


def _columns(about: Mapping[str, Any], columns: Collection[Column]) -> frozenset[str] | None:
    """The columns that a scan yields or filters by; None if it names anything else."""
    projected, filters = about.get("Projections"), about.get("Filters", "")
    if projected is None:
        return None
    projected = {projected} if isinstance(projected, str) else set(projected)
    text = filters if isinstance(filters, str) else " ".join(map(str, filters))
    known = {column.name for column in columns}
    if not projected - {""} <= known:
        return None
    return frozenset(projected - {""} | {name for name in known if names(text, name)})


def names(sql: str, name: str) -> bool:
    """Whether a table's or a column's name occurs somewhere in a text of SQL."""
    written = re.escape(name.replace('"', '""'))
    return re.search(rf"(?<!\w){written}(?!\w)", sql, re.IGNORECASE) is not None


def _any_of(parts: Sequence[Condition]) -> Condition:
    if EVERYTHING in parts:
        return EVERYTHING
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _of_filters(filters: Any, columns: Collection[Column]) -> Condition:
    texts = [filters] if isinstance(filters, str) else filters
    # A constant with a line break comes in pieces. Each of the outer ones has an odd number of quotes.
    if not isinstance(texts, list) or any(not isinstance(text, str) or text.count("'") % 2 for text in texts):
        return EVERYTHING
    found = [_parsed(text, {column.name: column.type for column in columns}) for text in texts]
    return AllOf(tuple(part for part in found if part is not None))


_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<int>-?\d+(?![\w.]))|(?P<word>\w+)|(?P<sign><=|>=|[=<>(),]))"""
)
Token = tuple[str, str]


class _Unknown(Exception):
    """A filter of another kind than the simple ones."""


def _parsed(text: str, types: Mapping[str, str]) -> Condition | None:
    """One filter of a scan, such as `((step >= 3) AND (step <= 9))`; None if it is another kind of expression."""
    try:
        tokens = _tokens(text.removeprefix("optional: "))
        condition = _Parser(tokens, types).alternatives()
    except _Unknown:
        return None
    return None if tokens else condition


def _tokens(text: str) -> list[Token]:
    """The tokens of a filter, the last one first."""
    found: list[Token] = []
    end = 0
    while end < len(text.rstrip()):
        match = _TOKEN.match(text, end)
        if match is None or match.lastgroup is None:
            raise _Unknown
        found.append((match.lastgroup, match[match.lastgroup]))
        end = match.end()
    return found[::-1]


class _Parser:
    """Takes tokens off the end of a list. Raises _Unknown for what it does not know."""

    def __init__(self, tokens: list[Token], types: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._types = types

    def alternatives(self) -> Condition:
        """A OR B OR …"""
        parts = [self._together()]
        while self._have("OR"):
            parts.append(self._together())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _together(self) -> Condition:
        parts = [self._single()]
        while self._have("AND"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _single(self) -> Condition:
        if self._have("("):
            inner = self.alternatives()
            self._need(")")
            return inner
        column = self._take("word")
        if self._types.get(column) not in ("text", "int"):
            raise _Unknown
        if self._have("IS"):
            self._need("NOT")
            self._need("NULL")
            return EVERYTHING
        if self._have("IN"):
            self._need("(")
            values = [self._constant(column)]
            while self._have(","):
                values.append(self._constant(column))
            self._need(")")
            return one_of(column, values)
        sign = self._take("sign")
        if sign not in _OPERATORS:
            raise _Unknown
        return Compare(column, sign, self._constant(column))

    def _constant(self, column: str) -> str | int:
        kind = self._types[column]
        text = self._take(kind)
        return int(text) if kind == "int" else text[1:-1].replace("''", "'")

    def _take(self, kind: str) -> str:
        if not self._tokens or self._tokens[-1][0] != kind:
            raise _Unknown
        return self._tokens.pop()[1]

    def _have(self, text: str) -> bool:
        if self._tokens and self._tokens[-1][1] == text:
            self._tokens.pop()
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._have(text):
            raise _Unknown
