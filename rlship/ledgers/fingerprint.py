"""A fingerprint of a model's weights that both sides of a weight sync can take."""

from __future__ import annotations

import sys
from zlib import crc32

from . import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

UNKNOWN = "unknown"
# An inference engine joins other parameters into one (`qkv_proj`, `gate_up_proj`), and splits what is not named here
# over its ranks in ways that depend on it. The first elements of these stand at the same place on its first rank.
_SURVIVING = ("norm.weight", "o_proj.weight", "down_proj.weight")
_WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.", "module.", "model.")
_ELEMENTS = 64  # of each parameter
_PRECISIONS = {"float32": "", "bfloat16": "bf16"}


class Fingerprint:
    """The sampled elements of some parameters: `str` gives the text that is compared.

    Attributes: `of`, what says whether two fingerprints can be compared: the precision, how many parameters, and the
    CRC-32 of their names; `values`, the elements; `precision`, as in `rlship.ledger`.
    """

    def __init__(self, of: str, values: Any, precision: str) -> None:
        self.of = of
        self.values = values
        self.precision = precision

    def __str__(self) -> str:
        return f"{self.of}:{canonical.floats_crc(canonical.on_host(self.values), self.precision):08x}"


def fingerprint(named_tensors: Any, dtype: Any = None) -> Any:
    """See `rlship.fingerprint`."""
    named: Iterable[tuple[str, Any]] = named_tensors.items() if hasattr(named_tensors, "items") else named_tensors
    found = {}
    for name, tensor in named:
        short = _short(str(name))
        if short.endswith(_SURVIVING):
            found[short] = tensor
    kinds = {_kind(tensor if dtype is None else dtype) for tensor in found.values()}
    if len(kinds) != 1 or (kind := kinds.pop()) not in _PRECISIONS:
        return UNKNOWN
    names = sorted(found)
    of = f"{kind}:{len(names)}:{crc32(','.join(names).encode()):08x}"
    return Fingerprint(of, _sampled([found[name] for name in names]), _PRECISIONS[kind])


def _short(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _kind(of: Any) -> str:
    text = str(getattr(of, "dtype", of))
    return {"bf16": "bfloat16", "fp32": "float32"}.get(text, text.rpartition(".")[2])


def _sampled(tensors: list[Any]) -> Any:
    """The first elements of each tensor, as float32: a tensor where they are on a device, without waiting for it."""
    torch: Any = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is not None and any(isinstance(tensor, kind) for tensor in tensors):
        firsts = [_first_row(tensor.detach())[:_ELEMENTS].float() for tensor in tensors]
        return torch.cat(firsts)
    return [float(x) for tensor in tensors for x in _first_row(tensor)[:_ELEMENTS]]


def _first_row(tensor: Any) -> Any:
    while getattr(tensor, "ndim", 1) > 1:
        tensor = tensor[0]
    return tensor
