"""Reads of tensors that are certain to be out of bounds, found when an expression is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Binary, Expr, Load, Select
from tensorc.ir.print import print_expr
from tensorc.ir.tensors import Symbol
from tensorc.ir.walk import children

# The first and the last value of an axis.
Ends: TypeAlias = tuple[Linear, Linear]


def check_reads(exprs: Sequence[Expr], axes: Mapping[Symbol, tuple[Expr, Expr]]) -> None:
    """Refuses a read, at some point of the box of axes (begin, end), of no element.

    Reads that a condition guards are not looked at, nor is anything when an axis may be empty for
    every size, or has bounds that depend on other axes.

    Raises:
        ArgumentError: it names the index, the value that it reaches and the legal ones.
    """
    ends = {axis: _ends(begin, end) for axis, (begin, end) in axes.items()}
    if any(not last.terms and not first.terms and last.constant < first.constant
           for first, last in ends.values()):  # fmt: skip
        return
    for expr in exprs:
        for load in _certain(expr):
            for dimension, index in enumerate(load.indices):
                _check(load, dimension, index, ends)


def _ends(begin: Expr, end: Expr) -> Ends:
    return linear(begin), linear(end) - Linear({}, 1)


def _certain(expr: Expr) -> Iterator[Load]:
    """The loads that are performed whenever the expression is evaluated."""
    if isinstance(expr, Load):
        yield expr
    match expr:
        case Select(condition=first) | Binary(op="and" | "or", a=first):
            yield from _certain(first)
        case _:
            for _, child in children(expr):
                assert isinstance(child, Expr)
                yield from _certain(child)


def _check(load: Load, dimension: int, index: Expr, ends: Mapping[Symbol, Ends]) -> None:
    combination = linear(index)
    if not all(isinstance(atom, Symbol) and atom in ends for atom in combination.terms):
        return
    least, most = _reach(combination, ends, lower=True), _reach(combination, ends, lower=False)
    extent = linear(load.buffer.shape[dimension])
    over = most - extent
    below = not least.terms and least.constant < 0
    if not below and (over.terms or over.constant < 0):
        return
    name, reached = load.buffer.name, _text((least if below else most).expr())
    raise ArgumentError(
        "indices",
        f"index {dimension} of {name}, {_text(index)}, reaches {reached}; legal is 0 <= index < "
        f"{_text(extent.expr())}. A read in tc.select(condition, {name}[...], ...) is performed "
        f"only where the condition holds",
    )


def _text(index: Expr) -> str:
    return print_expr(index, DType.INDEX)


def _reach(combination: Linear, ends: Mapping[Symbol, Ends], *, lower: bool) -> Linear:
    """The least or the greatest value of a combination of different axes."""
    total = Linear({}, combination.constant)
    for atom, coefficient in combination.terms.items():
        assert isinstance(atom, Symbol)
        first, last = ends[atom]
        total = total.plus(first if (coefficient > 0) == lower else last, coefficient)
    return total
