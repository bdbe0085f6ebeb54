"""The lines of a file that zstd compressed, within bounds. pyarrow unpacks them, if it is installed."""

from __future__ import annotations

from rlship_formats.foreign.contract import BadRecord

MAX_TEXT_BYTES = 128 << 20
MAX_LINES = 1 << 20
_PIECE = 1 << 18


def lines_of(packed: bytes) -> list[bytes]:
    """The lines that are not empty, without LF.

    Raises BadRecord for what is no such file, or unpacked too large. Raises ImportError without pyarrow.
    """
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as missing:
        raise ImportError(
            "files that zstd compressed need the package pyarrow: pip install 'rlship[query]'"
        ) from missing
    found: list[bytes] = []
    begun: list[bytes] = []  # the pieces of a line that has not ended
    size = 0
    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if size > MAX_TEXT_BYTES:
                    raise BadRecord(f"more than {MAX_TEXT_BYTES >> 20} MiB when unpacked: zstd -d makes it readable")
                # A piece at a time: a few packed bytes may be as many empty lines as bytes are allowed.
                first, *more = piece.split(b"\n") if piece.strip(b"\n") else [b"", b""]
                begun.append(first)
                if more:
                    found += filter(None, (b"".join(begun), *more[:-1]))
                    begun = [more[-1]]
                if len(found) > MAX_LINES:
                    raise BadRecord(f"more than {MAX_LINES} lines when unpacked: zstd -d makes it readable")
    except BadRecord:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as bad:
        raise BadRecord("a damaged zstd file") from bad
    return [*found, *filter(None, [b"".join(begun)])]
