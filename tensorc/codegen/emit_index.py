"""Index arithmetic: 64-bit sums, folded as far as unrolled loops make them constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tensorc.codegen.context import Context
from tensorc.codegen.emit_checks import fits
from tensorc.codegen.emit_ops import binary
from tensorc.codegen.values import Value, constant
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Binary, Expr, Var
from tensorc.ir.walk import children

_FOLDS: Mapping[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else a,
    "min": min,
    "max": max,
    "mul": lambda a, b: a * b,
}


_UNSIGNED = {"floordiv": "udiv", "floormod": "urem"}

# What `index_of` computes itself; of any other operation it takes the value.
OPERATIONS = frozenset({"add", "sub", *_FOLDS})


def index_of(c: Context, expr: Expr) -> int | str:
    """A scalar index expression: a number where it is one, else a local name."""
    if isinstance(expr, Var):
        bound = c.variables[expr.name]
        return bound if isinstance(bound, int) else bound.text
    offset, parts = sum_of(c, expr)
    if not parts:
        return offset
    total = total_of(c, parts)
    if offset and c.checks is not None:
        return fits(c, "add", total, offset)
    return c.out.pure(f"add i64 {total}, {offset}") if offset else total


def sum_of(c: Context, expr: Expr) -> tuple[int, tuple[tuple[int, str, int], ...]]:
    """The sum as a number and, outermost loop first, (depth, name, coefficient)s.

    The terms of outer loops stand first so that their sum is the same in all inner iterations.
    """
    offset, terms = _terms(expr)
    parts: list[tuple[int, str, int]] = []
    for atom, coefficient in terms:
        value = _atom(c, atom)
        if isinstance(value, int):
            offset += coefficient * value
        else:
            parts.append((_depth(c, atom), value, coefficient))
    if len(parts) > 1:
        parts.sort(key=lambda part: part[0])
    return offset, tuple(parts)


@lru_cache(maxsize=1 << 14)
def _terms(expr: Expr) -> tuple[int, tuple[tuple[Expr, int], ...]]:
    form = linear(expr)
    return form.constant, tuple(form.terms.items())


def total_of(c: Context, parts: tuple[tuple[int, str, int], ...]) -> str:
    if c.checks is not None:
        return _checked_total(c, parts)
    pure = c.out.pure
    total = ""
    for _, name, coefficient in parts:
        term = name if coefficient == 1 else pure(f"mul i64 {name}, {coefficient}")
        total = pure(f"add i64 {total}, {term}") if total else term
    return total


def _checked_total(c: Context, parts: tuple[tuple[int, str, int], ...]) -> str:
    total = ""
    for _, name, coefficient in parts:
        term = name if coefficient == 1 else fits(c, "mul", name, coefficient)
        total = fits(c, "add", total, term) if total else term
    return total


def as_value(index: int | str) -> Value:
    if isinstance(index, int):
        return constant(index, DType.INDEX)
    return Value(index, DType.INDEX)


def _atom(c: Context, atom: Expr) -> int | str:
    if isinstance(atom, Var):
        bound = c.variables[atom.name]
        return bound if isinstance(bound, int) else bound.text
    if isinstance(atom, Binary) and atom.op in _FOLDS:
        a, b = index_of(c, atom.a), index_of(c, atom.b)
        if isinstance(a, int) and isinstance(b, int):
            return _FOLDS[atom.op](a, b)
        simple = atom.op in _UNSIGNED and isinstance(b, int) and b > 0
        if simple and _never_negative(c, atom.a):
            return c.out.pure(f"{_UNSIGNED[atom.op]} i64 {a}, {b}")
        if atom.op == "mul" and c.checks is not None:
            return fits(c, "mul", str(a), str(b))
        return binary(c, atom.op, as_value(a), as_value(b)).text
    return c.evaluate(c, atom).text


def _never_negative(c: Context, expr: Expr) -> bool:
    """Whether a dividend is surely not negative, so that a quotient needs no correction."""
    offset, terms = _terms(expr)
    return offset >= 0 and all(
        coefficient > 0 and isinstance(atom, Var) and atom.name in c.natural
        for atom, coefficient in terms
    )


def _depth(c: Context, atom: Expr) -> int:
    if isinstance(atom, Var):
        return c.depths.get(atom.name, 0)
    found = c.atom_depths.get(atom)
    if found is None:
        found = max((_depth(c, n) for _, n in children(atom) if isinstance(n, Expr)), default=0)
        c.atom_depths[atom] = found
    return found


def known_index(c: Context, expr: Expr) -> int | None:
    """The number that an index expression is here, or None."""
    value = index_of(c, expr) if arith.constant(expr) is None else arith.constant(expr)
    return value if isinstance(value, int) else None
