"""W&B's package, taken over: a job that calls it writes rlship's files, and talks to no server.

    patch(wandb)

An import hook calls `patch` once, right after the process imported the real package. From then on `init` makes a run of
the package's own in its mode "disabled", whose methods record what they are called with. Only public names are
replaced. What reads from W&B stays with the real client.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import time
from collections import deque

from .. import registry
from ..hook.interception import folder_in_sweep
from ..identity import detect
from . import artifacts, boards, places, public, resumed
from .keys import Keys
from .recorder import Place, Recorder, fault, notices
from .running import NOT_NAMED, State, begin, drop_note, resume
from .told import CLIENTS_OWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Names of the module that are those of the newest run while there is one.
_GLOBALS = (
    *("run", "config", "summary", "log", "define_metric", "watch", "unwatch", "save", "alert", "mark_preempting"),
    *("use_artifact", "log_artifact", "log_model", "use_model", "link_model"),
)
_MAX_ENDED = 8
# What is said of a run by its settings: its name there, and its name in the files.
_FACTS = (
    ("project", "project"),
    ("entity", "entity"),
    ("run_group", "group"),
    ("run_job_type", "job_type"),
    ("run_notes", "notes"),
)


def patch(module: Any) -> None:
    """Take over `module`, the real `wandb` that this process imported. Never raises; the job goes on in any case.

    Does nothing without `RLSHIP_DIR`, and with `RLSHIP_DISABLE`.
    """
    try:
        init = getattr(module, "init", None)
        # A module that was reloaded has its own function again.
        if not os.environ.get("RLSHIP_DIR") or registry.is_off() or getattr(init, "_rlship", False):
            return
        if not callable(init):
            raise AttributeError("it has no function init")
        module._rlship = Facade(module)
    except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
        fault("patch", error)


class _Asked:
    """What one call of `init` asks for: its arguments, over the settings that it passes, over the environment."""

    def __init__(self, module: Any, given: dict[str, Any]) -> None:
        self._given = given
        self._settings = given.get("settings")
        self.mode = self._of("mode", "mode", "WANDB_MODE") or ""
        self.reinit = self._of("reinit", "reinit", "WANDB_REINIT")
        self.resume = self._of("resume", "resume", "WANDB_RESUME") or given.get("resume_from")
        self.resumes = self.resume not in (None, False, "never", "false", "False", "0")
        self.id = self._of("id", "run_id", "WANDB_RUN_ID")
        self.name = self._of("name", "run_name", "WANDB_NAME")
        self.project = self._of("project", "project", "WANDB_PROJECT")
        self.root = os.path.abspath(str(self._of("dir", "root_dir", "WANDB_DIR") or ""))
        self.label = self._of("", "x_label", "WANDB_X_LABEL")
        self.boards = bool(given.get("sync_tensorboard") or given.get("tensorboard")) or self._of(
            "", "sync_tensorboard", ""
        )
        self.secondary = self._of("", "x_primary", "WANDB_X_PRIMARY") in (False, "false", "False", "0")
        self.sweeps = bool(os.environ.get("WANDB_SWEEP_ID") or os.environ.get("WANDB_LAUNCH"))

    def _of(self, argument: str, setting: str, variable: str) -> Any:
        found = self._given.get(argument)
        if found is None and isinstance(self._settings, dict):
            found = self._settings.get(setting)
        elif found is None and self._settings is not None:
            found = getattr(self._settings, setting, None)
        return os.environ.get(variable) or None if found is None else found

    def disabled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments for a run that the client keeps to itself. The job's own settings stay as they are."""
        settings = copy.copy(self._settings)
        if isinstance(settings, dict):
            settings.pop("mode", None)
        return {**arguments, "mode": "disabled", **({} if settings is None else {"settings": settings})}


