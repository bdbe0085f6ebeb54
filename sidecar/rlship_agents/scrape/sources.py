"""Lists of endpoints: from the command line, and from files that may change while they are watched."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from rlship_agents.scrape.endpoints import Endpoint, distinct, from_text

RAY_FILE = "prom_metrics_service_discovery.json"
MAX_BYTES = 1 << 20
MAX_ENDPOINTS = 256  # each has a thread


class Sources:
    """The given endpoints and those in files. Reports mistakes through `say`, once for each change."""

    def __init__(self, given: Sequence[Endpoint], files: Sequence[str], say: Callable[[str], None]) -> None:
        self._given = list(given)
        self._files: dict[str, list[Endpoint]] = {file: [] for file in files}
        self._texts: dict[str, str | None] = {}
        self._coming: dict[str, str] = {}
        self._say = say
        self._reported: set[str] = set()

    def current(self) -> list[Endpoint]:
        """The current endpoints. A file that cannot be read, or is not a list, keeps its last endpoints. A change
        counts once two looks saw the same text, because a writer that edits the file in place may be half done.
        """
        for file in self._files:
            self._look(file)
        found = [*self._given, *(endpoint for endpoints in self._files.values() for endpoint in endpoints)]
        endpoints, problems = distinct(found)
        if len(endpoints) > MAX_ENDPOINTS:
            problems.append(
                f"{len(endpoints)} endpoints, of which the first {MAX_ENDPOINTS} are read: use several scrapes"
            )
        self._report(set(problems))
        return endpoints[:MAX_ENDPOINTS]

    def _look(self, file: str) -> None:
        try:
            text = _read(file)
        except FileNotFoundError:
            if self._texts.get(file, "") is not None:
                self._texts[file] = None
                self._say(f"{file} is not there; it is read once it is")
            return
        except (OSError, ValueError) as problem:
            if self._texts.get(file, "") is not None:
                self._texts[file] = None
                self._say(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}")
            return
        coming = self._coming.pop(file, None)
        if text == self._texts.get(file, ""):
            self._texts[file] = text
            return
        if file in self._texts and text != coming:
            self._coming[file] = text
            return
        self._texts[file] = text
        endpoints, problems = from_text(text)
        for wrong in problems[:10]:
            self._say(f"{file}: {wrong}")
        if endpoints or not problems:
            self._files[file] = endpoints
            self._say(f"{file}: {len(endpoints)} endpoint{'s' if len(endpoints) != 1 else ''}")

    def _report(self, problems: set[str]) -> None:
        for line in sorted(problems - self._reported)[:10]:
            self._say(line)
        self._reported = problems


def _read(file: str) -> str:
    # Opening a FIFO with this name would block.
    fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as source:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a file")
        raw = source.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    return raw.decode("utf-8", "replace")
