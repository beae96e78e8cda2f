"""Random programs that run: those of strategies.py with small extents and tamed indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.arith import index
from tensorc.ir.interp import to_storage
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Ramp,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.operands import INTEGERS
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import map_children, nodes, replace, replace_buffer, rewrite, seq
from tests.ir.strategies import Draw, functions


def _bounded(indices: tuple[Expr, ...], buffer: Buffer) -> tuple[Expr, ...]:
    return tuple(Binary("floormod", i, e) for i, e in zip(indices, buffer.shape, strict=True))


def _scalar(node: Node) -> Node | None:
    match node:
        case Ramp(base=value) | Broadcast(value=value):
            return value
    return None


def _tame(node: Node) -> Node | None:
    """Accesses inside of the shape, loops of at most three iterations, ramps of integers only, and
    no vectors where one value belongs."""
    match node:
        case Ramp(base=base, lanes=lanes) if dtype_of(base) not in INTEGERS:
            return Broadcast(base, lanes)
        case If(condition=condition):
            return replace(node, condition=rewrite(condition, _scalar))
        case Load() | MaskedLoad() | Store() | MaskedStore():
            return replace(node, indices=_bounded(node.indices, node.buffer))
        case Reduce():
            return replace(node, indices=_bounded(node.indices, node.buffers[0]))
        case For():
            begin, end = rewrite(node.begin, _scalar), rewrite(node.end, _scalar)
            return replace(
                node, begin=begin, end=Binary("min", end, Binary("add", begin, index(3)))
            )
    return None


def _filled(buffer: Buffer, body: Stmt, name: str) -> Stmt:
    """Every element set to 1, then the body."""
    variables = [Var(f"{name}.{axis}") for axis in range(len(buffer.shape))]
    fill: Stmt = Store(name, buffer, tuple(variables), Const(1, buffer.dtype))
    for var, extent in zip(reversed(variables), reversed(buffer.shape), strict=True):
        fill = For(var, index(0), extent, fill)
    return seq(fill, body)


def small(draw: Draw, func: Func) -> Func:
    """The same with small extents, all shapes of one rank alike, and most buffers filled."""
    extents = st.sampled_from((index(1), index(2), index(3), index(2), index(0)))
    if sizes := [Var(name) for name in sorted(_sizes(func))]:
        extents |= st.sampled_from(sizes)
    shapes: dict[int, tuple[Expr, ...]] = {}
    params, body = [], func.body

    def shrunk(buffer: Buffer) -> Buffer:
        rank = len(buffer.shape)
        if rank not in shapes:
            shapes[rank] = tuple(draw(extents) for _ in range(rank))
        return replace(buffer, shape=shapes[rank])

    for param in func.params:
        value = param.value
        if isinstance(value, Buffer) and not all(isinstance(extent, Var) for extent in value.shape):
            value = shrunk(value)
            body = replace_buffer(body, value.name, value)
        params.append(replace(param, value=value))
    for alloc in list(nodes(body, Alloc)):
        body = replace_buffer(body, alloc.buffer.name, shrunk(alloc.buffer))
    body = _most_filled(draw, rewrite(body, _tame))
    for param in params:
        if param.mode == "out" and draw(st.integers(0, 9)):
            body = _filled(param.value, body, f"{param.name}.fill")
    return replace(func, params=tuple(params), body=body)


def _most_filled(draw: Draw, node: Node) -> Node:
    """Most allocations set to 1 at once."""
    node = map_children(node, lambda child: _most_filled(draw, child))
    if isinstance(node, Alloc) and draw(st.integers(0, 9)):
        return replace(node, body=_filled(node.buffer, node.body, f"{node.buffer.name}.fill"))
    return node


def _sizes(func: Func) -> set[str]:
    return {
        extent.name
        for param in func.params
        if isinstance(param.value, Buffer)
        for extent in param.value.shape
        if isinstance(extent, Var)
    }


@st.composite
def programs(draw: Draw) -> Func:
    return small(draw, draw(functions()))


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 3e38, 1e-40, 65504.0, 1e-7)


def values(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a dtype: mostly small, some extreme. Floats as float64, exactly representable."""
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        chosen = np.where(
            generator.random(shape) < 0.2,
            generator.choice(SPECIAL, shape),
            generator.normal(size=shape),
        )
        rounded = [dtype.wrap(value) for value in chosen.ravel().tolist()]
        return np.array(rounded, dtype=np.float64).reshape(shape)
    low, high = int(dtype.min), int(dtype.max)
    small = generator.integers(max(low, -3), 4, shape)
    wide = generator.integers(low, high, shape, dtype=np.int64, endpoint=True)
    return np.where(generator.random(shape) < 0.7, small, wide)


def arguments_for(func: Func, seed: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Arguments for a function: for `run`, as plain values, and the sizes that they give."""
    generator = np.random.default_rng(seed)
    sizes = {name: int(generator.integers(0, 4)) for name in sorted(_sizes(func))}
    stored: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for param in func.params:
        dtype = param.value.dtype
        if isinstance(param.value, Var):
            plain[param.name] = values(generator, dtype, (1,))[0].item()
            stored[param.name] = plain[param.name]
            continue
        shape = tuple(
            sizes[e.name] if isinstance(e, Var) else int(e.value) for e in param.value.shape
        )
        plain[param.name] = values(generator, dtype, shape)
        stored[param.name] = to_storage(plain[param.name], dtype)
    return stored, plain, sizes
