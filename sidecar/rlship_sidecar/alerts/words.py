"""What the value of a signal is, in words for people. Pure."""

from __future__ import annotations

from rlship_formats.catalogue.metrics import Metric, lookup
from rlship_sidecar.alerts.frames import EXPECTED, LEAD_MISSING, MEMBERS, MISSING, NONFINITE, OTHERS_MISSING, SHORT
from rlship_sidecar.alerts.signals import Signal

# What the catalogue, which lists what jobs log, does not have.
_LEDGER = "zz_rlship/ledger/"
_OWN = {
    MISSING: "ranks that are missing",
    LEAD_MISSING: "ranks of the lead that are missing",
    OTHERS_MISSING: "ranks of other actors that are missing",
    SHORT: "ranks that lack a metric which they logged shortly before",
    EXPECTED: "ranks that are expected",
    MEMBERS: "ranks that log or are missing",
    f"{_LEDGER}tokens_differs": "groups whose tokens differ between two hops",
    f"{_LEDGER}reward_differs": "groups whose rewards differ between two hops",
    f"{_LEDGER}sample_differs": "groups whose samples differ between two hops",
    f"{_LEDGER}mask_differs": "groups whose masks differ between two hops",
    f"{_LEDGER}version_disagrees": "groups or processes whose weights are not those of their version",
    f"{_LEDGER}sign_wrong": "groups in which higher rewards have lower advantages",
    f"{_LEDGER}mask_wrong": "groups whose mask covers more, or fewer, tokens than were generated",
    f"{_LEDGER}twice": "groups that were trained on twice",
    f"{_LEDGER}group_short": "groups that arrived with fewer samples than were generated",
}


def entry_of(name: str) -> Metric | None:
    """The catalogue's entry for the name of a metric, with or without a reduction after it."""
    head, _, end = name.rpartition("/")
    return lookup("", name) or (lookup("", head) if end else None)


def words_of(signal: Signal) -> str:
    """What a signal looks at, and of which metric its value is."""
    if signal.kind == "stalled":
        return "seconds since the step before"
    if not signal.metrics:
        return "seconds that a step takes"
    what = _computed(signal)
    if signal.kind == "growth":
        what = f"change of {what} over {signal.window} values"
    meaning = _meaning(signal.metrics[0])
    return f"{meaning} ({what})" if meaning else what


def _computed(signal: Signal) -> str:
    """The metrics of which a value is made; of several names of one metric the first."""
    kinds: dict[str, str] = {}
    for name in signal.metrics:
        entry = entry_of(name)
        kinds.setdefault(name if entry is None else entry.name, name)
    what, less = " or ".join(kinds.values()), signal.less or signal.to
    if less:
        what = f"{what} less {less}"
    if signal.of:
        what = f"({what}) / {signal.of}" if less or len(kinds) > 1 else f"{what} / {signal.of}"
    return what


def _meaning(name: str) -> str:
    if name in _OWN:
        return _OWN[name]
    entry = entry_of(name)
    if entry is None:
        return ""
    # What to pass as a weight is for those who log it.
    meaning = entry.meaning.partition("; weight: ")[0].rstrip(".")
    if meaning.partition(" ")[0][1:].islower():
        meaning = meaning[0].lower() + meaning[1:]
    return f"values that were not finite of: {meaning}" if name.endswith(NONFINITE) else meaning
