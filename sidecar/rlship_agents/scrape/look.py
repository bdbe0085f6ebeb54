"""Turns an answer's text into a reading. Pure, but for the clock that `check` may read, and the memory."""

from __future__ import annotations

from collections.abc import Callable

from rlship_agents.scrape import names
from rlship_agents.scrape.exposition import Family, Memory, parse
from rlship_agents.scrape.names import Choice
from rlship_agents.scrape.reading import Reading, read


def look(
    text: str,
    choice: Choice,
    *,
    openmetrics: bool = False,
    check: Callable[[], object] = lambda: None,
    memory: Memory | None = None,
) -> Reading:
    """The series of an exposition with known names, or names that `choice` takes. Raises NotMetrics."""
    inference = names.is_inference(text)

    def taken(name: str) -> bool:
        return choice.takes(name, inference=inference)

    def wanted(name: str) -> bool:
        family = names.base(name)
        return bool(names.known(name) or names.known(family) or taken(name) or taken(family))

    def meant(family: Family) -> bool:
        name = family.name
        return bool(
            names.known(name) or names.known(name.removesuffix("_created")) or taken(name) or taken(f"{name}_total")
        )

    families = parse(text, openmetrics=openmetrics, wanted=wanted, check=check, memory=memory)
    return read(family for family in families if meant(family))
