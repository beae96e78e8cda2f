"""Accesses that lie outside of their buffers, as far as that is certain before a run."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import NotAffineError, TooComplexError, model, operation_limit
from tensorc.analysis.effects import Access, Statement, statements
from tensorc.analysis.witness import element_text, smallest_point, vector_text
from tensorc.dtype import DType
from tensorc.errors import VerifyError
from tensorc.ir.arith import TRUE
from tensorc.ir.nodes import Func
from tensorc.ir.print import print_expr
from tensorc.ir.walk import span_at


def check_bounds(func: Func) -> None:
    """Every access whose place and conditions are affine stays within its buffer.

    What depends on data is not decided, nor is what only some sizes lead outside: the caller may
    know better.

    Raises:
        VerifyError: an access is outside, whatever the sizes are (at least 1 each).
    """
    for stmt in statements(func):
        ranges = region.loop_ranges(stmt.loops)
        for number, access in enumerate(stmt.accesses):
            if region.in_bounds(access.buffer, access.indices, ranges) != TRUE:
                for reason in _outside(func, stmt, number, access):
                    reason, span = f"statement `{stmt.name}`: {reason}", span_at(func, access.path)
                    raise VerifyError("bounds", reason, access.path, span)


def _outside(func: Func, stmt: Statement, number: int, access: Access) -> Iterator[str]:
    program = model(func)
    try:
        with operation_limit():
            relation, exact = program.access(stmt, number)
            inside = program.bounds(stmt, access)
            outside = relation.subtract_range(inside)
            positive = " and ".join(f"{size} >= 1" for size in program.symbols.values())
            sizes = isl.Set(f"{program.prefix}{{ : {positive or 'true'} }}")
            certain = exact and sizes.is_subset(outside.domain().params())
    except (NotAffineError, TooComplexError):
        return
    if certain:
        found, first, _ = smallest_point(outside.intersect_params(sizes))
        order = {outside.get_dim_name(isl.dim_type.param, n): n for n in range(len(found))}
        given = tuple((name, found[order[symbol]]) for name, symbol in program.symbols.items())
        values = (*given, *zip(stmt.loop_names, first, strict=True))
        shape = ", ".join(print_expr(extent, DType.INDEX) for extent in access.buffer.shape)
        place = f" at {vector_text(values)}" if values else ""
        yield f"{element_text(access, dict(values))[0]}{place} is outside of the shape ({shape})"
