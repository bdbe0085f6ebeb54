"""What `record_metric` does with all but plain numbers."""

from __future__ import annotations

from sys import modules

from . import device_values
from .batches import observations
from .encode import why_not_a_name
from .values import UnusableError, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logger import Logger
    from .stream import Stream


def record(logger: Logger, stream: Stream, key: Any, value: Any, reduce: Any, weight: Any) -> None:
    """Add observations of one metric at the implicit step, whatever they are."""
    name = key if type(key) is str else str(key)
    wrong = why_not_a_name(name)
    if reduce is not None and wrong is None:
        stream.declared.ask(name, reduce)
    step = logger.implicit_step()
    if isinstance(value, dict) or ("torch" in modules and device_values.on_device(value, weight)):
        logger.log({name: value}, step, weight)
        return
    try:
        if wrong is not None:
            raise UnusableError(wrong)
        values, weights = observations(value, weight)
    except Exception as error:  # noqa: BLE001 - the value's own code may raise anything
        stream.unusable(name, value, why_unusable(error))
        return
    batches = stream.gathering.batches
    batches.add(name, values, weights, step)
    if batches.full:
        stream.collect()
