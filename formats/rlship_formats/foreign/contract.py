"""The contract of a reader of another framework's files. A reader is an entry point of the group `rlship.formats`, an
instance of `Reader`.

It is pure: a foreign line becomes native records (formats/SPEC.md), and from there on all is as for a native file. It
keeps nothing from line to line, since a file may be read from any line on: after a restart, for a revision, in a
replay. So what it answers follows from the path and the line alone, never from a clock, a file's times or inode, or
from what it was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlship_formats.records import BadRecord

__all__ = ["GROUP", "HEAD_BYTES", "RESTART_BYTES", "BadRecord", "Reader", "Record", "Translation"]

GROUP = "rlship.formats"
RESTART_BYTES = 1 << 16
HEAD_BYTES = 1 << 16  # a file of which no line that ends within these is recognised is left alone

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Translation:
    """One writer in a foreign file; a file that several components share has one for each, with names as `part`.

    `open`: the native `open` record. `actor` is needed; `replica`, `rank`, `world`, `attempt`, `axis`, `t`, `host`,
    `pid` and `labels` are optional, `kind`, `rlship`, `writer` and, unless given, `id` are filled in: the file's name.
    Where several files tell of one rank, the highest (`attempt`, `t`, `id`) counts, metric by metric.

    `line(raw)`: the native records in one line (without its LF, at most 1 MiB), all of one `step` or all without; none
    if nothing in it is this writer's. What it cannot use raises `BadRecord` with a reason of a few words that is the
    same for all such lines: a dead letter. Any kind but `open` and `gap`; a `rollback` stands alone. A `define` that
    stands before each metrics record it governs costs little; it asks for no `stream`.
    There are no floats that are not finite in records: they are the texts "NaN", "Infinity", "-Infinity". A record
    without `t` has the `t` of the line before, in the end that of `open`; without any its row has no time.

    `restarts`: a process that is started again appends to the file, and while one lives steps do not fall. So a line of
    a step below the one before it (among the lines of the last `RESTART_BYTES`) is another process's first, and a
    `rollback` is put before its records.
    """

    open: Record
    line: Callable[[bytes], Sequence[Record]]
    part: str = ""
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """`name`: what `rlship status` calls the format. `places`: where its files may be, as patterns relative to the
    experiment, `*` within one folder's or file's name: `structured_logs/*.jsonl`. A place in a folder that has no `*`
    in its name makes an experiment by a file that is there, other places do by a file that is recognised.

    `bind(path, line)`: whether the file is of this format, by its path (relative to the experiment, with `/`) and one
    of its first lines: the writers in it, or none. Readers are asked line by line, and the first to answer has the
    file; two for one line go by name. May raise BadRecord, which is no answer.

    `lines(text)`: for documents that are rewritten whole: the lines that the text of a file (at most 256 MiB) counts
    as, without LF; `bind` and `line` see those. Raises BadRecord for a text that is no whole document, as one half
    written. What is appended to the document should be appended to the lines, or all of them count as another file's.
    """

    name: str
    places: tuple[str, ...]
    bind: Callable[[str, bytes], Sequence[Translation]]
    lines: Callable[[bytes], Sequence[bytes]] | None = None
