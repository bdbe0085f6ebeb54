"""The graph of signs and causes, read from TOML. A mistake is refused with its line and what is allowed.

A sign is what one metric shows, and leads to other signs. A cause has signs as its evidence. Nothing in a graph is ever
run as code.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from rlship_sidecar import bounded_toml
from rlship_sidecar.alerts.rules import line_of
from rlship_sidecar.alerts.words import entry_of
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.similar import similar

TABLE = "why"  # in rlship.toml; a file of its own has its tables at the top
SIGN, CAUSE = "sign", "cause"
MAX_SIGNS, MAX_CAUSES, MAX_METRICS, MAX_EVIDENCE, MAX_STEPS, MAX_TEXT = 500, 500, 10, 30, 1000, 300

# By how much a sign makes a cause more likely if it shows, and less likely if it is logged and does not show.
STRENGTHS: dict[str, float] = {"decisive": 50.0, "strong": 8.0, "weak": 2.5}
NOT = "not "
MOST_UNSEEN = 1  # signs on end of which nothing is known, on the way from one that shows to another

UP, DOWN, BOTH = "up", "down", "both"
EVENTS = ("restart", "job_restart", "rollback")
AT = ("trainer", "generator", "reward", "environment", "buffer", "data", "node", "network", "sync", "settings")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# What a sign looks for: exactly one of these keys, with the type of its value.
_DIRECTION, _NUMBER, _COUNT, _METRIC, _TRUE, _EVENT = "direction", "number", "count", "metric", "true", "event"
TESTS: dict[str, str] = {
    "change": _DIRECTION,
    "above": _NUMBER,
    "below": _NUMBER,
    "apart": _DIRECTION,
    "grows": _NUMBER,
    "differs": _METRIC,
    "falls": _TRUE,
    "rises": _NUMBER,
    "jumps": _NUMBER,
    "stuck": _COUNT,
    "event": _EVENT,
    "stalls": _TRUE,
    "slows": _NUMBER,
}
_WITHOUT_METRIC = ("event", "stalls", "slows")
_SIGN_KEYS = ("says", "metric", *TESTS, "size", "floor", "window", "lasting", "need", "ranks", "start")
_SIGN_KEYS += ("less", "of", "at", "leads_to", "source")
_CAUSE_KEYS = ("says", "at", *STRENGTHS, "look", "try", "source", "enabled")
_EDGE_KEYS = ("within", "source")

Path = tuple[str, ...]
Tables = Mapping[str, Mapping[str, Any]]  # by SIGN and CAUSE, then by name


class Edge(NamedTuple):
    """That a sign leads to another one within that many steps."""

    to: str
    within: int
    source: str


@dataclass(frozen=True, slots=True)
class Sign:
    """What one metric shows. `test` is a key of TESTS and `value` what it is set to; docs/why.md explains them.

    Any one of `metrics` shows the sign. `size`, `floor` and `window` are None where the catalogue, or the test, has
    them. A `change` shows as well where the metric goes slowly, or for good, to `lasting` times what it was; None: it
    does not. `need` (k, n): it begins where the test is true in k of n frames. `ranks` make peers. With `start` only
    what begins within so many frames of the run, or of an attempt, counts. `at` is where such a change has its origin,
    "" for the actor that logs it.
    """

    name: str
    says: str
    metrics: tuple[str, ...]
    test: str
    value: Any
    size: float | None
    floor: float | None
    window: int | None
    lasting: float | None
    need: tuple[int, int] | None
    ranks: int
    start: int | None
    less: str
    of: str
    at: str
    leads_to: tuple[Edge, ...]

    @property
    def direction(self) -> str:
        """Up, down or both: the way in which the metric goes."""
        if self.test in ("change", "apart"):
            return str(self.value)
        if self.test in ("below", "falls"):
            return DOWN
        return UP if self.test in ("above", "grows", "rises", "jumps", "slows") else BOTH


class EvidencePart(NamedTuple):
    """A sign in the evidence of a cause. `wanted` False: that it does not show speaks for the cause."""

    sign: str
    strength: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with its evidence. `at` is where it lies: one of AT, or "" for the place of its evidence."""

    name: str
    says: str
    at: str
    evidence: tuple[EvidencePart, ...]
    look: str
    remedy: str
    source: str

    @property
    def shows(self) -> tuple[str, ...]:
        """The signs that the cause shows."""
        return tuple(part.sign for part in self.evidence if part.wanted)


