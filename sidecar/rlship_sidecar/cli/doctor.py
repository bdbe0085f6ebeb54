"""`rlship doctor`: what is wrong around a job, and what to do."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import PATH, file_option, json_option, state_dir_option
from rlship_sidecar.errors import INCOMPLETE, OK, RlshipError, UsageProblem
from rlship_sidecar.report.terminal import MAX_ERROR_CHARS, clean, natural

if TYPE_CHECKING:
    from rlship_sidecar.cli.settings import SettingsOf
    from rlship_sidecar.config import Config
    from rlship_sidecar.doctor.findings import DoctorFinding
    from rlship_sidecar.ownership.lease import Owner
    from rlship_sidecar.report.status import Status

NO_FOLDER = Path(os.devnull)  # holds no settings file


@click.command(short_help="What is wrong around a job, and what to do.")
@click.argument("directory", metavar="[DIR]", required=False, type=PATH)
@json_option("finding")
@click.option(
    "--python",
    metavar="PYTHON",
    show_envvar=True,
    help="The job's Python, for the hook: a path, or a name on PATH.  [default: the first python or python3 on PATH]",
)
@state_dir_option
@file_option
@click.pass_context
def doctor(
    context: click.Context,
    directory: Path | None,
    json: bool,
    python: str | None,
    state_dir: str | None,
    file: Path | None,
) -> None:
    """Look at the environment and at the experiments in DIR, and print a line for each finding.

    It says what is, and what to do where something is to mend. Without DIR only the environment is looked at. Of
    several experiments those lines are shown that name something to mend; --json has all.

    Writes nothing and needs no sidecar. Exits with 3 if something is to mend, with 1 if DIR cannot be read.
    """
    if directory is not None:
        places.require(directory)
    found = list(_all(directory, {"state_dir": state_dir}, file, python))
    for finding in found:
        if json:
            import msgspec

            click.echo(output.as_printed(msgspec.json.encode(asdict(finding))))
        elif finding.mend or not finding.experiment:
            click.echo(_line(finding))
    context.exit(INCOMPLETE if any(finding.mend for finding in found) else OK)


def _line(finding: DoctorFinding) -> str:
    where = f" {finding.experiment}:" if finding.experiment else ""
    text = f"{finding.about}:{where} {finding.what}" + (f": {finding.do}" if finding.do else "")
    return f"{'mend' if finding.mend else 'ok':4}  {clean(text, MAX_ERROR_CHARS)}"


class _Known(NamedTuple):
    """An experiment, the folder of its state, and its last status and owner or what keeps them from being read."""

    experiment: Path
    state_dir: Path
    last: tuple[Status, Owner | None] | None
    problem: RlshipError | None


def _all(
    directory: Path | None, flags: dict[str, str | None], file: Path | None, python: str | None
) -> Iterator[DoctorFinding]:
    from rlship_sidecar.cli.settings import SettingsOf
    from rlship_sidecar.config import Config
    from rlship_sidecar.doctor import findings, looking
    from rlship_sidecar.tail import discover

    said: list[str] = []
    settings_of, settings, environ = None, Config(), dict(os.environ)
    while settings_of is None:
        try:
            settings_of = SettingsOf(directory or NO_FOLDER, flags, environ, file, console=True, say=said.append)
            settings = settings_of.folder
        except UsageProblem as problem:
            yield findings.of_problem("settings", problem)
            # All else is looked at as if a variable that cannot be used was not there.
            variable = re.match(r"\w*", problem.message)
            if variable is None or environ.pop(variable[0], None) is None:
                break
    experiments = discover.experiments(directory) if directory is not None else []
    known = [_known(experiment, settings) for experiment in sorted(experiments, key=lambda path: natural(str(path)))]
    unfinished = sum(one.last is None or not one.last[0].finished for one in known)
    yield from findings.of_machine(looking.machine(settings.sinks), unfinished)
    yield from _of_hook(python)
    if "wandb" in settings.sinks and settings_of is not None:
        yield _of_wandb(settings)
    if directory is not None:
        yield from _of_folder(directory, settings, experiments)
    of_each = [[*_of_settings(one.experiment, settings_of), *_of_experiment(one)] for one in known]
    yield from (findings.DoctorFinding("settings", line) for line in said)
    if len(known) == 1:
        yield from of_each[0]
        return
    if known:
        broken = sum(any(finding.mend for finding in of_one) for of_one in of_each)
        yield findings.DoctorFinding("experiments", f"{len(known)}, {broken} of them with something to mend")
    for one, of_one in zip(known, of_each):
        yield from (replace(finding, experiment=str(one.experiment)) for finding in of_one)


def _of_hook(python: str | None) -> Iterator[DoctorFinding]:
    from rlship_sidecar.doctor.findings import DoctorFinding, of_problem
    from rlship_sidecar.launch import environments

    try:
        state = environments.environment_of(python, os.environ)
    except UsageProblem as problem:
        yield of_problem("hook", problem) if python else DoctorFinding("hook", problem.message, problem.hint)
        return
    what, do = environments.described(state)
    yield DoctorFinding("hook", what, do, bool(do))


def _of_wandb(settings: Config) -> DoctorFinding:
    from rlship_sidecar.doctor import findings, server
    from rlship_sidecar.sinks.contract import SinkRefused

    try:
        return findings.of_server(server.look(settings.sink.get("wandb", {}), os.environ))
    except SinkRefused as refusal:
        return findings.DoctorFinding("wandb", str(refusal), mend=True)


def _of_folder(directory: Path, settings: Config, experiments: list[Path]) -> Iterator[DoctorFinding]:
    from rlship_sidecar import config
    from rlship_sidecar.doctor import findings, looking
    from rlship_sidecar.tail import discover

    try:
        yield from findings.of_folder(looking.folder(directory, settings.state_dir, os.environ))
        if directory not in experiments:
            do = "put a folder there that this user can read, or leave it if it is no experiment"
            for left_out, why in discover.excluded(directory).items():
                yield findings.DoctorFinding("experiments", f"{left_out} {why}", do, True)
        if not experiments:
            yield findings.of_none(directory, discover.unknown_files(directory))
            yield from findings.of_files(looking.files(directory, config.state_dir_for(directory, settings)), False)
    except OSError as problem:
        yield findings.of_problem("filesystem", _unreadable(problem, directory))


def _of_settings(experiment: Path, settings_of: SettingsOf | None) -> Iterator[DoctorFinding]:
    from rlship_sidecar.doctor import findings

    try:
        if settings_of is not None:
            settings_of(experiment)
    except UsageProblem as problem:
        yield findings.of_problem("settings", problem)


def _known(experiment: Path, settings: Config) -> _Known:
    from rlship_sidecar import config
    from rlship_sidecar.ownership import last_status
    from rlship_sidecar.ownership.state_owner import require_readable

    state = config.state_dir_for(experiment, settings)
    try:
        # Any owner: only who makes a file learns as whom a server takes this user.
        require_readable(experiment, state, any_owner=True)
        return _Known(experiment, state, last_status.read(experiment, state, settings.lease_ttl_s), None)
    except RlshipError as problem:
        return _Known(experiment, state, None, problem)


def _of_experiment(known: _Known) -> Iterator[DoctorFinding]:
    from rlship._version import __version__
    from rlship_sidecar.doctor import findings, looking
    from rlship_sidecar.ownership import last_status

    if known.problem is not None:
        yield findings.of_problem("state", known.problem)
    elif known.last is None:
        if (begun := last_status.beginning(known.state_dir)) is not None:
            yield findings.DoctorFinding("sidecar", begun)
        else:
            do = f"rlship watch {shlex.quote(str(known.experiment))}"
            yield findings.DoctorFinding("sidecar", "none has watched it yet", do, True)
    else:
        now, owner = known.last
        ended = last_status.ended(now)
        sidecar = last_status.sidecar(now, owner, ended)
        yield findings.DoctorFinding("sidecar", sidecar.what, sidecar.do, sidecar.wanting)
        yield from findings.of_status(now, ended, time.time(), __version__)
    try:
        is_watched = known.last is not None and known.last[0].running
        yield from findings.of_files(looking.files(known.experiment, known.state_dir), is_watched)
    except OSError as problem:
        yield findings.of_problem("permissions", _unreadable(problem, known.experiment))


def _unreadable(problem: OSError, path: Path) -> RlshipError:
    return RlshipError(
        f"{problem.filename or path} cannot be read: {problem.strerror}", "run as a user who may read it"
    )
