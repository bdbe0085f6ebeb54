"""The installed readers: rlship's own and those of other packages, found through the entry-point group."""

from __future__ import annotations

from importlib.metadata import entry_points

from rlship_formats.foreign.contract import GROUP, Reader


def installed() -> tuple[list[Reader], dict[str, str]]:
    """All readers by name, and a problem for people by the name of each entry point that yields no reader."""
    found: dict[str, Reader] = {}
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            reader = point.load()
        except Exception as error:  # noqa: BLE001 - another package may raise anything; its files are ignored
            problems[point.name] = f"cannot be loaded from {point.value}: {type(error).__name__}: {error}"
            continue
        if isinstance(reader, Reader):
            found.setdefault(reader.name, reader)
        else:
            problems[point.name] = f"{point.value} is no rlship_formats.foreign.contract.Reader"
    return [found[name] for name in sorted(found)], problems
