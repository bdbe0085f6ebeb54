"""Which member of a record, or which part of a value, makes it unusable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlship_formats.reading import RUN_OBJECTS, RUN_TEXTS, DeadLetter, is_number
from rlship_formats.records import FORMAT_VERSION
from rlship_formats.values import MAX_CUSTOM_NAME, REDUCTIONS, DeadValue, is_reduction, observe
from rlship_sidecar.checking.finding import Reason, shown

Record = Mapping[str, Any]

_VALUES = (
    'write a number, null, "NaN", "Infinity", "-Infinity", an array of these, {"v":[…],"w":[…]} or a summary '
    '{"n":…,"sum":…}; leave out a value that fits none of these'
)
_STEP = "write an integer from 0 to 9007199254740991, without fraction or quotes"


# By the reason of the dead letter and the member at fault: what to write.
_FIXES = {
    "bad open record": {
        "rlship": "the integer 1",
        "id": "a random text that is not empty, of at least 64 random bits",
        "actor": "a text that is not empty",
        "replica": "a text",
        "rank": "an integer from 0 to 1048575",
        "world": "an integer from 1 to 1048576, or leave it out",
        "attempt": "an integer from 0 to 9007199254740991",
        "axis": "a text that is not empty",
        "beat": "seconds above 0, or leave it out",
        "parent": "the id of the parent's file, or leave it out",
    },
    "bad gap": {
        "n": "how many lines, an integer from 1 on",
        "from": "the lowest step of the lines; leave it out, with `to`, where they had none",
        "to": "the highest step of the lines; leave it out, with `from`, where they had none",
    },
    "bad span": {"name": "a text that is not empty", "dur": "seconds from 0 to 10^9, as a number"},
    "bad event": {"name": "a text that is not empty"},
    "bad sample": {
        "table": "a text that is not empty",
        "row": "an object",
        "pri": "a random number in [0, 1)",
        "score": "a number, or leave it out",
    },
    "bad run": {
        **dict.fromkeys(RUN_OBJECTS, "an object, or leave it out"),
        **dict.fromkeys(RUN_TEXTS, "a text, or leave it out"),
        **dict.fromkeys(("tags", "dropped"), "an array of texts, or leave it out"),
        "exit_code": "an integer from -255 to 255, or leave it out",
    },
    "bad ledger": {
        "hop": "a text that is not empty",
        "key": "a text of 1 to 200 characters",
        **dict.fromkeys(("n",), "how many samples, an integer from 0 on"),
        **dict.fromkeys(("by", "precision", "why", "fingerprint"), "a text, or leave it out"),
        **dict.fromkeys(("response", "try", "passes"), "an integer from 0 on, or leave it out"),
        "d": "an object of arrays of two integers from 0 on, or leave it out",
        "version": "an array of two integers from 0 on, the least first, or leave it out",
        "part": "an array of two integers from 0 on, the first one less than the second, or leave it out",
        "mask": "an array of three integers from 0 on, or leave it out",
        "reward": "an array of two numbers, or leave it out",
        "advantage": "an array of two or three numbers, or leave it out",
    },
    "bad clock": {
        "offset": "seconds, at most 10^9 of them, as a number",
        "err": "seconds from 0 to 10^9, as a number",
    },
}


def bad_record(dead: DeadLetter, body: Record) -> Reason:
    """Why a record that is JSON is a dead letter."""
    what, member = dead
    if what == "bad step":
        return _bad_step(body)
    if what in ("bad metrics", "bad define"):
        return _bad_m(what, body)
    if what == "unsupported format version":
        why = f"`rlship` is {shown(body['rlship'])}, and this program reads {FORMAT_VERSION}"
        return Reason(why, 'write "rlship":1')
    if what == "bad event" and member == "attrs":
        return Reason("the `attrs` of a step_tag hold no text `tag`", 'write "attrs":{"tag":"…"}')
    if not member:  # of a gap: each of the two is valid, but not both together
        return Reason("`from` and `to` are not both present, from the lowest to the highest", "write both, or neither")
    fix = _FIXES.get(what, {}).get(member, "section 5 of formats/SPEC.md requires")
    if member not in body:
        return Reason(f"`{member}` is missing", f"write `{member}`: {fix}")
    return Reason(f"`{member}` is {shown(body[member])}", f"write `{member}` as {fix}")


def _bad_step(record: Record) -> Reason:
    kind = record.get("kind", "metrics record")
    if "step" not in record:
        return Reason(f"a {kind} needs a step", _STEP)
    step = record["step"]
    if step is None:
        return Reason("`step` is null, which is not the absence of a step", "leave the member out, or " + _STEP)
    why = f"`step` is {shown(step)}"
    if isinstance(step, float):
        why += ", a number with fraction or exponent"
    return Reason(why, _STEP)


def _bad_m(what: str, record: Record) -> Reason:
    kind = "a metrics record (a line without `kind`)" if what == "bad metrics" else "a define"
    if "m" not in record:
        return Reason(f"{kind} needs `m`", 'write "m":{…}, an object of metrics by name; it may be empty')
    return Reason(f"`m` is {shown(record['m'])}, not an object", 'write "m":{…}, an object of metrics by name')


def bad_entry(name: str, entry: Any) -> Reason:
    """Why an entry of a `define` cannot be used."""
    if not name:
        return Reason("the name of the metric is empty", "name it")
    if not isinstance(entry, dict):
        return Reason(f"its entry is {shown(entry)}, not an object", 'write {"reduce":…,"unit":…}')
    given = entry.get("reduce")
    names = given if isinstance(given, list) else [given]
    wrong = next((one for one in names if not is_reduction(one)), given)
    own = f"a name with a dot in it of at most {MAX_CUSTOM_NAME} characters"
    fix = f"write one or several of {', '.join(REDUCTIONS)}, or {own}"
    return Reason(f"`reduce` is {shown(given)}" if not names else f"the reduction {shown(wrong)} is not known", fix)


def bad_value(name: str, value: Any) -> Reason:
    """Why a metric's value cannot be used."""
    if not name:
        return Reason("the name of the metric is empty", "name it")
    if isinstance(value, str):
        return Reason(f"its value is the text {shown(value)}", _VALUES + "; texts go into events and samples")
    if isinstance(value, list):
        at, item = next((at, item) for at, item in enumerate(value) if not _observable(item))
        return Reason(f"element {at} of its array is {shown(item)}", _VALUES)
    if isinstance(value, dict) and "v" in value:
        return _bad_weighted(value)
    if isinstance(value, dict) and "n" in value:
        return _bad_summary(value)
    return Reason(f"its value {shown(value)} is an object without `n` and `v`", _VALUES + '; join names with "/"')


