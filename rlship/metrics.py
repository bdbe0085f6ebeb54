"""The catalogue of metrics that RL post-training jobs have in common.

    from rlship import metrics

    metrics.lookup("trainer", "train/entropy").reduce  # ("mean",)
    metrics.lookup("trainer", "actor/pg_loss").name  # "train/loss_decomp/pg": verl's name for it

A metric with a known name needs no `define`: the sidecar reduces it as the catalogue states. The job and the
configuration take precedence. The catalogue itself is `rlship_formats.catalogue`; it is imported when a name is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rlship_formats.catalogue.metrics import METRICS, Alias, Metric, lookup

__all__ = ["METRICS", "Alias", "Metric", "lookup"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlship_formats.catalogue import metrics

    return getattr(metrics, name)
