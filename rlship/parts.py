"""The files of one writer, one after the other: their names, their ids and their first lines."""

from __future__ import annotations

import os

from . import definitions, family
from .file import Part
from .identity import file_name
from .records import open_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .declared import Declared
    from .definitions import Entries
    from .file import Disk
    from .flusher import Timing
    from .identity import Identity


class Setup:
    """What a Logger is made of; it stays the same in a forked child. Plain data."""

    __slots__ = ("axis", "buffer_bytes", "checksum", "clock", "disk", "folder", "identity", "labels", "timing")

    def __init__(
        self,
        folder: str,
        identity: Identity,
        axis: str,
        labels: Mapping[str, str],
        clock: Callable[[], float],
        timing: Timing,
        buffer_bytes: int,
        disk: Disk,
    ) -> None:
        self.folder = folder
        self.identity = identity
        self.axis = axis
        self.labels = labels
        self.clock = clock
        self.timing = timing
        self.buffer_bytes = buffer_bytes
        self.disk = disk
        self.checksum = family.identity_of(folder, identity)


class Parts:
    """The files of one Stream: nearly always one, and another if its name is taken or the file itself is gone.

    Attributes: `id` of the file that is written, None before `begin`; `parent`, the id of the writer whose child this
    process is, or None.
    """

    def __init__(self, setup: Setup, declared: Declared, parent: str | None) -> None:
        self.id: str | None = None
        self.parent = parent
        self._setup = setup
        self._declared = declared
        self._first_definitions: Entries | None = None

    def begin(self) -> None:
        """Choose the id of the first file. Does nothing if an earlier start, which was interrupted, has done so."""
        if self.id is None:
            self._first_definitions = dict(self._declared.entries)
            self.id = os.urandom(8).hex()

    def announce(self) -> None:
        """Let processes that this one spawns know whose children they are. A child's own children are its parent's."""
        if self.parent is None and self.id is not None:
            family.announce(self.id, self._setup.checksum)

    def withdraw(self) -> None:
        """Take the announcement back."""
        if self.id is not None:
            family.withdraw(self.id)

    def next(self) -> Part:
        """The next file. The lines after its first ones are another writer's, so that each file has its own id."""
        entries, self._first_definitions = self._first_definitions, None
        if entries is None:
            self.withdraw()
            self.id = os.urandom(8).hex()
            self.announce()
            declared = self._declared.lines()
        else:
            # Only what was declared before the first part began: a later definition must not govern earlier lines.
            declared = definitions.lines(entries)
        setup, writer = self._setup, self.id or ""
        header = open_line(
            setup.identity,
            writer,
            axis=setup.axis,
            beat=setup.timing.beat,
            t=setup.clock(),
            parent=self.parent,
            labels=setup.labels,
        )
        path = os.path.join(setup.folder, "rlship", file_name(setup.identity, os.getpid(), writer))
        return Part(path, [header, *declared])
