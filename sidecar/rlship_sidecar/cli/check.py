"""`rlship check`: what is wrong with writers' files, for authors of a writer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import json_option
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.report.terminal import clean, counted

if TYPE_CHECKING:
    from rlship_sidecar.checking.file import FileCheck
    from rlship_sidecar.checking.finding import Finding
    from rlship_sidecar.checking.foreign import ForeignCheck
    from rlship_sidecar.tail.tail import Descriptors

_READ_BYTES = 1 << 20
_MAX_DEPTH = 8  # of a foreign file, in the folders that readers know
_SHOWN = 20  # findings of one kind in one file


@click.command(short_help="What is wrong with the lines of writers' files.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, show_envvar=True, help="Fail on warnings too.")
@json_option("finding")
@click.pass_context
def check(context: click.Context, files: tuple[str, ...], strict: bool, json: bool) -> None:
    """Check files that a writer has written against the format, line by line: what is wrong, why, and how to fix it. A
    folder stands for the writers' files of the experiment that it is, and for the files of other frameworks in it. Of
    those an error is a line that their reader cannot use.

    An error is a line, or a metric's value, that cannot be used. A warning is what readers accept, although the format
    asks for another form. Exit code 1 if there are errors, or if a file cannot be read. Nothing is written.
    """
    total = _Total()
    unread: list[str] = []
    for given in files:
        paths: list[str] = []
        with _reporting(unread, alone=len(files) == 1):
            paths = _files_in(given)
        for path in paths:
            with _reporting(unread, alone=len(files) == len(paths) == 1):
                _check_file(path, total, json=json)
    if not json:
        read = f"{counted(total.files, 'file')}, {counted(total.lines, 'line')}"
        left = f"; {len(unread)} could not be checked" if unread else ""
        click.echo(f"{read}: {counted(total.errors, 'error')}, {counted(total.warnings, 'warning')}{left}")
    context.exit(1 if unread or total.errors or (strict and total.warnings) else 0)


@dataclass(slots=True)
class _Total:
    """What was found in all files so far."""

    files: int = 0
    lines: int = 0
    errors: int = 0
    warnings: int = 0


@contextmanager
def _reporting(unread: list[str], *, alone: bool) -> Iterator[None]:
    """Report what cannot be read, and note it in `unread`; raise it if it is all there is to check."""
    try:
        yield
    except RlshipError as problem:
        if alone:
            raise
        unread.append(problem.message)
        click.echo(clean(f"Error: {problem.message}", 400), err=True)


def _check_file(path: str, total: _Total, *, json: bool) -> None:
    """Print what is wrong with a file, and add it up. Raises RlshipError if the file cannot be read."""
    from rlship_sidecar.checking.file import FileCheck
    from rlship_sidecar.tail.tail import Descriptors

    foreign = _foreign(path)
    checked: FileCheck | ForeignCheck
    checked, files = foreign or (FileCheck(), Descriptors(1, keep=True))
    shown: Counter[str] = Counter()
    for finding in _findings(path, checked, files):
        shown[finding.what] += 1
        if json:
            _print_json(path, finding)
        elif shown[finding.what] <= _SHOWN:
            click.echo(_text(path, finding))
    for what, count in shown.items():
        if count > _SHOWN and not json:
            click.echo(f"{clean(path)}: and {count - _SHOWN} more: {what} (all of them: --json)")
    total.files += 1
    total.lines += checked.lines
    total.errors += checked.errors
    total.warnings += checked.warnings


def _files_in(path: str) -> list[str]:
    """The file itself, or the writers' files of an experiment."""
    if not os.path.isdir(path):
        return [path]
    from rlship_sidecar.tail.foreign.places import Places
    from rlship_sidecar.tail.foreign.readers import readers

    folder = Path(path, "rlship")
    listed = Places(path, readers(), local=True).look(0.0, force=True).files
    foreign = [os.path.normpath(os.path.join(path, name)) for name in listed]
    found = set(map(str, folder.glob("*.jsonl")))
    found.update(one for one in foreign if _foreign(one) is not None)
    if not found and not folder.is_dir():
        found = set(map(str, Path(path).glob("*.jsonl")))
    if not found:
        raise RlshipError(
            f"{path} holds no writers' files",
            "give an experiment, which has them in rlship/, or the files: rlship check DIR/rlship/*.jsonl",
        )
    return sorted(found)