@dataclass(frozen=True)
class Graph:
    """All signs and causes, by name, in the order in which they are written."""

    signs: Mapping[str, Sign]
    causes: Mapping[str, Cause]

    def reach(self, first: str, broken: Collection[str] = (), shown: Collection[str] | None = None) -> dict[str, int]:
        """The signs to which one leads, by the fewest edges, and within how many steps; not through those `broken`, and
        not through more than `MOST_UNSEEN` on end that are not among those `shown`, if these are given.
        """
        found: dict[str, int] = {}
        fewest = {first: 0}
        queue = deque([(first, 0, 0)])
        while queue:
            name, within, unseen = queue.popleft()
            for edge in self.signs[name].leads_to:
                after = 0 if shown is None or edge.to in shown else unseen + 1
                if edge.to in fewest and fewest[edge.to] <= after:
                    continue
                fewest[edge.to] = after
                found.setdefault(edge.to, within + edge.within)
                if edge.to not in broken and after <= MOST_UNSEEN:
                    queue.append((edge.to, within + edge.within, after))
        found.pop(first, None)
        return found

    @cached_property
    def reached(self) -> dict[str, frozenset[str]]:
        """By sign, that sign and all to which it leads."""
        return {name: frozenset((name, *self.reach(name))) for name in self.signs}


class BadGraph(Exception):
    """What is wrong at a key: `at` is its path, `message` the mistake, `hint` what is allowed."""

    def __init__(self, at: Path, message: str, hint: str) -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint


def packaged() -> Tables:
    """The graph that comes with rlship, as it stands in `graph.toml`."""
    tables: Tables = bounded_toml.decode((files(__package__) / "graph.toml").read_bytes())
    return tables


def merged(tables: Tables, over: Tables) -> dict[str, dict[str, Any]]:
    """A graph with `over` laid over it: signs and causes key by key, edges one by one."""
    found: dict[str, dict[str, Any]] = {
        kind: {name: dict(table) for name, table in named.items()} for kind, named in tables.items()
    }
    for kind, named in over.items():
        own = found.setdefault(kind, {})
        for name, table in named.items():
            own[name] = _laid_over(own.get(name, {}), table)
    return found


