"""Values and lines as they stand in files, good and bad: what random experiments are made of.

In every pool the plainest comes first, because failing examples shrink towards it; an entry that stands several times
is to be drawn more often. Strategies are built once, as constants: hypothesis takes longer to build one than to draw.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

T0 = 1763600000.0
LONGEST = 1_048_576

METRICS: tuple[tuple[str, ...], ...] = (
    ("loss",),
    ("loss", "reward"),
    ("loss", "loss/max"),
    ("loss", "loss/nonfinite", "reward"),
    ("loss", "loss/count", "loss/std"),
    ("é", "loss", "loss/std/min"),
    ("loss", "policy_version"),
    ("policy_version", "loss", "rollout_s"),
    ("policy_version", "loss"),
    ("loss", "loss/aligned", "rollout_s"),
    ("loss", "event/pushed", "loss/argmax_rank", "tokens"),
    ("reward/total", "gen/requests_waiting", "bal/rank_tokens"),
)
REDUCES = (
    "mean",
    "sum",
    "std",
    ["mean", "max"],
    ["std", "mean", "count"],
    ["first", "last", "mean"],
    ["min", "max", "sum", "std", "count", "first", "last", "mean"],
    ["max", "max", "mean"],
    "count",
    "last",
    "p50",
    "rate",
    "sum_last",
    ["sum_last", "max"],
    "tests.recent",
)
NAMES = (
    *("mean", "sum", "min", "max", "first", "last", "std", "count", "p50", "p90", "p95", "p99", "hist", "hist", "rate"),
    *("sum_last", "sum_last", "rate", "tests.recent", "tests.spread", "tests.nothing", "tests.raising", "no.such"),
)

# 1e16 swallows a 1 that comes after it; 0.1, 0.2 and 0.3 add up differently in each order; the last ones overflow.
NUMBERS = (
    "1.0",
    "0",
    "2.5",
    "0.1",
    "0.2",
    "0.3",
    "-3",
    "1e16",
    "-1e16",
    "1e16",
    "-1e16",
    "1.0",
    "-0.0",
    "9007199254740993",
    "18446744073709551616",
    "1e-300",
    "1.7e308",
    "-1.7e308",
)
NOT_NEGATIVE = ("1", "0", "0.5", "2", "512", "1e-3", "0.1", "1e16", "-0.0", "3")
UNUSUAL_VALUES = (
    '{"n":3,"sum":1,"edges":[0,0.5,2],"counts":[1,2]}',
    '{"n":2,"min":-0.0,"edges":[0,0.5,2],"counts":[2,0]}',
    '{"n":5,"edges":[-3,-3,1e16],"counts":[4,1]}',
    '{"n":2,"sum":3,"edges":[0,1],"counts":[1]}',
    "null",
    "true",
    "false",
    '"NaN"',
    '"Infinity"',
    '"-Infinity"',
    "[]",
    "[null]",
    "[null,null,1]",
    "[true,false]",
    '["NaN",1.0]',
    '{"v":[],"w":[]}',
    '{"v":[null,2.0],"w":[7,1]}',
    '{"v":["NaN","Infinity",4.0],"w":[0,2,1]}',
    '{"v":["NaN"],"w":[0]}',
    '{"v":[3.0,1.0],"w":[0,0]}',
    '{"v":[1.0],"w":[2],"unit":"nats"}',
    '{"n":0}',
    '{"n":0,"sum":3.0,"min":1}',
)
DEAD_VALUES = (
    '"0.5"',
    '"nan"',
    "{}",
    "[[1]]",
    '[1,"x"]',
    '{"v":[1]}',
    '{"v":[1],"n":1}',
    '{"v":[1,2],"w":[1]}',
    '{"v":[1],"w":[-1]}',
    '{"v":[1],"w":["NaN"]}',
    '{"v":[1],"w":[true]}',
    '{"v":1,"w":1}',
    '{"w":[1]}',
    '{"sum":1}',
    '{"n":-1}',
    '{"n":1.0}',
    '{"n":true}',
    '{"n":2,"sum":"NaN"}',
    '{"n":2,"sum":null}',
    '{"n":2,"m2":-1}',
    '{"n":2,"w":-0.5}',
    '{"n":0,"max":"x"}',
)

DEAD_LINES = tuple(
    line.encode() if isinstance(line, str) else line
    for line in (
        "rubbish",
        '{"step":1,"m":{"loss":1.0}',
        '{"step":1,"m":{"loss":NaN}}',
        '{"step":1,"m":{"loss":1e999}}',
        '{"step":1,"m":{"loss":01}}',
        '{"step":1,"m":{"loss":1,}}',
        '{"step":1,"m":{"loss":1.0}} {"kind":"beat"}',
        '{"step":1,"m":{"\\ud800":1}}',
        b'{"step":1,"m":{"loss\xff":1}}',
        b'{"step":1,\x00"m":{"loss":1}}',
        b'\xef\xbb\xbf{"step":1,"m":{"loss":1}}',
        '{"step":1,"m":{"loss":1},"deep":' + "[" * 1100 + "]" * 1100 + "}",
        "[1,2]",
        "12",
        "null",
        '"open"',
        '{"kind":"open","rlship":1,"id":"again","actor":"trainer","t":1763600500}',
        '{"kind":"open","rlship":2,"id":"again","actor":"trainer"}',
        '{"kind":"open"}',
        '{"step":3.0,"m":{"loss":1}}',
        '{"step":"3","m":{"loss":1},"t":1763609000}',
        '{"step":-1,"m":{"loss":1}}',
        '{"step":true,"m":{"loss":1}}',
        '{"step":null,"m":{"loss":1}}',
        '{"step":9007199254740992,"m":{"loss":1}}',
        '{"kind":"barrier"}',
        '{"kind":"barrier","step":"1"}',
        '{"kind":"rollback","t":1763609000}',
        '{"kind":"rollback","step":-1}',
        '{"kind":"span","step":1.5,"name":"rollout","dur":0.1}',
        '{"kind":"span","step":1,"name":"rollout","t":1763609000}',
        '{"kind":"span","step":1,"name":"","dur":1}',
        '{"kind":"span","step":1,"name":"rollout","dur":-1}',
        '{"kind":"event","step":1,"t":1763609000}',
        '{"kind":"event","step":1,"name":"step_tag"}',
        '{"kind":"sample","step":1,"table":"rollouts","pri":0.5,"t":1763609000}',
        '{"kind":"sample","step":1,"table":"rollouts","row":{}}',
        '{"kind":"sample","step":1,"table":"rollouts","row":{},"pri":2}',
        '{"kind":"sample","step":1,"table":"rollouts","row":{},"pri":0,"score":"x"}',
        '{"kind":"clock","t":1763600001,"offset":1}',
        '{"kind":"clock","t":1763600001,"offset":"1","err":0}',
        '{"kind":"clock","t":1763600001,"offset":1,"err":-1}',
        '{"step":1}',
        '{"step":1,"m":[1]}',
        '{"step":1,"m":null}',
        "{}",
        '{"kind":"define"}',
        '{"kind":"define","m":"loss"}',
        '{"kind":"gap"}',
        '{"kind":"gap","n":0,"from":0,"to":3}',
        '{"kind":"gap","n":2.0,"from":0,"to":3}',
        '{"kind":"gap","n":2,"from":3,"to":1}',
        '{"kind":"gap","n":2,"from":0}',
        '{"kind":"gap","n":2,"from":-1,"to":1}',
        '{"kind":"gap","n":2,"from":null,"to":null}',
        '{"kind":"gap","n":2,"step":1.5}',
        '{"kind":"define","step":-1,"m":{"loss":{"reduce":"sum"}}}',
        '{"kind":"close","step":"1","reason":"exit"}',
    )
)
IDLE_LINES = (
    b"",
    b" \t\r",
    b'{"kind":"beat"}',
    b'{"kind":"beat","t":1763600061}',
    b'{"kind":"beat","t":1763600100.5}',
    b'{"kind":"beat","t":1763600120}',
    b'{"kind":"beat","t":1763600400}',
    b'{"kind":"novelty","t":1763600900,"step":1,"m":{"loss":7}}',
    b'{"kind":7,"step":-1}',
    b'{"kind":null,"step":0,"m":{"loss":7}}',
    b'{"kind":"metrics","step":0,"m":{"loss":7}}',
    b'{"kind":"run","t":1763600062,"step":1,"config":{"lr":1},"tags":["a"]}',
    b'{"kind":"run","summary":{"loss":{"best":0.5}},"exit_code":1}',
    b'{"kind":"event","name":"config","step":0,"attrs":{"lr":1}}',
    b'{"kind":"gap","n":3}',
    b'{"kind":"gap","n":2,"from":0,"to":1}',
    b'{"kind":"gap","n":5,"from":1,"to":9007199254740991,"t":1763600003}',
    b'{"kind":"close","reason":"roll"}',
    b'{"kind":"close","t":1763600003,"reason":"exit"}',
)
BAD_OPENS = tuple(
    line.encode()
    for line in (
        '{"kind":"open","rlship":1,"actor":"trainer"}',
        '{"kind":"open","rlship":1,"id":"","actor":"trainer"}',
        '{"kind":"open","rlship":1,"id":"x","actor":""}',
        '{"kind":"open","rlship":"1","id":"x","actor":"trainer"}',
        '{"kind":"open","id":"x","actor":"trainer","rank":-1}',
        '{"kind":"open","id":"x","actor":"trainer","rank":"0"}',
        '{"kind":"open","id":"x","actor":"trainer","rank":1048576}',
        '{"kind":"open","id":"x","actor":"trainer","rank":null}',
        '{"kind":"open","id":"x","actor":"trainer","world":0}',
        '{"kind":"open","id":"x","actor":"trainer","attempt":0.5}',
        '{"kind":"open","id":"x","actor":"trainer","replica":0.5}',
        '{"kind":"open","id":"x","actor":"trainer","parent":""}',
        '{"kind":"open","id":"x","actor":"trainer","beat":0}',
        '{"kind":"open","id":"x","actor":"trainer","axis":""}',
    )
)
USABLE_OPEN = b'{"kind":"open","rlship":1,"id":"odd","actor":"trainer","replica":"odd","world":null,"t":1763600000}'
ODD_FILES = (
    b"",
    b"\n",
    b'{"kind":"open","rlship":1,"id":"cut","actor":"trainer"',
    USABLE_OPEN + b"\n",
    b'{"step":0,"m":{"loss":1.0}}\n' + USABLE_OPEN + b'\n{"step":0,"m":{"loss":2.0}}\n',
    b'{"kind":"novelty"}\nrubbish\n' + USABLE_OPEN + b'\n{"kind":"barrier","step":0}\n',
    b'{"kind":"open","rlship":2,"id":"v2","actor":"trainer","rank":"new"}\n' + USABLE_OPEN + b'\n{"step":0,"m":{}}\n',
    BAD_OPENS[0] + b"\n" + USABLE_OPEN + b'\n{"step":0,"m":{"loss":2.0}}\n',
    b"\n".join((*BAD_OPENS, USABLE_OPEN, BAD_OPENS[0], b'{"step":2,"m":{"":1,"loss":{"x":1}}}')) + b"\n",
    USABLE_OPEN
    + b"\n"
    + b'{"step":0,"m":{"loss":3.0}}'.ljust(LONGEST)
    + b"\n"
    + b'{"step":0,"m":{"loss":4.0}}'.ljust(LONGEST + 1)
    + b"\n",
)
# What may stand where a line's `"t":…` does; the empty one is a missing t.
UNUSUAL_TIMES = (
    "",
    '"t":null,',
    '"t":"1763600000",',
    '"t":true,',
    '"t":0,',
    '"t":1e300,',
    '"t":946684799.9,',
    '"t":946684800,',
    '"t":4102444801,',
    '"t":1763600300.25,',
)


def listed(opening: str, items: Iterable[str], closing: str) -> str:
    return opening + ",".join(items) + closing


# The JSON text of a number, mostly of a telling magnitude.
ONE_NUMBER = st.sampled_from(NUMBERS)
ONE_NOT_NEGATIVE = st.sampled_from(NOT_NEGATIVE)
ANY_NUMBER = st.one_of(ONE_NUMBER, ONE_NUMBER, ONE_NUMBER, st.floats(allow_nan=False, allow_infinity=False).map(repr))
ARRAYS = st.lists(st.sampled_from((*NUMBERS, *NUMBERS, "null", '"NaN"', "true")), max_size=4).map(
    lambda v: listed("[", v, "]")
)
WEIGHTED = st.lists(st.tuples(st.sampled_from((*NUMBERS, "null", '"Infinity"')), ONE_NOT_NEGATIVE), max_size=4).map(
    lambda pairs: listed('{"v":[', (x for x, _ in pairs), "],") + listed('"w":[', (w for _, w in pairs), "]}")
)
SUMMARIES = st.tuples(
    st.sampled_from(((), (), ("w",), ("m2",), ("sum",), ("min", "first"), ("max", "last", "w"))),
    st.fixed_dictionaries(
        {
            "n": st.sampled_from(("1", "2", "32", "1", "0")),
            "w": ONE_NOT_NEGATIVE,
            "sum": ONE_NUMBER,
            "min": ONE_NUMBER,
            "max": ONE_NUMBER,
            "first": ONE_NUMBER,
            "last": ONE_NUMBER,
            "m2": ONE_NOT_NEGATIVE,
        }
    ),
).map(lambda drawn: listed("{", (f'"{name}":{text}' for name, text in drawn[1].items() if name not in drawn[0]), "}"))

# The JSON text of a metric's value: all forms, mostly numbers.
VALUES = st.one_of(
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_NUMBER,
    ARRAYS,
    WEIGHTED,
    SUMMARIES,
    st.sampled_from((*UNUSUAL_VALUES, *DEAD_VALUES)),
)


def define_line(entries: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps({"kind": "define", "m": dict(entries)}, ensure_ascii=False).encode()


# What a `define` may say besides the reductions.
MANNERS: tuple[dict[str, Any], ...] = (
    {"unit": "nats"},
    {"unit": "global_step"},
    {"per_rank": True},
    {"stream": True},
    {"unit": "global_step", "per_rank": True, "stream": True},
)
GOOD_ENTRIES = tuple(
    ({"reduce": reduce} if reduce else {}) | manners for reduce in (*REDUCES, None) for manners in MANNERS
)
ODD_ENTRIES: tuple[Any, ...] = (
    {},
    {"unit": 7, "per_rank": 1, "stream": "true"},
    {"reduce": "a." + "x" * 99},
    {"reduce": ["mean", "p42"], "stream": True},
    5,
    {"reduce": "median"},
    {"reduce": []},
    {"reduce": ["max", 3]},
    {"reduce": None},
)
ASKED = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
ENTRIES = st.one_of(
    st.sampled_from((*GOOD_ENTRIES, *ODD_ENTRIES)),
    st.tuples(ASKED, st.sampled_from(MANNERS)).map(lambda drawn: {"reduce": drawn[0], **drawn[1]}),
)
# By the metrics of an actor: a `define` line that is good, partly bad, or asks for nothing in particular.
DEFINES = {
    metrics: st.lists(
        st.tuples(
            st.sampled_from((*metrics, *metrics, *metrics, "rollout_s", "event/pushed", "never logged", "")),
            ENTRIES,
        ),
        min_size=1,
        max_size=3,
    ).map(define_line)
    for metrics in METRICS
}
