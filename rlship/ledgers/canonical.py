"""Values in their canonical bytes: one form for what lists, arrays and tensors of any width hold. Pure.

numpy is used if the job has imported it, because it narrows integers twenty times as fast as the standard library.
"""

from __future__ import annotations

import sys
from array import array
from math import fsum
from operator import index
from struct import pack
from zlib import crc32

from ..values import UnusableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_INT32 = 1 << 31
_INT64 = 1 << 63
_GREATEST_FLOAT32 = 3.4028235677973366e38  # from here on, rounding gives infinity
_NAN32, _NAN16 = b"\0\0\xc0\x7f", b"\xc0\x7f"
_NEGATIVE_ZERO32, _NEGATIVE_ZERO16 = b"\0\0\0\x80", b"\0\x80"
_SWAPS = sys.byteorder == "big"
PRECISIONS = ("", "bf16")


class Rows:
    """One value for each sample: a row, or an element.

    Attributes: `count`, of samples; `padded`, whether the rows are those of an array, which have one length;
    `wide`, whether there are rows at all.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        value = on_host(value)
        if isinstance(value, (str, bytes, dict, set)) or not hasattr(value, "__len__"):
            raise UnusableError(f"{name}= has no value for each sample: it is of type {type(value).__name__}")
        self._value = value
        self.count = len(value)
        self.padded = getattr(value, "ndim", 1) > 1
        self.wide = self.padded or (self.count > 0 and hasattr(value[0], "__len__") and not isinstance(value[0], str))

    def __getitem__(self, place: int) -> Any:
        return on_host(self._value[place])


def on_host(value: Any) -> Any:
    """A tensor as the array of numpy that shares its memory; any other value as it is."""
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # another thread may be importing it
    if tensor is None or not isinstance(value, tensor):
        return value
    found: Any = value.detach()
    return (found.float() if found.dtype is torch.bfloat16 else found).numpy()


def length_of(row: Any) -> int:
    """How many elements a row has; 1 for an element."""
    return len(row) if hasattr(row, "__len__") else 1


def cut(row: Any, length: int | None, real: Any) -> Any:
    """A row without its padding: its first `length` elements, or those where the row `real` is not zero."""
    if not hasattr(row, "__len__"):
        return row
    if real is not None:
        if length_of(real) != len(row):
            raise UnusableError(f"attention_mask= has {length_of(real)} elements for a row of {len(row)}")
        return _chosen(row, real)
    return row if length is None or length >= len(row) else row[:length]


def _chosen(row: Any, real: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype"):
        return numpy.asarray(row)[numpy.asarray(real) != 0]
    return [x for x, keep in zip(row, real) if keep]


def last_nonzero(row: Any) -> int:
    """The length of a row without the zeros at its end."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype"):
        places = numpy.flatnonzero(numpy.asarray(row))
        return int(places[-1]) + 1 if len(places) else 0
    length = len(row)
    while length and not row[length - 1]:
        length -= 1
    return length


