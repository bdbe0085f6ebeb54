"""Which member of a record, or which part of a value, makes it unusable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlship_formats.records import FORMAT_VERSION, MAX_OFFSET_S, MAX_STEP, MAX_WORLD, is_step
from rlship_formats.values import MAX_CUSTOM_NAME, NONFINITE, REDUCTIONS, DeadValue, is_reduction, observe
from rlship_sidecar.checking.finding import Reason, shown

Record = Mapping[str, Any]
Fits = Callable[[Any], bool]

_VALUES = (
    'write a number, null, "NaN", "Infinity", "-Infinity", an array of these, {"v":[…],"w":[…]} or a summary '
    '{"n":…,"sum":…}; leave a value out that is none of them'
)
_STEP = "write an integer from 0 to 9007199254740991, without fraction or quotes"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_integer(low: int, high: int) -> Fits:
    return lambda value: type(value) is int and low <= value <= high


def _is_within(low: float, high: float) -> Fits:
    return lambda value: _is_number(value) and low <= value <= high


def _or_null(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


# Kind: member, whether it is needed, what fits, what to write.
_MEMBERS: dict[str, tuple[tuple[str, bool, Fits, str], ...]] = {
    "open": (
        ("rlship", False, lambda value: type(value) is int, "the integer 1"),
        ("id", True, _is_text, "a random text that is not empty, of at least 64 random bits"),
        ("actor", True, _is_text, "a text that is not empty"),
        ("replica", False, lambda value: isinstance(value, str) or type(value) is int, "a text"),
        ("rank", False, _is_integer(0, MAX_WORLD - 1), "an integer from 0 to 1048575"),
        ("world", False, _or_null(_is_integer(1, MAX_WORLD)), "an integer from 1 to 1048576, or leave it out"),
        ("attempt", False, _is_integer(0, MAX_STEP), "an integer from 0 to 9007199254740991"),
        ("axis", False, _is_text, "a text that is not empty"),
        ("beat", False, _or_null(lambda value: _is_number(value) and value > 0), "seconds above 0, or leave it out"),
        ("parent", False, _or_null(_is_text), "the id of the parent's file, or leave it out"),
    ),
    "gap": (
        ("n", True, lambda value: type(value) is int and value >= 1, "how many lines, an integer from 1 on"),
        ("from", False, is_step, "the lowest step of the lines; leave it out, with `to`, where they had none"),
        ("to", False, is_step, "the highest step of the lines; leave it out, with `from`, where they had none"),
    ),
    "span": (
        ("name", True, _is_text, "a text that is not empty"),
        ("dur", True, _is_within(0, 1e9), "seconds from 0 to 10^9, as a number"),
    ),
    "event": (("name", True, _is_text, "a text that is not empty"),),
    "sample": (
        ("table", True, _is_text, "a text that is not empty"),
        ("row", True, lambda value: isinstance(value, dict), "an object"),
        ("pri", True, _is_within(0, 1), "a random number in [0, 1)"),
        (
            *(
                "score",
                False,
                lambda value: value is None or _is_number(value) or (isinstance(value, str) and value in NONFINITE),
            ),
            "a number, or leave it out",
        ),
    ),
    "clock": (
        ("offset", True, _is_within(-MAX_OFFSET_S, MAX_OFFSET_S), "seconds, at most 10^9 of them, as a number"),
        ("err", True, _is_within(0, MAX_OFFSET_S), "seconds from 0 to 10^9, as a number"),
    ),
}


def bad_record(what: str, record: Record) -> Reason:
    """Why a record is a dead letter, of the reason `what`, which is none of the syntax."""
    kind = what.split()[1] if what.startswith("bad ") else ""
    if what == "bad step":
        return _bad_step(record)
    if what in ("bad metrics", "bad define"):
        return _bad_m(what, record)
    if what == "unsupported format version":
        version = record.get("rlship")
        return Reason(f"`rlship` is {shown(version)}, and this program reads {FORMAT_VERSION}", 'write "rlship":1')
    for name, needed, fits, fix in _MEMBERS.get(kind, ()):
        if name not in record:
            if needed:
                return Reason(f"`{name}` is missing", f"write `{name}`: {fix}")
        elif not fits(record[name]):
            return Reason(f"`{name}` is {shown(record[name])}", f"write `{name}` as {fix}")
    if kind == "gap":
        return Reason("`from` and `to` are not both there, from the lowest to the highest", "write both, or neither")
    if kind == "event":
        return Reason("the `attrs` of a step_tag hold no text `tag`", 'write "attrs":{"tag":"…"}')
    return Reason(f"it is a {what.removeprefix('bad ')} that cannot be used", "see section 5 of formats/SPEC.md")


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
        if not _is_number(weight) or weight < 0:
            return Reason(f"the weight {at} is {shown(weight)}", "write weights as numbers from 0 on")
    at, item = next((at, item) for at, item in enumerate(v) if not _observable(item))
    return Reason(f"element {at} of `v` is {shown(item)}", _VALUES)


def _bad_summary(value: Record) -> Reason:
    n = value["n"]
    if type(n) is not int or n < 0:
        return Reason(f"`n` of the summary is {shown(n)}", "write how many observations, an integer from 0 on")
    for name in ("w", "sum", "min", "max", "first", "last", "m2"):
        if name in value and not _is_number(value[name]):
            return Reason(f"`{name}` of the summary is {shown(value[name])}", "write a finite number, or leave it out")
    name = "w" if value.get("w", 0) < 0 else "m2"
    return Reason(f"`{name}` of the summary is {shown(value[name])}, below 0", "write a number from 0 on")
