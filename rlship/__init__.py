"""Log from any process of an RL job; a sidecar combines the files into one run.

    import rlship

    rlship.init("outputs/grpo-7b", actor="trainer")
    for step in range(steps):
        rlship.log({"loss": loss, "lr": lr}, step=step)
        rlship.barrier(step)

Each process appends to a file of its own below the experiment's folder; `rlship watch` aligns the files by step and
reduces them across ranks. A call only fills a bounded buffer: no network, no lock between processes, no waiting
for the disk. Nothing here raises into the job. `RLSHIP_DISABLE=1` makes every call a no-op. Only the standard library
is used.
"""

from __future__ import annotations

import sys as _sys

from . import tracing as _tracing
from ._version import __version__
from .guard import raised_by_signal
from .hook import interception as _interception
from .logger import Logger
from .reduce import Reduce
from .registry import current, init
from .steps import StepScope
from .tracer import Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, SupportsIndex

    from .tracing import Span

__all__ = [
    "Logger",
    "Reduce",
    "Tracer",
    "__version__",
    "add_step_tag",
    "barrier",
    "clear_step_tags",
    "close",
    "config",
    "define",
    "event",
    "fingerprint",
    "flush",
    "init",
    "ledger",
    "log",
    "record_metric",
    "rollback",
    "sample",
    "set_step",
    "span",
    "step",
    "summary",
    "weights",
]


if "_rlship_hook" not in _sys.modules:  # the hook of `rlship run` looks after these as well
    _interception.start(_interception.ASKED)

# Names of wandb's module that have another name here.
_INSTEAD = {
    "Table": "call rlship.sample(table, row) for each row",
    "alert": "call rlship.event(name, **facts)",
    "define_metric": "call rlship.define(name, reduction); the step is the axis of every metric",
    "finish": "call rlship.close(), or nothing: it runs at exit by itself",
    "save": "rlship keeps no files; call rlship.event('saved', path=path)",
    "watch": "`rlship watch DIR` is a command; gradients are metrics like others, so call rlship.log",
}


def __getattr__(name: str) -> Any:
    if name == "mlogger":
        from importlib import import_module

        return import_module(f"{__name__}.mlogger")
    instead = _INSTEAD.get(name)
    hint = "" if instead is None else f": {instead}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def log(
    metrics: Mapping[str, Any], step: SupportsIndex | None = None, weight: float | Sequence[float] | None = None
) -> None:
    """Write one record of metrics.

    Args:
        metrics: names and values. A value is a number, a bool (1 or 0), None (no observation), a scalar or array of
            numpy, torch or jax, a list or tuple of numbers (several observations), `{"v": [...], "w": [...]}`
            (observations and their weights), or a summary `{"n": 32, "sum": 7.2, "min": 0, "max": 1}` (`n` and any of
            w, sum, min, max, first, last, m2, and for a histogram edges and counts). Any other dict is a group:
            `{"loss": {"pg": 1}}` is the metric `loss/pg`. NaN and infinities are kept and counted as such. A value that
            cannot be used is left out, and reported once for each name.
        step: 0..2^53-1. Default: the implicit step (`set_step`, `step`, `barrier`); without one the record belongs to
            no step and is aligned by its time.
        weight: weight of the observations in mean, std and sum, a finite number >= 0, or one for each element of an
            array. Default 1.
    """
    current().log(metrics, step, weight)


def record_metric(
    key: str, value: Any, reduce: str | Iterable[str] | None = None, weight: float | Sequence[float] | None = None
) -> None:
    """Add an observation of one metric at the implicit step, from anywhere in the program.

    Observations are collected and written together, at the next barrier or within half a second.

    Args:
        key: the metric's name.
        value: as in `log`; an array is several observations.
        reduce: a `Reduce`, its name, or several. Reductions requested in different places add up, and the first one is
            the metric itself. Default: those of `define`, else the mean.
        weight: as in `log`.
    """
    current().record_metric(key, value, reduce, weight)


def define(
    metrics: str | Mapping[str, Any],
    reduce: str | Iterable[str] | None = None,
    *,
    unit: str | None = None,
    per_rank: bool | None = None,
    stream: bool | None = None,
) -> None:
    """Declare how metrics are reduced and measured. It governs what this process writes afterwards.

        rlship.define("busy_s", ["max", "mean"], unit="s", per_rank=True)
        rlship.define({"loss": "mean", "tokens": {"reduce": "sum", "unit": "tokens"}})

    Args:
        metrics: one name, or names with their reduction, a list of them, or a dict of `reduce`, `unit`, `per_rank` and
            `stream`.
        reduce: for the names that have none of their own: a `Reduce`, its name, or several. Default: mean.
        unit: unit of measure, for axes and labels.
        per_rank: also keep a value for every rank, and name the rank with the greatest. Default: no.
        stream: in sinks that can, show every observation of this metric with its own time. Default: no.

    A later call replaces an earlier definition of the same metric. If the reductions differ, that is reported once.
    """
    current().define(metrics, reduce, unit=unit, per_rank=per_rank, stream=stream)


