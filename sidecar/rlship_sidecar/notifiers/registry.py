"""Notifiers by kind: rlship's own and those of installed packages, through the entry-point group `rlship.notifiers`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.notifiers.alertmanager import Alertmanager
from rlship_sidecar.notifiers.contract import AlertNotifier, WrongNotifierOption
from rlship_sidecar.notifiers.outbox import NotifierChoice
from rlship_sidecar.notifiers.slack import Slack
from rlship_sidecar.notifiers.webhook import Webhook
from rlship_sidecar.similar import similar

GROUP = "rlship.notifiers"
OWN: dict[str, type[AlertNotifier]] = {"alertmanager": Alertmanager, "webhook": Webhook, "slack": Slack}
_OURS = ("kind", "severity", "rules")

Tables = Mapping[str, Mapping[str, Any]]


def wanted_of(tables: Tables) -> list[NotifierChoice]:
    """What each notifier in `[notify.*]` wants to hear of."""
    return [
        NotifierChoice(name, table.get("severity") == "critical", tuple(table.get("rules", ())))
        for name, table in tables.items()
    ]


def make(name: str, table: Mapping[str, Any]) -> AlertNotifier:
    """The notifier of `[notify.NAME]`. Raises UsageProblem."""
    of, options = _class_of(name, table), {key: value for key, value in table.items() if key not in _OURS}
    try:
        return of(options)
    except (WrongNotifierOption, UsageProblem):
        raise
    except Exception as error:
        raise UsageProblem(
            f"{of.__module__}.{of.__qualname__} cannot be made of the options {', '.join(options) or '(none)'}: "
            f"{type(error).__name__}: {error}",
            "write the options that it takes, or raise WrongNotifierOption there",
        ) from error


def check(place: str, tables: Tables, rules: Mapping[str, Any]) -> None:
    """Raise UsageProblem for settings of notifiers that cannot be used. `rules` are the names of rules in force."""
    for name, table in tables.items():
        at = f"{place}: [notify.{name}]"
        if table.get("severity", "warning") not in ("warning", "critical"):
            raise UsageProblem(f"{at}: severity is {table['severity']!r}", "allowed: warning, critical")
        chosen = table.get("rules", [])
        if not isinstance(chosen, list) or not all(isinstance(one, str) for one in chosen):
            raise UsageProblem(f"{at}: rules is {chosen!r}", "allowed: a list of names of rules")
        for one in chosen:
            if one not in rules:
                near = similar(one, rules)
                raise UsageProblem(
                    f"{at}: there is no rule {one!r}", f'did you mean "{near[0]}"?' if near else ", ".join(rules)
                )
        try:
            make(name, table)
        except WrongNotifierOption as wrong:
            raise UsageProblem(f"{at}: option {wrong.option} {wrong.problem}", f"allowed: {wrong.allowed}") from wrong
        except UsageProblem as problem:
            raise UsageProblem(f"{at}: {problem.message}", problem.hint) from problem


def _class_of(name: str, table: Mapping[str, Any]) -> type[AlertNotifier]:
    kind = str(table.get("kind", name))
    if kind in OWN:
        return OWN[kind]
    found = {point.name: point for point in entry_points(group=GROUP)}
    kinds = [*OWN, *sorted(found)]
    if kind not in found:
        near = similar(kind, kinds)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise UsageProblem(f"there is no kind of notifier {kind!r}", f"{hint}installed are: {', '.join(kinds)}")
    try:
        loaded = found[kind].load()
    except Exception as error:
        raise UsageProblem(
            f"the notifier {kind!r} ({found[kind].value}) cannot be imported: {type(error).__name__}: {error}",
            "install its package again, or leave it out",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, AlertNotifier)):
        raise UsageProblem(
            f"the notifier {kind!r} is {loaded!r}",
            f"derive a class from {AlertNotifier.__module__}.{AlertNotifier.__qualname__}",
        )
    return loaded
