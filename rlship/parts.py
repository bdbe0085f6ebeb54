"""The files of one writer, one after the other: their names, their ids and their first lines."""

from __future__ import annotations

import os

from . import definitions, family
from .file import Part
from .identity import file_name, pid_space
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
    """The settings of a Logger; they stay the same in a forked child. Plain data."""

    __slots__ = (
        *("axis", "buffer_bytes", "checksum", "clock", "disk", "each_round", "folder", "identity", "labels"),
        *("opened", "timing"),
    )

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
        self.opened: float | None = None  # the `t` of the first file, if it begins before its first line
        self.each_round: Callable[[], object] | None = None  # what the writing thread does before it takes lines


class Parts:
    """The files of one Stream: nearly always one. There is another if a name is taken or the file itself is gone.

    Attributes: `id` of the current file, None before `begin`; `parent`, the id of the writer whose child this process
    is, or None.
    """

    def __init__(self, setup: Setup, declared: Declared, parent: str | None) -> None:
        self.id: str | None = None
        self.parent = parent
        self._setup = setup
        self._declared = declared
        self._first_definitions: Entries | None = None

    def begin(self) -> None:
        """Choose the id of the first file. Does nothing if an earlier, interrupted start has chosen it."""
        if self.id is None:
            self._first_definitions = dict(self._declared.entries)
            self.id = os.urandom(8).hex()

    def announce(self) -> None:
        """Announce the parent to processes that this one spawns. A child's own children belong to its parent."""
        if self.parent is None and self.id is not None:
            family.announce(self.id, self._setup.checksum)

    def withdraw(self) -> None:
        """Withdraw the announcement."""
        if self.id is not None:
            family.withdraw(self.id)

    def next(self) -> Part:
        """The next file. It gets an id of its own, because readers treat each file as another writer's."""
        entries, self._first_definitions = self._first_definitions, None
        opened = None if entries is None else self._setup.opened
        if entries is None:
            self.withdraw()
            self.id = os.urandom(8).hex()
            self.announce()
            declared = self._declared.lines()
        else:
            # Only earlier declarations: a later definition must not govern earlier lines.
            declared = definitions.lines(entries)
        setup, writer = self._setup, self.id or ""
        header = open_line(
            setup.identity,
            writer,
            axis=setup.axis,
            beat=setup.timing.beat,
            t=setup.clock() if opened is None or self.parent is not None else opened,
            parent=self.parent,
            labels=setup.labels,
            pid_space=pid_space(),
        )
        path = os.path.join(setup.folder, "rlship", file_name(setup.identity, os.getpid(), writer))
        return Part(path, [header, *declared])
