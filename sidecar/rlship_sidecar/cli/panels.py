"""`rlship panels`: the metrics of an experiment as a saved view at W&B."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import file_option, state_dir_option
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import RlshipError, ServerRefused, UsageProblem
from rlship_sidecar.report.terminal import MAX_ERROR_CHARS, clean, counted

if TYPE_CHECKING:
    from rlship_sidecar.config import Config
    from rlship_sidecar.panels.protocol import Failed, Push
    from rlship_sidecar.panels.sections import Section
    from rlship_sidecar.sinks.names import SinkNames
    from rlship_sidecar.tabular.source import ExperimentTables

_SAID = {
    "made": "made {title}",
    "updated": "updated {title}",
    "kept": "nothing to do, {title} has these panels",
    "changed": "nothing is done, {title} had these panels, and was changed at W&B since: it stays as it is. To "
    "get another one, rename it there, and push again",
}


@click.command(short_help="Make a saved view at W&B of an experiment's metrics.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--print", "prints", is_flag=True, show_envvar=True, help="Print the view as JSON; asks no server.")
@click.option("--push", is_flag=True, show_envvar=True, help="Save it in the run's project.")
@state_dir_option
@file_option
@click.pass_context
def panels(
    context: click.Context, directory: Path, prints: bool, push: bool, state_dir: str | None, file: Path | None
) -> None:
    """Arrange the metrics of the experiment in DIR as a view of its project at W&B: headline, stages of a step, load of
    each rank, memory, training stability.

    The view is called `rlship overview v1`. One that a person changed is never written to: if there are other metrics
    now, the next version is made. docs/panels.md has more.
    """
    if prints == push:
        raise UsageProblem(
            "--print and --push were given" if prints else "neither --print nor --push was given",
            "--print shows the view as JSON, --push saves it at W&B; give one of them",
        )
    from rlship_sidecar.cli.settings import SettingsOf

    settings_of = SettingsOf(directory, {"state_dir": state_dir}, os.environ, file, console=True, say=_say)
    with tidied():
        with sources_of(directory, state_dir) as sources:
            if len(sources) > 1:
                raise UsageProblem(
                    f"{directory} holds {len(sources)} experiments, and panels takes one",
                    f"name it, such as {sources[0].path}",
                )
            (source,) = sources
            view = _view(source, settings_of(source.path))
        if prints:
            output.put(output.as_printed(json.dumps(view.spec, indent=2).encode()))
        else:
            _push(view)
    context.exit(unreadable_code(sources))


class _ViewToSave(NamedTuple):
    """What is to be saved, of which experiment, and by which settings."""

    spec: dict[str, Any]
    experiment: Path
    store_id: str
    settings: Config
    place: tuple[str, str | None]  # project and entity


def _say(line: str) -> None:
    click.echo(f"rlship: {clean(line, MAX_ERROR_CHARS)}", err=True)


def _view(source: ExperimentTables, settings: Config) -> _ViewToSave:
    from rlship_sidecar.panels.charted import charted
    from rlship_sidecar.panels.sections import sections
    from rlship_sidecar.panels.spec import spec_of
    from rlship_sidecar.sinks.budget import PER_RANK_REDUCE
    from rlship_sidecar.tabular.source import RecordFilter

    snapshot, options = source.stored(), _options(settings)
    found = charted(source.rows(RecordFilter(), every=False), _names(source, settings))
    made = sections(found.metrics, settings.lead, ranks=options.get("ranks") == PER_RANK_REDUCE)
    if not made:
        raise RlshipError(
            f"no row of {source.path} has a metric that a panel could show"
            if snapshot.count
            else f"{source.path} has no row yet",
            "a row follows the first step that all ranks ended: rlship status says what is waited for",
        )
    _say_left_out(made, found.left_out)
    return _ViewToSave(spec_of(made), source.path, snapshot.store_id(), settings, _place(source, settings))


def _say_left_out(made: list[Section], unusable: int) -> None:
    for section in made:
        if section.left_out:
            _say(f"the section {section.title} has no room for {counted(section.left_out, 'further chart')}")
    if unusable:
        _say(
            f"left out: {counted(unusable, 'name')} that no panel of W&B can show: too long, with control characters, "
            "or with a beginning that means something else there"
        )


def _options(settings: Config) -> dict[str, Any]:
    return {name: value for name, value in settings.sink.get("wandb", {}).items() if value is not None}


def _names(source: ExperimentTables, settings: Config) -> SinkNames:
    """The names that the sink gives: by its settings, and by the calls that the writers' files are of."""
    from contextlib import suppress

    from rlship_sidecar.export.reading import Unreadable, files_of, identify
    from rlship_sidecar.report.streams import own_named_by
    from rlship_sidecar.rows import ALIGNED
    from rlship_sidecar.sinks.names import names_of

    calls: dict[str, set[str]] = {}
    with suppress(OSError), files_of(source.path) as files:
        for file in files:
            with suppress(Unreadable, OSError):  # it is reported with the exit code
                identify(file)
                if file.open is not None:
                    calls.setdefault(file.open.actor, set()).add(file.open.source)
    over_time = not any(kind == ALIGNED for _, kind in source.units())
    return names_of(_options(settings), over_time=over_time, own=own_named_by(settings.lead, calls))


