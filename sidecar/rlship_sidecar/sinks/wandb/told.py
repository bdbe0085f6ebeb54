"""What the child says to W&B of the run's summary beside lines, and whether the server shows it.

W&B puts each line's values into the summary. So the child says the values that lines must not displace again behind
them: the job's own at each flush, those of rows that are further on right after the line.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# A server that never shows a value as it was told must not hold rows back.
PROOF_S = 15.0

Update = Callable[[dict[str, Any]], None]


class ToldSummary:
    """The main thread tells; another thread asks whether the server shows it."""

    def __init__(self, update: Update, shown: Callable[[], Mapping[str, Any]]) -> None:
        """`update` changes the run's summary; `shown` is the summary as the client has it."""
        self._update = update
        self._shown = shown
        self._own: dict[str, Any] = {}
        self._beneath: dict[str, Any] = {}  # the numbers that lines have of the job's own keys
        self._covered: set[str] = set()
        self._proof = Proof()

    @property
    def proof(self) -> Proof:
        """What the server has to show."""
        return self._proof

    def described(self, summary: Mapping[str, Any]) -> None:
        """The job's own summary is this one. What it took back (null) is that of the lines again."""
        own = {name: value for name, value in summary.items() if value is not None}
        self._tell({name: self._beneath.get(name) for name in self._own.keys() - own.keys()})
        self._own = own
        self._beneath = {name: value for name, value in self._beneath.items() if name in own}
        self._covered.clear()
        # Each look at a single value would be a question to wandb-core.
        shown = self._shown() if self._own else {}
        self._tell({name: value for name, value in self._own.items() if not is_same(shown.get(name, _NOTHING), value)})
        self._proof.expect(self._own)

    def repair(self, numbers: Mapping[str, float]) -> None:
        """The run was opened again with rows: the summary should have these numbers of them, where it has any."""
        shown = self._shown()
        kept = {name: number for name, number in numbers.items() if name in shown and name not in self._own}
        self._tell({name: number for name, number in kept.items() if not is_same(shown[name], number)})

    def logged(self, line: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """A line with these values was logged, which displaced these numbers."""
        names = tuple(line)
        self._proof.forget(names)
        if self._own:
            self._covered.update(name for name in names if name in self._own)
            found = {**line, **numbers}
            self._beneath.update((name, found[name]) for name in found if name in self._own and _is_number(found[name]))
        self._tell({name: number for name, number in numbers.items() if name not in self._own})

    def settle(self) -> None:
        """Tell the job's own values again that lines displaced."""
        self._tell({name: self._own[name] for name in self._covered})
        self._covered.clear()

    def _tell(self, values: dict[str, Any]) -> None:
        if not values:
            return
        try:
            self._update(values)
        except (ValueError, TypeError) as problem:
            sys.stderr.write(f"values of the summary are left out: {type(problem).__name__}: {problem}\n")
        else:
            self._proof.expect(values)


class Proof:
    """The values that were told and that the server was not seen to show yet. Any thread may call it.

    A key that the server does not show as it was told for `PROOF_S`, such as one that it rounds or refuses, is given up
    for good.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, Any] = {}
        self._given_up: set[str] = set()
        self._since = 0.0

    def expect(self, values: Mapping[str, Any]) -> None:
        """The server is to show these values."""
        with self._lock:
            self._open.update((name, value) for name, value in values.items() if name not in self._given_up)
            self._since = self._clock()

    def forget(self, names: Iterable[str]) -> None:
        """Lines displaced these."""
        with self._lock:
            if self._open:
                for name in names:
                    self._open.pop(name, None)

    @property
    def is_complete(self) -> bool:
        """Whether the server shows all."""
        return not self._open

    def look(self, shown: Mapping[str, Any]) -> None:
        """The server shows this now."""
        with self._lock:
            self._open = {
                name: value for name, value in self._open.items() if not is_same(shown.get(name, _NOTHING), value)
            }
            if self._open and self._clock() - self._since > PROOF_S:
                names = ", ".join(sorted(self._open)[:5])
                sys.stderr.write(f"the summary does not show what it was told within {PROOF_S:g} s: {names}\n")
                self._given_up.update(self._open)
                self._open = {}


_NOTHING = object()


def is_same(shown: Any, told: Any) -> bool:
    """Whether the server shows a value as it was told. Its numbers may be rounded in the last digits."""
    if _is_number(shown) and _is_number(told):
        return math.isclose(shown, told, rel_tol=1e-12) or shown == told
    return _json(shown) == _json(told)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