def _laid_over(own: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with another one over it. Another test takes the place of the former one."""
    if any(test in table for test in TESTS):
        own = {key: value for key, value in own.items() if key not in TESTS}
    made = {**own, **table}
    if isinstance(own.get("leads_to"), dict) and isinstance(table.get("leads_to"), dict):
        made["leads_to"] = own["leads_to"] | table["leads_to"]
    return made


def graph_of(*over: Tables) -> Graph:
    """The graph that comes with rlship, with others laid over it, which `check` has accepted."""
    tables: Tables = packaged()
    for one in over:
        tables = merged(tables, one)
    return read(tables)


def check(tables: Any, place: str, text: str, *, inside: Path = (TABLE,)) -> Tables:
    """The tables of a graph in the file `place`, which holds `text`, below the key `inside`. Raises UsageProblem."""
    try:
        if not isinstance(tables, dict):
            raise BadGraph((), "is no table", f"write [{TABLE}.{SIGN}.NAME] or [{TABLE}.{CAUSE}.NAME]")
        for kind, named in tables.items():
            if kind not in (SIGN, CAUSE):
                raise BadGraph((kind,), f"there is no kind {kind!r} in a graph", f"allowed are {SIGN} and {CAUSE}")
            if not isinstance(named, dict):
                raise BadGraph((kind,), "is no table of tables", f"write [{'.'.join((*inside, kind))}.NAME]")
            for name, table in named.items():
                if not isinstance(table, dict):
                    raise BadGraph((kind, name), "is no table", f"write [{'.'.join((*inside, kind))}.{name}]")
        read(merged(packaged(), tables))
    except BadGraph as problem:
        line = line_of(text, (*inside, *problem.at))
        named = ".".join((*inside, *problem.at))
        raise UsageProblem(f"{place}, line {line}: {named}: {problem.message}", problem.hint) from problem
    found: Tables = tables
    return found


def read_file(raw: bytes, place: str) -> Tables:
    """The tables of a file that holds a graph and nothing else. Raises UsageProblem."""
    try:
        table = bounded_toml.decode(raw)
    except bounded_toml.BadToml as problem:
        raise UsageProblem(f"{place}: {problem.message}", problem.hint) from problem
    return check(table, place, raw.decode(), inside=())


def read(tables: Tables) -> Graph:
    """The graph that tables hold. Raises BadGraph."""
    signs, causes = tables.get(SIGN, {}), tables.get(CAUSE, {})
    for kind, named, most in ((SIGN, signs, MAX_SIGNS), (CAUSE, causes, MAX_CAUSES)):
        if len(named) > most:
            raise BadGraph((kind,), f"there are {len(named)} of them", f"at most {most} are allowed")
        for name in named:
            if not _NAME.fullmatch(name):
                hint = "allowed are small letters, digits and _, at most 64"
                raise BadGraph((kind, name), f"{name[:80]!r} is no name of a {kind}", hint)
    return Graph(
        {name: _sign(name, table, signs) for name, table in signs.items()},
        {name: cause for name, table in causes.items() if (cause := _cause(name, table, signs)) is not None},
    )


# Signs ----------------------------------------------------------------------------------------------------------------


def _sign(name: str, table: Mapping[str, Any], known: Collection[str]) -> Sign:
    at: Path = (SIGN, name)
    _require_known(at, table, _SIGN_KEYS, "a sign takes")
    tests = [key for key in table if key in TESTS]
    if len(tests) != 1:
        what = f"it has both {tests[0]} and {tests[1]}" if tests else "it does not say what it looks for"
        raise BadGraph((*at, *tests[1:2]), what, f"allowed is one of {', '.join(TESTS)}")
    test = tests[0]
    metrics = _metrics((*at, "metric"), table.get("metric", []))
    if bool(metrics) == (test in _WITHOUT_METRIC):
        if metrics:
            raise BadGraph((*at, "metric"), f"{test} is of no metric", "leave metric out")
        raise BadGraph(at, "it has no metric", 'write metric = "NAME"; `rlship metrics` lists them')
    sized = {key: _number((*at, key), table[key], 0) for key in ("size", "floor") if key in table}
    if "lasting" in table and (test != "change" or _number((*at, "lasting"), table["lasting"]) < 1):
        raise BadGraph((*at, "lasting"), "is not allowed here", "allowed: a number >= 1, beside change")
    made = Sign(
        name=name,
        says=_text((*at, "says"), table.get("says", ""), needed=True),
        metrics=metrics,
        test=test,
        value=_value((*at, test), TESTS[test], table[test]),
        size=sized.get("size"),
        floor=sized.get("floor"),
        window=_integer((*at, "window"), table["window"], 4, 200) if "window" in table else None,
        lasting=_number((*at, "lasting"), table["lasting"]) if "lasting" in table else None,
        need=_pair((*at, "need"), table["need"]) if "need" in table else None,
        ranks=_integer((*at, "ranks"), table.get("ranks", 3), 2, MAX_STEPS),
        start=_integer((*at, "start"), table["start"], 1, 200) if "start" in table else None,
        less=_text((*at, "less"), table.get("less", "")),
        of=_text((*at, "of"), table.get("of", "")),
        at=_at((*at, "at"), table.get("at", "")),
        leads_to=tuple(_edges((*at, "leads_to"), table.get("leads_to", {}), known)),
    )
    _require_sizes(at, made)
    return made


def _require_sizes(at: Path, sign: Sign) -> None:
    """Raise BadGraph unless each metric has a size for the test, of the sign itself or of the catalogue."""
    for name in sign.metrics if sign.test in ("change", "apart") else ():
        entry = entry_of(name)
        kind = "" if entry is None else entry.evidence.kind
        if sign.size is None and kind in ("", "claim"):
            about = f"is a {kind}, which has no usual size" if kind else "is not in the catalogue"
            raise BadGraph((*at, sign.test), f"{name} {about}", "add size, or look for another thing than a change")
        if sign.size is None and kind == "invariant" and entry and sign.value != entry.evidence.direction:
            hint = f"allowed: {entry.evidence.direction}, or add size"
            raise BadGraph((*at, sign.test), f"{name} has a known healthy value", hint)
        if sign.test == "apart" and sign.floor is None and kind != "peer":
            raise BadGraph(
                (*at, sign.test), f"{name} has no usual floor", "add floor, the least difference that counts"
            )


def _value(at: Path, kind: str, value: Any) -> Any:
    if kind == _DIRECTION:
        return _one_of(at, value, (UP, DOWN, BOTH))
    if kind == _EVENT:
        return _one_of(at, value, EVENTS)
    if kind == _METRIC:
        return _text(at, value, needed=True)
    if kind == _COUNT:
        return _integer(at, value, 2, 200)
    if kind == _TRUE:
        if value is not True:
            raise BadGraph(at, f"{value!r} is not allowed", "allowed: true")
        return value
    return _number(at, value)


def _edges(at: Path, table: Any, known: Collection[str]) -> Iterator[Edge]:
    if not isinstance(table, dict):
        raise BadGraph(at, f"{str(table)[:60]!r} is no table", "write [sign.NAME.leads_to]")
    for name, edge in table.items():
        here = (*at, name)
        _require_sign(here, name, known)
        if not isinstance(edge, dict):
            raise BadGraph(here, f"{str(edge)[:60]!r} is no edge", 'write { within = 5, source = "…" }')
        _require_known(here, edge, _EDGE_KEYS, "an edge takes")
        within = _integer((*here, "within"), edge.get("within"), 0, MAX_STEPS)
        yield Edge(name, within, _text((*here, "source"), edge.get("source", ""), needed=True))


# Causes ---------------------------------------------------------------------------------------------------------------


def _cause(name: str, table: Mapping[str, Any], known: Collection[str]) -> Cause | None:
    at: Path = (CAUSE, name)
    _require_known(at, table, _CAUSE_KEYS, "a cause takes")
    if not isinstance(table.get("enabled", True), bool):
        raise BadGraph((*at, "enabled"), f"{table['enabled']!r} is not allowed", "allowed: true or false")
    evidence: list[EvidencePart] = []
    for strength in STRENGTHS:
        evidence += _parts((*at, strength), strength, table.get(strength, []), known)
    seen: set[str] = set()
    for part in evidence:
        if part.sign in seen:
            raise BadGraph((*at, part.strength), f"{part.sign} is in its evidence twice", "name each sign once")
        seen.add(part.sign)
    if not any(part.wanted for part in evidence) or len(evidence) > MAX_EVIDENCE:
        raise BadGraph(
            at,
            f"it has {sum(part.wanted for part in evidence)} signs",
            f"write {', '.join(STRENGTHS)} = with 1..{MAX_EVIDENCE} names of signs",
        )
    made = Cause(
        name=name,
        says=_text((*at, "says"), table.get("says", ""), needed=True),
        at=_at((*at, "at"), table.get("at", "")),
        evidence=tuple(evidence),
        look=_text((*at, "look"), table.get("look", "")),
        remedy=_text((*at, "try"), table.get("try", "")),
        source=_text((*at, "source"), table.get("source", ""), needed=True),
    )
    return made if table.get("enabled", True) else None


def _parts(at: Path, strength: str, names: Any, known: Collection[str]) -> Iterator[EvidencePart]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadGraph(at, f"{str(names)[:60]!r} is not allowed", 'allowed: a list of signs, such as ["a", "not b"]')
    for text in names:
        name = text.removeprefix(NOT)
        _require_sign(at, name, known)
        yield EvidencePart(name, strength, name == text)


def _require_sign(at: Path, name: str, known: Collection[str]) -> None:
    if name not in known:
        near = similar(name, known, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadGraph(at, f"there is no sign {name[:80]!r}", f"{hint}a sign is a table [{SIGN}.NAME]")


# Values ---------------------------------------------------------------------------------------------------------------


def _require_known(at: Path, table: Mapping[str, Any], allowed: Sequence[str], what: str) -> None:
    for key in table:
        if key not in allowed:
            near = similar(key, allowed)
            hint = f'did you mean "{near[0]}"? ' if near else ""
            raise BadGraph((*at, key), f"there is no key {key[:80]}", f"{hint}{what} {', '.join(allowed)}")


def _text(at: Path, value: Any, *, needed: bool = False) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise BadGraph(at, f"{str(value)[:60]!r} is not allowed", f"allowed: a text of up to {MAX_TEXT} characters")
    if needed and not value.strip():
        raise BadGraph(at, "is missing or empty", f'write {at[-1]} = "…"')
    return value


def _one_of(at: Path, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        near = similar(str(value), allowed)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise BadGraph(at, f"{str(value)[:60]!r} is not allowed", f"{hint}allowed: {', '.join(allowed)}")
    return str(value)


def _at(at: Path, value: Any) -> str:
    return "" if value == "" else _one_of(at, value, AT)


def _number(at: Path, value: Any, least: float = -math.inf) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < least:
        raise BadGraph(at, f"{str(value)[:60]!r} is not allowed", "allowed: a finite number" + " >= 0" * (least == 0))
    return float(value)


def _integer(at: Path, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadGraph(at, f"{str(value)[:60]!r} is not allowed", f"allowed: an integer in {least}..{most}")
    return value


def _pair(at: Path, value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(one) is int for one in value):
        raise BadGraph(at, f"{str(value)[:60]!r} is not allowed", "allowed: [k, n], k of n frames")
    if not 1 <= value[0] <= value[1] <= 20:
        raise BadGraph(at, f"{value!r} is not allowed", "allowed: [k, n] with 1 <= k <= n <= 20")
    return value[0], value[1]


def _metrics(at: Path, value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    fine = isinstance(found, list) and all(isinstance(one, str) and 0 < len(one) <= 200 for one in found)
    if not fine or len(found) > MAX_METRICS:
        raise BadGraph(
            at, f"{str(value)[:60]!r} is not allowed", f"allowed: a metric, or a list of up to {MAX_METRICS}"
        )
    return tuple(found)
