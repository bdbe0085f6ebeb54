"""`rlship scrape`: the metrics of inference servers and exporters, as an actor of the experiment."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from pathlib import Path

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import refuse_empty
from rlship_sidecar.cli.signals import stop_on_signals
from rlship_sidecar.errors import UsageProblem

_ADDRESS = re.compile(r"://|:[0-9]+(/|$)|^[^/]*=")


@click.command(short_help="Log what inference servers and exporters say at /metrics.")
@click.argument("words", metavar="DIR [[NAME=]URL]...", nargs=-1)
@click.option(
    "--dir",
    "named",
    metavar="DIR",
    envvar="RLSHIP_DIR",
    help="The experiment, where DIR is left out.  [env var: RLSHIP_DIR]",
)
@click.option("--actor", default="generator", show_envvar=True, help="The actor that the endpoints are replicas of.")
@click.option(
    "--endpoints",
    "files",
    metavar="FILE",
    multiple=True,
    show_envvar=True,
    help="Endpoints in a file: one a line, or Prometheus' service discovery as JSON. Changes are taken up.",
)
@click.option("--ray", is_flag=True, show_envvar=True, help="Endpoints of a Ray cluster, from its head node's file.")
@click.option(
    "--ray-temp-dir",
    metavar="PATH",
    default="/tmp/ray",
    show_envvar=True,
    help="Where Ray keeps that file (--temp-dir).",
)
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    default=5.0,
    type=click.FloatRange(0.1, 3600),
    show_envvar=True,
    help="Time between two looks at an endpoint.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    default=10.0,
    type=click.FloatRange(0.1, 600),
    show_envvar=True,
    help="The longest that one look may take.",
)
@click.option(
    "--max-bytes",
    metavar="BYTES",
    default=16 << 20,
    type=click.IntRange(1024, 1 << 30),
    show_envvar=True,
    help="The longest answer that is read.",
)
@click.option(
    "--include",
    metavar="PATTERN",
    multiple=True,
    show_envvar=True,
    help="Also log metrics that no catalogue knows, under their own names, by names with *. Default: all of them, "
    "unless the endpoint is an inference server.",
)
@click.option("--exclude", metavar="PATTERN", multiple=True, show_envvar=True, help="But not these.")
@click.option(
    "--keep-label",
    "keep",
    metavar="LABEL",
    multiple=True,
    show_envvar=True,
    help="For metrics under their own names: one for each value of this label, not one for all.",
)
@click.option("--bearer-token-file", "token_file", metavar="FILE", show_envvar=True, help="A token to ask with.")
@click.option("--ca-file", metavar="FILE", show_envvar=True, help="Trust these certificates (PEM), not the system's.")
@click.option("--insecure", is_flag=True, show_envvar=True, help="Trust any certificate.")
@click.option(
    "--proxy",
    metavar="HOST:PORT",
    show_envvar=True,
    help="Ask through this HTTP proxy. Those in http_proxy are not used.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    show_envvar=True,
    help="Look N times, then end: with 1 if an endpoint did not answer.",
)
@click.option("--dry-run", is_flag=True, show_envvar=True, help="Print what would be logged, as JSON; write no file.")
@click.option("--quiet", "-q", is_flag=True, show_envvar=True, help="Say nothing of endpoints that come and go.")
@click.pass_context
def scrape(
    context: click.Context,
    words: tuple[str, ...],
    named: str | None,
    actor: str,
    files: tuple[str, ...],
    ray: bool,
    ray_temp_dir: str,
    interval_s: float,
    timeout_s: float,
    max_bytes: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    keep: tuple[str, ...],
    token_file: str | None,
    ca_file: str | None,
    insecure: bool,
    proxy: str | None,
    rounds: int | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Read the metrics of vLLM, SGLang, Ray and other exporters at URL, and log them into the experiment DIR.

    Each endpoint is a replica of the actor, called HOST:PORT or NAME; each of its engines is a rank. What the catalogue
    knows is logged under its names (`rlship metrics`): counters as rates, histograms as quantiles, ratios over engines;
    failures and recovery of endpoints too. `rlship watch DIR` ships it beside everything else.

    URL may be short: 10.0.0.7:8000 is http://10.0.0.7:8000/metrics. Ctrl-C or SIGTERM ends it.
    """
    directory, urls = _split(words, named)
    if ray:
        from rlship_agents.scrape.sources import RAY_FILE

        files = (*files, os.path.join(ray_temp_dir, RAY_FILE))
    if not urls and not files:
        raise UsageProblem(
            "no endpoints to scrape", "give a URL such as http://127.0.0.1:8000, --endpoints FILE or --ray"
        )
    if not directory and not dry_run:
        raise UsageProblem("no experiment to log into", "give its folder first: rlship scrape outputs/grpo-7b URL")

    from rlship_agents.scrape import access
    from rlship_agents.scrape.endpoints import AddressProblem, Endpoint, parse
    from rlship_agents.scrape.fetch import Limits
    from rlship_agents.scrape.names import Choice
    from rlship_agents.scrape.replica import Manner, Output
    from rlship_agents.scrape.running import scrape as run
    from rlship_agents.scrape.sources import Sources
    from rlship_agents.scrape.writers import Printed, Writers

    try:
        given = [parse(url) for url in urls]
    except AddressProblem as problem:
        raise UsageProblem(str(problem)) from None
    manner = Manner(
        interval_s=interval_s,
        limits=Limits(min(3.0, timeout_s), min(5.0, timeout_s), timeout_s, max_bytes),
        access=access.from_options(token_file, ca_file, insecure=insecure, proxy=proxy),
        choice=Choice(include or None, exclude),
        keep=keep,
        rounds=rounds,
    )
    folder = os.path.abspath(directory or ".")
    lock = threading.Lock()

    def say(line: str) -> None:
        if not quiet:
            _say(line)

    lost: list[output.OutputLost] = []

    def put(line: dict[str, object]) -> None:
        import orjson

        with lock:
            if not lost:
                try:
                    output.put(output.as_printed(orjson.dumps(line)))
                except output.OutputLost as problem:
                    lost.append(problem)
                    stop.set()

    def made(endpoint: Endpoint, number: int) -> Output:
        return Printed(endpoint, put) if dry_run else Writers(folder, actor, endpoint, number)

    if not dry_run:
        if places.is_closed(Path(folder)):
            say(places.adds_to_a_finished_one(folder))
        say(f"logging the metrics of endpoints every {interval_s:g} s into {folder}, as {actor}")
    with stop_on_signals(lambda line: None) as stop:
        answered = run(Sources(given, files, say), manner, made, stop=stop, say=say)
    if lost:
        raise lost[0]
    context.exit(0 if answered or rounds is None else 1)


def _split(words: tuple[str, ...], named: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The experiment and the addresses. The first word is the experiment unless one is named otherwise.

    A word with a port or a scheme is an address in any case, unless there is a folder of that name.
    """
    if not words:
        return named, words
    first = words[0]
    refuse_empty(first, "DIR")
    if os.path.isdir(first) or not (named or _ADDRESS.search(first)):
        return first, words[1:]
    return named, words


def _say(line: str) -> None:
    from rlship_sidecar.report.terminal import clean

    with suppress(OSError):
        sys.stderr.write(f"rlship: {clean(line, 500)}\n")
        sys.stderr.flush()
