"""The lines of a file that zstd compressed, within bounds. pyarrow unpacks them, if it is installed."""

from __future__ import annotations

from rlship_formats.foreign.contract import BadRecord

MAX_TEXT_BYTES = 128 << 20
_PIECE = 1 << 20


def lines_of(packed: bytes) -> list[bytes]:
    """The lines that are not empty, without LF.

    Raises BadRecord for what is no such file, or too large unpacked. Raises ImportError without pyarrow.
    """
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as missing:
        raise ImportError(
            "files that zstd compressed need the package pyarrow: pip install 'rlship[query]'"
        ) from missing
    text = bytearray()
    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
            while piece := stream.read(_PIECE):
                text += piece
                if len(text) > MAX_TEXT_BYTES:
                    raise BadRecord(f"more than {MAX_TEXT_BYTES >> 20} MiB when unpacked: zstd -d makes it readable")
    except BadRecord:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as bad:
        raise BadRecord("a damaged zstd file") from bad
    return [line for line in bytes(text).split(b"\n") if line]
