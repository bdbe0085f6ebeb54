"""Which view a push makes or changes."""

from __future__ import annotations

from rlship_sidecar.panels.versions import Kept, Made, SavedView, Updated, decide, describe, noted

A, B, C = "a" * 32, "b" * 32, "c" * 32


def view(number: int, title: str, digest: str = "", run: str = "r1") -> SavedView:
    return SavedView(f"id{number}", f"nw-{number}-v", title, describe(digest, run) if digest else "")


def decided(views: list[SavedView], digest: str, now: dict[str, str], run: str = "r1") -> Kept | Updated | Made:
    """What is decided where views show these digests now; all others are asked for nothing."""
    return decide(views, digest, run, lambda one: now[one.id])


def test_the_first_view_is_version_1() -> None:
    """Views of people are not ours, whatever they are called, and nothing is asked of them."""
    others = [view(0, "rlship overview"), view(1, "rlship overview v0"), view(2, "my rlship overview v7"), view(3, "x")]
    assert decided(others, A, {}) == Made("rlship overview v1")


def test_a_view_with_the_same_panels_stays() -> None:
    """Also one of another run, an older one, and one that a person has changed since."""
    mine = view(1, "rlship overview v1", A, run="other")
    assert decided([mine], A, {"id1": A}) == Kept(mine, changed=False)
    assert decided([mine], A, {"id1": C}) == Kept(mine, changed=True)
    newer = view(2, "rlship overview v2", B)
    assert decided([mine, newer], A, {"id1": A, "id2": B}) == Kept(mine, changed=False)


def test_a_view_of_the_run_that_is_as_it_was_saved_is_updated() -> None:
    """New metrics of the run go into its newest view; other runs and people are left alone."""
    mine = view(1, "rlship overview v1", A)
    assert decided([mine], B, {"id1": A}) == Updated(mine)
    assert decided([mine], B, {"id1": C}) == Made("rlship overview v2")
    assert decided([mine], B, {"id1": A}, run="r2") == Made("rlship overview v2")
    newer = view(2, "rlship overview v10", C)
    assert decided([mine, newer], B, {"id1": A, "id2": A}) == Made("rlship overview v11")


def test_a_view_without_a_note_is_never_written_to() -> None:
    """A server may lose descriptions: then a view with the same panels is known by them, and any other one stays."""
    bare = view(1, "rlship overview v1")
    assert decided([bare], A, {"id1": A}) == Kept(bare, changed=False)
    assert decided([bare], A, {"id1": B}) == Made("rlship overview v2")


def test_the_note_stands_in_a_sentence_for_people() -> None:
    """It is found again, whatever the run is called."""
    text = describe(A, 'a]b" [rlship-panels 1 x')
    note = noted(text)
    assert note is not None and note.digest == A
    assert noted("") is None and noted("[rlship-panels 1 xyz 1]") is None
