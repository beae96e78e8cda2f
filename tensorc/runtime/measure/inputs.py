"""Inputs of a task: what its candidates are checked and timed on.

Two sets are drawn anew for each measurer, and no candidate is checked twice on one of them:

* "whole": floats are small whole numbers. Sums and products of them are exact in any order, so that
  the results of convolutions and matrix products must be equal to the last bit.
* "spread": floats from 1/4 to 1, whose logarithms, roots and quotients are all defined; integers
  are of their whole range.

Where an array of integers says which element of another one is read, its values are indices of it.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorc.dtype import DType
from tensorc.ir.interp.arrays import to_storage
from tensorc.ir.nodes import Buffer, Cast, Expr, Func, Load, Param, Reduce, Store
from tensorc.ir.walk import leaves, nodes
from tensorc.runtime.abi import extents
from tensorc.runtime.measure.memory import Sizes, bytes_of

Kind: TypeAlias = Literal["whole", "spread"]
KINDS: tuple[Kind, Kind] = ("whole", "spread")
WHOLE = 4
"""The whole numbers are from -WHOLE to WHOLE, or from 0 to twice that."""


def inputs(func: Func, sizes: Sizes, kind: Kind, seed: int) -> dict[str, Any]:
    """Arguments for all parameters that are not "out": arrays as flat storage, and numbers."""
    places = _indexed(func, sizes)
    return {
        param.name: _argument(param, sizes, kind, seed, places.get(param.name))
        for param in func.params
        if param.mode != "out"
    }


def _argument(param: Param, sizes: Sizes, kind: Kind, seed: int, extent: int | None) -> Any:
    value = param.value
    draw = np.random.default_rng((seed, KINDS.index(kind), zlib.crc32(param.name.encode())))
    if isinstance(value, Buffer):
        count = bytes_of(value, sizes) // value.dtype.bytes
        return to_storage(_values(draw, value.dtype, count, kind, extent), value.dtype)
    if value.dtype is DType.INDEX:
        return 2
    (number,) = _values(draw, value.dtype, 1, kind, extent).tolist()
    return number


def _values(
    draw: np.random.Generator, dtype: DType, count: int, kind: Kind, extent: int | None
) -> npt.NDArray[Any]:
    if extent is not None:
        return draw.integers(0, max(extent, 1), count)
    if dtype is DType.BOOL:
        return draw.integers(0, 2, count).astype(np.bool_)
    if dtype.is_float and kind == "spread":
        values: npt.NDArray[Any] = draw.random(count, np.float32)
        return values * np.float32(0.75) + np.float32(0.25)
    if kind == "whole":
        least = -WHOLE if dtype.is_signed else 0
        return draw.integers(least, least + 2 * WHOLE + 1, count)
    return draw.integers(int(dtype.min), int(dtype.max), count, np.int64, endpoint=True)


def _indexed(func: Func, sizes: Sizes) -> dict[str, int]:
    """For arrays of indices, how many values are legal: those from 0 up to that."""
    found: dict[str, int] = {}
    for buffer, indices in _accesses(func):
        for index, extent in zip(indices, extents(buffer, sizes), strict=True):
            plain = index.a if isinstance(index, Cast) else index
            for load in nodes(index, Load):
                # Where more is computed with an index, only 0 is known to be legal.
                legal = extent if load is plain else 1
                name = load.buffer.name
                found[name] = min(found.get(name, legal), legal)
    return found


def _accesses(func: Func) -> list[tuple[Buffer, tuple[Expr, ...]]]:
    found: list[tuple[Buffer, tuple[Expr, ...]]] = []
    for _, leaf in leaves(func):
        assert isinstance(leaf, Store | Reduce)
        buffers = leaf.buffers if isinstance(leaf, Reduce) else (leaf.buffer,)
        found += [(buffer, leaf.indices) for buffer in buffers]
        found += [(load.buffer, load.indices) for load in nodes(leaf, Load)]
    return found
