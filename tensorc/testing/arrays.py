"""Random arguments for a program: sizes, arrays and scalars."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.interp import evaluate, to_storage
from tensorc.ir.nodes import Buffer, Func, Param
from tensorc.ir.places import sizes_of
from tensorc.testing.draw import Drawn, Source

FILLINGS = ("ramp", "small", "any", "special")
SIZES = (5, 0, 1, 2, 3, 4, 7, 8)

_TINY = {DType.F16: 2.0**-24, DType.BF16: 2.0**-133, DType.F32: 2.0**-149, DType.F64: 2.0**-1074}
_LARGE = {DType.F16: 65504.0, DType.BF16: 3.38e38, DType.F32: 3.4028234e38, DType.F64: 1.797e308}


def values_of(dtype: DType, count: int, filling: str, seed: int) -> list[bool | int | float]:
    """`count` values of a dtype.

    Fillings: "ramp" (small different numbers), "small" (from -4 to 4), "any" (the whole range of
    integers; floats of moderate size), "special" (those, and NaN, infinities, both zeros,
    denormals and extremes).
    """
    draw = random.Random(f"{seed}/{dtype}/{filling}")
    if dtype is DType.BOOL:
        return [draw.random() < 0.5 for _ in range(count)]
    if filling == "ramp":
        start = draw.randrange(0, 7)
        return [_fit(start + n, dtype) for n in range(count)]
    if filling == "small":
        return [_fit(draw.randrange(-4, 5), dtype) for _ in range(count)]
    if dtype.is_float:
        pool = _special(dtype) if filling == "special" else ()
        return [
            draw.choice(pool) if pool and draw.random() < 0.4 else round(draw.uniform(-8, 8), 2)
            for _ in range(count)
        ]
    extremes = (int(dtype.min), int(dtype.max), 0, 1, int(dtype.wrap(-1)))
    return [
        draw.choice(extremes)
        if filling == "special" and draw.random() < 0.5
        else draw.randint(int(dtype.min), int(dtype.max))
        for _ in range(count)
    ]


def _fit(value: int, dtype: DType) -> bool | int | float:
    return float(value) if dtype.is_float else dtype.wrap(value)


def _special(dtype: DType) -> tuple[float, ...]:
    tiny, large = _TINY[dtype], _LARGE[dtype]
    return (math.nan, math.inf, -math.inf, -0.0, 0.0, tiny, -tiny, large, -large, 1.0)


def make_sizes(source: Source, func: Func) -> dict[str, int]:
    """A value for each symbolic size."""
    return {name: source.pick(SIZES) for name in sizes_of(func)}


def make_inputs(
    source: Source, func: Func, sizes: Mapping[str, int], *, special: bool = True
) -> dict[str, Any]:
    """Arguments for a run with these sizes; "out" arrays hold a marker."""
    filling = source.pick(FILLINGS if special else FILLINGS[:3])
    seed = source.integer(0, 999)
    return {p.name: _argument(p, sizes, filling, seed + n) for n, p in enumerate(func.params)}


def _argument(param: Param, sizes: Mapping[str, int], filling: str, seed: int) -> Any:
    value = param.value
    if not isinstance(value, Buffer):
        if value.dtype is DType.INDEX:
            return 2
        return values_of(value.dtype, 1, "small", seed)[0]
    shape = tuple(int(evaluate(extent, sizes)) for extent in value.shape)
    flat = values_of(value.dtype, math.prod(shape), filling, seed)
    return to_storage(np.array(flat, dtype=object).reshape(shape), value.dtype)


@st.composite
def arrays(
    draw: st.DrawFn, func: Func, *, sizes: Mapping[str, int] | None = None, special: bool = True
) -> dict[str, Any]:
    """Arguments by name: NumPy arrays in storage form, and numbers for scalars.

    They shrink towards ramps of small numbers.

    Args:
        draw: given by Hypothesis.
        func: the function that takes them.
        sizes: the symbolic sizes; drawn from 0 to 8 when not given.
        special: whether float arrays may hold NaN, infinities, negative zeros, denormals and the
            largest numbers. Integer arrays always take the whole range of their dtype.
    """
    source = Drawn(draw)
    known = make_sizes(source, func) if sizes is None else sizes
    return make_inputs(source, func, known, special=special)


@st.composite
def inputs(draw: st.DrawFn, func: Func, *, count: int = 2) -> list[dict[str, Any]]:
    """Several sets of arguments, of different sizes where these are symbolic.

    Args:
        draw: given by Hypothesis.
        func: the function that takes them.
        count: how many.
    """
    return [draw(arrays(func)) for _ in range(count)]
