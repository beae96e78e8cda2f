"""Calls of the vector functions of `tensorc.codegen.vecmath`, a register at a time."""

from __future__ import annotations

from tensorc.codegen import vecmath
from tensorc.codegen.context import Context
from tensorc.codegen.values import HALVES, Value, type_of
from tensorc.dtype import DType


def call(c: Context, name: str, *operands: Value) -> Value:
    """The function's value; halves are computed in f32, and not yet rounded."""
    first = operands[0]
    dtype = DType.F32 if first.dtype in HALVES else first.dtype
    width = c.target.lanes(dtype.bits)
    if first.lanes <= width:
        return first._replace(text=_call(c, name, dtype, first.lanes, operands))
    pieces: list[tuple[str, int]] = []
    for start in range(0, first.lanes, width):
        lanes = min(width, first.lanes - start)
        parts = [Value(_part(c, v, start, lanes), v.dtype, lanes) for v in operands]
        pieces.append((_call(c, name, dtype, lanes, tuple(parts)), lanes))
    while len(pieces) > 1:
        pairs = [pieces[i : i + 2] for i in range(0, len(pieces), 2)]
        pieces = [pair[0] if len(pair) == 1 else _joined(c, dtype, *pair) for pair in pairs]
    return first._replace(text=pieces[0][0])


def _call(c: Context, name: str, dtype: DType, lanes: int, operands: tuple[Value, ...]) -> str:
    symbol = vecmath.symbol(name, dtype, lanes)
    if symbol not in c.module.maths:
        c.module.maths[symbol] = vecmath.define(name, dtype, lanes, fma=c.target.fma)
    arguments = ", ".join(f"{value.type} {value.text}" for value in operands)
    return c.out.pure(f"call {type_of(dtype, lanes)} @{symbol}({arguments})")


def _part(c: Context, value: Value, start: int, lanes: int) -> str:
    order = ", ".join(f"i32 {lane}" for lane in range(start, start + lanes))
    if lanes == 1:
        return c.out.pure(f"extractelement {value.type} {value.text}, i64 {start}")
    return c.out.pure(
        f"shufflevector {value.type} {value.text}, {value.type} poison, <{lanes} x i32> <{order}>"
    )


def _joined(c: Context, dtype: DType, a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    """Two vectors as one. A shorter second one is filled up to the length of the first."""
    lanes = a[1] + b[1]
    type_, text = type_of(dtype, a[1]), b[0]
    if b[1] == 1:
        text = c.out.pure(f"insertelement {type_} poison, {type_of(dtype)} {text}, i64 0")
    elif b[1] < a[1]:
        order = ", ".join(f"i32 {i if i < b[1] else 'poison'}" for i in range(a[1]))
        short = type_of(dtype, b[1])
        text = c.out.pure(f"shufflevector {short} {text}, {short} poison, <{a[1]} x i32> <{order}>")
    order = ", ".join(f"i32 {i}" for i in range(lanes))
    joined = c.out.pure(f"shufflevector {type_} {a[0]}, {type_} {text}, <{lanes} x i32> <{order}>")
    return joined, lanes
