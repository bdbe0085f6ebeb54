"""Rules of alerts, read from TOML. A mistake is refused with its line, what is allowed and the nearest right word."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rlship_sidecar import bounded_toml
from rlship_sidecar.alerts import expression, signals
from rlship_sidecar.alerts.expression import BadExpression, Expression
from rlship_sidecar.alerts.signals import Signal
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.similar import similar

TABLE = "alert"
MAX_RULES, MAX_SIGNALS, MAX_WINDOW = 100, 20, 1000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Tables = Mapping[str, Mapping[str, Any]]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `warning` and `critical` are its conditions; with `need` (k, n) one of them has to hold in k of the
    last n frames in which it is known. It is over after `clear` frames of calm: of `calm`, or without it of neither
    condition.
    """

    name: str
    about: str
    look: str
    signals: tuple[Signal, ...]
    warning: Expression | None
    critical: Expression | None
    calm: Expression | None
    need: tuple[int, int]
    critical_need: tuple[int, int]
    clear: int

    def wanted(self) -> set[str]:
        """The names of frames that it asks for."""
        return {name for signal in self.signals for name in signals.wanted(signal)}

    @property
    def needs(self) -> int:
        """How many earlier frames its signals compare with before all of them say something."""
        return max((one.warmup for one in self.signals if "warmup" in _TAKES[one.kind]), default=0)


class BadRule(Exception):
    """What is wrong at a key: `at` is its path below `[alert]`, `message` the mistake, `hint` what is allowed."""

    def __init__(self, at: Path, message: str, hint: str) -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint


# What a signal of each kind takes beside `kind`, `metric`, `less`, `of`, `beside`, `hold` and `missing`.
_EVERY = ("kind", "metric", "less", "of", "beside", "hold", "missing")
_TAKES: dict[str, tuple[str, ...]] = {
    "invariant": ("low", "high", "same"),
    "above": ("low", "high", "same"),
    "equal": ("to", "size"),
    "level": ("direction", "ratio", "floor", "z", "window", "warmup"),
    "break": ("direction", "size", "ratio", "z", "window", "warmup"),
    "growth": ("size", "direction", "ratio", "z", "bend", "window"),
    "shift": ("direction", "ratio", "floor", "z", "window", "warmup"),
    "stalled": ("size", "ratio", "window", "warmup"),
    "peer": ("direction", "ratio", "floor", "ranks", "same"),
}
_NEEDS: dict[str, tuple[str, ...]] = {"equal": ("to",), "level": ("ratio",), "break": ("size",), "growth": ("size",)}
_NEEDS |= {"stalled": ("size",), "peer": ("ratio", "floor"), "shift": ("ratio",)}
_RULE_KEYS = ("about", "look", "enabled", "warning", "critical", "calm", "need", "critical_need", "clear", "signals")


@cache
def packaged() -> Tables:
    """The rules that come with rlship, as they stand in `alerts.toml`. Each caller gets the same tables."""
    text = (files(__package__) / "alerts.toml").read_bytes()
    tables: Tables = bounded_toml.decode(text)[TABLE]
    return tables


def merged(tables: Tables, over: Tables) -> dict[str, dict[str, Any]]:
    """Rules with those of `over` laid over them, key by key, and signal by signal."""
    found: dict[str, dict[str, Any]] = {name: dict(table) for name, table in tables.items()}
    for name, table in over.items():
        own = found.setdefault(name, {})
        for key, value in table.items():
            if key == "signals" and isinstance(value, dict) and isinstance(own.get(key), dict):
                before = own[key]
                own[key] = before | {
                    one: before[one] | changed if isinstance(changed, dict) and one in before else changed
                    for one, changed in value.items()
                }
            else:
                own[key] = value
    return found


def rules_of(over: Tables | None = None) -> tuple[Rule, ...]:
    """The rules that come with rlship with `over` laid over them, which `check` has accepted."""
    return tuple(each_rule(merged(packaged(), over))) if over else _packaged_rules()


@cache
def _packaged_rules() -> tuple[Rule, ...]:
    return tuple(each_rule(packaged()))


def check(tables: Any, place: str, text: str) -> Tables:
    """The tables `[alert.*]` of the file `place`, which holds `text`. Raises UsageProblem, with the line."""
    try:
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise BadRule((), f"{TABLE} is no table of rules", "write [alert.NAME]")
        if len(tables) > MAX_RULES:
            raise BadRule((), f"{len(tables)} rules", f"at most {MAX_RULES} are allowed")
        list(each_rule(merged(packaged(), tables)))
    except BadRule as problem:
        line = line_of(text, (TABLE, *problem.at))
        named = ".".join((TABLE, *problem.at))
        raise UsageProblem(f"{place}, line {line}: {named}: {problem.message}", problem.hint) from problem
    return tables


