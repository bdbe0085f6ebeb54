"""What the readers make of an experiment's foreign files, without the sidecar: native files for the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import Native, bind, document, reads


def native_files(experiment: Path, readers: Sequence[Reader]) -> dict[str, bytes]:
    """Native files by the names that they have in the sidecar. Lines that cannot be used are left out."""
    found: dict[str, bytes] = {}
    for path in sorted(path for path in experiment.rglob("*") if path.is_file()):
        relative = str(path.relative_to(experiment))
        if relative.startswith("rlship/"):
            continue
        mine = [reader for reader in readers if reads(reader, relative)]
        text = path.read_bytes()
        for reader in mine:
            if reader.lines is not None:
                text = document(reader, text)
        bound = bind(mine, relative, text)
        if bound is None:
            continue
        for translation in bound.translations:
            name = relative if "/" in relative else f"./{relative}"
            name += f"#{translation.part}" if translation.part else ""
            told = relative + (f"#{translation.part}" if translation.part else "")
            found[name] = _native(Native(bound.reader, translation, told), text)
    return found


def _native(native: Native, text: bytes) -> bytes:
    made, last = [native.opening], -1
    for raw in text.split(b"\n")[:-1]:
        try:
            found, step = native.lines_after(last, raw) if raw.strip() else ([], -1)
        except BadRecord:
            continue
        made += found
        last = step if step >= 0 else last
    return b"".join(line + b"\n" for line in made)
