"""The files of the project that the guards look at, whoever added them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "rlship": ROOT / "rlship",
    "rlship_formats": ROOT / "formats" / "rlship_formats",
    "rlship_agents": ROOT / "sidecar" / "rlship_agents",
    "rlship_sidecar": ROOT / "sidecar" / "rlship_sidecar",
}

_MADE = frozenset(("__pycache__", "node_modules", "target", "build", "dist"))
_OTHERS = frozenset(("vendor",))  # what others wrote, with its licence


def files(top: Path = ROOT) -> Iterator[Path]:
    """Every file below `top` that people wrote: nothing hidden but `.ci`, no caches, no build results,
    nothing that others wrote.
    """
    for folder, folders, names in os.walk(top):
        here = Path(folder)
        folders[:] = sorted(
            name for name in folders if not _is_made(name, here) and (name == ".ci" or not name.startswith("."))
        )
        for name in sorted(names):
            if not name.startswith("."):
                yield here / name


def _is_made(name: str, parent: Path) -> bool:
    at_the_top = parent == ROOT and (name in ("outputs", "wandb") or name.startswith("demo"))
    return name in _MADE or name in _OTHERS or name.endswith(".egg-info") or at_the_top


def modules(*tops: Path) -> list[Path]:
    """Every Python file below `tops`."""
    return [file for top in tops for file in files(top) if file.suffix == ".py"]


def name_of(file: Path) -> str:
    """`file` as the project names it."""
    return str(file.relative_to(ROOT))
