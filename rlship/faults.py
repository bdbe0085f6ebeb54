"""Errors of the writer itself. Each is counted, and reported once on stderr and in the file."""

from __future__ import annotations

from .guard import raised_by_signal
from .notices import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .notices import Notices


class Faults:
    """The errors of one Stream. `report(where, message)` writes an event into the file.

    Attributes: `errors`, their number.
    """

    def __init__(self, notices: Notices, report: Callable[[str, str], object]) -> None:
        self.errors = 0
        self._notices = notices
        self._report = report
        self._disk_error = ""

    def failed(self, where: str, error: Exception) -> None:
        """Count an internal error, and report it once for each place. Never raises, as its callers must not."""
        try:
            self.errors += 1
            text = f"{type(error).__name__}: {error}"
            topic = f"error {where} {type(error).__name__}"
            if self._notices.once(topic, f"internal error in {where}, the job goes on: {text}"):
                self._report(where, text)
        except Exception as second:  # the error is counted already, and nothing is left to report it with
            if raised_by_signal(second):
                raise

    def trouble(self, error: Exception, place: str) -> None:
        """Report that the writing thread failed to write to `place`."""
        if isinstance(error, OSError):
            self.errors += 1
            self._notices.once("disk", f"cannot write to {place}: {error}; keeping lines in memory and trying again")
            self._disk_error = str(error)
        else:
            self.failed("writing thread", error)

    def well(self, place: str) -> None:
        """Report that the writing thread can write again."""
        if "disk" in self._notices.counts:
            self._notices.forget("disk")
            say(f"writing to {place} again")
            self._report("disk", self._disk_error)