def _observable(item: Any) -> bool:
    try:
        observe([item])
    except DeadValue:
        return False
    return True


def _bad_weighted(value: Record) -> Reason:
    v, w = value["v"], value.get("w")
    if not isinstance(v, list) or not isinstance(w, list):
        return Reason("`v` and `w` are not both arrays", 'write {"v":[…],"w":[…]}, one weight for each observation')
    if len(v) != len(w):
        return Reason(f"`v` has {len(v)} elements and `w` {len(w)}", "write one weight for each observation")
    for at, weight in enumerate(w):
        if not is_number(weight) or weight < 0:
            return Reason(f"the weight {at} is {shown(weight)}", "write weights as numbers from 0 on")
    at, item = next((at, item) for at, item in enumerate(v) if not _observable(item))
    return Reason(f"element {at} of `v` is {shown(item)}", _VALUES)


def _bad_summary(value: Record) -> Reason:
    n = value["n"]
    if type(n) is not int or n < 0:
        return Reason(f"`n` of the summary is {shown(n)}", "write how many observations, an integer from 0 on")
    for name in ("w", "sum", "min", "max", "first", "last", "m2"):
        if name in value and not is_number(value[name]):
            return Reason(f"`{name}` of the summary is {shown(value[name])}", "write a finite number, or leave it out")
    name = "w" if value.get("w", 0) < 0 else "m2"
    return Reason(f"`{name}` of the summary is {shown(value[name])}, below 0", "write a number from 0 on")
