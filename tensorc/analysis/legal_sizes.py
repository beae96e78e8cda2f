"""The sizes for which no access of a function leaves its buffer, as a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import (
    Model,
    NotAffineError,
    TooComplexError,
    condition,
    model,
    operation_limit,
    term,
)
from tensorc.analysis.effects import Access, Statement, index_scalars, sizes
from tensorc.analysis.emit import condition_of
from tensorc.analysis.evaluate import evaluate
from tensorc.analysis.witness import element_text, vector_text
from tensorc.ir.arith import TRUE
from tensorc.ir.interval import interval
from tensorc.ir.nodes import Binary, Buffer, Expr, Func

ACCESS_LIMIT = 200_000
"""isl operations allowed to the question of one access; about a tenth of a second."""


@lru_cache(maxsize=256)
def legal_sizes(func: Func) -> Expr:
    """A condition on the sizes, and on scalars of index type, under which no access leaves its
    buffer; TRUE where there is none to be had.

    The instances of each access that are outside are projected on the sizes, and the complement of
    them all is put under what a call brings with it: sizes and extents of at least 0. For programs
    whose bounds, conditions and indices are affine the result is exact, quotients included. Of what
    is not affine only the certain part is refused: a statement whose loops or conditions depend on
    data, or a read under such a condition, is left out; of an index that depends on data, that its
    dimension may be empty is all that is asked. A question that isl does not answer within
    `ACCESS_LIMIT` is left out as well.
    """
    if not sizes(func) and not index_scalars(func):
        return TRUE
    program = model(func)
    context = _given(program)
    legal = context
    for stmt, access in _doubtful(program):
        try:
            with operation_limit(ACCESS_LIMIT):
                outside = _outside(program, stmt, access)
                legal = legal.subtract(isl.Set.from_params(outside.params())).coalesce()
        except (NotAffineError, TooComplexError):
            continue
    try:
        with operation_limit():
            return condition_of(legal, context, (), program.symbols)
    except (NotAffineError, TooComplexError):
        return TRUE


def first_outside(func: Func, values: Mapping[str, int]) -> str:
    """The first access that leaves its buffer for these sizes and scalars, in words; "" for none
    that could be found."""
    program = model(func)
    fixed = " and ".join(f"{symbol} = {values[name]}" for name, symbol in program.symbols.items())
    here = isl.Set(f"{program.prefix}{{ : {fixed or 'true'} }}")
    for stmt, access in _doubtful(program):
        try:
            with operation_limit():
                outside = _outside(program, stmt, access).intersect_params(here)
                if outside.is_empty():
                    continue
                point = outside.lexmin().sample_point()
        except (NotAffineError, TooComplexError):
            continue
        coordinates = [
            point.get_coordinate_val(isl.dim_type.set, n).get_num_si()
            for n in range(len(stmt.loops))
        ]
        vector = tuple(zip(stmt.loop_names, coordinates, strict=True))
        return _told(stmt, access, dict(values), vector)
    return ""


def _told(
    stmt: Statement, access: Access, values: dict[str, int], vector: tuple[tuple[str, int], ...]
) -> str:
    element = element_text(access, values | dict(vector))[0]
    extents = [evaluate(extent, values) for extent in access.buffer.shape]
    shape = ", ".join("?" if extent is None else str(extent) for extent in extents)
    place = f" at {vector_text(vector)}" if vector else ""
    return f"statement `{stmt.name}` would touch {element}{place}, outside of the shape ({shape})"


def _given(program: Model) -> isl.Set:
    """What holds of sizes at every call: none is negative, nor is an extent of a parameter."""
    parts = [program.context]
    for param in program.func.params:
        for extent in param.value.shape if isinstance(param.value, Buffer) else ():
            try:
                parts.append(f"{term(extent, program.symbols)} >= 0")
            except NotAffineError:
                continue
    return isl.Set(f"{program.prefix}{{ [] : {' and '.join(parts)} }}")


def _doubtful(program: Model) -> Iterator[tuple[Statement, Access]]:
    """The accesses that are not seen at once to be inside, each once."""
    seen = set()
    for stmt in program.statements:
        ranges = region.loop_ranges(stmt.loops)
        for access in stmt.accesses:
            key = (stmt.name, access.buffer, access.indices, access.conditions)
            inside = all(
                _inside(stmt, access, index, extent, interval(index, ranges))
                for index, extent in zip(access.indices, access.buffer.shape, strict=True)
            )
            if not inside and key not in seen:
                seen.add(key)
                yield stmt, access


def _inside(
    stmt: Statement, access: Access, value: Expr, extent: Expr, found: tuple[int | None, int | None]
) -> bool:
    """Whether an index is at least 0 by its interval, and below the extent by that, by a loop that
    ends there or by a condition that says so."""
    low, high = found
    if low is None or low < 0:
        return False
    limit = interval(extent, {})[0]
    if high is not None and limit is not None and high < limit:
        return True
    below = Binary("lt", value, extent)
    if below in stmt.conditions or below in access.conditions:
        return True
    return any(loop.var == value and loop.end == extent for loop in stmt.loops)


def _outside(program: Model, stmt: Statement, access: Access) -> isl.Set:
    """The instances that certainly touch what is not there. Raises NotAffineError."""
    domain = program.domain(stmt)
    if not domain.exact:
        raise NotAffineError(access.indices[0] if access.indices else TRUE)
    names = domain.names
    where = " and ".join(condition(guard, names) for guard in access.conditions) or "true"
    beyond: list[str] = []
    for value, extent in zip(access.indices, access.buffer.shape, strict=True):
        beyond += _beyond(value, extent, names, program.symbols)
    text = f"{program.tuple_of(stmt)} : ({' or '.join(beyond) or 'false'}) and {where}"
    return isl.Set(f"{program.prefix}{{ {text} }}").intersect(domain.set)


def _beyond(
    value: Expr, extent: Expr, names: Mapping[str, str], symbols: Mapping[str, str]
) -> Iterator[str]:
    """The ways in which one index is outside, as far as they are affine."""
    try:
        limit = term(extent, symbols)
    except NotAffineError:
        limit = ""
    try:
        place = term(value, names)
    except NotAffineError:
        if limit:
            yield f"{limit} <= 0"
        return
    yield f"{place} < 0"
    if limit:
        yield f"{place} >= {limit}"