def event(name: str, /, *, step: SupportsIndex | None = None, **attrs: Any) -> None:
    """Record that something happened.

        rlship.event("weights_pushed", bytes=n, to="generator")

    Args:
        name: of the event, at most 1000 characters; the sidecar counts events of one name by step and actor.
        step: as in `log`.
        attrs: facts about the event, kept like the row of a `sample`.
    """
    current().event(name, step=step, **attrs)


def config(mapping: Any = None, /, **values: Any) -> None:
    """Note the configuration of this process, such as its hyper-parameters. `init(config=…)` does the same.

        rlship.config(lr=1e-6, model={"name": "qwen"})
        rlship.config(parser.parse_args())

    A later call updates key by key, in nested dicts too.

    Args:
        mapping: a dict, an argparse.Namespace, a dataclass, or another object with names and values: of OmegaConf,
            attrs, pydantic, absl.
        values: more of them, by name.

    Any value is taken: numbers, texts, bools, None, lists and dicts of those; enums, paths, scalars and small arrays of
    numpy and torch become such. Of any other value, and of one on a GPU, a short text stands in its place. A text has
    at most 65,536 characters, all of it 10,000 keys and 4 MiB; what is left out is reported once.

    Secrets are not written: texts under keys such as `api_key`, `password` or `hub_token`, and texts that look like
    keys of known services. The file names what was left out.
    """
    current().config(mapping, **values)


def summary(mapping: Any = None, /, **values: Any) -> None:
    """Note results of the run, key by key: `rlship.summary(best_reward=0.93)`. Arguments as those of `config`."""
    current().summary(mapping, **values)


def add_step_tag(tag: str) -> None:
    """Tag the implicit step, so that its row shows the tag: `rlship.add_step_tag("eval")`.

    The tag is about the step, not about values: metrics of an evaluation need names of their own, such as `eval/loss`.
    It holds for this step only. Adding it again writes nothing. Without an implicit step it is left out, and that
    is reported once.
    """
    current().add_step_tag(tag)


def clear_step_tags() -> None:
    """End the tags of the implicit step: a tag that is added again is written again. The step's row keeps them."""
    current().clear_step_tags()


def sample(
    table: str, row: Mapping[str, Any], *, score: float | None = None, step: SupportsIndex | None = None
) -> None:
    """Offer a row of a table, such as a prompt and its response. Of each step the sidecar shows the rows with the
    highest and the lowest scores and a fair random few, over all ranks.

        rlship.sample("rollouts", {"prompt": prompt, "response": text, "reward": r}, score=r)

    Args:
        table: its name, at most 1000 characters.
        row: columns and their values: numbers, texts, bools, None, lists and dicts of those, arrays and tensors. For
            any other value the row holds its repr, which is reported once. A line takes 1 MiB. In a longer row the
            longest values are shortened, and the line records their original lengths.
        score: ranks the rows, a finite number. Default: no score, so that the row is only for the random few.
        step: as in `log`.

    A process keeps about 1 MiB of samples for a step (without a step: for ten seconds). Once half of it is used, a
    random choice of further rows is kept, ever fewer. The event `samples_dropped` counts those that were not.
    """
    current().sample(table, row, score=score, step=step)


def span(name: str, *, timer: str = "cpu", memory: bool = False) -> Span:
    """Record how long something took: a context manager, and a decorator of functions of every kind.

        with rlship.span("rollout"):
            ...

        @rlship.span("reward")
        async def reward(sample): ...

    The duration is the metric `<name>_s`, in seconds: its mean and its greatest over ranks and calls. Its step is the
    implicit one at the end. Spans may nest, and many threads and tasks may use one object at once. An exception passes
    through; the record names its type.

    Args:
        name: at most 500 characters.
        timer: `"gpu"` takes the time between two points of the current CUDA stream, and waits for neither. If the job
            has not imported torch and initialised CUDA, the CPU's clock is used, and that is reported once.
        memory: with torch and CUDA, also log `<name>/mem_allocated_bytes` and `<name>/mem_reserved_bytes` (at the
            end), `<name>/mem_peak_bytes` (the most allocated inside) and `<name>/mem_frag` (the share of reserved
            memory that is not allocated). Each is the greatest over ranks and calls. It resets torch's
            own peak.
    """
    if timer == "cpu" and not memory and type(name) is str:
        return _tracing.Span(current, name)
    # `make` returns Any: the timer of a GPU is of a module that is not imported here.
    return _tracing.make(current, name, timer, memory)  # type: ignore[no-any-return]


