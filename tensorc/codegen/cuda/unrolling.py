"""Loops that index a thread's own arrays are unrolled, so that these can be registers.

The text keeps the loop and asks the compiler to unroll it; an array whose every index is then a
number becomes registers. Where too much would be written, the array stays in local memory, which
ptxas reports as a stack frame.
"""

from __future__ import annotations

from tensorc.codegen.passes.registers import accesses
from tensorc.codegen.passes.trees import find, names_in, rebuilt
from tensorc.ir.grid import extent_of, is_across
from tensorc.ir.nodes import Alloc, For, Func, If, Seq, Stmt
from tensorc.ir.walk import replace

MOST_INSTANCES = 4096
"""The most statements that unrolling may write in place of a loop."""
OWN = ("register", "local")


def unrolled(func: Func) -> Func:
    """`func` with such loops of kind "unroll"."""
    wanted: set[str] = set()
    for alloc in find(func, Alloc):
        if alloc.buffer.scope in OWN:
            for indices in accesses(alloc.body, alloc.buffer.name):
                wanted |= {name for index in indices for name in names_in(index)}

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.kind != "serial" or is_across(stmt):
            return stmt
        if stmt.var.name not in wanted:
            return stmt
        if extent_of(stmt) is None or _instances(stmt, wanted) > MOST_INSTANCES:
            return stmt
        return replace(stmt, kind="unroll")

    return replace(func, body=rebuilt(func.body, change))


def _instances(stmt: Stmt, wanted: set[str]) -> int:
    """How many statements there are once these loops are unrolled."""
    match stmt:
        case Seq(body=parts):
            return sum(_instances(part, wanted) for part in parts)
        case For(body=body):
            counts = stmt.kind == "unroll" or (stmt.kind == "serial" and stmt.var.name in wanted)
            return (extent_of(stmt) or 1 if counts else 1) * _instances(body, wanted)
        case If(body=body) | Alloc(body=body):
            return _instances(body, wanted)
    return 1