def read_file(raw: bytes, place: str) -> Tables:
    """The rules of a file of rules: its tables `[alert.*]`, and nothing else. Raises UsageProblem."""
    try:
        table = bounded_toml.decode(raw)
    except bounded_toml.BadToml as problem:
        raise UsageProblem(f"{place}: {problem.message}", problem.hint) from problem
    text = raw.decode()
    for key in table:
        if key != TABLE:
            raise UsageProblem(
                f"{place}, line {line_of(text, (key,))}: {key} is no rule", "a file of rules has tables [alert.NAME]"
            )
    return check(table.get(TABLE, {}), place, text)


def each_rule(tables: Tables) -> Iterator[Rule]:
    """The rules of tables, without those that are not enabled. Raises BadRule."""
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise BadRule((name,), f"{name!r} is no name of a rule", "allowed are letters, digits and _, at most 64")
        rule = _rule(name, table)
        if table.get("enabled", True):
            yield rule


def _rule(name: str, table: Mapping[str, Any]) -> Rule:
    _require_known((name,), table, _RULE_KEYS)
    made = table.get("signals", {})
    if not isinstance(made, dict):
        raise BadRule((name, "signals"), f"{made!r} is no table", f"write tables [alert.{name}.signals.NAME]")
    if not made:
        near = "".join(f"did you mean [{TABLE}.{one}]? otherwise " for one in similar(name, packaged()))
        raise BadRule((name,), "it has no signals", f"{near}write 1..{MAX_SIGNALS} tables [alert.{name}.signals.NAME]")
    if len(made) > MAX_SIGNALS:
        raise BadRule((name, "signals"), f"it has {len(made)} signals", f"at most {MAX_SIGNALS} are allowed")
    found = tuple(_signal((name, "signals", one), one, table) for one, table in made.items())
    conditions = {key: _condition(name, key, table.get(key, ""), list(made)) for key in ("warning", "critical", "calm")}
    if conditions["warning"] is None and conditions["critical"] is None:
        raise BadRule((name,), "it has no condition", "write warning = or critical = with names of its signals")
    if not isinstance(table.get("enabled", True), bool):
        raise BadRule((name, "enabled"), f"{table['enabled']!r} is not allowed", "allowed: true or false")
    need = _pair((name, "need"), table.get("need", [1, 1]))
    return Rule(
        name=name,
        about=_text((name, "about"), table.get("about", "")),
        look=_text((name, "look"), table.get("look", "")),
        signals=found,
        warning=conditions["warning"],
        critical=conditions["critical"],
        calm=conditions["calm"],
        need=need,
        critical_need=_pair((name, "critical_need"), table.get("critical_need", list(need))),
        clear=_integer((name, "clear"), table.get("clear", 10), 1, MAX_WINDOW),
    )


def _signal(at: Path, name: str, table: Any) -> Signal:
    if not _NAME.fullmatch(name) or name == "atleast":
        raise BadRule(at, f"{name!r} is no name of a signal", "allowed are letters, digits and _, at most 64")
    if not isinstance(table, dict):
        raise BadRule(at, f"{table!r} is no signal", 'write a table, such as { kind = "above", metric = …, high = 1 }')
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _TAKES:
        allowed = f"allowed are {', '.join(signals.KINDS)}"
        near = similar(str(kind), signals.KINDS)
        hint = f'did you mean "{near[0]}"? {allowed}' if near else allowed
        raise BadRule((*at, "kind"), f"there is no kind of signal {kind!r}", hint)
    _require_known(at, table, (*_EVERY, *_TAKES[kind]), f"a signal {kind} takes")
    needed = [*(() if kind in ("stalled", "shift") else ("metric",)), *_NEEDS.get(kind, ())]
    if lacking := [key for key in needed if key not in table]:
        raise BadRule(at, f"a signal {kind} needs {lacking[0]}", f"it takes {', '.join((*_EVERY, *_TAKES[kind]))}")
    if kind in ("invariant", "above") and not table.keys() & {"low", "high"}:
        raise BadRule(at, f"a signal {kind} needs low or high", "such as high = 0.95")
    if "metric" in needed and table["metric"] == []:
        raise BadRule((*at, "metric"), "it is empty", "allowed: a metric's name, or a list of up to 10")
    given = {key: _parameter((*at, key), key, value) for key, value in table.items() if key not in ("kind", "metric")}
    metrics = _metrics((*at, "metric"), table.get("metric", []))
    made = Signal(name, kind, metrics, **(_DEFAULTS.get(kind, {}) | given))
    if made.low is not None and made.high is not None and made.low > made.high:
        raise BadRule(at, f"low {made.low:g}, high {made.high:g}: every value is out of these", "allowed: low <= high")
    if made.window < 4 or made.warmup > made.window:
        raise BadRule(at, f"window {made.window}, warmup {made.warmup}", "allowed: a window of 4.., warmup <= window")
    if kind in ("break", "shift") and made.warmup < 4:
        raise BadRule((*at, "warmup"), f"{made.warmup} is not allowed", "a trend needs 4 frames or more")
    return made


