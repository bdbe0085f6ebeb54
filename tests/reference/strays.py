"""Random lines between the metrics of steps: spans, events, samples, streams, clocks, gaps and beats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from tests.reference import snippets

Item = TypeVar("Item")

STEPPED = ("span", "event", "tag", "sample", "sample")
STREAMED = ("metrics", "metrics", "metrics", "metrics", *STEPPED, "gap", "beat")
DURATIONS = ("0.5", "0", "2", "75.25", "1000000000", "0.1")
TABLES = ("rollouts", "rollouts", "rollouts", "loss", "é")
SCORES = ("1.0", "0.5", "-2", "0.5", "3", '"NaN"', '"Infinity"', "null", "9007199254740993")
PRIS = ("0.5", "0.25", "0", "1", "0.75", "0.125")
ROWS = ('{"i":1}', '{"i":2,"text":"\\u00e9"}', "{}", '{"deep":{"v":[1.5,null]}}')
OFFSETS = ("0", "-0.031", "40", "-90.5", "0.1", "1e3")
ERRORS = ("0", "0.012", "5")
SECONDS = (0.0, -0.25, 0.25, 7.0, 1.0, -0.5, 0.0, -12.5, 0.0)


@cache
def integers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


def between(draw: st.DrawFn, least: int, most: int) -> int:
    return draw(integers(least, most))


def pick(draw: st.DrawFn, pool: Sequence[Item]) -> Item:
    return pool[between(draw, 0, len(pool) - 1)]


def stray(draw: st.DrawFn, metrics: Sequence[str], step: int | None, t: float) -> bytes:
    """One line at about the time t, of a step or of none."""
    what = pick(draw, STREAMED if step is None else STEPPED)
    time = pick(draw, snippets.UNUSUAL_TIMES) if between(draw, 0, 15) == 9 else f'"t":{t + pick(draw, SECONDS)},'
    at = time if step is None else f'{time}"step":{step},'
    if what == "metrics":
        of = metrics if between(draw, 0, 1) else metrics[:1]
        entries = ",".join(f"{json.dumps(metric)}:{draw(snippets.VALUES)}" for metric in of)
        return f'{{{at}"m":{{{entries}}}}}'.encode()
    if what == "span":
        name = pick(draw, ("rollout", "rollout", "é"))
        return f'{{"kind":"span",{at}"name":"{name}","dur":{pick(draw, DURATIONS)},"lane":"main"}}'.encode()
    if what == "event":
        return f'{{"kind":"event",{at}"name":"{pick(draw, ("pushed", "pushed", "é"))}","attrs":{{}}}}'.encode()
    if what == "tag":
        return f'{{"kind":"event",{at}"name":"step_tag","attrs":{{"tag":"{pick(draw, ("eval", "b", "é"))}"}}}}'.encode()
    if what == "sample":
        score = f'"score":{pick(draw, SCORES)},' if between(draw, 0, 7) else ""
        cut = ',"cut":{"text":181234}' if between(draw, 0, 3) == 3 else ""
        body = f'{score}"pri":{pick(draw, PRIS)},"row":{pick(draw, ROWS)}{cut}'
        return f'{{"kind":"sample",{at}"table":"{pick(draw, TABLES)}",{body}}}'.encode()
    if what == "gap":
        return f'{{"kind":"gap",{time}"n":{between(draw, 1, 3)}}}'.encode()
    return f'{{"kind":"beat",{time}"new":1}}'.encode()


def clock(draw: st.DrawFn, skew: float, t: float) -> bytes:
    """A host's clock record, usually right about how far its clock is off."""
    offset = pick(draw, (str(skew), str(skew), str(skew), *OFFSETS))
    time = pick(draw, (f'"t":{t},', f'"t":{t + 0.5},', f'"t":{t - 3.0},', f'"t":{t + 60.0},', ""))
    return f'{{"kind":"clock",{time}"offset":{offset},"err":{pick(draw, ERRORS)}}}'.encode()


@cache
def crowd(number: int) -> str:
    """The JSON text of an array of more observations than are sorted, or, of number 1, more than half as many: small
    numbers, numbers of all sizes, or those around zero.
    """
    count = (65_537, 40_000, 66_000, 65_600)[number]
    if number <= 1:
        return "[" + ",".join(str(i * 7919 % 1000 - 200) for i in range(count)) + "]"
    if number == 2:
        return "[" + ",".join(f"{(-1) ** i * 1.25 ** (i % 600 - 300):.3g}" for i in range(count)) + "]"
    return "[" + ",".join(("0", "1e-310", "-0.0", "5", "0.125")[i % 5] for i in range(count)) + "]"
