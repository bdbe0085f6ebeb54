"""The page's own files: what is in its folder, under plain names, and nothing else."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.view.contract import Refusal
from rlship_sidecar.view.sending import encoded, json_response

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
MAX_BYTES = 8 << 20
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_packed: dict[tuple[str, int, int], bytes] = {}


def serve(request: Request) -> Response:
    """The file that a path names. Worker threads call this."""
    path = request.url.path.lstrip("/") or INDEX
    found = read(path)
    if found is None:
        refusal: Refusal = {"code": "path", "error": "there is no such file here", "hint": "the page is at /"}
        if path == INDEX:
            refusal["error"], refusal["hint"] = (
                "this rlship has no page",
                "install it again: pip install 'rlship[view]'",
            )
        return json_response(encoded(refusal), 404)
    data, kind, version = found
    headers = {"vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        data = _compressed(version, data)
        headers["content-encoding"] = "gzip"
    return Response(data, media_type=kind, headers=headers)


def read(path: str) -> tuple[bytes, str, tuple[str, int, int]] | None:
    """The content and type of a file of the page, and what tells its versions apart; None without such a file."""
    parts = path.split("/")
    kind = _TYPES.get(parts[-1].rpartition(".")[2])
    if kind is None or len(parts) > 4 or not all(_NAME.fullmatch(part) for part in parts):
        return None
    root = os.fspath(FOLDER)
    try:
        with open(open_plain(os.path.join(root, *parts), root), "rb") as file:
            seen = os.fstat(file.fileno())
            return file.read(MAX_BYTES), kind, (path, seen.st_mtime_ns, seen.st_size)
    except OSError:
        return None


def _compressed(version: tuple[str, int, int], data: bytes) -> bytes:
    if version not in _packed:
        if len(_packed) > 200:
            _packed.clear()
        _packed[version] = gzip.compress(data, 9, mtime=0)
    return _packed[version]
