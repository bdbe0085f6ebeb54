"""The contract of a reader of another framework's files. A reader is an instance of `Reader`, published as an entry
point of the group `rlship.formats`.

A reader is pure: it turns a foreign line into native records (formats/SPEC.md), and these are then handled like those
of a native file. It keeps no state between lines, because reading may start at any line: after a restart, for a
revision, in a replay. So its result depends on the path and the line alone. It never depends on a clock, on a file's
times or inode, or on earlier calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlship_formats.records import BadRecord

__all__ = ["GROUP", "HEAD_BYTES", "RESTART_BYTES", "BadRecord", "Reader", "Record", "Translation", "Unreadable"]

GROUP = "rlship.formats"
RESTART_BYTES = 1 << 16
HEAD_BYTES = 1 << 16  # a file is ignored if no line that ends within these is recognised

Record = dict[str, Any]


class Unreadable(BadRecord):
    """A document that nothing can be read of: half of it is there, it is damaged or too large."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One writer in a foreign file. A file that several components share has one for each, with names as `part`.

    `open`: the native `open` record. `actor` is required; `replica`, `rank`, `world`, `attempt`, `axis`, `t`, `host`,
    `pid` and `labels` are optional. `kind`, `rlship` and `writer` are filled in, and so is `id` unless it is given:
    the file's name. Where several files describe one rank, the highest (`attempt`, `t`, `id`) counts, metric by metric.

    `line(raw)`: returns the native records in one line (without its LF, at most 1 MiB): all of one `step` or all
    without a step. It returns an empty sequence if the line holds nothing of this writer's. It raises `BadRecord` for
    a line that cannot be used, which becomes a dead letter. The reason is a few words that are the same for all such
    lines. Any kind is allowed but `open` and `gap`; a `rollback` stands alone. Repeating a `define` before each metrics
    record that it governs costs little; it does not ask for `stream`.
    Records hold no non-finite floats, but the texts "NaN", "Infinity" and "-Infinity". A record without `t` takes the
    `t` of the line before, in the end that of `open`. Where no `t` is known at all, the row has no time.

    `restarts`: true if a restarted process appends to the same file, and steps never fall while one process lives. Then
    a line whose step is below that of the line before it comes from a new process. The lines of the last
    `RESTART_BYTES` are compared, and a `rollback` is put before the records of such a line.
    """

    open: Record
    line: Callable[[bytes], Sequence[Record]]
    part: str = ""
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """`name`: the format's name in `rlship status`. `places`: patterns of the files' paths relative to the experiment,
    such as `structured_logs/*.jsonl`; `*` matches within one folder's or file's name. If a place names a folder without
    `*`, any file there makes an experiment. At other places only a recognised file does.

    `bind(path, line)`: returns the writers in a file of this format, and an empty sequence for any other file. It
    decides by the path (relative to the experiment, with `/`) and one of the file's first lines. Readers are asked line
    by line. The first to return writers gets the file; of two for one line the first by name gets it. A BadRecord
    counts as an empty result.

    `lines(text)`: only for documents that are rewritten whole. It returns the lines, without LF, that the text of a
    file (at most 256 MiB) stands for; `bind` and `line` get those. It raises Unreadable for a text that is no whole
    document, such as a half-written one: the file is waited for, and if it stays so, data are incomplete. It raises
    BadRecord for another program's document, which is left alone. What is appended to the document should be appended
    to the lines. Otherwise all of them count as another file's.
    """

    name: str
    places: tuple[str, ...]
    bind: Callable[[str, bytes], Sequence[Translation]]
    lines: Callable[[bytes], Sequence[bytes]] | None = None