def _place(source: ExperimentTables, settings: Config) -> tuple[str, str | None]:
    from rlship_sidecar import config
    from rlship_sidecar.sinks.contract import SinkContext
    from rlship_sidecar.sinks.wandb.place import place_of

    snapshot, path = source.stored(), source.path
    run = SinkContext(
        path.resolve().name,
        path.resolve(),
        config.state_dir_for(path, settings),
        snapshot.store_id(),
        snapshot.count,
        run_data=snapshot.run_data(),
    )
    return place_of(run, _options(settings), os.environ)


def _push(view: _ViewToSave) -> None:
    from rlship_sidecar import config
    from rlship_sidecar.panels.saving import hidden, save
    from rlship_sidecar.panels.spec import digest
    from rlship_sidecar.sinks.contract import SinkRefused
    from rlship_sidecar.sinks.wandb.access import asked_mode, expected_mode
    from rlship_sidecar.sinks.wandb.link import with_key
    from rlship_sidecar.sinks.wandb.sink import run_id

    options = _options(view.settings)
    try:
        env = with_key(os.environ)
        asked = asked_mode(options.get("mode", "auto"), env)
    except SinkRefused as refusal:
        raise UsageProblem(str(refusal)) from refusal
    if asked == "offline":
        raise UsageProblem(
            f"runs of {view.experiment} are written offline, and a view can only be saved at W&B",
            "upload the run by the command that rlship status shows; then unset WANDB_MODE and mode in [sink.wandb]",
        )
    if expected_mode(asked, env) == "offline":
        raise _no_key()
    project, entity = view.place
    push: Push = {
        "mode": asked,
        "base_url": options.get("base_url"),
        "entity": entity,
        "project": project,
        "run_id": options.get("run_id") or run_id(view.store_id),
        "store_id": view.store_id,
        "state_dir": str(config.state_dir_for(view.experiment, view.settings).absolute()),
        "scratch": "",
        "spec": view.spec,
        "digest": digest(view.spec),
    }
    answer = save(push, env)
    if "trouble" in answer:
        raise _problem(answer, hidden(answer["text"], env), view.experiment)
    said = _SAID[answer["done"]].format(title=answer["title"])
    click.echo(f"{said}: {clean(answer['url'], MAX_ERROR_CHARS)}")


def _no_key() -> UsageProblem:
    return UsageProblem(
        "there is no W&B API key, so no view can be saved",
        "run `wandb login` or set WANDB_API_KEY; --print shows the view without one",
    )


def _problem(failed: Failed, text: str, experiment: Path) -> RlshipError:
    """The error for people; `text` is that of the answer, without the key."""
    from rlship_sidecar.sinks.wandb.protocol import NO_SERVER

    trouble, text = failed["trouble"], text.removeprefix("sink wandb: ")
    watch = f"rlship watch {shlex.quote(str(experiment))}"
    project = "check project and entity in [sink.wandb]"
    if failed["elsewhere"]:
        project = f"its rows went to {', '.join(failed['elsewhere'])}: set project and entity in [sink.wandb]"
    if trouble == "no key":
        return _no_key()
    if trouble == "refused":
        return ServerRefused(f"W&B refused: {text}", "--print shows what would be saved")
    if trouble == "unavailable":
        reason = text.removesuffix(f": {NO_SERVER}")
        return RlshipError(f"the view is not saved: {reason}", "check the network, and try again; --print needs none")
    if trouble == "no project":
        return RlshipError(
            f"W&B has no project {text} that this key may see", f"{project}; the first row makes the project: {watch}"
        )
    if trouble == "no run":
        return RlshipError(f"the run {text} is not at W&B yet", f"{project}; or send its rows: {watch}")
    return RlshipError(
        f"the run {text} at W&B has rows of another store, not of {experiment}",
        "set project, entity and run_id in [sink.wandb] as they were when its rows were sent",
    )
