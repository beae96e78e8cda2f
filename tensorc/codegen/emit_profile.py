"""Time per outermost nest: the clock is read before and after each, and the ticks are added up."""

from __future__ import annotations

from tensorc.codegen import emit_memory
from tensorc.codegen.context import Context
from tensorc.codegen.passes.trees import leaves
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import Alloc, For, If, Seq, Stmt

# The fixed-rate counter that user programs may read. Where there is none, all times are 0.
CLOCKS = {"x86_64": "llvm.readcyclecounter", "aarch64": "llvm.readsteadycounter"}


def measured(c: Context, body: Stmt) -> tuple[str, ...]:
    """Execute the body of a function; returns the names of its nests in the order of their
    counters, each of which is two 64-bit numbers: ticks and how often."""
    names: list[str] = []

    def visit(stmt: Stmt) -> None:
        match stmt:
            case Seq(body=parts):
                for part in parts:
                    visit(part)
            case Alloc(buffer=buffer, body=inner):
                emit_memory.allocate(c, buffer)
                visit(inner)
            case _:
                names.append(first_free(_name(stmt), names))
                _timed(c, stmt, len(names) - 1)

    visit(body)
    return tuple(names)


def _name(stmt: Stmt) -> str:
    """The outermost loop's variable, or the statement's name."""
    while isinstance(stmt, If | Alloc):
        stmt = stmt.body
    return stmt.var.name if isinstance(stmt, For) else next(leaves(stmt)).name


def _timed(c: Context, stmt: Stmt, number: int) -> None:
    before = _clock(c)
    c.execute(c, stmt)
    ticks = c.out.result(f"sub i64 {_clock(c)}, {before}")
    for counter, amount in ((2 * number, ticks), (2 * number + 1, "1")):
        place = c.out.pure(f"getelementptr i64, ptr %profile, i64 {counter}")
        old = c.out.result(f"load i64, ptr {place}, align 8")
        new = c.out.result(f"add i64 {old}, {amount}")
        c.out.effect(f"store i64 {new}, ptr {place}, align 8")


def _clock(c: Context) -> str:
    name = CLOCKS.get(c.target.architecture)
    return c.out.result(f"call i64 @{name}()") if name else "0"
