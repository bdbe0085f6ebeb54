"""The package's long description and addresses, made while it is built.

README.md links to files beside it, which a package's page does not have. The publisher of the package says where they
are: `RLSHIP_URL=https://host/owner/rlship python -m pip wheel --no-deps .` makes the links absolute and names the
project's addresses. Without RLSHIP_URL there is no such place, so the links are left out, and the text stays.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
PICTURE_LINE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n\n?", re.MULTILINE)


class CustomMetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See hatchling."""
        home = os.environ.get("RLSHIP_URL", "").strip().rstrip("/")
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme, home)}
        metadata["urls"] = addresses(home)


def long_description(readme: str, home: str) -> str:
    """README.md with links below `home`, or without links to files and pictures if there is no home."""
    if not home:
        readme = PICTURE_LINE.sub("", readme)

    def placed(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if re.match(r"[a-z]+:", target):
            return link[0]
        if not home:
            return text
        return f"{mark}[{text}]({home}/{'raw' if mark else 'blob'}/main/{target})"

    return LINK.sub(placed, readme)


def addresses(home: str) -> dict[str, str]:
    """The project's addresses by name; none without a home."""
    if not home:
        return {}
    pages = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md"}
    return {"Source": home, **{name: f"{home}/blob/main/{page}" for name, page in pages.items()}}