def ledger(hop: str, key: Any, /, *, step: SupportsIndex | None = None, **given: Any) -> None:
    """Record what a group of samples is at one hop of its way, so that the sidecar sees where it changes or is lost.

        rlship.ledger("generated", key, tokens=ids, version=42)
        rlship.ledger("rewarded", key, tokens=ids, reward=scores)
        rlship.ledger("dropped", key, n=8, why="stale")
        rlship.ledger("trained", key, tokens=ids, reward=scores, advantage=adv, mask=mask, step=s)

    Only sums of digests are written, about 200 bytes a group and hop. docs/ledger.md has the checks, the costs, and
    which rank records under FSDP, Megatron and verl.

    Args:
        hop: `generated`, `rewarded`, `dropped`, `trained`, or a name of your own between them, such as `buffered`.
        key: one group, a text or an integer; unique for each time that the group is generated. Or one for each sample,
            a list or array: the call then records each group. Of all keys, `ledger_share` of `init` is kept.
        step: as in `log`.

    Given by name, all optional, and with one value for each sample unless it says otherwise:
        n: the number of samples. Default: as many as the other arguments have.
        tokens: integers: a list of lists, or an array of numpy or torch of shape (samples, length).
        reward: numbers, or numbers for each token, which are summed.
        advantage: numbers, or numbers for each token.
        mask: for each token, whether it counts in the loss. Without `lengths` and `attention_mask`, rows of arrays end
            at the last token that counts.
        lengths: the number of tokens, where rows are padded at their end.
        attention_mask: for each token, whether it is no padding.
        sample: names of the samples. Default: samples are known by their tokens.
        response: the number of tokens that the model generated; or one number, the sum.
        version: the version of the weights that generated: one number, a tuple (least, greatest), or a list or array.
        why: why the group was dropped, one text.
        part: (i, k): these are the samples of part i of k. One rank of each data-parallel shard records its part.
        retry: the number of the dispatch, from 0, where a group is dispatched again.
        passes: how often the step trains on the group. Default: 1.
        precision: "bf16" rounds numbers to bfloat16. Default: to float32.

    Any other name is a field of numbers, such as `logprobs`. Tensors on a CUDA device are copied without waiting for
    it, and evaluated by the writing thread. A call that cannot be used is left out and reported once.
    """
    current().ledger(hop, key, step=step, **given)


def weights(version: SupportsIndex, fingerprint: object = None, *, step: SupportsIndex | None = None) -> None:
    """Record which weights a version has, on both sides of a weight sync.

        rlship.weights(42, fingerprint=rlship.fingerprint(model.named_parameters()))

    Args:
        version: 0..2^53-1.
        fingerprint: what `rlship.fingerprint` returned. Default: unknown, so that nothing is compared.
        step: as in `log`.
    """
    current().weights(version, fingerprint, step=step)


def fingerprint(named_tensors: Any, dtype: Any = None) -> object:
    """Take a fingerprint of a model's weights: some elements of the parameters that an inference engine neither joins
    nor renames (norms, `o_proj`, `down_proj`).

    Args:
        named_tensors: a dict, or pairs of name and tensor, as `model.named_parameters()` gives them: whole tensors, or
            those of the first rank of tensor parallelism.
        dtype: in which the weights are served, "bfloat16" or "float32" (or of torch). Default: that of the tensors.

    Returns an object for `weights`. It is the text "unknown" where the served form cannot be known (fp8, mixed types,
    none of these parameters). Nothing here waits for a device.
    """
    from .ledgers.fingerprint import fingerprint as take

    try:
        return take(named_tensors, dtype)
    except Exception as error:
        if raised_by_signal(error):
            raise
        current().failed("fingerprint", error)
        return "unknown"


def set_step(step: SupportsIndex) -> None:
    """Set the implicit step of this process (inside `with step(n)`: of this task), 0..2^53-1.

    To go back behind a barrier, call `rollback` instead.
    """
    current().set_step(step)


def step(step: SupportsIndex) -> StepScope:
    """Set the implicit step inside a `with` block, for this thread or asyncio task and the tasks it starts there.

    with rlship.step(12):
        rlship.log({"reward": r})
    """
    return current().step(step)


def barrier(step: SupportsIndex | None = None) -> None:
    """Declare that this process writes nothing more for steps up to `step`, and make `step + 1` the implicit step.

    A local marker: it does not wait. The step's row is complete when all ranks have passed it. If a process never
    calls it, its first record of a later step ends a step.

    Args:
        step: default the implicit step.
    """
    current().barrier(step)


def rollback(step: SupportsIndex) -> None:
    """Declare that this process goes back to `step`. Call it after loading an older checkpoint in a running process.

    What is logged from here on replaces what was logged before, for each step and metric that is logged again. A
    restarted process need not call it. `step` becomes the implicit step.
    """
    current().rollback(step)


def flush(timeout: float = 5.0) -> bool:
    """Wait until everything logged so far is in the file (on a network filesystem: visible to others).

    Needed only before something that ends the process at once, such as os._exit. Returns False after `timeout` seconds.
    """
    return current().flush(timeout)


def close(timeout: float = 5.0) -> bool:
    """Write what is left, record that this process is done, and close the file. Runs at exit by itself.

    Closes the default Logger; later calls are dropped with a warning. Returns False if not everything could be written
    in `timeout` seconds.
    """
    return current().close(timeout)