class Facade:
    """The package `module` as a job sees it from now on, and the runs of this process."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._real_init = module.init
        self._before_runs = {name: getattr(module, name) for name in _GLOBALS if hasattr(module, name)}
        self._runs: list[Any] = []  # those that are not finished, in the order of `init`
        self._ended: deque[Any] = deque(maxlen=_MAX_ENDED)  # the newest ones that are finished
        self._folders: dict[str, str] = {}  # by the run's id
        # The folder of the first one. A job may clear its environment before its first `init`.
        self._base = os.path.abspath(os.environ["RLSHIP_DIR"])
        self._pid = os.getpid()
        self._classes: dict[type, type] = {}
        self._follows = False  # whether scalars of TensorBoard are logged to the newest run
        self._keys = Keys(module, self._own_run)
        self._aside = False  # whether the process logs by itself, so that nothing is recorded
        registry.when_explicit(self._stand_aside)
        self._replace("init", self._init)
        if hasattr(module, "login"):
            self._replace("login", self._keys.login)
        self._keys.watch()
        self._keys.give_dummy()
        self._real_restore: Any = getattr(module, "restore", None)
        self._real_teardown: Any = getattr(module, "teardown", None)
        if self._real_restore is not None:
            self._replace("restore", self._restore)
        if self._real_teardown is not None:
            self._replace("teardown", self._teardown)
        if isinstance(getattr(module, "Artifact", None), type):
            artifacts.log_to(module.Artifact, self._open_run)

    def _replace(self, name: str, own: Callable[..., Any]) -> None:
        real = getattr(self.module, name)

        @functools.wraps(real)
        def call(*args: Any, **options: Any) -> Any:
            return own(*args, **options)

        call._rlship = True  # type: ignore[attr-defined]
        setattr(self.module, name, call)
        sdk = getattr(self.module, "sdk", None)
        if sdk is not None and getattr(sdk, name, None) is real:
            setattr(sdk, name, call)

    # Before a run

    def _left_alone(self, *args: Any, **options: Any) -> Any:
        """The real client's own run, which goes to W&B by the user's key."""
        self._keys.drop_dummy()
        return self._real_init(*args, **options)

    def _init(self, *args: Any, **options: Any) -> Any:
        real = self._real_init
        try:
            arguments = _by_name(inspect.signature(real), args, options)
            asked = _Asked(self.module, arguments)
            if self._is_disabled(asked):
                return real(*args, **options)
            known = self._active(asked)
        except TypeError:
            return real(*args, **options)  # the job's own mistake: the client says what is wrong
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("init", error)
            return self._left_alone(*args, **options)
        if known is not None:
            return known
        if asked.sweeps:
            notices.once(
                "sweep",
                "this process belongs to a sweep or a launch: its run goes to W&B as always, and is recorded too",
            )
            return self._dressed(self._left_alone(*args, **options), asked, beside=True)
        opened = time.time()
        before = {name: getattr(self.module, name, None) for name in self._before_runs}
        run = self._disabled_run(asked.disabled(arguments))
        dressed = self._dressed(run, asked, opened=opened)
        if dressed is None:
            return self._left_alone(*args, **options)
        if asked.reinit == "create_new":
            for name, value in before.items():
                setattr(self.module, name, value)
        return dressed

    def _disabled_run(self, arguments: dict[str, Any]) -> Any:
        """A run that the client keeps to itself."""
        try:
            return self._real_init(**arguments)
        except Exception as error:
            # In this mode alone, a value in config-defaults.yaml makes the client refuse another one of the call.
            if type(error).__name__ != "ConfigError" or not arguments.get("config"):
                raise
        keys = {name: arguments.get(f"config_{name}_keys") for name in ("include", "exclude")}
        config = self.module.helper.parse_config(arguments["config"], **keys)
        run = self._real_init(**{name: value for name, value in arguments.items() if not name.startswith("config")})
        run.config.update(config, allow_val_change=True)
        return run

    def _is_disabled(self, asked: _Asked) -> bool:
        """True if the job wants no run, by an argument, the settings, the environment or `wandb disabled`."""
        if asked.mode:
            return bool(asked.mode == "disabled")
        try:
            # Not the public `setup`, which would start the client's service.
            return bool(self.module.sdk.wandb_setup.singleton().settings.mode == "disabled")
        except Exception:  # noqa: BLE001 - another version of the client has no such setting
            return False

    def _active(self, asked: _Asked) -> Any:
        """The run that `init` returns again; None if it makes a new one."""
        if self._pid != os.getpid():  # a forked child: the runs are its parent's, and so is the experiment
            self._base = next(reversed(self._folders.values()), self._base)
            self._pid, self._runs, self._folders = os.getpid(), [], {}
        if not self._runs or asked.reinit == "create_new":
            return None
        if asked.reinit in (True, "finish_previous", "true", "True", "1"):
            for run in list(self._runs):
                run.finish()
            return None
        return self._runs[-1]

    # A run

    def _dressed(self, run: Any, asked: _Asked, *, opened: float | None = None, beside: bool = False) -> Any:
        """The run as one that records; None if that cannot be, with a message."""
        try:
            if self._aside or registry.is_explicit():
                notices.once("aside", "this process logs to rlship by itself: its calls of W&B are not recorded")
                return run
            settings = run.settings
            place = self._place(run, settings, asked, opened or time.time())
            recorder = Recorder(place, self.module)
            name = str(asked.name) if asked.name else os.path.basename(place.folder)
            state = State(recorder, self.module, name, beside=beside, forget=self._forget, read=self._read)
            state.project, state.root = asked.project, asked.root
            begin(run, state, self._classes)
            self._say(recorder, run, settings, asked)
            if beside:
                pass
            elif asked.resumes:
                self._resume(run, place, named=bool(asked.name))
            else:
                drop_note(asked.root)
            self._runs.append(run)
            if asked.boards and not beside and not self._follows:
                self._follows = bool(boards.follow(self._log_scalar))
            if getattr(self.module, "run", None) is run:
                for name in _GLOBALS[1:]:
                    if hasattr(run, name):
                        setattr(self.module, name, getattr(run, name))
            return run
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("init", error)
            return run if beside else None

    def _place(self, run: Any, settings: Any, asked: _Asked, opened: float) -> Place:
        if not self._folders:
            self._base = os.path.abspath(os.environ.get("RLSHIP_DIR") or self._base)
        run_id = str(run.id)
        if self._runs:  # runs that are open at one time are actors of one experiment
            folder = self._runs[-1]._rlship.recorder.place.folder
        elif os.environ.get("WANDB_SWEEP_ID"):  # of any agent of the sweep, on any machine
            folder = folder_in_sweep(self._base, run_id)
        else:
            folder = self._folders.get(run_id) or places.folder_of(self._base, len(set(self._folders.values())) + 1)
        os.environ["RLSHIP_DIR"] = folder  # processes that start from now on work for this run
        self._folders[run_id] = folder
        label, job_type = asked.label, getattr(settings, "run_job_type", None)
        actor = places.actor_of(job_type, label, secondary=asked.secondary)
        taken = {one._rlship.recorder.place.actor for one in self._runs}
        if actor in taken:
            actor = places.role(asked.name) or actor
        if actor in taken:
            actor = next(name for n in range(2, 1 << 20) if (name := f"{actor}-{n}") not in taken)
        start = places.last_step(folder, actor, run_id) + 1 if asked.resumes else 0
        if len(self._folders) == 1:
            self._say_shared(folder, actor, run_id)
        place = Place(folder, actor, run_id, opened=opened, start=start)
        place.shared = asked.mode == "shared"
        if asked.secondary and label and places.role(label) is None:
            place.replica = label
        return place

    def _say_shared(self, folder: str, actor: str, run_id: str) -> None:
        """Say it if runs of W&B's of processes one after the other become one. Rank 0 alone looks into the folder."""
        try:
            other = None
            if detect(actor, None, warn=lambda message: None).rank == 0:
                other = places.ended_run(folder, actor, run_id)
            if other is not None:
                notices.once(
                    "shared",
                    f"the run {run_id} goes on in {folder}, where the run {other} ended: they are one run, with"
                    " the newer values of equal steps. For a run of its own, start it by `rlship run --dir …`",
                )
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("init", error)

    def _resume(self, run: Any, place: Place, *, named: bool) -> None:
        """Let a run that is resumed be as earlier processes left it."""
        try:
            earlier = resumed.read(place.folder, place.run_id)
            if earlier is not None:
                place.resumed = True
                resume(run, earlier, named=named)
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("resume", error)

    def _say(self, recorder: Recorder, run: Any, settings: Any, asked: _Asked) -> None:
        """Write what the run is."""
        facts: dict[str, Any] = {}
        for setting, member in _FACTS:
            value = getattr(settings, setting, None)
            if member in ("project", "entity") and value == NOT_NAMED:
                value = asked.project if member == "project" else None
            if isinstance(value, str) and value:
                facts[member] = value
        if asked.name:
            facts["name"] = str(asked.name)
        tags = getattr(settings, "run_tags", None)
        if tags:
            facts["tags"] = [str(tag) for tag in tags]
        # Not by its `items`, which hide names with a leading underscore.
        config = {key: run.config[key] for key in run.config if key != CLIENTS_OWN}
        if config:
            facts["config"] = config
        if facts:
            recorder.about(**facts)

    def _open_run(self) -> Any:
        """The newest run that is recorded in place of the client's; None without one."""
        mine = self._runs and self._pid == os.getpid() and not self._runs[-1]._rlship.beside
        return self._runs[-1] if mine else None

    def _own_run(self, path: Any) -> Any:
        """The run of this process at a path of W&B's, as the client's API would give it; None if it is another one."""
        try:
            mine = (run for run in (*self._runs, *self._ended) if not run._rlship.beside and public.names(path, run))
            run = next(mine, None)
            return None if run is None else public.OwnRun(run)
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("Api", error)
            return None

    def _restore(self, name: Any, run_path: Any = None, replace: bool = False, root: Any = None) -> Any:
        run = self._open_run()
        if run is None or run_path is not None:
            return self._real_restore(name, run_path, replace, root)
        return run.restore(name, None, replace, root)

    def _teardown(self, exit_code: Any = None) -> Any:
        """The client's own, which ends the runs that are open."""
        if self._pid == os.getpid():
            for run in list(self._runs):
                run.finish(exit_code)
        return self._real_teardown(exit_code)

    def _log_scalar(self, tag: Any, value: Any, step: Any) -> None:
        """Log a scalar that the process wrote to TensorBoard."""
        try:
            if self._runs and self._runs[-1]._rlship.recorder.active:
                self._runs[-1]._rlship.recorder.log({str(tag): value}, step, None)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            fault("add_scalar", error)

    def _forget(self, run: Any) -> None:
        """Forget a run; the module's names are again as before the first one."""
        if run in self._runs:
            self._runs.remove(run)
            self._ended.append(run)
        if getattr(self.module, "run", None) in (run, None):
            for name, value in self._before_runs.items():
                setattr(self.module, name, value)

    def _read(self, what: str) -> Any:
        """The module, for what reads from W&B."""
        notices.once("reads", f"{what} reads from W&B: the real client does it, as always")
        self._keys.drop_dummy()
        return self.module

    def records(self) -> bool:
        """Whether calls of a run of this process are recorded."""
        return any(run._rlship.recorder.active for run in self._runs)

    def would_record(self) -> bool:
        """Whether calls of a run that this process opens from now on are recorded."""
        return not (self._aside or registry.is_explicit() or self._is_disabled(_Asked(self.module, {})))

    def _stand_aside(self) -> None:
        """From now on the process logs by itself: close what was recorded until here."""
        try:
            self._aside = True
            for run in self._runs:
                run._rlship.recorder.stop()
            if self._runs:
                notices.once("aside", "this process logs to rlship by itself: its calls of W&B are no longer recorded")
        except Exception as error:  # noqa: BLE001 - the promise is that the job goes on
            fault("init", error)


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `init` by name. Raises TypeError where the client would."""
    found: dict[str, Any] = {}
    bound, parameters = signature.bind(*args, **options).arguments, signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if "mode" not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise AttributeError("init takes no mode")
    for name, value in bound.items():
        kind = parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            raise AttributeError(f"init takes its arguments as *{name}")
        else:
            found[name] = value
    return found
