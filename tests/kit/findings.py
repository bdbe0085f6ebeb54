"""What a command found, printed as it is found: one fact in a line, with its figure."""

from __future__ import annotations

import time


class Findings:
    """`said(…)` prints what was seen to hold; `held` raises AssertionError where it does not."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.count = 0

    def part(self, title: str) -> None:
        """A heading."""
        print(f"\n{title}  ({self.seconds():.0f} s)", flush=True)

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    def said(self, fact: str, figure: object = "") -> None:
        """A fact that was seen."""
        self.count += 1
        print(f"  ok  {fact}{f': {figure}' if figure != '' else ''}", flush=True)

    def held(self, holds: object, fact: str, figure: object = "") -> None:
        """A fact, or the end of the command."""
        if not holds:
            raise AssertionError(f"{fact}: {figure}")
        self.said(fact, figure)
