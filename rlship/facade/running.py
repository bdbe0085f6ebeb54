"""A run of W&B's whose calls are recorded: what is added in front of the client's own class of runs."""

from __future__ import annotations

import functools
import os
import traceback

from . import ending
from .artifacts import MAX_FILES, arrived, facts_of, files_like, known_as, sizes
from .axes import COUNTER
from .recorder import fault, notices
from .told import Summary, telling_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .recorder import Recorder
    from .resumed import Earlier

    _Client: Any
else:
    _Client = object

# The project and the entity of a disabled run of the client's for which the job names none.
NOT_NAMED = "dummy"
# What a resumed run has of earlier processes: the name in its settings, and in the files.
RESUMED = (*(("run_notes", "notes"), ("run_tags", "tags"), ("run_group", "group"), ("run_job_type", "job_type")),)
_PLAIN = (str, int, float, bool, list, tuple)


class State:
    """What is added to a run. `beside`: the client's own run goes to W&B as always, and is recorded too."""

    __slots__ = (
        *("beside", "failed", "finished", "forget", "module", "name"),
        *("project", "read", "recorder", "root", "summary"),
    )

    def __init__(
        self,
        recorder: Recorder,
        module: Any,
        name: str,
        *,
        beside: bool,
        forget: Callable[[Any], object],
        read: Callable[[str], Any],
    ) -> None:
        self.recorder = recorder
        self.module = module
        self.name = name
        self.project: str | None = None  # that the job names
        self.root: str | None = None  # the folder in which the client has its own
        self.beside = beside
        self.forget = forget  # the run is finished
        self.read = read  # the module, for what reads from W&B
        self.finished = self.failed = False
        self.summary = Summary(lambda values: self.set("summary", values))

    def set(self, member: str, values: dict[str, Any]) -> None:
        """Record what the job sets in the config or the summary. Raises what the client raises after the end."""
        self.check(member)
        self.about(**{member: values})

    def about(self, **members: Any) -> None:
        """Record facts about the run. Never raises."""
        try:
            if self.recorder.active:
                self.recorder.about(**members)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("run", error)

    def check(self, call: str) -> None:
        """Raise what the client raises for a call of a finished run."""
        if self.finished and not self.beside:
            usage = getattr(self.module, "UsageError", ValueError)
            raise usage(f"Run ({self.recorder.place.run_id}) is finished. The call to `{call}` will be ignored.")


