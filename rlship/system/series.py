"""Turns samples into metrics: names, units and reductions of the logged values."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from .readings import GpuReading, Reading

# Values of a GPU: name below `gpu/<key>/`, name in the catalogue, unit, reductions over a window or step.
_GPU = (
    ("util", "node/gpu_util", "0-1", ("mean", "max")),
    ("mem", "node/gpu_mem", "bytes", ("mean", "max")),
    ("mem_limit", "node/gpu_mem_limit", "bytes", ("max",)),
    ("power", "node/gpu_power", "W", ("mean", "max")),
    ("power_limit", "node/gpu_power_limit", "W", ("min",)),
    ("temp", "node/gpu_temp", "C", ("mean", "max")),
    ("mem_temp", "node/gpu_mem_temp", "C", ("mean", "max")),
    ("sm_clock", "node/gpu_sm_clock", "MHz", ("mean", "min")),
    ("mem_clock", "node/gpu_mem_clock", "MHz", ("mean", "min")),
    ("pcie_recv_per_s", "node/gpu_pcie_recv_per_s", "bytes/s", ("mean", "max")),
    ("pcie_sent_per_s", "node/gpu_pcie_sent_per_s", "bytes/s", ("mean", "max")),
    ("nvlink_recv_per_s", "node/gpu_nvlink_recv_per_s", "bytes/s", ("mean", "max")),
    ("nvlink_sent_per_s", "node/gpu_nvlink_sent_per_s", "bytes/s", ("mean", "max")),
    ("ecc_corrected", "node/gpu_ecc_corrected", "count", ("max",)),
    ("ecc_uncorrected", "node/gpu_ecc_uncorrected", "count", ("max",)),
    ("sm_active", "perf/sm_active", "0-1", ("mean", "min")),
    ("tensor_active", "perf/tensor_active", "0-1", ("mean", "min")),
    ("dram_active", "perf/dram_active", "0-1", ("mean", "max")),
)
_CATALOGUE = {own: name for own, name, _, _ in _GPU}
# Rows keep the values of each host for these.
_BY_HOST = frozenset(("util", "mem", "temp", "sm_active"))
# Values that hardly ever change are logged only every `RARELY_S` seconds.
RARE = frozenset(("mem_limit", "power_limit", "ecc_corrected", "ecc_uncorrected"))
RARELY_S = 10.0
PROCESS = {
    "cpu": ("cores", ("mean", "max")),
    "host_mem": ("bytes", ("mean", "max")),
    "gpu_mem": ("bytes", ("mean", "max")),
    "gpu_util": ("0-1", ("mean", "max")),
}


def overall(gpus: GpuReading, *, rare: bool = True) -> Reading:
    """All GPUs together: for each value a list with one number per GPU, under names of the catalogue.

    A MIG device counts if its GPU is not looked at, or does not report that value itself.
    """
    found: Reading = {}
    if gpus.known:
        found["node/gpus"] = sum(1 for key in gpus.figures if gpus.parents.get(key) not in gpus.figures)
    columns: dict[str, dict[str, float | int]] = {}
    for key, figures in gpus.figures.items():
        for figure, value in figures.items():
            if rare or figure not in RARE:
                columns.setdefault(figure, {})[key] = value
    for figure, column in columns.items():
        values = [value for key, value in column.items() if gpus.parents.get(key) not in column]
        name = _CATALOGUE.get(figure) or f"node/gpu_{figure}"
        found[name] = values[0] if len(values) == 1 else values
    used, limits = columns.get("mem", {}), {key: figures.get("mem_limit") for key, figures in gpus.figures.items()}
    shares = [round(used[key] / limit, 4) for key, limit in limits.items() if limit and key in used]
    if shares:
        found["node/gpu_mem_frac"] = shares[0] if len(shares) == 1 else [*shares]
    return found


def by_device(gpus: GpuReading, *, rare: bool = True) -> dict[str, float | int]:
    """Each GPU by itself: `gpu/<key>/<value>`."""
    return {
        f"gpu/{key}/{figure}": value
        for key, figures in gpus.figures.items()
        for figure, value in figures.items()
        if rare or figure not in RARE
    }


def device_definitions(names: Collection[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """The `define` entries of names that `by_device` returned."""
    known: dict[str, tuple[str, tuple[str, ...]]] = {own: (unit, reduce) for own, _, unit, reduce in _GPU}
    for name in names:
        figure = name.split("/", 2)[2]
        unit, reduce = known.get(figure, ("0-1", ("mean", "max")))  # the default is for the reasons why a GPU is slowed
        yield name, {"reduce": [*reduce], "unit": unit, "per_rank": figure in _BY_HOST}


def process_definitions(prefix: str, *, per_rank: bool) -> dict[str, dict[str, object]]:
    """The `define` entries of a process's metrics below `prefix`."""
    return {
        f"{prefix}/{name}": {"reduce": [*reduce], "unit": unit, "per_rank": per_rank}
        for name, (unit, reduce) in PROCESS.items()
    }


def of_node(reading: Mapping[str, object]) -> dict[str, object]:
    """The same metrics with the names that the actor `node` logs: rows put the actor before the name."""
    return {name.removeprefix("node/"): value for name, value in reading.items()}
