"""Expositions made for tests, as vLLM's client library writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL = "acme/tiny-1b"


class Page:
    """One exposition. Values are written as they are given, so that a test may give what is no number."""

    def __init__(self, start: float | None = None) -> None:
        self.lines: list[str] = []
        self._typed: set[str] = set()
        if start is not None:
            self.gauge("process_start_time_seconds", start)

    def gauge(self, name: str, value: object, **labels: str) -> Page:
        """A gauge's series."""
        return self._series(name, "gauge", name, value, labels)

    def counter(self, name: str, value: object, created: float | None = None, **labels: str) -> Page:
        """A counter's series, named without `_total`."""
        self._series(f"{name}_total", "counter", f"{name}_total", value, labels)
        if created is not None:
            self._series(f"{name}_created", "gauge", f"{name}_created", created, labels)
        return self

    def histogram(self, name: str, buckets: Mapping[str, float], total: float = 0.0, **labels: str) -> Page:
        """A histogram's series: how many fell into each bucket, which are added up as they are on the wire."""
        count = 0.0
        for bound, more in buckets.items():
            count += more
            self._series(name, "histogram", f"{name}_bucket", count, {**labels, "le": bound})
        self._series(name, "histogram", f"{name}_count", count, labels)
        return self._series(name, "histogram", f"{name}_sum", total, labels)

    def engine(self, number: int | str, **values: Any) -> Page:
        """One of vLLM's engines: names without `vllm:`; dict: a histogram, int: a counter, float: a gauge."""
        for name, value in values.items():
            labels = {"engine": str(number), "model_name": MODEL}
            if isinstance(value, dict):
                self.histogram(f"vllm:{name}", value, **labels)
            elif isinstance(value, int):
                self.counter(f"vllm:{name}", value, **labels)
            else:
                self.gauge(f"vllm:{name}", value, **labels)
        return self

    def text(self) -> str:
        """All of it. The format wants a family's lines together."""
        families: dict[str, list[str]] = {}
        for family, line in (line.split("\0") for line in self.lines):
            families.setdefault(family, []).append(line)
        return "".join(f"{line}\n" for lines in families.values() for line in lines)

    def _series(self, family: str, kind: str, name: str, value: object, labels: Mapping[str, str]) -> Page:
        if family not in self._typed:
            self._typed.add(family)
            self.lines.append(f"{family}\0# HELP {family} What it is.")
            self.lines.append(f"{family}\0# TYPE {family} {kind}")
        told = ",".join(f'{label}="{text}"' for label, text in labels.items())
        self.lines.append(f"{family}\0{name}{{{told}}} {value}" if told else f"{family}\0{name} {value}")
        return self
