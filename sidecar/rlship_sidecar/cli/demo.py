"""`rlship demo`: a small RL job of several processes with the sidecar on it."""

from __future__ import annotations

from pathlib import Path

import click

from rlship_sidecar.cli.options import PATH


@click.command(short_help="Run a small RL job with the sidecar on it.")
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=30.0, show_envvar=True, help="About how long the job learns."
)
@click.option("--fault", metavar="NAME", default="", help="What goes wrong from the middle on, such as zero_rewards.")
@click.pass_context
def demo(context: click.Context, directory: Path, seconds: float, fault: str) -> None:
    """Run a small RL job in DIR: trainer ranks, generators and a reward worker, with the sidecar on it.

    Needs no account: the W&B run is written offline.

    With --fault something goes wrong on purpose in one of its processes, and the alerts say what they see. The job then
    has a buffer, keeps the ledger and logs the catalogue's metrics; `--fault none` has that without a fault.
    """
    from rlship_sidecar.demo.run import run_demo

    context.exit(run_demo(directory, seconds=seconds, fault=fault, echo=click.echo))
