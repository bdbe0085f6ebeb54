"""The lane in which a span runs: a thread, or an asyncio task. Spans that nest in one lane nest in time."""

from __future__ import annotations

import sys
import threading

from .encode import json_string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MAX_NAME = 200


class Lane:
    """A thread's lane; `text` is its name as JSON."""

    __slots__ = ("text",)

    def __init__(self, name: str) -> None:
        self.text = json_string(name[:_MAX_NAME])


# By thread object rather than by number, because numbers are reused.
_own = threading.local()
_running_loop: Callable[[], Any] | None = None
_current_task: Callable[[Any], Any] | None = None


def current() -> Any:
    """The lane that this code runs in: the running asyncio task, else the `Lane` of the thread."""
    if _current_task is not None or "asyncio.tasks" in sys.modules:
        task = _task()
        if task is not None:
            return task
    try:
        return _own.lane
    except AttributeError:
        thread = threading.current_thread()
        name = "main" if thread is threading.main_thread() else thread.name
        _own.lane = Lane(name)
        return _own.lane


def text(lane: Any, suffix: str = "") -> str:
    """The lane's name as JSON, with `suffix` (plain ASCII) at its end."""
    if type(lane) is Lane:
        found = lane.text
    else:  # a task of asyncio, or of a loop that brings its own kind
        get_name = getattr(lane, "get_name", None)
        found = json_string(str(get_name() if callable(get_name) else "task")[:_MAX_NAME])
    return f'{found[:-1]}{suffix}"' if suffix else found


def _task() -> Any:
    global _current_task, _running_loop
    if _current_task is None or _running_loop is None:
        # asyncio is never imported for this. Another thread may have imported it halfway at this moment.
        running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
        current_task = getattr(sys.modules.get("asyncio.tasks"), "current_task", None)
        if running is None or current_task is None:
            return None
        _running_loop, _current_task = running, current_task
    loop = _running_loop()
    return None if loop is None else _current_task(loop)
