"""Guards out of sets of instances: when does some instance of a statement exist?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from tensorc.analysis.affine import Model, NotAffineError, model, operation_limit, term
from tensorc.analysis.effects import Statement
from tensorc.analysis.emit import condition_of
from tensorc.ir.nodes import Expr, For, Func, Var


def loop_context(program: Model, loops: Sequence[For]) -> isl.Set:
    """{ [loops] : each within its bounds }, the loops outermost first."""
    names = program.symbols | {loop.var.name: f"x{n}" for n, loop in enumerate(loops)}
    parts = [program.context]
    for loop in loops:
        here = names[loop.var.name]
        parts.append(f"{term(loop.begin, names)} <= {here} < {term(loop.end, names)}")
    dims = ", ".join(names[loop.var.name] for loop in loops)
    return isl.Set(f"{program.prefix}{{ [{dims}] : {' and '.join(parts)} }}")


def projected(program: Model, stmt: Statement, loops: Sequence[For], within: isl.Set) -> isl.Set:
    """{ [loops] : some instance of the statement, of those in a set, has these values }."""
    dims = [stmt.loop_names.index(loop.var.name) for loop in loops]
    inside = ", ".join(f"x{n}" for n in dims)
    pick = isl.Map(f"{program.prefix}{{ {program.tuple_of(stmt)} -> [{inside}] }}")
    return within.apply(pick)


def _reading(program: Model, stmt: Statement, buffer: str) -> isl.Set:
    """The instances that perform some read of a buffer."""
    domain = program.domain(stmt).set
    total = domain.subtract(domain)
    for number, access in enumerate(stmt.accesses):
        if access.buffer.name == buffer and access.reads:
            total = total.union(program.access(stmt, number)[0].domain())
    return total


def instance_guard(
    func: Func,
    stmt: Statement,
    around: Sequence[For],
    chosen: Sequence[For],
    values: Mapping[str, Expr],
    reads: str | None = None,
) -> Expr:
    """The condition that some instance of `stmt` has these values of the `chosen` loops.

    With `reads`, an instance that reads this buffer. The condition may read the loops `around`;
    `values` gives the expressions that stand for the chosen loops. Raises NotAffineError when the
    instances are not known exactly: a guard that is true too often would make up new ones.
    """
    program = model(func)
    if not program.domain(stmt).exact:
        raise NotAffineError(Var(stmt.name))
    loops = (*around, *chosen)
    with operation_limit():
        within = program.domain(stmt).set
        if reads is not None:
            within = _reading(program, stmt, reads)
        wanted = projected(program, stmt, loops, within)
        context = loop_context(program, loops)
        meaning: list[Expr] = [Var(loop.var.name) for loop in around]
        meaning += [values[loop.var.name] for loop in chosen]
        return condition_of(wanted, context, meaning, program.symbols)