def _foreign(path: str) -> tuple[ForeignCheck, Descriptors] | None:
    """The check of another framework's file, and what opens it; None for a file that no reader recognises.

    Raises RlshipError for a document that is not whole, and where the reader that may know the file failed.
    """
    from rlship_sidecar.checking.foreign import ForeignCheck
    from rlship_sidecar.tail.foreign.documents import Documents, NotWhole
    from rlship_sidecar.tail.foreign.readers import readers
    from rlship_sidecar.tail.foreign.tail import recognise
    from rlship_sidecar.tail.tail import Descriptors

    known, documents = readers(), Documents("")
    parts = os.path.abspath(path).split(os.sep)
    for depth in range(min(_MAX_DEPTH, len(parts) - 1), 0, -1):  # the experiment is any of the folders above
        relative = "/".join(parts[-depth:])
        candidates = known.of(relative)
        if not candidates:
            continue
        try:
            bound = recognise(path, relative, known, documents)
            if bound is not None:
                document = bound.reader.lines is not None
                return ForeignCheck(bound, relative), documents if document else Descriptors(1, keep=True)
            for reader in candidates:
                if reader.name in known.problems:
                    raise RlshipError(f"{path}: {known.problems[reader.name]}", "mend what the reader needs")
            if all(reader.lines is not None for reader in candidates):
                documents.look(path, lambda fd, size: None)  # raises the reason
        except NotWhole as problem:
            raise RlshipError(
                f"{path} is {problem.strerror}", "check it again once it is written, or remove it"
            ) from problem
        except OSError:
            continue  # what is wrong is said when the file is read
    return None


def _findings(path: str, checked: FileCheck | ForeignCheck, files: Descriptors) -> Iterator[Finding]:
    """Yield what is wrong with a file, in the order of its lines and in bounded memory."""
    from rlship_formats.foreign.native import ReaderFailed
    from rlship_sidecar.tail.tail import START, Tail

    tail, mark = Tail(path, files), START
    try:
        while True:
            piece = tail.read(mark, _READ_BYTES)
            found: list[tuple[int, bytes | None]] = [*zip(piece.offsets, piece.lines)]
            found += [(at, None) for at, _ in piece.too_long]
            for at, line in sorted(found, key=lambda pair: pair[0]):
                yield from checked.too_long(at) if line is None else checked.line(line, at)
            if piece.end == mark.offset and not piece.more:
                break
            mark = piece.position(piece.end)
        yield from checked.end(piece.size, piece.end, hole=piece.hole)
    except OSError as error:
        raise RlshipError(
            f"{path} cannot be read: {error.strerror}", "give the writers' files: rlship check DIR/rlship/*.jsonl"
        ) from error
    except ReaderFailed as failed:
        raise RlshipError(f"{path}: {failed}", "mend the reader, or check files of other formats alone") from failed
    finally:
        files.close()


def _print_json(path: str, finding: Finding) -> None:
    import msgspec

    click.echo(output.as_printed(msgspec.json.encode({"file": path, **finding.as_json()})))


def _text(path: str, finding: Finding) -> str:
    place = f"{clean(path)}:{finding.line}" + (f":{finding.column}" if finding.column else "")
    metric = f" of {clean(finding.metric)!r}" if finding.metric is not None else ""
    what = f"{place}: {finding.level}: {finding.what}{metric}: {clean(finding.why, 400)}"
    return f"{what}\n    fix: {clean(finding.fix, 400)}"
