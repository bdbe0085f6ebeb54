"""The config and the summary of a run: they behave as the client's do, and tell what changes."""

from __future__ import annotations

from ..values import count_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

# Where the client keeps facts of its own in a config. Other names with a leading underscore are the job's.
CLIENTS_OWN = "_wandb"


def telling_config(base: type, changed: Callable[[dict[str, Any]], object]) -> type:
    """A class like the client's own `base`, of which `changed(values)` is called with the values of changed keys."""

    def tell(config: Any, names: Iterable[Any]) -> None:
        # The client strips these from the names.
        wanted = dict.fromkeys(name.strip("-") for name in names if isinstance(name, str))  # in the job's order
        changed({name: config[name] for name in wanted if name in config and name != CLIENTS_OWN})

    class Config(base):  # type: ignore[misc]  # the class is known at run time only
        def __setitem__(self, key: Any, val: Any) -> None:
            super().__setitem__(key, val)
            tell(self, [key])

        def __setattr__(self, key: Any, val: Any) -> None:
            super().__setattr__(key, val)
            tell(self, [key])

        def update(self, d: Any, *args: Any, **options: Any) -> None:
            super().update(d, *args, **options)
            # It may be an object of flags, or the name of a file.
            tell(self, d if isinstance(d, dict) else list(self))

        def setdefaults(self, d: Any) -> None:
            super().setdefaults(d)
            tell(self, d if isinstance(d, dict) else list(self))

        def persist(self) -> None:
            super().persist()
            tell(self, list(self))

        def __reduce__(self) -> Any:
            """A copy, also one in another process, is a configuration of no run."""
            return _copied, (base, {name: self[name] for name in self if name != CLIENTS_OWN})

    Config.__name__, Config.__qualname__, Config.__module__ = base.__name__, base.__qualname__, base.__module__
    return Config


def _copied(base: type, values: dict[str, Any]) -> Any:
    found = base()
    found.update(values)
    return found


_KEPT = (float, int, str, dict)
_MAX_LIST = 1000


def kept(value: Any) -> Any:
    """A value that was logged as the summary has it; None for what it does not keep."""
    if isinstance(value, _KEPT):
        return value
    if isinstance(value, (list, tuple)):
        return list(value) if len(value) <= _MAX_LIST and all(isinstance(one, _KEPT) for one in value) else None
    try:
        if not hasattr(value, "item") or count_of(value) != 1:
            return None
        return value.detach() if getattr(value, "is_cuda", False) else value.item()
    except Exception:  # noqa: BLE001 - the value's own code may raise anything
        return None


class Summary(dict):  # type: ignore[type-arg]  # the client's is untyped too
    """The newest value of each key. Calls `changed(values)` with what the job sets itself."""

    def __init__(self, changed: Callable[[dict[str, Any]], object], values: dict[str, Any] | None = None) -> None:
        super().__init__(values or {})
        object.__setattr__(self, "_changed", changed)

    def resume(self, values: Mapping[str, Any]) -> None:
        """Take what the run had before this process."""
        dict.update(self, values)

    def note(self, values: Mapping[str, Any]) -> None:
        """Take values that were logged: the job did not set them. Tables and files are not kept in memory."""
        dict.update(self, {key: found for key, value in values.items() if (found := kept(value)) is not None})

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if type(value) is dict:
            value = Summary(lambda _: self._told([key]), value)
            dict.__setitem__(self, key, value)
        elif not isinstance(value, _KEPT) and getattr(value, "is_cuda", False):  # a reader alone waits for a device
            value = value.item()
            dict.__setitem__(self, key, value)
        return value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)
        self._told([key])

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delitem__(self, key: Any) -> None:
        if key in self:  # as the client, which takes a key that is not there
            dict.__delitem__(self, key)
            self._told([key])

    def __delattr__(self, key: str) -> None:
        del self[key]

    def update(self, *args: Any, **values: Any) -> None:
        new = dict(*args, **values)
        dict.update(self, new)
        self._told(new)

    def _as_dict(self) -> dict[str, Any]:
        return self

    @property
    def _json_dict(self) -> dict[str, Any]:
        """What scripts read of the summary that the client's API gives."""
        return self

    def _told(self, keys: Iterable[Any]) -> None:
        # Of a key that is gone, None: records have no other word for it.
        object.__getattribute__(self, "_changed")({key: dict.get(self, key) for key in keys})


class Replaced:
    """Which objects a run has at the top of its config and summary. Records update them key by key; W&B's client
    replaces the value of a key at the top.
    """

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[tuple[str, str], set[tuple[str, ...]]] = {}

    def emptied(self, member: str, values: dict[str, Any]) -> dict[str, Any]:
        """The keys to write as `{}` before these values: those of objects of which the values lack a part."""
        found: dict[str, Any] = {}
        for key, value in values.items():
            place = (member, str(key))
            before = self._paths.pop(place, None)
            if isinstance(value, dict) and value:
                self._paths[place] = set(_leaves(value, ()))
                if before is not None and not before <= self._paths[place]:
                    found[key] = {}
        return found


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield path


def figures_in(summary: str) -> tuple[str, ...] | None:
    """The figures that `define_metric(summary=…)` names: () for none at all, None for the newest value as usual."""
    names = {one.strip().lower(): None for one in summary.split(",")}
    found = tuple(one for one in names if one not in ("none", "copy"))
    return found if found or "none" in names else None


def is_figure(value: Any) -> bool:
    """True for a finite number."""
    return isinstance(value, (int, float)) and bool(value - value == 0)


class Tally:
    """The figure of a key's values that the job asked for by `define_metric(summary=…)`; without `names`, none."""

    __slots__ = ("count", "names", "values")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.count = 0
        self.values: dict[str, float] = {}

    def add(self, value: Any) -> None:
        """Take one more value; others than finite numbers do not count."""
        if isinstance(value, bool) or not is_figure(value):
            return
        self.count += 1
        old = self.values
        self.values = {
            "min": min(old.get("min", value), value),
            "max": max(old.get("max", value), value),
            "mean": old.get("mean", 0.0) + (value - old.get("mean", 0.0)) / self.count,
            "first": old.get("first", value),
            "last": value,
        }

    def shown(self) -> dict[str, float]:
        """What the client's summary has of the key."""
        return {name: self.values[name] for name in self.names if name in self.values}
