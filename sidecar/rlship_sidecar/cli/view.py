"""`rlship view`: the page."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import state_dir_option
from rlship_sidecar.cli.outfile import STDOUT, outages, writing
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.errors import OK, UsageProblem

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(short_help="A page with all panels of an experiment, in the browser.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    show_envvar=True,
    help="Listen there; 0: any free one.  [default: 8470, or any free one]",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_envvar=True, help="On which address of here.")
@click.option(
    "--allow-host",
    "allowed",
    metavar="NAME",
    multiple=True,
    show_envvar=True,
    help="Also answer where the browser calls this machine NAME. Names of loopback are always answered.",
)
@click.option("--open/--no-open", "opens", default=True, show_envvar=True, help="Open the page in a browser.")
@click.option(
    "--export",
    "target",
    metavar="FILE",
    help="Write the page of one experiment as one file, which opens from disk without a server, and end.",
)
@state_dir_option
@click.pass_context
def view(
    context: click.Context,
    directory: Path,
    port: int | None,
    host: str,
    allowed: tuple[str, ...],
    opens: bool,
    target: str | None,
    state_dir: str | None,
) -> None:
    """Show the experiment in DIR, or all experiments in the folder DIR, as a page in the browser.

    Prints the page's address, which ends in a token: every person with it can read these experiments, and no request
    without it is answered. The page is live while the job runs. Nothing is changed. Ctrl-C ends it.

    On another machine: ssh -L 8470:localhost:8470 MACHINE rlship view --no-open --port 8470 DIR
    """
    places.require(directory)
    if target is not None:
        _export(directory, target, state_dir)
        context.exit(OK)
    try:
        from rlship_sidecar.view import serve
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UsageProblem(
            f"the page needs the package {problem.name}, which is not installed", "pip install 'rlship[view]'"
        ) from problem
    serve.keep_memory_small()
    names = serve.names_of(allowed)
    listening = serve.bind(host, port)
    if host not in LOOPBACK:
        said = f"anyone who can reach {host} can ask this server, and what it sends is not encrypted: better ssh -L"
        click.echo(f"rlship: {said}", err=True)
    with (
        tidied(),
        listening,
        serve.prepared(
            Path(os.path.realpath(directory)),
            listening=listening,
            allowed=names,
            state_dir=state_dir,
            on_ready=lambda link: _tell(link, opens=opens, forwards=host in LOOPBACK),
        ) as server,
    ):
        server.run(sockets=[listening])
    context.exit(OK)


def _export(directory: Path, target: str, state_dir: str | None) -> None:
    from rlship_sidecar.view import exporting

    page = exporting.page_of(Path(os.path.realpath(directory)), state_dir)
    with outages(target, "the page"), writing(target) as file:
        file.write(page)
    if target != STDOUT:
        click.echo(f"{target}: {len(page) / 1e6:.1f} MB; open it in a browser")


def _tell(link: str, *, opens: bool, forwards: bool) -> None:
    click.echo(link)
    sys.stdout.flush()
    way = ""
    if forwards:
        port = urlsplit(link).port
        way = f"; from another machine: ssh -L {port}:localhost:{port} {socket.gethostname()}, then open this address"
    click.echo(f"rlship: Ctrl-C ends the page{way}", err=True)
    if opens and sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
