"""From integer sets back to the IR: conditions and bounds that a statement can stand under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import islpy as isl

from tensorc.analysis.affine import NotAffineError
from tensorc.dtype import DType
from tensorc.ir.arith import (
    FALSE,
    TRUE,
    add,
    at_most,
    both,
    constant,
    floordiv,
    floormod,
    index,
    less,
    mul,
    sub,
)
from tensorc.ir.nodes import Binary, BinaryOp, Const, Expr, Select, Var


def condition_of(
    domain: isl.Set, context: isl.Set, dims: Sequence[Expr], symbols: Mapping[str, str]
) -> Expr:
    """A condition on `dims` that holds, within `context`, exactly on `domain`.

    Both sets live in one space, whose dimensions stand for the expressions `dims` and whose
    parameters for the sizes in `symbols` (size name -> isl's name). Raises NotAffineError when the
    set has no quantifier-free form.
    """
    simplified = domain.gist(context).coalesce()
    if context.is_subset(domain):
        return TRUE
    if simplified.is_empty():
        return FALSE
    opened, names = _as_parameters(simplified, dims)
    names |= {isl_name: Var(name) for name, isl_name in symbols.items()}
    build = isl.AstBuild.from_context(isl.Set("{ : }"))
    return _Reader(names).condition(build.expr_from_set(opened))


def _as_parameters(domain: isl.Set, dims: Sequence[Expr]) -> tuple[isl.Set, dict[str, Expr]]:
    """The set with its dimensions turned into parameters d0, d1, ... and what those stand for."""
    names: dict[str, Expr] = {}
    domain = domain.reset_tuple_id() if domain.has_tuple_id() else domain
    count = domain.dim(isl.dim_type.set)
    have = domain.dim(isl.dim_type.param)
    domain = domain.move_dims(isl.dim_type.param, have, isl.dim_type.set, 0, count)
    for n in range(count):
        domain = domain.set_dim_name(isl.dim_type.param, have + n, f"d{n}")
        names[f"d{n}"] = dims[n]
    return domain.params(), names


class _Reader:
    """Reads isl's AST expressions into ours."""

    def __init__(self, names: Mapping[str, Expr]):
        self.names = names

    def value(self, expr: isl.AstExpr) -> Expr:
        kind = expr.get_type()
        if kind == isl.ast_expr_type.int:
            return index(expr.get_val().get_num_si())
        if kind == isl.ast_expr_type.id:
            return self.names[expr.get_id().get_name()]
        op = expr.get_op_type()
        a = [expr.get_op_arg(n) for n in range(expr.get_op_n_arg())]
        t = isl.ast_expr_op_type
        if op in (t.add, t.sub, t.mul):
            fold = {t.add: add, t.sub: sub, t.mul: mul}[op]
            return fold(self.value(a[0]), self.value(a[1]))
        if op == t.minus:
            return sub(index(0), self.value(a[0]))
        if op in (t.fdiv_q, t.pdiv_q, t.div):
            return floordiv(self.value(a[0]), self.value(a[1]))
        if op in (t.pdiv_r, t.zdiv_r):
            return floormod(self.value(a[0]), self.value(a[1]))
        if op in (t.min, t.max):
            name: BinaryOp = "min" if op == t.min else "max"
            total = self.value(a[0])
            for part in a[1:]:
                total = Binary(name, total, self.value(part))
            return total
        if op in (t.cond, t.select):
            return Select(self.condition(a[0]), self.value(a[1]), self.value(a[2]))
        raise NotAffineError(Const(0, DType.INDEX))

    def condition(self, expr: isl.AstExpr) -> Expr:
        if expr.get_type() == isl.ast_expr_type.int:
            return TRUE if expr.get_val().get_num_si() else FALSE
        op = expr.get_op_type()
        a = [expr.get_op_arg(n) for n in range(expr.get_op_n_arg())]
        t = isl.ast_expr_op_type
        if op in (t.and_, t.and_then):
            result: Expr = TRUE
            for part in a:
                result = both(result, self.condition(part))
            return result
        if op in (t.or_, t.or_else):
            parts = [self.condition(part) for part in a]
            result = parts[0]
            for part in parts[1:]:
                result = Binary("or", result, part)
            return result
        if op == t.eq:
            return Binary("eq", self.value(a[0]), self.value(a[1]))
        if op in (t.lt, t.le):
            return _before(self.value(a[0]), self.value(a[1]), strict=op == t.lt)
        if op in (t.gt, t.ge):
            return _before(self.value(a[1]), self.value(a[0]), strict=op == t.gt)
        raise NotAffineError(Const(0, DType.INDEX))


def _before(a: Expr, b: Expr, *, strict: bool) -> Expr:
    """a < b or a <= b, in the way in which people write it: i < 13 and not i <= 12."""
    if not strict and constant(b) is not None:
        return less(a, add(b, index(1)))
    if not strict and isinstance(a, Binary) and a.op == "add" and constant(a.b) == 1:
        return less(a.a, b)
    return less(a, b) if strict else at_most(a, b)


_Piece: TypeAlias = tuple[isl.Set, isl.Aff]

MOST_CORNERS = 16
"""So many corners of a loop's values are joined with others."""


def loop_bounds(values: isl.Map, dims: Sequence[Expr], symbols: Mapping[str, str]) -> Bounds | None:
    """begin and constant extent of a loop that runs over every value of `values`.

    `values` is { [dims] -> [v] }. None when no lower bound gives a constant extent.
    """
    opened, names = _as_parameters_of_map(values, dims)
    names |= {isl_name: Var(name) for name, isl_name in symbols.items()}
    least = opened.range().dim_min(0)
    pieces: list[_Piece] = []
    least.foreach_piece(lambda part, aff: pieces.append((part, aff)))
    best: tuple[int, isl.Aff] | None = None
    for _, aff in _with_joined(pieces):
        corner = isl.Set.from_pw_aff(isl.PwAff.from_aff(aff))
        distance = isl.Map.from_domain_and_range(corner, opened.range()).deltas()
        low, high = distance.dim_min_val(0), distance.dim_max_val(0)
        if low.is_int() and high.is_int():
            extent = high.get_num_si() - low.get_num_si() + 1
            if best is None or extent < best[0]:
                best = (extent, aff.add_constant_val(low))
    if best is None:
        return None
    build = isl.AstBuild.from_context(isl.Set("{ : }"))
    begin = _Reader(names).value(build.expr_from_pw_aff(isl.PwAff.from_aff(best[1])))
    return Bounds(begin, best[0])


def _with_joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The pieces, and what is one corner on several that differ in the value of a dimension.

    isl puts the value of a dimension in its place where it has only one: 0 at d0 = 0 and 512 at
    d0 = 1 are 512 * d0. Few are joined: corners are tried one after the other.
    """
    found = list(pieces)
    for number in range(MOST_CORNERS):
        if number >= len(found):
            break
        for other in found[:number]:
            corner = _joined(other, found[number])
            if corner is not None and all(not corner.plain_is_equal(aff) for _, aff in found):
                found.append((other[0].union(found[number][0]).coalesce(), corner))
    return found


def _joined(one: _Piece, other: _Piece) -> isl.Aff | None:
    """The affine function that is `one` and `other` at the values of a dimension which they fix."""
    kind = isl.dim_type.param
    step = other[1].sub(one[1])
    for n in range(one[1].dim(kind)) if step.is_cst() else ():
        a, b = (part.plain_get_val_if_fixed(kind, n) for part, _ in (one, other))
        if a.is_int() and b.is_int() and not a.eq(b):
            slope = step.get_constant_val().div(b.sub(a))
            if slope.is_int():
                moved = one[1].add_coefficient_val(kind, n, slope)
                return moved.add_constant_val(slope.mul(a).neg())
    return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values begin, ..., begin + extent - 1."""

    begin: Expr
    extent: int


def _as_parameters_of_map(values: isl.Map, dims: Sequence[Expr]) -> tuple[isl.Map, dict[str, Expr]]:
    """The map with its inputs turned into parameters d0, d1, ... and what those stand for."""
    have, count = values.dim(isl.dim_type.param), values.dim(isl.dim_type.in_)
    opened = values.move_dims(isl.dim_type.param, have, isl.dim_type.in_, 0, count)
    for n in range(count):
        opened = opened.set_dim_name(isl.dim_type.param, have + n, f"d{n}")
    return opened, {f"d{n}": dims[n] for n in range(count)}


def expressions_of(
    relation: isl.Map, inputs: Sequence[Expr], symbols: Mapping[str, str]
) -> list[Expr]:
    """The outputs of a single-valued relation as expressions of its inputs; 0 if it is empty.

    Raises NotAffineError when the relation is not single-valued or has no closed form.
    """
    opened, names = _as_parameters_of_map(relation, inputs)
    names |= {isl_name: Var(name) for name, isl_name in symbols.items()}
    if opened.is_empty():
        return [index(0)] * opened.dim(isl.dim_type.out)
    if not opened.is_single_valued():
        raise NotAffineError(Const(0, DType.INDEX))
    values = opened.range().reset_tuple_id()
    build = isl.AstBuild.from_context(values.params())
    count = values.dim(isl.dim_type.set)
    form = isl.PwMultiAff.from_set(values.coalesce())
    reader = _Reader(names)
    return [
        reader.value(build.expr_from_pw_aff(form.get_pw_aff(n).coalesce())) for n in range(count)
    ]