def records(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that records a call first. What the client's own method does and returns stays."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        state = self._rlship
        state.check(name)
        if state.recorder.active:
            try:
                method(self, *args, **options)
            except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
                fault(name, error)
        return getattr(super(RecordedRun, self), name)(*args, **options)

    return call


def logs_artifact(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that records a call and returns the artifact, as the client does."""
    recorded = records(method)

    @functools.wraps(method)
    def call(self: Any, artifact_or_path: Any, *args: Any, **options: Any) -> Any:
        found, state = recorded(self, artifact_or_path, *args, **options), self._rlship
        try:
            if not state.beside and arrived(artifact_or_path, state.module.Artifact, self, options.get("aliases")):
                return artifact_or_path
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault(method.__name__, error)
        return found

    return call


class RecordedRun(_Client):  # type: ignore[misc]  # the client is not installed where types are checked
    """Stands in front of the client's class of runs, in a class made of both."""

    _rlship: State

    # Logging

    def log(self, data: Any, step: Any = None, commit: Any = None, *args: Any, **options: Any) -> None:
        state = self._rlship
        state.check("log")
        # The client's own errors, as the job would get them.
        if not hasattr(data, "items"):
            raise TypeError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        try:
            if state.recorder.active and state.recorder.log(data, step, commit):
                state.summary.note({**state.recorder.times(), **state.recorder.summarized(data)})
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("log", error)
        if state.beside:
            super().log(data, step, commit, *args, **options)

    def define_metric(self, name: Any, step_metric: Any = None, *args: Any, **options: Any) -> Any:
        state = self._rlship
        state.check("define_metric")
        found = super().define_metric(name, step_metric, *args, **options)
        try:
            if isinstance(name, str) and name:
                named = dict(zip(("step_sync", "hidden", "summary", "overwrite"), args))
                given = {"step_metric": getattr(step_metric, "name", step_metric), **named, **options}
                if state.recorder.active:
                    state.recorder.define(name, given)
                if not state.beside:
                    return _metric(type(found), name, given)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("define_metric", error)
        return found

    def finish(self, exit_code: Any = None, *args: Any, **options: Any) -> None:
        state = self._rlship
        if state.finished:
            return
        state.finished, state.failed = True, bool(exit_code or ending.exit_code())
        try:
            state.recorder.finish(exit_code)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("finish", error)
        super().finish(exit_code, *args, **options)
        if not (state.beside or state.failed):
            drop_note(state.root)
        state.forget(self)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            traceback.print_exception(kind, error, trace)
        self.finish(exit_code=0 if kind is None else 1)

    # Calls that become events

    @records
    def watch(self, models: Any = None, criterion: Any = None, log: Any = "gradients", *_: Any, **options: Any) -> None:
        notices.once("watch", "wandb.watch is recorded as an event: gradients and parameters are not")
        self._rlship.recorder.tell("watch", log=log, **_few(options))

    @records
    def alert(self, title: Any, text: Any = "", level: Any = None, *_: Any, **__: Any) -> None:
        self._rlship.recorder.tell("alert", title=title, text=text, level=getattr(level, "value", level) or "INFO")

    def save(self, glob_str: Any = "", base_path: Any = None, policy: Any = "live", *args: Any, **options: Any) -> Any:
        """Returns the paths of the files, where the client returns those of its links to them."""
        state = self._rlship
        state.check("save")
        found: list[str] = []
        try:
            pattern = os.path.abspath(os.fsdecode(glob_str))
            found = files_like(pattern) if options.get("glob", True) else [pattern]
            if state.recorder.active:
                given = {} if found in ([], [pattern]) else {"files": found[:MAX_FILES], "count": len(found)}
                state.recorder.tell("saved", path=pattern, policy=policy, **(given or sizes(pattern)))
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("save", error)
        return super().save(glob_str, base_path, policy, *args, **options) if state.beside else found

    @logs_artifact
    def log_artifact(self, artifact_or_path: Any, *_: Any, **options: Any) -> None:
        self._rlship.recorder.tell("artifact", **{**facts_of(artifact_or_path), **_few(options)})

    @logs_artifact
    def upsert_artifact(self, artifact_or_path: Any, *_: Any, **options: Any) -> None:
        self._rlship.recorder.tell("artifact", **{**facts_of(artifact_or_path), **_few(options)})

    @logs_artifact
    def finish_artifact(self, artifact_or_path: Any, *_: Any, **options: Any) -> None:
        self._rlship.recorder.tell("artifact", **{**facts_of(artifact_or_path), **_few(options)})

    @records
    def log_model(self, path: Any, name: Any = None, *_: Any, **options: Any) -> None:
        named = {"type": "model"} if name is None else {"type": "model", "name": name}
        self._rlship.recorder.tell("artifact", **{**facts_of(path), **named, **_few(options)})

    @records
    def link_artifact(self, artifact: Any, target_path: Any = None, *_: Any, **__: Any) -> None:
        self._rlship.recorder.tell("linked", target=str(target_path), **facts_of(artifact))

    @records
    def link_model(self, path: Any, registered_model_name: Any = None, *_: Any, **__: Any) -> None:
        self._rlship.recorder.tell("linked", target=str(registered_model_name), **facts_of(path))

    @records
    def log_code(self, root: Any = ".", *_: Any, **__: Any) -> None:
        self._rlship.recorder.tell("saved", path=os.path.abspath(root or "."), policy="code")

    @records
    def mark_preempting(self) -> None:
        self._rlship.recorder.tell("preempting")

    # Calls that read from W&B

    def use_artifact(self, artifact_or_name: Any, type: Any = None, *args: Any, **options: Any) -> Any:
        state = self._rlship
        if state.beside:
            return super().use_artifact(artifact_or_name, type, *args, **options)
        if not isinstance(artifact_or_name, str):
            return artifact_or_name
        if (own := known_as(artifact_or_name, self)) is not None:
            return own
        return state.read("use_artifact").Api().artifact(self._rlship_path(artifact_or_name), type=type)

    def use_model(self, name: Any, *args: Any, **options: Any) -> Any:
        state = self._rlship
        if state.beside:
            return super().use_model(name, *args, **options)
        found = known_as(name, self) or state.read("use_model").Api().artifact(self._rlship_path(name))
        root = found.download()
        inside = os.listdir(root) if os.path.isdir(root) else []
        return os.path.join(root, inside[0]) if len(inside) == 1 else root  # as the client

    def restore(self, name: Any, run_path: Any = None, replace: bool = False, root: Any = None) -> Any:
        state = self._rlship
        if state.beside:
            return super().restore(name, run_path, replace, root)
        root = self.dir if root is None else root
        # What an earlier process of the run saved lies where it was.
        places = [os.path.join(root, name), *([name] if self.resumed else [])]
        found = next((path for path in places if os.path.isfile(path)), None)
        if run_path is None and not replace and found is not None:
            return open(found)
        try:
            return state.read("restore").restore(name, run_path or self.path, replace, root)
        except Exception as error:
            if run_path is not None:
                raise
            notices.once("restore", f"restore: W&B has no file {name!r} of this run: {type(error).__name__}: {error}")
            return None

    def _rlship_path(self, name: str) -> str:
        entity = f"{self.entity}/" if self.entity else ""
        return name if "/" in name else f"{entity}{self.project}/{name}"

    def status(self) -> Any:
        """Nothing waits to be sent, as a job that asks before it ends hopes for."""
        if self._rlship.beside:
            return super().status()
        kind = getattr(self._rlship.module.sdk.wandb_run, "RunStatus", None)
        return None if kind is None else kind(sync_items_total=0, sync_items_pending=0)

    # What the run is

    @property
    def summary(self) -> Any:
        return self.__dict__["summary"] if self._rlship.beside else self._rlship.summary

    @summary.setter
    def summary(self, value: Any) -> None:
        self.__dict__["summary"] = value

    @property
    def name(self) -> Any:
        return super().name if self._rlship.beside else self._rlship.name

    @name.setter
    def name(self, value: Any) -> None:
        self._rlship.name = value
        _set(self, "name", value)
        self._rlship.about(name=str(value))

    @property
    def notes(self) -> Any:
        return super().notes

    @notes.setter
    def notes(self, value: Any) -> None:
        _set(self, "notes", value)
        self._rlship.about(notes=str(value))

    @property
    def tags(self) -> Any:
        return super().tags

    @tags.setter
    def tags(self, value: Any) -> None:
        _set(self, "tags", value)
        self._rlship.about(tags=[str(tag) for tag in self.tags])

    @property
    def step(self) -> Any:
        return super().step if self._rlship.beside else self._rlship.recorder.router.counter.at

    @property
    def starting_step(self) -> Any:
        return super().starting_step if self._rlship.beside else self._rlship.recorder.place.start

    @property
    def resumed(self) -> Any:
        return super().resumed if self._rlship.beside else self._rlship.recorder.place.resumed

    @property
    def url(self) -> Any:
        return super().url if self._rlship.beside else f"file://{self._rlship.recorder.place.folder}"

    @property
    def project_url(self) -> Any:
        return super().project_url if self._rlship.beside else self.url

    @property
    def entity(self) -> Any:
        found = super().entity
        return found if self._rlship.beside or found != NOT_NAMED else ""

    @property
    def project(self) -> Any:
        return self._rlship_project() or "uncategorized"  # as the client calls it

    def _rlship_project(self) -> Any:
        """The project; None if the job names none and the client finds none."""
        found = super().project
        return found if self._rlship.beside or found != NOT_NAMED else self._rlship.project

    @property
    def path(self) -> Any:
        if self._rlship.beside:
            return super().path
        return "/".join(filter(None, (self.entity, self.project, self._rlship.recorder.place.run_id)))

    @property
    def disabled(self) -> Any:
        return super().disabled if self._rlship.beside else False

    @property
    def offline(self) -> Any:
        return super().offline if self._rlship.beside else True

    @property
    def dir(self) -> Any:
        if self._rlship.beside:
            return super().dir
        place = self._rlship.recorder.place
        found = os.path.join(place.folder, "wandb", place.run_id, "files")
        try:
            os.makedirs(found, exist_ok=True)
        except OSError as error:
            fault("dir", error)
        return found

    def __reduce__(self) -> Any:
        """Another process gets a run of its own with the same id: it is an actor of the same experiment."""
        return _attached, (self._rlship.recorder.place.run_id, self._rlship.name, self._rlship_project())


def begin(run: Any, state: State, classes: dict[type, type]) -> None:
    """Let the calls of a run of the client's be recorded. `classes` has the classes that were made before."""
    base = type(run)
    if base not in classes:
        facts = {"__qualname__": base.__qualname__, "__module__": base.__module__, "__doc__": base.__doc__}
        classes[base] = type(base.__name__, (RecordedRun, base), facts)
    run.__dict__["_rlship"] = state
    config = run.config
    object.__setattr__(config, "__class__", telling_config(type(config), lambda values: state.set("config", values)))
    run.__class__ = classes[base]


def resume(run: Any, earlier: Earlier, *, named: bool) -> None:
    """Give a run what it had before this process, but for what this one says itself, which names the run if `named`.

    Nothing is recorded again.
    """
    config, said, state = run.config, earlier.said, run._rlship
    missing = {key: value for key, value in earlier.config.items() if key not in config}
    base: Any = type(config).__mro__[1]  # whose method records nothing
    base.update(config, missing, allow_val_change=True)
    state.summary.resume({**earlier.summary, COUNTER: state.recorder.place.start - 1})
    if not named:
        state.name = said.get("name", state.name)
    settings = run._settings
    for setting, member in RESUMED:
        if said.get(member) and not getattr(settings, setting, None):
            setattr(settings, setting, said[member])


def drop_note(root: str | None) -> None:
    """Drop the client's note of the run with which a later process that says `resume="auto"` goes on.

    `root` is the folder that has the client's, in whose mode "disabled" the settings name another one.
    """
    try:
        folder = next(one for name in (".wandb", "wandb") if os.path.isdir(one := os.path.join(root or "", name)))
        os.remove(os.path.join(folder, "wandb-resume.json"))
    except (OSError, StopIteration):
        return  # the client made no note


def _set(run: Any, name: str, value: Any) -> None:
    """Set a property of the client's own class."""
    getattr(super(RecordedRun, type(run)), name).fset(run, value)


def _attached(run_id: str, name: str, project: str | None) -> Any:
    import importlib

    return importlib.import_module("wandb").init(id=run_id, name=name, project=project, reinit="return_previous")


def _metric(kind: type, name: str, given: dict[str, Any]) -> Any:
    """What `define_metric` returns: a job may pass it as an axis. A disabled run gives each the same name."""
    summary = given.get("summary")
    ops = [one.strip().lower() for one in summary.split(",")] if summary else None
    known = {key: given.get(key) for key in ("step_metric", "step_sync", "hidden", "overwrite")}
    return kind(name, **known, summary=ops)


def _few(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a call that are plain."""
    return {key: value for key, value in options.items() if isinstance(value, _PLAIN)}
