"""Events of rows whose points a chart must not get yet.

TensorBoard's data server drops a tag's points from step s on once it reads a point of step s: of any file version, and
whatever session logs say. Such an event keeps its values in a text that TensorBoard reads and does not show.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary


def hold(made: Event) -> Event:
    """The same event without points: its values stand in its `log_message`, in base64."""
    from tensorboardX.proto.event_pb2 import Event, LogMessage

    values = base64.b64encode(made.summary.SerializeToString(deterministic=True)).decode()
    return Event(wall_time=made.wall_time, step=made.step, log_message=LogMessage(message=values))


def take_away(made: Event, tags: Iterable[str]) -> None:
    """Add to the event of a revision that its step has no point of these tags any more.

    These are values without content, which only events that are held back may have.
    """
    for tag in sorted(tags):
        made.summary.value.add(tag=tag)


def takes_away(value: Summary.Value) -> bool:
    """Whether a value was added by `take_away`."""
    return value.WhichOneof("value") is None


def blank(value: Summary.Value) -> Summary.Value:
    """What a chart shows in place of a value that was taken away where no point before it can take it out: NaN, an
    empty histogram or an empty text.
    """
    made = type(value)()
    made.CopyFrom(value)
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        made.simple_value = math.nan
    elif kind == "histo":
        made.histo.Clear()
        made.histo.SetInParent()
    else:
        made.tensor.string_val[:] = [b""]
    return made


def is_held(event: Event) -> bool:
    """Whether the event was made by `hold`."""
    return bool(event.HasField("log_message"))


def release(event: Event) -> Event:
    """The event as it was before `hold`; any other event unchanged. Raises DecodeError or ValueError for damage."""
    if not is_held(event):
        return event
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    values = Summary.FromString(base64.b64decode(event.log_message.message))
    return Event(wall_time=event.wall_time, step=event.step, summary=values)
