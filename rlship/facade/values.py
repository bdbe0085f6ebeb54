"""What the values of one call of W&B's `log` are: numbers, several numbers, texts, histograms, tables, files."""

from __future__ import annotations

from ..values import MAX_ELEMENTS, UnusableError, count_of, scalar, why_unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PLAIN = frozenset((float, int, bool))


class Sorted:
    """The values of one part of a call, by what becomes of them."""

    __slots__ = ("arrays", "densities", "files", "histograms", "numbers", "tables", "texts")

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}
        self.texts: dict[str, Any] = {}
        self.histograms: dict[str, dict[str, Any]] = {}  # summaries
        self.densities: dict[str, tuple[list[Any], list[Any]]] = {}  # edges, heights that count nothing
        self.tables: dict[str, Any] = {}
        self.files: list[tuple[str, Any]] = []


def is_plain(values: Mapping[str, Any]) -> bool:
    """True if all values are plain numbers, as they nearly always are."""
    return PLAIN.issuperset(map(type, values.values()))


def is_group(value: Any) -> bool:
    """True for a dict whose members are values of their own."""
    return isinstance(value, dict) and bool(value)


def sort(values: Mapping[str, Any], module: Any) -> Sorted:
    """Sort the values of one part. `module` is the client's package, whose own types make files of figures."""
    found = Sorted()
    for key, value in values.items():
        if type(value) in PLAIN:
            found.numbers[key] = value
        elif value is not None:
            try:
                _sort_one(found, key, value, module)
            except Exception as error:  # noqa: BLE001 - the value's own code may raise anything: the others are good
                why = why_unusable(error) or f"it is of type {type(value).__name__}"
                found.texts[key] = f"<{type(value).__name__}: {why}>"
    return found


def _sort_one(found: Sorted, key: str, value: Any, module: Any) -> None:
    if isinstance(value, (str, bytes)):
        found.texts[key] = value if isinstance(value, str) else repr(value)[:1000]
    elif isinstance(value, (list, tuple)):
        _sort_list(found, key, value, module)
    elif is_ours(value):
        _sort_media(found, key, value)
    elif (made := _converted(value, module)) is not None:
        _sort_media(found, key, made)
    elif hasattr(value, "tolist") and (count := count_of(value)) > 1:
        # One on a device would have to be waited for: the writer says that it leaves it out.
        if count > MAX_ELEMENTS and not _on_device(value):
            _sort_media(found, key, _binned(value, module))
        else:
            found.arrays[key] = value
    else:
        try:
            found.numbers[key] = value if getattr(value, "is_cuda", False) else scalar(value)
        except UnusableError:
            found.texts[key] = _text(value)


def _sort_list(found: Sorted, key: str, value: Any, module: Any) -> None:
    kinds = set(map(type, value))
    if value and kinds <= PLAIN:
        if len(value) > MAX_ELEMENTS:
            _sort_media(found, key, _binned(value, module))
        else:
            found.arrays[key] = list(value)
    elif value and all(is_ours(item) or _is_figure(item) for item in value):
        for item in value:
            _sort_one(found, key, item, module)
    elif value:
        found.texts[key] = [_text(item) if not isinstance(item, (str, float, int, dict)) else item for item in value]


def _on_device(value: Any) -> bool:
    return getattr(value, "is_cuda", False) or getattr(getattr(value, "device", None), "type", "cpu") != "cpu"


def _binned(value: Any, module: Any) -> Any:
    """The finite ones of more numbers than a line has room for, as a histogram of the client's."""
    import numpy

    if hasattr(value, "detach"):  # a tensor of torch, perhaps of a type that numpy lacks
        value = value.detach().double()
    numbers = numpy.asarray(value, dtype=numpy.float64).reshape(-1)
    return module.Histogram(numbers[numpy.isfinite(numbers)])


def is_file_or_table(value: Any) -> bool:
    """Whether a value is no figure but a file or a table: an object of the client's or of another package."""
    return is_ours(value) or _is_figure(value) or _package(value) == "pandas"


def _package(value: Any) -> str:
    return (type(value).__module__ or "").partition(".")[0]


def _sort_media(found: Sorted, key: str, value: Any) -> None:
    edges, counts = getattr(value, "bins", None), getattr(value, "histogram", None)
    if edges is not None and counts is not None:
        summary = found.histograms[key] = _summary(list(edges), list(counts))
        if "edges" not in summary and summary["n"]:
            found.densities[key] = list(edges), list(counts)
    elif hasattr(value, "columns") and hasattr(value, "data"):
        found.tables[key] = value
    elif is_ours(getattr(value, "table", None)):  # a chart, which is a table and how to draw it
        found.tables[f"{key}_table"] = value.table
    else:
        found.files.append((key, value))


def _summary(edges: list[Any], counts: list[Any]) -> dict[str, Any]:
    """A histogram as a summary with bins; its sum is that of the bins' middles. With heights that are no whole numbers
    it has no bins: these count observations.
    """
    n = int(sum(counts))
    held = [i for i, count in enumerate(counts) if count > 0]
    if n <= 0 or len(edges) != len(counts) + 1:
        return {"n": 0}
    middle = sum(float(count) * (float(edges[i]) + float(edges[i + 1])) / 2 for i, count in enumerate(counts))
    found = {"n": n, "sum": middle, "min": float(edges[held[0]]), "max": float(edges[held[-1] + 1])}
    whole = all(count == int(count) for count in counts)
    return {**found, "edges": edges, "counts": [int(count) for count in counts]} if whole else found


def is_ours(value: Any) -> bool:
    """True for an object of one of the client's own types."""
    return _package(value) == "wandb"


def _is_figure(value: Any) -> bool:
    return _package(value) in ("matplotlib", "PIL", "plotly")


def _converted(value: Any, module: Any) -> Any:
    """A figure, picture or data frame as an object of the client's, as the client itself makes it; else None."""
    kind = type(value)
    package = (kind.__module__ or "").partition(".")[0]
    if package == "pandas" and kind.__name__ == "DataFrame":
        return module.Table(dataframe=value)
    if package == "plotly":
        return module.Plotly(value)
    # The module `matplotlib.pyplot` itself stands for its current figure.
    pyplot = getattr(value, "__name__", "") == "matplotlib.pyplot"
    if pyplot or package == "PIL" or (package == "matplotlib" and hasattr(value, "savefig")):
        return module.Image(value.gcf() if pyplot else value)
    return None


def _text(value: Any) -> str:
    try:
        return str(value)[:10_000]
    except Exception as error:  # noqa: BLE001 - the value's own code may raise anything
        return f"<{type(value).__name__}: {why_unusable(error) or 'no text'}>"
