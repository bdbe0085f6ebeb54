"""`rlship sysmon`: the agent of a node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from rlship.system import asked
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import PATH
from rlship_sidecar.cli.signals import stop_on_signals
from rlship_sidecar.errors import UsageProblem


@click.command(short_help="Log what this node and the job's processes on it use.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_envvar=True,
    help="Time between two looks.",
)
@click.option(
    "--roles",
    metavar="ACTORS",
    show_envvar=True,
    help="Actors whose processes get metrics of their own: trainer,generator; or none.  [default: all actors]",
)
@click.option(
    "--gpus",
    metavar="IDS",
    show_envvar=True,
    help="Which GPUs, by index or UUID: 0,1; all, or none.  [default: those in CUDA_VISIBLE_DEVICES, else all]",
)
@click.option(
    "--quiet-after",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=300.0,
    show_envvar=True,
    help="Leave an experiment alone after so long without a write, until the next one.",
)
@click.option(
    "--host",
    metavar="NAME",
    default="",
    show_default=False,
    show_envvar=True,
    help="What to call this node.  [default: its name]",
)
@click.option(
    "--always",
    is_flag=True,
    show_envvar=True,
    help="Log into every experiment in DIR, whether or not it goes on and is here.",
)
@click.option(
    "--once", is_flag=True, show_envvar=True, help="Look twice, print what was logged as JSON on stdout, and exit."
)
@click.option("--quiet", "-q", is_flag=True, show_envvar=True, help="Say nothing on stderr.")
@click.pass_context
def sysmon(
    context: click.Context,
    directory: Path,
    interval: float,
    roles: str | None,
    gpus: str | None,
    quiet_after: float,
    host: str,
    always: bool,
    once: bool,
    quiet: bool,
) -> None:
    """Log this node's CPU, memory, disks, network and GPUs into the experiment in DIR, or into those experiments in the
    folder DIR that have a process here (default: where you are).

    Run one on each node. It waits for experiments to begin, and goes on until Ctrl-C or SIGTERM. It reports once
    what it cannot measure (no GPU, no driver, or one that fails) and leaves it out.
    """
    places.require(directory, waits=not once)
    from rlship_agents.sysmon.agent import Agent, Plan
    from rlship_agents.sysmon.post import as_json
    from rlship_sidecar.report.terminal import clean

    def say(line: str) -> None:
        if not quiet:
            with suppress(OSError):
                sys.stderr.write(f"rlship: {clean(line, 2000)}\n")
                sys.stderr.flush()

    if (always or once) and places.is_closed(directory):
        say(places.adds_to_a_finished_one(directory))
    plan = Plan(
        interval,
        _parsed(asked.roles, "--roles", roles),
        _parsed(asked.gpus, "--gpus", gpus),
        quiet_after,
        always or once,
    )
    agent = Agent(directory, plan, say, name=host)
    with stop_on_signals(lambda line: None) as stop:
        if not once:
            agent.run(stop)
            context.exit(0)
        logged = agent.once(stop)
    if not logged and not stop.is_set():
        from rlship_sidecar.tail.discover import nothing_in

        raise nothing_in(directory)
    for path, found in logged.items():
        click.echo(as_json(path, found))
    context.exit(0)


def _parsed(read: Callable[[str, object], list[str] | None], option: str, value: str | None) -> list[str] | None:
    try:
        return read(option, value)
    except ValueError as error:
        problem, _, way_out = str(error).partition(": ")
        raise UsageProblem(problem, way_out) from None
