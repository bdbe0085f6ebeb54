"""`rlship alerts`: the episodes of an experiment, rules tried on its history, and a check of a file of rules."""

from __future__ import annotations

import json as as_json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import PATH
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.report.terminal import clean, counted, date

if TYPE_CHECKING:
    from rlship_sidecar.alerts.episodes import Episode
    from rlship_sidecar.alerts.evaluation import History
    from rlship_sidecar.alerts.rules import Rule, Tables
    from rlship_sidecar.tabular.source import ExperimentTables

_LIST = "list"
_GOING_ON = ("firing", "clearing")


class _Verbs(click.Group):
    """A group whose first word may be left out: `alerts DIR` is `alerts list DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the left-out word in."""
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


_folder = click.argument("directory", metavar="[DIR]", default=".", type=PATH)
_json = click.option("--json", is_flag=True, help="Print one JSON object a line for each episode.")
_state_dir = click.option(
    "--state-dir",
    metavar="PATH",
    envvar="RLSHIP_STATE_DIR",
    help="The sidecar's --state-dir.  [env var: RLSHIP_STATE_DIR; default: rlship/state in the experiment]",
)


@click.group(cls=_Verbs, short_help="What is wrong, by rules over several metrics.")
def alerts() -> None:
    """List the episodes in which rules fire, in the rows that the sidecar made of the experiments in DIR.

    \b
    rlship alerts [DIR]                    those of the rules in force
    rlship alerts test [DIR] --rules FILE  what the rules in FILE would have said
    rlship alerts check FILE               whether FILE holds rules

    A folder called test or check is ./test or ./check.
    """


@alerts.command(_LIST, short_help="The episodes in which rules fired.")
@_folder
@_json
@_state_dir
@click.pass_context
def listed(context: click.Context, directory: Path, json: bool, state_dir: str | None) -> None:
    """List the episodes of the experiments in DIR: those that go on first, then by step."""
    from rlship_sidecar.tabular.asked import history_of, settings_of

    with tidied(), ExitStack() as stack:
        sources = stack.enter_context(sources_of(directory, state_dir))
        for source in sources:
            settings = settings_of(directory, source.path)
            history = history_of(source, settings.lead, _rules(settings.alert))
            for line in _as_json(source, history) if json else [*_as_text(source, history), *_blind(source, history)]:
                click.echo(line)
    context.exit(unreadable_code(sources))


@alerts.command("test", short_help="What rules would have said of the rows that are there.")
@_folder
@click.option("--rules", "file", metavar="FILE", type=PATH, help="Rules; without it those in force.")
@_json
@_state_dir
@click.pass_context
def tested(context: click.Context, directory: Path, file: Path | None, json: bool, state_dir: str | None) -> None:
    """Evaluate the rules of FILE over the rows of the experiments in DIR, and say which signals were known.

    FILE has tables [alert.NAME] as rlship.toml does. A rule that comes with rlship need only have what is different.
    """
    from rlship_sidecar.tabular.asked import history_of, settings_of

    over = None if file is None else _read(file)
    with tidied(), ExitStack() as stack:
        sources = stack.enter_context(sources_of(directory, state_dir))
        for source in sources:
            settings = settings_of(directory, source.path)
            rules = _rules(settings.alert) if over is None else _rules(over, only=True)
            history = history_of(source, settings.lead, rules)
            for line in _as_json(source, history) if json else [*_as_text(source, history), *_knowledge(history)]:
                click.echo(line)
    context.exit(unreadable_code(sources))


@alerts.command("check", short_help="Whether a file holds rules.")
@click.argument("file", metavar="FILE", type=PATH)
def checked(file: Path) -> None:
    """Check a file of rules. The first mistake is named with its line and what is allowed; exit code 2."""
    tables = _read(file)
    for name in tables:
        click.echo(name)
    click.echo(f"{clean(str(file))}: {counted(len(tables), 'rule')}, fine")


