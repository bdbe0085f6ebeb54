"""The end of a process whose runs are recorded, as far as it can be known before its files close."""

from __future__ import annotations

import functools
import sys
import threading

from .. import endings, registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_watched = False
_code = 0


def watch(end: Callable[[bool], object]) -> None:
    """Call `end(False)` while threads can still be started, and `end(True)` right before the process's files close.

    From Python 3.12 on, no thread starts in a handler of `atexit`. Does nothing the second time.
    """
    global _watched
    if _watched:
        return
    _watched = True
    _note_exits()
    registry.before_end(lambda: end(True))
    # Only here, before handlers of `atexit`, and in no public place.
    early = getattr(threading, "_register_atexit", None)
    try:
        if early is not None:
            early(end, False)
    except RuntimeError:  # the interpreter is ending already
        return


def exit_code() -> int:
    """The code with which the program ends, as far as it is known now: 0 without an error and a call of `sys.exit`.

    As with the client, a call whose SystemExit the program catches counts too.
    """
    return _code or (1 if endings.error_of_program() else 0)


def _note_exits() -> None:
    """Note the codes of `sys.exit` from now on, as the client does: the interpreter keeps none."""
    real = sys.exit

    @functools.wraps(real)
    def exit(status: object = None, /) -> NoReturn:
        global _code
        if threading.current_thread() is threading.main_thread():  # in another one it ends that thread only
            _code = status if isinstance(status, int) else int(status is not None)
        real(status)  # type: ignore[arg-type]

    sys.exit = exit