def ones(row: Any) -> int:
    """How many elements of a row are not zero."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype"):
        return int(numpy.count_nonzero(row))
    return sum(1 for x in row if x)


def integers_crc(row: Any) -> int:
    """The CRC-32 of integers: as int32 if all of them fit, else as int64, little-endian. Raises UnusableError."""
    dtype = getattr(row, "dtype", None)
    if dtype is not None and getattr(dtype, "str", "") == "<i4" and row.flags.c_contiguous and row.ndim:
        return crc32(row)  # as it lies there: nearly all that this costs is the CRC
    if not hasattr(row, "__len__"):
        row = [index(row)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype"):
        return _array_crc(numpy, row)
    if isinstance(row, (array, memoryview)) and getattr(row, "itemsize", 0) == 4 and not _SWAPS:
        form = memoryview(row).format
        if form in ("i", "l"):
            return crc32(row if memoryview(row).contiguous else bytes(row))
    return _list_crc(row)


def _array_crc(numpy: Any, row: Any) -> int:
    kind = row.dtype.kind
    if kind not in "iub":
        raise UnusableError(f"integers are needed, not {row.dtype}")
    if row.dtype.itemsize == 8 and row.size:
        # One look for the usual: as unsigned numbers, negative ones are the greatest.
        if row.dtype.str == "<i8" and row.flags.c_contiguous:
            fits = row.view("<u8").max() < _INT32 or (row.min() >= -_INT32 and row.max() < _INT32)
        else:
            fits = row.min() >= -_INT32 and row.max() < _INT32
        if kind == "u" and row.max() >= _INT64:
            raise UnusableError(f"{row.max()} does not fit in 64 bits with a sign")
    else:
        fits = not row.size or row.dtype.str[1:] != "u4" or row.max() < _INT32
    return crc32(numpy.ascontiguousarray(row, "<i4" if fits else "<i8"))


def _list_crc(row: Sequence[Any]) -> int:
    for code in "iq":
        try:
            found = array(code, row)
        except OverflowError:
            continue
        except TypeError:
            found = array("q", [*map(index, row)])
            if all(-_INT32 <= x < _INT32 for x in found):
                found = array("i", found)
        if _SWAPS:
            found.byteswap()
        return crc32(found)
    raise UnusableError("an integer does not fit in 64 bits")


def mask_crc(row: Any) -> int:
    """The CRC-32 of a mask: a byte for each element, 1 where it is not zero."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype"):
        return crc32(numpy.ascontiguousarray(row != 0, "u1"))
    return crc32(bytes([1 if x else 0 for x in row]))


def floats_crc(row: Any, precision: str = "") -> int:
    """The CRC-32 of numbers rounded to float32, little-endian; with `precision` "bf16" to its upper half.

    There is one NaN, and negative zero is zero.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(row, "dtype") and hasattr(row, "__len__"):
        return crc32(_float_array(numpy, row, precision))
    numbers = row if hasattr(row, "__len__") else (row,)
    one = bf16_bytes if precision else float32_bytes
    return crc32(b"".join([one(float(x)) for x in numbers]))


def each_float_crc(numbers: Sequence[float], precision: str = "") -> list[int]:
    """`floats_crc` of each of these numbers alone."""
    one = bf16_bytes if precision else float32_bytes
    return [crc32(one(x)) for x in numbers]


def _float_array(numpy: Any, row: Any, precision: str) -> Any:
    with numpy.errstate(over="ignore", invalid="ignore"):
        found = numpy.asarray(row, "<f4") + numpy.float32(0)  # negative zero becomes zero
    bits = found.view("<u4")
    if precision:
        rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
        rounded[rounded == 0x8000] = 0
        return numpy.where(numpy.isnan(found), numpy.uint16(0x7FC0), rounded).astype("<u2")
    return numpy.where(numpy.isnan(found), numpy.uint32(0x7FC00000), bits).astype("<u4")


def float32_bytes(x: float) -> bytes:
    """A number as a little-endian float32."""
    if x != x:
        return _NAN32
    if -_GREATEST_FLOAT32 < x < _GREATEST_FLOAT32:
        data = pack("<f", x)
        return data if data != _NEGATIVE_ZERO32 else b"\0\0\0\0"
    return b"\0\0\x80\x7f" if x > 0 else b"\0\0\x80\xff"


def bf16_bytes(x: float) -> bytes:
    """A number as a little-endian bfloat16: rounded to float32, then to its upper half, ties to even."""
    if x != x:
        return _NAN16
    bits = int.from_bytes(float32_bytes(x), "little")
    data = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to_bytes(2, "little")
    return data if data != _NEGATIVE_ZERO16 else b"\0\0"


def total(row: Any) -> float:
    """A sample's reward as one number: the sum of rewards of tokens."""
    if not hasattr(row, "__len__"):
        return float(row)
    numbers = [float(x) for x in (row.tolist() if hasattr(row, "tolist") else row)]
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):  # beyond doubles, or of two infinities
        return sum(numbers)


def first_counted(row: Any, mask: Any) -> float:
    """A sample's advantage as one number: that of the first token that counts."""
    if not hasattr(row, "__len__"):
        return float(row)
    counted = range(len(row)) if mask is None else range(min(len(row), length_of(mask)))
    return next((float(row[place]) for place in counted if mask is None or mask[place]), 0.0)
