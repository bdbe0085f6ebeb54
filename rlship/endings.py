"""The error that ends this process, for its `close` record.

Nothing is hooked: the interpreter keeps an uncaught exception, and `sys.excepthook` stays the job's own. Ctrl-C is no
error. Nor is `sys.exit` of the program, of which the interpreter keeps nothing.
"""

from __future__ import annotations

import sys

_MAX_TEXT = 300


def error_of_program() -> str:
    """At exit: the exception that the main thread did not catch, as a text; "" without one."""
    error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    # Shells, test runners and libraries leave their errors there too, and go on. Then a caller stood above the first
    # frame, or it was a prompt's.
    if error is None or trace is None or trace.tb_frame.f_back is not None or hasattr(sys, "ps1"):
        return ""
    return _text(error)


def error_of_child() -> str:
    """In a finaliser of a `multiprocessing` child: the exception that ends it, as a text; "" without one."""
    error = sys.exc_info()[1]
    trace = None if error is None else error.__traceback__
    # A fork inside an `except` inherits that exception, which the child did not raise.
    if error is None or trace is None or trace.tb_frame.f_code.co_name != "_bootstrap":
        return ""
    if not isinstance(error, SystemExit):
        return _text(error)
    if not error.code:
        return ""
    # torch's `spawn` exits in an `except`, whose exception says more. One of the parent's is in no frame of the child.
    context = error.__context__
    caught = None if context is None or context.__traceback__ is None else context.__traceback__.tb_frame
    while trace is not None and trace.tb_frame is not caught:
        trace = trace.tb_next
    return _text(error if context is None or trace is None else context)


def error_at_hand() -> str:
    """The error that an `except`, a `finally` or the end of a `with` around this call deals with, as a text; "" without
    one. A call of `sys.exit` is no error.
    """
    error = sys.exc_info()[1]
    return _text(error) if isinstance(error, Exception) else ""


def _text(error: BaseException) -> str:
    """The type and the first line of the message."""
    if isinstance(error, KeyboardInterrupt):
        return ""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - the error's own code
        lines = []
    return ": ".join([type(error).__name__, *lines[:1]])[:_MAX_TEXT]
