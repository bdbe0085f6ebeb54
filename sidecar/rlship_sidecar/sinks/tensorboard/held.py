"""Events of rows whose points a chart must not get yet.

TensorBoard's data server drops a tag's points from step s on once it reads a point of step s: of any file version, and
whatever session logs say. Such an event keeps its values in a text that TensorBoard reads and does not show.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event


def hold(made: Event) -> Event:
    """The same event without points: its values stand in its `log_message`, in base64."""
    from tensorboardX.proto.event_pb2 import Event, LogMessage

    values = base64.b64encode(made.summary.SerializeToString(deterministic=True)).decode()
    return Event(wall_time=made.wall_time, step=made.step, log_message=LogMessage(message=values))


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
