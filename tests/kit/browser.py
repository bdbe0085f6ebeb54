"""A page as a headless Chromium shows it. The browser is one of the tools of `make toolchains`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kit import tools

PATIENCE_S = 60


def dom(url: str, home: Path) -> str:
    """The page's HTML once its scripts have run; the browser keeps its files in `home`."""
    return _browse(url, home, "--dump-dom")


def picture(url: str, home: Path, path: Path) -> None:
    """Write a picture of the page's first screen, as PNG."""
    _browse(url, home, f"--screenshot={path}")


def _browse(url: str, home: Path, *flags: str) -> str:
    program = tools.needed("chromium", "chromium-browser", "google-chrome")
    # Without a sandbox, because root has none; virtual time passes only while nothing is loading.
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--window-size=1400,1000", f"--user-data-dir={home / 'profile'}", "--virtual-time-budget=20000"]
    local = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "HOME": str(home)}
    done = subprocess.run(
        [*command, *flags, url],
        env={**os.environ, **local},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout
