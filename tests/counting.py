"""How much work a function does, in calls: the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

Given = ParamSpec("Given")


def calls(work: Callable[Given, object], *args: Given.args, **kwargs: Given.kwargs) -> int:
    """How many functions, also those written in C, `work` calls."""
    count, before = 0, sys.getprofile()

    def on_event(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work(*args, **kwargs)
    finally:
        sys.setprofile(before)
    return count
