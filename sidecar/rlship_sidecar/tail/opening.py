"""The files of one experiment: where each name lies, and how to open it.

A writer's own file has the name that it has in the writers' folder. A foreign file's name is its path, which contains a
slash. Where several writers share one file, the name of the part follows: `structured_logs/a.jsonl`,
`./metrics.jsonl#trainer`.
"""

from __future__ import annotations

import os

from rlship_formats.foreign.native import Bound, ReaderFailed
from rlship_sidecar.tail.foreign.documents import Documents
from rlship_sidecar.tail.foreign.places import Places
from rlship_sidecar.tail.foreign.readers import readers
from rlship_sidecar.tail.foreign.tail import ForeignTail, recognise, relative_of
from rlship_sidecar.tail.listing import PART, WRITERS_FOLDER, Folder, is_aside, is_foreign, split_part
from rlship_sidecar.tail.tail import Descriptors, Tail


class Opener:
    """Opens the files of an experiment. `files` keeps the descriptors of writers' files; the caller closes it."""

    def __init__(self, directory: str, files: Descriptors) -> None:
        self.directory = directory
        self.folder = os.path.join(directory, WRITERS_FOLDER)
        self.readers = readers()
        self._files = files
        self.looks = files.looks
        self._documents = Documents(directory, files.looks)

    def close(self) -> None:
        """Close all documents."""
        self._documents.close()

    def path(self, name: str) -> str:
        """The path of a file. A file that was set aside has a path at which nothing lies."""
        if not is_foreign(name):
            return os.path.join(self.folder, name)
        return os.path.join(self.directory, name if is_aside(name) else split_part(name)[0])

    def tail(self, name: str) -> Tail:
        """Return a tail of the file with this name."""
        if not is_foreign(name):
            return Tail(self.path(name), self._files)
        file, part = (name, "") if is_aside(name) else split_part(name)
        return ForeignTail(self.path(name), relative_of(file), part, self._files, self._documents, self.readers)

    def recognise(self, file: str) -> dict[str, ForeignTail]:
        """Return the writers in a foreign file by name; {} while no reader recognises the file. Raises OSError."""
        bound = recognise(self.path(file), relative_of(file), self.readers, self._documents)
        if bound is None:
            return {}
        try:
            return self._tails(file, bound)
        except ReaderFailed as error:
            self.readers.failed(error)
            return {}

    def _tails(self, file: str, bound: Bound) -> dict[str, ForeignTail]:
        found = {}
        for translation in bound.translations:
            name = file + (f"{PART}{translation.part}" if translation.part else "")
            tail = self.tail(name)
            assert isinstance(tail, ForeignTail)
            tail.bind(bound)
            found[name] = tail
        return found

    def all(self) -> dict[str, Tail]:
        """All files that exist now, by name: the writers' own files, then recognised foreign files.

        Raises OSError if the experiment cannot be read.
        """
        foreign = sorted(Places(self.directory, self.readers, local=False).look(0.0, force=True).files)
        found: dict[str, Tail] = {}
        try:
            listed = Folder(self.folder, self.directory, local=False).look(0.0, force=True)
            found = {name: self.tail(name) for name in (listed.files if listed is not None else ())}
        except FileNotFoundError:
            if not foreign:
                raise
        for file in foreign:
            try:
                found.update(self.recognise(file))
            except OSError:
                found[file] = self.tail(file)  # reading it will raise the reason
        return found
