"""The page's files, and the page as one file that opens without a server."""

from __future__ import annotations

from importlib import resources
from typing import Any, cast

import orjson

from rlship_sidecar.view import joined
from rlship_sidecar.view.contract import Embedded, Ranks
from rlship_sidecar.view.packing import tight


def text_of(name: str) -> str:
    """One of the page's files, by its path below `page/`."""
    return resources.files("rlship_sidecar.view").joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def one_file(held: Embedded) -> bytes:
    """The page with its data. What is asked by rank is packed tighter than a server sends it."""
    shorter = {
        **held,
        "ranks": {key: _tight(ranks) for key, ranks in held["ranks"].items()},
        "newest": {key: _tight(ranks) for key, ranks in held["newest"].items()},
    }
    script = joined.join({name: text_of(name) for name in joined.ORDER})
    styles = [text_of(name) for name in joined.STYLES]
    return joined.whole_page(text_of("index.html"), styles, script, orjson.dumps(shorter)).encode()


def _tight(ranks: Ranks) -> Any:
    given = cast(dict[str, Any], ranks)
    return {
        **given,
        "mean": tight(given["mean"]),
        "min": tight(given["min"], "down"),
        "max": tight(given["max"], "up"),
    }
