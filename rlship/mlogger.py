"""The functions of `rlship` under the name that some frameworks expect.

from rlship import mlogger

mlogger.log({"loss": loss}, step=step)
"""

from __future__ import annotations

from . import *  # noqa: F403
