"""Run-time checks: each ends the function with a code that says which one failed.

Checked code is the program as it stands, scalar and in order. Before an access its indices are
compared with the shape, and before a load the element's shadow is read.
"""

from __future__ import annotations

from tensorc.codegen.context import Context
from tensorc.ir.nodes import Buffer, Expr

OUT_OF_BOUNDS = "an index is out of bounds"
UNDEFINED = "an element is read before it is written"
OVERFLOW = "an index does not fit 64 bits"


def require(c: Context, condition: str, what: str) -> None:
    """End the function unless a condition holds, which need not be asked twice."""
    assert c.checks is not None
    if condition == "true" or not c.out.once(f"required {condition}"):
        return
    failed, going_on = c.out.fresh("failed"), c.out.fresh("on")
    c.out.branch(condition, going_on, failed)
    c.out.start(failed)
    c.out.effect(f"ret i32 {c.checks.code(what)}")
    c.out.start(going_on)


def in_bounds(c: Context, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """Check the indices of an access."""
    if c.checks is None or buffer in c.checks.shadows.values():
        return
    c.checks.buffer = buffer.name
    for index, extent in zip(indices, buffer.shape, strict=True):
        value = c.evaluate(c, index)
        limit = c.evaluate(c, extent)
        c.checks.buffer = buffer.name
        # As unsigned numbers, negative indices are past every end.
        condition = c.out.pure(f"icmp ult {value.type} {value.text}, {limit.text}")
        require(c, condition, OUT_OF_BOUNDS)


def fits(c: Context, opcode: str, a: str, b: int | str) -> str:
    """a sum, difference or product of indices, checked not to overflow."""
    pair = c.out.pure(f"call {{i64, i1}} @llvm.s{opcode}.with.overflow.i64(i64 {a}, i64 {b})")
    over = c.out.pure(f"extractvalue {{i64, i1}} {pair}, 1")
    require(c, c.out.pure(f"xor i1 {over}, true"), OVERFLOW)
    return c.out.pure(f"extractvalue {{i64, i1}} {pair}, 0")
