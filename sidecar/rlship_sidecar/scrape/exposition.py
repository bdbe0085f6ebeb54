"""Prometheus and OpenMetrics text as plain data, within bounds of time and size. The parser is prometheus_client's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# Of one line. prometheus_client takes a time that grows with the square of it.
LONGEST_LINE = 8 << 10
MOST_SAMPLES = 100_000

Labels = tuple[tuple[str, str], ...]


class NotMetrics(ValueError):
    """Text that is no exposition, or too much of one; says what is wrong."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: its name as it stands there, its labels sorted by name, its value."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """Samples that belong together. `kind`: counter, gauge, histogram, summary, untyped and whatever else there is."""

    name: str
    kind: str
    samples: tuple[Sample, ...]


def parse(
    text: str,
    *,
    openmetrics: bool = False,
    wanted: Callable[[str], bool] = lambda name: True,
    check: Callable[[], object] = lambda: None,
) -> list[Family]:
    """The families of an exposition whose names are wanted, in order. Raises NotMetrics.

    `wanted` is asked of the name at the beginning of a line, a sample's or that of a family. `check` is called every
    so often and may raise to end it all.
    """
    lines = _lines(text, wanted, check, openmetrics)
    families: list[Family] = []
    room = MOST_SAMPLES
    for name, kind, samples in _parsed(lines, openmetrics):
        room -= len(samples)
        if room < 0:
            raise NotMetrics(f"it has more than {MOST_SAMPLES} series; --include takes fewer")
        if samples and wanted(samples[0].name):
            families.append(Family(name, kind, tuple(samples)))
    return families


def _parsed(lines: Iterable[str], openmetrics: bool) -> Iterator[tuple[str, str, list[Sample]]]:
    # Late: only who scrapes needs it.
    if openmetrics:
        from prometheus_client.openmetrics.parser import text_fd_to_metric_families as families
    else:
        from prometheus_client.parser import text_fd_to_metric_families as families

    source: Any = lines  # it only iterates over what it calls a file
    parser: Any = families
    try:
        for family in parser(source):
            yield family.name, family.type, [made for sample in family.samples if (made := _sample(sample)) is not None]
    except (NotMetrics, TimeoutError):
        raise
    except Exception as problem:  # noqa: BLE001 - it raises what it happens on: ValueError, KeyError, UnboundLocalError…
        raise NotMetrics(f"it is no metrics text: {problem!s:.150}".rstrip(": ")) from None


def _sample(sample: Any) -> Sample | None:
    try:
        value = float(sample.value)  # None: a native histogram
    except (TypeError, OverflowError):
        return None
    if value - value != 0:  # NaN and infinities are no observations
        return None
    return Sample(sample.name, tuple(sorted((sample.labels or {}).items())), value)


def _lines(text: str, wanted: Callable[[str], bool], check: Callable[[], object], openmetrics: bool) -> Iterator[str]:
    """The lines that matter: no help texts, and of the rest those with wanted names, and the first one, which tells
    whether this is metrics text at all.
    """
    asked: dict[str, bool] = {}
    first_sample = True
    start, number, end = 0, 0, len(text)
    while start < end:
        stop = text.find("\n", start)
        stop = end if stop < 0 else stop
        size, first, start = stop - start, start, stop + 1
        number += 1
        if not number % 64:
            check()
        if size > LONGEST_LINE:
            raise NotMetrics(f"line {number} has {size} characters; {LONGEST_LINE} are allowed")
        line = text[first:stop]
        if line.startswith("#"):
            words = line.split(None, 3)
            if len(words) < 2 or words[1] not in ("TYPE", "EOF"):
                continue
            name = words[2] if len(words) > 2 else ""
        else:
            name = _name(line)
            if not name and (not line or line.isspace()) and not openmetrics:
                continue
            if first_sample:
                first_sample = False
                yield line + "\n"
                continue
        if name:
            known = asked.get(name)
            if known is None:
                known = asked[name] = wanted(name)
            if not known:
                continue
        yield line + "\n"


def _name(line: str) -> str:
    """What stands before the labels or the value; "" where the name is in the labels."""
    brace, space = line.find("{"), line.find(" ")
    ends = [place for place in (brace, space) if place >= 0]
    return line[: min(ends)].strip() if ends else line.strip()