def _read(file: Path) -> Tables:
    from rlship_sidecar import bounded_toml
    from rlship_sidecar.alerts.rules import read_file

    try:
        with open(file, "rb") as opened:
            raw = opened.read(bounded_toml.MAX_BYTES + 1)
    except OSError as problem:
        raise UsageProblem(
            f"{file} cannot be read: {problem.strerror}", "give the path of a file of rules"
        ) from problem
    return read_file(raw, str(file))


def _rules(over: Tables, *, only: bool = False) -> tuple[Rule, ...]:
    from rlship_sidecar.alerts.rules import rules_of

    return tuple(rule for rule in rules_of(over) if not only or rule.name in over)


def _as_json(source: ExperimentTables, history: History) -> Iterator[str]:
    for one in _in_order(history):
        yield output.as_printed(as_json.dumps(_form(source.name, one)).encode()).decode()


def _form(experiment: str, one: Episode) -> dict[str, Any]:
    return {
        "experiment": experiment,
        "id": one.id,
        "rule": one.rule,
        "severity": one.severity,
        "state": one.state,
        "place": one.place,
        "lineage": list(one.lineage),
        "first": one.first._asdict(),
        "fired": one.fired._asdict(),
        "last": one.last._asdict(),
        "ended": None if one.ended is None else one.ended._asdict(),
        "evidence": dict(one.evidence),
    }


def _in_order(history: History) -> list[Episode]:
    """Those that go on first."""
    return sorted(history.episodes(), key=lambda one: one.state not in _GOING_ON)


def _as_text(source: ExperimentTables, history: History) -> Iterator[str]:
    episodes, last = _in_order(history), history.last()
    name = clean(source.name)
    if last is None:
        why = "no step of the lead has a row" if not history.has_lead else "no frames"
        yield f"{name}: nothing to evaluate: {why}; rules look at the steps of the lead (lead = … in rlship.toml)"
        return
    going_on = sum(one.state in _GOING_ON for one in episodes)
    yield f"{name}: {counted(len(episodes), 'episode')}, {going_on} going on, up to step {last.step}"
    from rlship_sidecar.alerts.words import words_of

    rules = {rule.name: rule for rule in history.rules}
    for one in episodes:
        yield f"  {_headline(one)}"
        rule = rules[one.rule]
        if rule.about:
            yield f"      {clean(rule.about, 500)}"
        signals = {signal.name: signal for signal in rule.signals}
        for name, value in one.evidence:
            yield f"      {name} {value:.4g}: {clean(words_of(signals[name]), 300)}"
        if rule.look and one.state in _GOING_ON:
            yield f"      look at: {clean(rule.look, 500)}"


def _blind(source: ExperimentTables, history: History) -> Iterator[str]:
    """Which rules saw nothing of what they look at: that they are silent says nothing."""
    rules = history.blind() if history.last() is not None else []
    if rules:
        path = shlex.quote(clean(str(source.path)))
        saw = f"{counted(len(rules), 'rule')} saw none of {'its' if len(rules) == 1 else 'their'} metrics"
        yield f"  {saw}: {', '.join(rules)}; rlship alerts test {path} lists the signals"


def _headline(one: Episode) -> str:
    steps = f"from step {one.first.step}" if one.ended is None else f"steps {one.first.step}..{one.last.step}"
    place = f" at {clean(one.place)}" if one.place else ""
    fired = f"fired at {one.fired.step} ({date(one.fired.t)})"
    return f"{one.state:<10}  {one.severity:<8}  {one.rule}{place}, {steps}, {fired}"


def _knowledge(history: History) -> Iterator[str]:
    """For each signal, in how many frames it was known and true."""
    frames, found = history.knowledge()
    yield f"  of {counted(frames, 'frame')}:"
    for (rule, signal), (known, true) in found.items():
        said = f"true in {true}, known in {known}" if known else "never known: its metric was not logged"
        yield f"      {rule}.{signal}: {said}"
