"""Scripts of calls, and other calls, as the lines that the drivers of all languages read.

One command a line, TAB between fields; the first field names it. `\\t`, `\\n`, `\\r`, `\\\\` and `\\xHH` (a byte) are
escapes; an empty field says that nothing is given, but for the names of metrics, which may be empty.

    init DIR ACTOR RANK WORLD REPLICA ATTEMPT AXIS [PARENT [LABEL TEXT]…]
    define METRIC REDUCES UNIT PER_RANK STREAM          reduces with commas between them; 1 or nothing
    log STEP WEIGHT [NAME VALUE]…
    list STEP NAME VALUES WEIGHTS                       numbers with commas between them
    summary STEP NAME [MEMBER VALUE]…
    span STEP NAME SECONDS ERROR
    event STEP NAME [KEY VALUE]…                        s:text, n:1.5, b:1 (b:0), j:JSON
    sample STEP TABLE SCORE [COLUMN VALUE]…
    run config|summary|members [KEY VALUE]…             values as those of `event`
    barrier STEP | rollback STEP | flush | close
    sleep MILLISECONDS
    burst N                                             at each step i < N: log x=i, then a barrier
    threads T N                                         T threads: each logs x=i at step i, i < N
    fork STEP X                                         a forked child logs x and ends; the driver waits for it
    exit                                                return from main, without closing
    abort                                               die by SIGKILL

A number is a double as Python's `repr` gives it, or an integer, or NaN, Infinity, -Infinity. `init` beyond AXIS,
`summary`, `threads`, `fork`, `s:` in `log` and `j:` are only for languages that are able to do it: see languages.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.spec.calling import given

Record = dict[str, Any]


def command(*fields: object) -> str:
    """One line of commands."""
    return "\t".join(_escaped("" if field is None else str(field)) for field in fields) + "\n"


def _escaped(text: str) -> str:
    for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return "".join(c if c >= " " and not "\ud800" <= c <= "\udfff" else _bytes_of(c) for c in text)


def _bytes_of(character: str) -> str:
    """Half a surrogate pair as the three bytes that UTF-8 would have for it."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def init(folder: object, actor: str, **facts: Any) -> str:
    """`init` of a writer; `facts` as `open` of a script has them."""
    known = [facts.pop(name, None) for name in ("rank", "world", "replica", "attempt", "axis")]
    parent, labels = facts.pop("parent", None), facts.pop("labels", {})
    assert not facts, facts
    more = [parent, *(text for label in labels.items() for text in label)] if parent or labels else []
    return command("init", folder, actor, *known, *more)


def played(script: Record, folder: object) -> str:
    """All commands of a script."""
    return init(folder, **script["open"]) + "".join(_call(call) for call in script["calls"])


def _call(call: Record) -> str:
    return _CALLS.get(call["call"], _plain)(call)


def _plain(call: Record) -> str:
    return command(call["call"], *([call["step"]] if "step" in call else []))


def _log(call: Record) -> str:
    m, step, weight = given(call["m"]), call.get("step"), given(call.get("weight"))
    if any(isinstance(value, (list, dict)) for value in m.values()):
        return "".join(_whole(step, name, value, weight) for name, value in m.items())
    pairs = [part for name, value in m.items() for part in (name, number(value))]
    return command("log", step, None if weight is None else number(weight), *pairs)


def _whole(step: int | None, name: str, value: Any, weight: Any) -> str:
    """An array or a summary, which drivers log one at a time."""
    if isinstance(value, dict) and "n" in value:
        return command("summary", step, name, *(part for k, v in value.items() for part in (k, number(v))))
    if isinstance(value, dict):
        value, weight = value["v"], value["w"]
    weights = weight if isinstance(weight, list) else [] if weight is None else [weight] * len(value)
    return command("list", step, name, ",".join(map(number, value)), ",".join(map(number, weights)))


def number(value: Any) -> str:
    """A number as drivers read it; `s:` and the text where a text stands in its place."""
    if isinstance(value, str):
        return f"s:{value}"
    if value != value or value in (float("inf"), float("-inf")):
        return json.dumps(value)  # the three words
    return repr(value)


def _define(call: Record) -> str:
    lines = []
    for name, entry in call["m"].items():
        reduce = entry.get("reduce", [])
        reduces = [reduce] if isinstance(reduce, str) else reduce
        flags = ["1" if entry.get(flag) else "" for flag in ("per_rank", "stream")]
        lines.append(command("define", name, ",".join(reduces), entry.get("unit"), *flags))
    return "".join(lines)


def _run(call: Record) -> str:
    """A command for each of config and summary, and one for the other members."""
    objects = [command("run", name, *_attributes(call[name])) for name in ("config", "summary") if name in call]
    members = {name: value for name, value in call.items() if name not in ("call", "config", "summary")}
    return "".join(objects) + (command("run", "members", *_attributes(members)) if members else "")


def _as_json(call: Record) -> str:
    """A command with the call as JSON, and once more in parts, for languages without a reader of JSON: the step, hop
    and key, then names and values. Commas divide numbers, semicolons rows.
    """
    members = {name: value for name, value in call.items() if name != "call"}
    parts = {name: value for name, value in members.items() if name not in ("step", "hop", "key")}
    pairs = [part for name, value in parts.items() for part in (name, _flat(value))]
    return command(call["call"], json.dumps(members), call.get("step"), call.get("hop"), call.get("key"), *pairs)


def _flat(value: Any) -> str:
    if isinstance(value, list):
        return (";" if any(isinstance(item, list) for item in value) else ",").join(map(_flat, value))
    return value if isinstance(value, str) else repr(value)


def _attributes(found: Record) -> list[str]:
    return [part for name, value in given(found).items() for part in (name, _typed(value))]


def _typed(value: Any) -> str:
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, bool):
        return f"b:{value:d}"
    return f"n:{value!r}" if isinstance(value, (int, float)) else f"j:{json.dumps(value)}"


_CALLS: dict[str, Callable[[Record], str]] = {
    "log": _log,
    "define": _define,
    "span": lambda call: command("span", call.get("step"), call["name"], 0.25, call.get("error")),
    "run": _run,
    "event": lambda call: command("event", call.get("step"), call["name"], *_attributes(call.get("attrs", {}))),
    "ledger": _as_json,
    "weights": _as_json,
    "sample": lambda call: command(
        "sample", call.get("step"), call["table"], call.get("score"), *_attributes(call["row"])
    ),
}


def one_by_one(records: list[Record]) -> list[Record]:
    """The same records with each `define` of several metrics, and each record of several arrays or summaries, as that
    many records: drivers have commands for one at a time.
    """
    return [part for record in records for part in _parts(record)]


def _parts(record: Record) -> list[Record]:
    m = record.get("m", {})
    apart = record.get("kind") == "define" or any(isinstance(value, (list, dict)) for value in m.values())
    return [{**record, "m": {name: value}} for name, value in m.items()] if apart and len(m) > 1 else [record]