_DEFAULTS: dict[str, dict[str, Any]] = {
    "break": {"window": 30},
    "growth": {"window": 20, "warmup": 0, "z": 0.0},
    "shift": {"window": 50, "warmup": 20},
    "stalled": {"window": 20, "warmup": 5, "ratio": 3.0},
}


def _parameter(at: Path, key: str, value: Any) -> Any:
    if key in ("window", "warmup", "ranks", "hold"):
        return _integer(at, value, 2 if key == "ranks" else 0, MAX_WINDOW)
    if key == "same":
        return _pair(at, value)
    if key == "direction":
        return _one_of(at, value, (signals.UP, signals.DOWN, signals.BOTH))
    if key == "missing":
        return {"unknown": None, "false": False, "true": True}[_one_of(at, value, ("unknown", "false", "true"))]
    if key in ("less", "of", "to", "beside"):
        return _text(at, value)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadRule(at, f"{value!r} is not allowed", "allowed: a finite number")
    if key == "ratio" and value < 1:
        raise BadRule(at, f"{value!r} is not allowed", "allowed: a number >= 1; direction says which way")
    if key in ("size", "floor", "z", "bend") and value < 0:
        raise BadRule(at, f"{value!r} is not allowed", "allowed: a number >= 0")
    return float(value)


def _metrics(at: Path, value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found) or len(found) > 10:
        raise BadRule(at, f"{value!r} is not allowed", "allowed: a metric's name, or a list of up to 10")
    return tuple(found)


def _condition(rule: str, key: str, text: Any, known: list[str]) -> Expression | None:
    at = (rule, key)
    if text == "":
        return None
    if not isinstance(text, str):
        raise BadRule(at, f"{text!r} is not allowed", f"allowed: a text; {expression.ALLOWED}")
    try:
        found = expression.parse(text)
    except BadExpression as problem:
        raise BadRule(at, f"{text[:100]!r}: {problem}", expression.ALLOWED) from problem
    for name in expression.names(found):
        if name not in known:
            near = similar(name, known)
            hint = f'did you mean "{near[0]}"? ' if near else ""
            raise BadRule(at, f"there is no signal {name!r}", f"{hint}this rule has {', '.join(known)}")
    return found


def _require_known(at: Path, table: Mapping[str, Any], allowed: tuple[str, ...], what: str = "a rule takes") -> None:
    for key in table:
        if key not in allowed:
            near = similar(key, allowed)
            hint = f'did you mean "{near[0]}"? ' if near else ""
            raise BadRule((*at, key), f"there is no key {key}", f"{hint}{what} {', '.join(allowed)}")


def _text(at: Path, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise BadRule(at, f"{str(value)[:60]!r} is not allowed", "allowed: a text of up to 500 characters")
    return value


def _one_of(at: Path, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise BadRule(at, f"{value!r} is not allowed", f"allowed: {', '.join(allowed)}")
    return str(value)


def _integer(at: Path, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadRule(at, f"{value!r} is not allowed", f"allowed: an integer in {least}..{most}")
    return value


def _pair(at: Path, value: Any) -> tuple[int, int]:
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(type(one) is int for one in value)
        or not 1 <= value[0] <= value[1] <= MAX_WINDOW
    ):
        raise BadRule(at, f"{value!r} is not allowed", f"allowed: [k, n], k of the last n frames, n <= {MAX_WINDOW}")
    return value[0], value[1]


# Lines of a file ------------------------------------------------------------------------------------------------------

_WORD = r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'"""
_KEY_PATH = re.compile(rf"\s*((?:{_WORD})(?:\s*\.\s*(?:{_WORD}))*)\s*(=|\]|$)")
_WORDS = re.compile(_WORD)


def line_of(text: str, path: Path) -> int:
    """The line, from 1, that sets what `path` names or, where none does, the nearest part of the path that is set."""
    best, found, table = 0, 1, ()
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        is_table = bare.startswith("[")
        key = _KEY_PATH.match(bare.lstrip("[") if is_table else bare)
        if key is None or (key[2] != ("]" if is_table else "=")):
            continue
        words = tuple(word.strip("\"'") for word in _WORDS.findall(key[1]))
        if is_table:
            table = words
        here = words if is_table else (*table, *words)
        if len(here) > best and here == path[: len(here)]:
            best, found = len(here), number
    return found


def wanted(rules: tuple[Rule, ...]) -> set[str]:
    """The names of frames that rules ask for."""
    return {name for rule in rules for name in rule.wanted()}


def blind(rules: Iterable[Rule], seen: Collection[str]) -> list[str]:
    """The rules that look at metrics, none of which is among the names that frames have. A rule with a signal `stalled`
    looks at times.
    """
    found = []
    for rule in rules:
        names = rule.wanted()
        if names and names.isdisjoint(seen) and not any(one.kind == "stalled" for one in rule.signals):
            found.append(rule.name)
    return found
