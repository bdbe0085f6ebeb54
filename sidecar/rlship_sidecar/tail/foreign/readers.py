"""The installed readers, without those that failed."""

from __future__ import annotations

from functools import lru_cache

from rlship_formats.foreign.contract import Reader
from rlship_formats.foreign.native import ReaderFailed, reads
from rlship_formats.foreign.registry import installed


class Readers:
    """The readers of this process.

    `problems` maps the name of each reader that cannot be used to the reason. A reader that failed is not called again,
    and its files are left alone.
    """

    def __init__(self, readers: list[Reader], problems: dict[str, str]) -> None:
        self.all = tuple(readers)
        self.problems = dict(problems)

    def of(self, path: str) -> list[Reader]:
        """The usable readers whose files may lie at `path`, relative to the experiment."""
        return [reader for reader in self.all if reader.name not in self.problems and reads(reader, path)]

    def failed(self, error: ReaderFailed) -> None:
        """Exclude the reader that raised `error`."""
        self.problems.setdefault(error.reader.name, str(error))


@lru_cache(1)
def readers() -> Readers:
    """The readers of this process. The first call imports them."""
    return Readers(*installed())
