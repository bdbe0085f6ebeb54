"""`rlship metrics`: the catalogue of metrics that the sidecar knows by name."""

from __future__ import annotations

import os
import sys

import click

from rlship_sidecar.cli.options import json_option
from rlship_sidecar.cli.plain_report import is_terminal
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.similar import similar


@click.command(short_help="Metrics that are known by name, with units and reductions.")
@click.argument("pattern", metavar="[PATTERN]", required=False)
@click.option("--aliases", is_flag=True, show_envvar=True, help="Also list what other frameworks call them.")
@json_option("metric")
@click.pass_context
def metrics(context: click.Context, pattern: str | None, aliases: bool, json: bool) -> None:
    """List the metrics that need no `define`: name, unit, reductions, writing actors, meaning.

    PATTERN keeps those that have it in their name or in another framework's name for them; with * it has to match
    the whole name. A foreign name has the reductions of its metric,
    unless parentheses behind it name another.
    """
    from rlship_sidecar.report import catalogue

    found = catalogue.matching(pattern, every_alias=aliases)
    if not found:
        raise RlshipError(f"the catalogue has no metric like {pattern!r}", _way_out(pattern or ""))
    if pattern and not any(catalogue.fits(metric.name, pattern) for metric in found):
        aliases = True  # found by foreign names only, so show those
    if json:
        import msgspec

        for metric in found:
            click.echo(msgspec.json.encode(catalogue.as_json(metric)))
    elif is_terminal(sys.stdout, os.environ):
        from rich.console import Console

        Console().print(catalogue.table(found, aliases=aliases, pattern=pattern))
    else:
        for line in catalogue.columns(found, aliases=aliases, pattern=pattern):
            click.echo(line)
    if pattern and (near := catalogue.bare(pattern, found)):
        actors = " or ".join(name.removesuffix(f"/{pattern}") for name in near)
        click.echo(
            f"rlship: {pattern} alone is not in the catalogue, so its reduction is the mean (unless its actor is "
            f"called {actors}); log it as {' or '.join(near)}, or name its reductions in rlship.define",
            err=True,
        )
    context.exit(0)


def _way_out(pattern: str) -> str:
    from rlship_formats.catalogue.metrics import METRICS

    known = [metric.name for metric in METRICS]
    known += [alias.name for metric in METRICS for alias in metric.aliases]
    near = similar(pattern, known)
    return f"did you mean {near[0]}?" if near else "all of them: rlship metrics"
