"""Makes the pictures of the page that the documents show, of an experiment of `make demo FAULT=zero_rewards`.

`make pictures` calls it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.kit.chromium import chromium
from tests.page.job import viewing
from tests.page.seeing import LANES

SIZE = (1280, 800)
# Name, view, and what is true once the panel has all that it shows.
PICTURES = (
    ("stability", "panel=stability&at=60", "document.querySelectorAll('.card canvas').length >= 12"),
    ("timeline", "panel=timeline", f"{LANES}.lines.length"),
    ("ranks", "panel=ranks", "document.querySelector('canvas.carpet').dataset.ranks"),
)


def main() -> None:
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, viewing(folder) as link, chromium(Path(home)) as browser:
        for name, view, ready in PICTURES:
            page = browser.page(SIZE)
            page.open(f"{link}&{view}")
            page.wait(ready)
            page.value("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
            page.picture(target / f"view-{name}.png")


if __name__ == "__main__":
    main()
