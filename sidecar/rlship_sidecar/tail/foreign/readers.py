"""The readers at hand: those that are installed, but for any that failed."""

from __future__ import annotations

from functools import lru_cache

from rlship_formats.foreign.contract import Reader
from rlship_formats.foreign.native import ReaderFailed, reads
from rlship_formats.foreign.registry import installed


class Readers:
    """`problems`: readers that cannot be used, by name, with what is wrong. One that failed is not asked again, so that
    its files are left alone.
    """

    def __init__(self, readers: list[Reader], problems: dict[str, str]) -> None:
        self.all = tuple(readers)
        self.problems = dict(problems)

    def of(self, path: str) -> list[Reader]:
        """Those whose files may be at a path, relative to the experiment."""
        return [reader for reader in self.all if reader.name not in self.problems and reads(reader, path)]

    def failed(self, error: ReaderFailed) -> None:
        """One did what it may not."""
        self.problems.setdefault(error.reader.name, str(error))


@lru_cache(1)
def readers() -> Readers:
    """Those of this process. The first call imports them."""
    return Readers(*installed())
