"""Which view a push makes or changes, given those that the project has. Pure, but for the question after a spec.

A view's description says of which run it was made and with which digest. A view whose digest is no longer that one was
changed by a person, and is never written to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

NAME = "rlship overview"
MAX_LOOKED_AT = 50  # views of ours, the newest first
_TITLE = re.compile(rf"{NAME} v([1-9][0-9]{{0,8}})")
_NOTE = re.compile(r"\[rlship-panels 1 ([0-9a-f]{32}) ([0-9a-f]{16})\]")


class SavedView(NamedTuple):
    """A view at W&B. `name` is W&B's own, `title` the one that people see."""

    id: str
    name: str
    title: str
    description: str


class ViewNote(NamedTuple):
    """What a description says: the digest of the view when it was saved, and a mark of the run."""

    digest: str
    run: str


class Kept(NamedTuple):
    """Nothing is to be done: this view was saved with the same panels. `changed`: a person has changed it since."""

    view: SavedView
    changed: bool


class Updated(NamedTuple):
    """This view is of the same run, and is as it was saved: it gets the panels."""

    view: SavedView


class Made(NamedTuple):
    """A view of this title is to be made."""

    title: str


def describe(digest: str, run: str) -> str:
    """The description of a view."""
    return (
        f"Made by `rlship panels --push` from the metrics of run {run}. Change it as you like: then rlship leaves it "
        f"as it is. [rlship-panels 1 {digest} {_mark(run)}]"
    )


def noted(description: str) -> ViewNote | None:
    """What a description says; None if rlship did not write it."""
    found = _NOTE.search(description)
    return None if found is None else ViewNote(*found.groups())


def decide(
    views: Iterable[SavedView], digest: str, run: str, digest_of: Callable[[SavedView], str]
) -> Kept | Updated | Made:
    """What to do so that panels of this digest, of this run, are at W&B. `digest_of` asks what a view shows now."""
    numbers = {view: int(found[1]) for view in views if (found := _TITLE.fullmatch(view.title))}
    ours = sorted(numbers, key=lambda view: (-numbers[view], view.id))[:MAX_LOOKED_AT]
    for view in ours:
        note = noted(view.description)
        if note is not None and note.digest == digest:
            return Kept(view, digest_of(view) != digest)
        if note is None and digest_of(view) == digest:
            return Kept(view, changed=False)
    for view in ours:
        note = noted(view.description)
        if note is not None and note.run == _mark(run):  # only the newest of the run: the others are history
            if digest_of(view) == note.digest:
                return Updated(view)
            break
    return Made(f"{NAME} v{1 + max(numbers.values(), default=0)}")


def _mark(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]
