"""The last stage: every access has one flat index, and every buffer one dimension."""

from __future__ import annotations

from functools import lru_cache, reduce

from tensorc.codegen.passes.trees import lanes_here, names_in
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Ramp,
    Store,
)
from tensorc.ir.walk import replace, rewrite


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """In elements: those that the buffer states, or those of a compact row-major array."""
    if buffer.strides is not None:
        return tuple(arith.index(stride) for stride in buffer.strides)
    strides: list[Expr] = [arith.index(1)] * len(buffer.shape)
    for axis in reversed(range(len(buffer.shape) - 1)):
        strides[axis] = arith.mul(strides[axis + 1], buffer.shape[axis + 1])
    return tuple(strides)


def extent_of(buffer: Buffer) -> Expr:
    """The number of elements from the first to the last one, the last included."""
    if buffer.strides is None:
        total: Expr = arith.index(1)
        return reduce(arith.mul, buffer.shape, total)
    last: Expr = arith.index(1)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = arith.add(last, arith.mul(arith.sub(extent, arith.index(1)), arith.index(stride)))
    return last


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The sum of index times stride: a `Ramp` where the vector indices are ramps."""
    if len(indices) == 1 and buffer.strides is None:
        return indices[0]
    return _flat_index(buffer, indices)


@lru_cache(maxsize=1 << 14)
def _flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    flat = _Sum(max(map(lanes_here, indices), default=1))
    for index, stride in zip(indices, strides_of(buffer), strict=True):
        flat.add(index, stride)
    flat.complete()
    return flat.expr()


class _Sum:
    """A flat index in the making: scalars, ramps, and other vectors with their factors."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.scalars: Expr = arith.index(0)
        self.step: Expr | None = None
        self.vectors: dict[Expr, Expr] = {}

    def add(self, index: Expr, factor: Expr) -> None:
        match index:
            case Ramp(base=base, stride=step):
                self.scalars = arith.add(self.scalars, arith.mul(base, factor))
                step = arith.mul(step, factor)
                self.step = step if self.step is None else arith.add(self.step, step)
            case Broadcast(value=value):
                self.scalars = arith.add(self.scalars, arith.mul(value, factor))
            case _ if lanes_here(index) == 1:
                self.scalars = arith.add(self.scalars, arith.mul(index, factor))
            case Binary(op="add", a=a, b=b):
                self.add(a, factor)
                self.add(b, factor)
            case Binary(op="mul", a=a, b=Broadcast(value=value)):
                self.add(a, arith.mul(value, factor))
            case _:
                before = self.vectors.get(index, arith.index(0))
                self.vectors[index] = arith.add(before, factor)

    def complete(self) -> None:
        """What `_completed` does, for vectors."""
        for vector, factor in tuple(self.vectors.items()):
            match vector:
                case Binary(op="floormod", a=a, b=Broadcast(value=value) as b):
                    quotient = Binary("floordiv", a, b)
                    if self.vectors.get(quotient) == arith.mul(factor, value):
                        del self.vectors[vector], self.vectors[quotient]
                        self.add(a, factor)
                        self.complete()
                        return

    def expr(self) -> Expr:
        scalars = _completed(linear(self.scalars)).expr()
        if self.step is not None:
            start: Expr = Ramp(scalars, self.step, self.lanes)
        else:
            start = scalars if self.lanes == 1 else Broadcast(scalars, self.lanes)
        general = (_scaled(vector, factor) for vector, factor in self.vectors.items())
        return reduce(lambda a, b: Binary("add", a, b), general, start)


def _completed(form: Linear) -> Linear:
    """x // d * (d * n) + x % d * n is x * n, as it comes from loops that were fused and split."""
    for atom, coefficient in form.terms.items():
        match atom:
            case Binary(op="floormod", a=a, b=Const(value=value) as b):
                quotient = Binary("floordiv", a, b)
                if form.terms.get(quotient) == coefficient * int(value):
                    rest = {t: c for t, c in form.terms.items() if t not in (atom, quotient)}
                    whole = linear(a)
                    return _completed(Linear(rest, form.constant).plus(whole, coefficient))
    return form


def _scaled(index: Expr, stride: Expr) -> Expr:
    if arith.constant(stride) == 1:
        return index
    return Binary("mul", index, Broadcast(stride, lanes_here(index)))


def flat_buffer(buffer: Buffer) -> Buffer:
    """The buffer with one dimension, if its extents are numbers."""
    if len(buffer.shape) == 1 and buffer.strides is None:
        return buffer
    return replace(buffer, shape=(extent_of(buffer),), strides=None)


def flatten(func: Func) -> Func:
    """Accesses with one index each. Parameters of symbolic shape keep it, since the sizes are read
    off it; the emitter computes their indices in the same way."""
    symbolic = {
        param.name
        for param in func.params
        if isinstance(param.value, Buffer) and any(map(names_in, param.value.shape))
    }

    def change(node: Node) -> Node | None:
        match node:
            case Load() | MaskedLoad() | Store() | MaskedStore() if (
                node.buffer.name not in symbolic
            ):
                index = flat_index(node.buffer, node.indices)
                return replace(node, buffer=flat_buffer(node.buffer), indices=(index,))
            case Alloc(buffer=buffer):
                return replace(node, buffer=flat_buffer(buffer))
        return None

    params = tuple(
        replace(param, value=flat_buffer(param.value))
        if isinstance(param.value, Buffer) and param.name not in symbolic
        else param
        for param in func.params
    )
    return replace(rewrite(func, change), params=params)
