"""For run-time checks: which elements are defined, kept by the program itself.

Every temporary and every "out" parameter gets a shadow, a buffer of the same shape whose elements
are 1 where an element was written. The emitter looks there before each load.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.codegen.passes.copies import Names
from tensorc.codegen.passes.trees import find, rebuilt
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.nodes import Alloc, Buffer, Const, For, Func, Stmt, Store, Var
from tensorc.ir.walk import replace, seq


def shadows(func: Func) -> tuple[Func, Mapping[str, Buffer]]:
    """The function with shadows, and the shadow of each buffer that has one."""
    names = Names(func)
    outputs = [p.value for p in func.params if isinstance(p.value, Buffer) and p.mode == "out"]
    shadowed = [*outputs, *(alloc.buffer for alloc in find(func, Alloc))]
    made = {buffer.name: _shadow(buffer, names) for buffer in shadowed}

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name in made:
            shadow = made[stmt.buffer.name]
            mark = Store(names.fresh(shadow.name), shadow, stmt.indices, _byte(1), stmt.span)
            return seq(stmt, mark)
        if isinstance(stmt, Alloc):
            shadow = made[stmt.buffer.name]
            return Alloc(shadow, seq(_cleared(shadow, names), stmt))
        return stmt

    body = rebuilt(func.body, change)
    for buffer in reversed(outputs):
        shadow = made[buffer.name]
        body = Alloc(shadow, seq(_cleared(shadow, names), body))
    return replace(func, body=body), made


def _shadow(buffer: Buffer, names: Names) -> Buffer:
    return Buffer(names.fresh(f"{buffer.name}.defined"), buffer.shape, DType.U8)


def _byte(value: int) -> Const:
    return Const(value, DType.U8)


def _cleared(shadow: Buffer, names: Names) -> Stmt:
    """Loops that set a shadow to 0."""
    axes = [Var(names.fresh(f"{shadow.name}.{axis}")) for axis in range(len(shadow.shape))]
    body: Stmt = Store(names.fresh(f"{shadow.name}.init"), shadow, tuple(axes), _byte(0))
    for var, extent in zip(reversed(axes), reversed(shadow.shape), strict=True):
        body = For(var, arith.index(0), extent, body)
    return body
