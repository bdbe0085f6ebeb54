"""Parses Prometheus and OpenMetrics text, by prometheus_client's parser, within bounds of time and size."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# Characters of one line. prometheus_client takes a time that grows with its square.
MAX_LINE = 8 << 10
MAX_SAMPLES = 100_000
MAX_REMEMBERED = 16 << 20
_EACH = 200  # bytes that a line takes in memory beside its characters

# A value that does not change how the text before it is parsed.
_PLAIN = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|NaN|[+-]?Inf", re.ASCII)

Labels = tuple[tuple[str, str], ...]


class NotMetrics(ValueError):
    """Text that is not an exposition, or too long a one; the message names the mistake."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: its name as written, its labels sorted by name, its value."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """Samples that belong together. `kind`: counter, gauge, histogram, summary, untyped or any other type."""

    name: str
    kind: str
    samples: tuple[Sample, ...]


class Memory:
    """Series of an endpoint that were parsed before, by the `# TYPE` line above and the whole line but its value.

    The parser takes some 50 microseconds for a line, and pages differ only in their values. So a parsed series is
    reused for the next page. This needs a format in which the lines of a family stand together.
    """

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], tuple[str, str, str, Labels]] = {}
        self.size = 0  # characters of lines

    def learn(self, key: tuple[str, str], series: tuple[str, str, str, Labels]) -> None:
        """Keep a parsed line. If an endpoint's series change at each look, the memory fills up and starts empty."""
        if self.size >= MAX_REMEMBERED:
            self.series.clear()
            self.size = 0
        self.series[key] = series
        self.size += _EACH + len(key[1])


def parse(
    text: str,
    *,
    openmetrics: bool = False,
    wanted: Callable[[str], bool] = lambda name: True,
    check: Callable[[], object] = lambda: None,
    memory: Memory | None = None,
) -> list[Family]:
    """The families of an exposition whose names are wanted. Raises NotMetrics.

    `wanted` gets the name at the beginning of a line, a sample's or a family's. `check` is called now and then and may
    raise to stop. `memory` holds earlier pages of this endpoint; it is extended.
    """
    lines = _lines(text, wanted, check, openmetrics)
    found: dict[tuple[str, str], list[Sample]] = {}
    room = MAX_SAMPLES
    for name, kind, samples in _read(lines, openmetrics, Memory() if memory is None else memory):
        room -= len(samples)
        if room < 0:
            raise NotMetrics(f"it has more than {MAX_SAMPLES} series; --include takes fewer")
        if samples and wanted(samples[0].name):
            found.setdefault((name, kind), []).extend(samples)
    return [Family(name, kind, tuple(samples)) for (name, kind), samples in found.items()]


def _read(lines: Iterable[str], openmetrics: bool, memory: Memory) -> Iterator[tuple[str, str, list[Sample]]]:
    """Yield families, or parts of them: known lines from the memory, the others from the parser."""
    if openmetrics:  # its parser compares neighbouring lines
        yield from (
            (family.name, family.type, [made for sample in family.samples if (made := _sample(sample)) is not None])
            for family in _parsed(lines, openmetrics)
        )
        return
    known: dict[tuple[str, str], list[Sample]] = {}
    parsing: deque[tuple[tuple[str, str], str]] = deque()

    def unknown() -> Iterator[str]:
        above = ""
        for line in lines:
            if line.lstrip().startswith("#") or line.isspace():
                above = line
                yield line
                continue
            head, _, value = line[:-1].rpartition(" ")
            series = memory.series.get((above, head))
            if series is None or not _PLAIN.fullmatch(value):
                parsing.append(((above, head), value))
                yield line
                continue
            family, kind, name, labels = series
            number = float(value)
            if number - number == 0:
                known.setdefault((family, kind), []).append(Sample(name, labels, number))

    for family in _parsed(unknown(), openmetrics):
        samples = []
        for sample in family.samples:  # one for each line that the parser got, in order
            key, value = parsing.popleft()
            made = _sample(sample)
            if made is not None:
                samples.append(made)
                if sample.timestamp is None and _PLAIN.fullmatch(value):
                    memory.learn(key, (family.name, family.type, made.name, made.labels))
        yield family.name, family.type, samples
    yield from ((family, kind, samples) for (family, kind), samples in known.items())


def _parsed(lines: Iterable[str], openmetrics: bool) -> Iterator[Any]:
    """The families that prometheus_client parses from the lines."""
    # Imported late, because only scraping needs it.
    if openmetrics:
        from prometheus_client.openmetrics.parser import text_fd_to_metric_families as families
    else:
        from prometheus_client.parser import text_fd_to_metric_families as families

    source: Any = lines  # it only iterates over what it calls a file
    parser: Any = families
    try:
        yield from parser(source)
    except (NotMetrics, TimeoutError):
        raise
    except Exception as problem:  # noqa: BLE001 - bad text raises anything: ValueError, KeyError, UnboundLocalError…
        raise NotMetrics(f"it is not metrics text: {problem!s:.150}".rstrip(": ")) from None


def _sample(sample: Any) -> Sample | None:
    try:
        value = float(sample.value)  # None: a native histogram
    except (TypeError, OverflowError):
        return None
    if value - value != 0:  # NaN and infinities are not observations
        return None
    return Sample(sample.name, tuple(sorted((sample.labels or {}).items())), value)


def _lines(text: str, wanted: Callable[[str], bool], check: Callable[[], object], openmetrics: bool) -> Iterator[str]:
    """The lines that matter: no help texts, and of the rest those with wanted names. The first sample always comes, as
    it shows whether this is metrics text at all.
    """
    decided: dict[str, bool] = {}
    first_sample = True
    start, number, end = 0, 0, len(text)
    while start < end:
        stop = text.find("\n", start)
        stop = end if stop < 0 else stop
        size, first, start = stop - start, start, stop + 1
        number += 1
        if not number % 64:
            check()
        if size > MAX_LINE:
            raise NotMetrics(f"line {number} has {size} characters; {MAX_LINE} are allowed")
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
            known = decided.get(name)
            if known is None:
                known = decided[name] = wanted(name)
            if not known:
                continue
        yield line + "\n"


def _name(line: str) -> str:
    """The text before the labels or the value; "" if the name is among the labels."""
    brace, space = line.find("{"), line.find(" ")
    ends = [place for place in (brace, space) if place >= 0]
    return line[: min(ends)].strip() if ends else line.strip()
