"""Which system metrics a process shall log: the argument `system_metrics` of `init`, or variables."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH = "RLSHIP_SYSTEM_METRICS"
ROLES = "RLSHIP_SYSTEM_METRICS_ROLES"
GPUS = "RLSHIP_SYSTEM_METRICS_GPUS"

_SETTINGS = ("interval", "roles", "gpus")
_MIN_S, _MAX_S, _DEFAULT_S = 0.1, 3600.0, 1.0
_MAX_SHOWN = 60


class Asked:
    """A sample every `interval_s` seconds. `gpus`: entries for `visible.wanted`; None for the visible ones."""

    __slots__ = ("gpus", "interval_s")

    def __init__(self, interval_s: float, gpus: list[str] | None = None) -> None:
        self.interval_s = interval_s
        self.gpus = gpus


def is_set(environ: Mapping[str, str]) -> bool:
    """True if a variable asks for system metrics, or says that there shall be none."""
    return any(environ.get(name) for name in (SWITCH, ROLES, GPUS))


def read(given: object, environ: Mapping[str, str], actor: str) -> Asked | None:
    """What a process of `actor` logs; None for nothing.

    `given` is the argument of `init`: a dict of `interval`, `roles` and `gpus`, True, False, or seconds. What it leaves
    out comes from the variables. Raises ValueError, whose text names the setting, its value and what is allowed.
    """
    own: Mapping[str, object] = given if isinstance(given, dict) else {}
    for name in own:
        if name not in _SETTINGS:
            raise ValueError(f"system_metrics has no setting {name!r:.60}: it takes interval, roles and gpus")
    seconds = _seconds(given, own, environ)
    if seconds is None:
        return None
    named = roles("system_metrics['roles']", own.get("roles"))
    if named is None and own.get("roles") is None:
        named = roles(ROLES, environ.get(ROLES) or None)
    if named is not None and actor not in named:
        return None
    wanted = gpus("system_metrics['gpus']", own.get("gpus"))
    if wanted is None:
        wanted = gpus(GPUS, environ.get(GPUS) or None)
    return Asked(seconds, wanted)


def _seconds(given: object, own: Mapping[str, object], environ: Mapping[str, str]) -> float | None:
    if isinstance(given, dict):
        return interval("system_metrics['interval']", own.get("interval", True))
    if given is not None:
        return interval("system_metrics", given, "True, a number of seconds from 0.1 to 3600, or a dict")
    if environ.get(SWITCH):
        return interval(SWITCH, environ[SWITCH], "1, 0 or a number of seconds from 0.1 to 3600")
    return _DEFAULT_S if is_set(environ) else None


def interval(where: str, value: object, allowed: str = "True or a number of seconds from 0.1 to 3600") -> float | None:
    """Seconds between two samples; None for off. Raises ValueError."""
    if value is None or value is False:
        return None
    if value is True:
        return _DEFAULT_S
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = -1.0
    if seconds == 0:
        return None
    if not _MIN_S <= seconds <= _MAX_S:
        raise ValueError(f"{where}={_shown(value)} is not {allowed}")
    return seconds


def roles(where: str, value: object) -> list[str] | None:
    """The actors that are named; None for all of them. Raises ValueError."""
    if value is None:
        return None
    names = _entries(value)
    if not names:
        raise ValueError(
            f"{where}={_shown(value)} names no actors: give their names, such as trainer,generator; or all, or none"
        )
    if names == ["all"]:
        return None
    return [] if names == ["none"] else names


def gpus(where: str, value: object) -> list[str] | None:
    """The GPUs that are named, for `visible.wanted`; None if the setting is not given. Raises ValueError."""
    if value is None:
        return None
    entries = _entries([value] if type(value) is int else value) or []
    wrong = [entry for entry in entries if not _is_device(entry, alone=len(entries) == 1)]
    if wrong or not entries:
        what = f"has {wrong[0]!r:.60}, which is no GPU" if wrong else "names no GPUs"
        raise ValueError(
            f"{where}={_shown(value)} {what}: give indices or UUIDs, such as 0,1; or local, for the GPU at this "
            f"process's local rank; or all, or none"
        )
    return [] if entries == ["none"] else entries


def _is_device(entry: str, *, alone: bool) -> bool:
    """True for an index, the index of a MIG device (`0_1`), or the beginning of a UUID; words stand alone."""
    if entry in ("all", "none", "local"):
        return alone
    return entry.replace("_", "", 1).isdigit() or (entry[:1].isalpha() and "-" in entry and " " not in entry)


def _entries(value: object) -> list[str] | None:
    """The entries of a text with commas, or of a list; None for anything else."""
    if isinstance(value, str):
        return [one.strip() for one in value.split(",") if one.strip()]
    if not isinstance(value, (list, tuple, set, frozenset)):
        return None
    plain = all(isinstance(one, str) or type(one) is int for one in value)
    return [str(one).strip() for one in value] if plain else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
