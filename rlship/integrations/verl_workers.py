"""What verl's workers measure of themselves, on every rank."""

from __future__ import annotations

import functools
from inspect import iscoroutinefunction

from .source import is_on, open_logger, safely
from .verl_driver import SOURCE, facade_drives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from ..logger import Logger
    from ..tracing import Span

_LAST = frozenset(("lr",))
_MEASURED = ("perf/", "grad_norm", "lr", "mfu")

_workers: dict[str, _Worker] = {}
_step: int | None = None  # the step under way in this process's workers; None: not known


class _Worker:
    """The file of this process's workers of one kind."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        self._declared: set[str] = set()
        if _step is not None:
            logger.set_step(_step)

    def log(self, metrics: Mapping[str, float], reductions: Mapping[str, str]) -> None:
        """Write values of this rank, which rows keep for each rank."""
        self.declare({name: reductions.get(name, "mean") for name in metrics})
        self.logger.log(metrics)

    def declare(self, reductions: Mapping[str, Any]) -> None:
        """Declare those of these metrics that are new."""
        new = {name: how for name, how in reductions.items() if name not in self._declared}
        if new:
            self._declared |= new.keys()
            self.logger.define(new, per_rank=True)

    def span(self, name: str) -> Span:
        """A span of this rank."""
        self.declare({f"{name}_s": ["mean", "max"]})
        return self.logger.span(name)


def patch_profiler(module: ModuleType) -> None:
    """Make spans of what verl's own profiler would mark, in `module`, verl's `verl.utils.profiler.profile`."""
    real = module.DistProfiler.annotate

    def annotate(*args: Any, **options: Any) -> Callable[[Any], Any]:
        decorate = real(*args, **options)
        return lambda function: _timed(decorate(function), options.get("role") or function.__name__)

    module.DistProfiler.annotate = staticmethod(annotate)


def patch_workers(module: ModuleType) -> None:
    """Record what each rank measures, in `module`, verl's `verl.workers.engine_workers`."""
    real = module.TrainingWorker._postprocess_output
    real_update = module.ActorRolloutRefWorker.update_weights

    @functools.wraps(real)
    def postprocess(self: Any, output: Any, **options: Any) -> Any:
        if options.get("forward_only", True) or not _records():
            return real(self, output, **options)
        # What this rank has, before its data-parallel group gathers the values of all.
        own = safely(SOURCE, _local, output["metrics"])
        result = real(self, output, **options)
        if own is not None:
            safely(SOURCE, _record, self, own, result)
        return result

    @functools.wraps(real_update)
    async def update_weights(self: Any, *args: Any, **options: Any) -> Any:
        result = await real_update(self, *args, **options)
        safely(SOURCE, _end_step, options.get("global_steps", args[0] if args else None))
        return result

    module.TrainingWorker._postprocess_output = postprocess
    module.ActorRolloutRefWorker.update_weights = update_weights


def _records() -> bool:
    return is_on() and not facade_drives()


def _of(worker: Any) -> _Worker:
    """The file for a worker. Workers of one process and kind share it."""
    role = str(getattr(worker, "role", ""))
    kind = getattr(getattr(worker, "config", None), "model_type", "")
    actor = "critic" if kind == "value_model" else "ref" if role == "ref" else "worker"
    found = _workers.get(actor)
    if found is None or found.logger.closed:
        logger = open_logger(
            SOURCE, "", actor=actor, rank=int(worker.rank), world=int(worker.world_size), count_steps=False
        )
        found = _workers[actor] = _Worker(logger)
    return found


def _timed(function: Any, name: str) -> Any:
    """The method of a worker, in a span."""
    if iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def timed(self: Any, *args: Any, **options: Any) -> Any:
        span = safely(SOURCE, _span, self, name) if _records() else None
        if span is None:
            return function(self, *args, **options)
        with span:
            return function(self, *args, **options)

    return timed


def _span(worker: Any, name: str) -> Span:
    return _of(worker).span(name)


def _local(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers of one rank and how each is reduced over mini-batches and ranks. Tensors are left alone."""
    found, how = {}, {}
    for name, value in metrics.items():
        asked = getattr(getattr(value, "aggregation", None), "value", None) or reduction(name)
        values = getattr(value, "values", value)
        numbers = [one for one in (values if isinstance(values, list) else [values]) if isinstance(one, (int, float))]
        if numbers:
            found[name] = _reduced(numbers, asked)
            how[name] = "mean" if asked == "sum" else asked  # as verl does it: a sum over micro-batches only
    return found, how


def reduction(name: str) -> str:
    """How verl reduces the values of a metric: by its name."""
    return "max" if "max" in name else "min" if "min" in name else "mean"


def _reduced(numbers: list[float], how: str) -> float:
    if how in ("max", "min"):
        return max(numbers) if how == "max" else min(numbers)
    return sum(numbers) / (1 if how == "sum" else len(numbers))


def _record(worker: Any, own: tuple[dict[str, float], dict[str, str]], result: Any) -> None:
    found, how = own
    shared = result["metrics"]
    measured = {
        name: value
        for name, value in getattr(shared, "data", shared).items()
        if name.startswith(_MEASURED) and isinstance(value, (int, float))
    }
    how.update({name: "last" if name in _LAST else reduction(name) for name in measured})
    role = "critic" if worker.config.model_type == "value_model" else "actor"
    _of(worker).log(
        {_named(name, role): value for name, value in {**found, **measured}.items()},
        {_named(name, role): one for name, one in how.items()},
    )


def _named(name: str, role: str) -> str:
    """The driver's name of a worker's metric."""
    if name == "mfu":
        return f"perf/mfu/{role}"
    return name if name.startswith(f"{role}/") else f"{role}/{name}"


def _end_step(step: Any) -> None:
    """The weights of `step` are with the generators: the next step is under way."""
    global _step
    if isinstance(step, bool) or not isinstance(step, int):
        return
    for worker in _workers.values():
        if _step is not None and _step <= step:
            worker.logger.barrier(step)
        worker.logger.set_step(step + 1)
    _step = step + 1
