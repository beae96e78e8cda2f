"""Statements: loops, conditions, stores, and the parallel loops that become functions."""

from __future__ import annotations

from tensorc.codegen import emit_checks, emit_masks, emit_memory, emit_parallel
from tensorc.codegen.context import Context
from tensorc.codegen.emit_expr import evaluate
from tensorc.codegen.emit_index import index_of
from tensorc.codegen.emit_ops import broadcast
from tensorc.codegen.passes.flatten import flat_index
from tensorc.codegen.passes.trees import find, lanes_here
from tensorc.codegen.values import Value
from tensorc.dtype import DType
from tensorc.ir.arith import constant, sub
from tensorc.ir.nodes import Alloc, For, If, MaskedStore, Prefetch, Seq, Stmt, Store

KEPT = 4
"""An unrolled loop whose iterations load so few vectors each keeps them for the next iteration."""


def execute(c: Context, stmt: Stmt) -> None:
    match stmt:
        case Store():
            _store(c, stmt)
        case Seq(body=body):
            for part in body:
                execute(c, part)
        case For():
            _loop(c, stmt)
        case If():
            _if(c, stmt)
        case MaskedStore():
            c.seen = frozenset()
            emit_masks.masked_store(c, stmt)
        case Alloc(buffer=buffer, body=body):
            emit_memory.allocate(c, buffer)
            execute(c, body)
        case Prefetch(buffer=buffer, indices=indices):
            emit_memory.prefetch(c, buffer, indices)
        case _:
            raise TypeError(f"not a lowered statement: {stmt!r}")


def _store(c: Context, stmt: Store) -> None:
    c.seen = frozenset()
    if c.checks is not None:
        c.checks.statement = stmt.name
        emit_checks.in_bounds(c, stmt.buffer, stmt.indices)
    value = evaluate(c, stmt.value)
    lanes = lanes_here(flat_index(stmt.buffer, stmt.indices))
    emit_memory.store(c, stmt.buffer, stmt.indices, broadcast(c, value, lanes // value.lanes))


def _if(c: Context, stmt: If) -> None:
    c.seen = frozenset()
    condition = evaluate(c, stmt.condition).text
    if condition == "false":
        return
    if condition == "true":
        execute(c, stmt.body)
        return
    then, join = c.out.fresh("then"), c.out.fresh("join")
    c.out.branch(condition, then, join)
    c.out.start(then)
    with c.out.scope():
        execute(c, stmt.body)
    c.out.jump(join)
    c.out.start(join)


def _loop(c: Context, loop: For) -> None:
    name = loop.var.name
    if c.checks is not None:
        c.checks.statement, c.checks.buffer = name, ""
    begin, end = index_of(c, loop.begin), index_of(c, loop.end)
    if _unrolled(loop, begin, end):
        many = _copies(loop.body) > KEPT
        for iteration in range(int(begin), int(end)):
            if many:
                c.out.forget_loads()
            c.variables[name] = iteration
            execute(c, loop.body)
    elif loop.kind == "parallel" and not c.inside_parallel:
        emit_parallel.region(c, loop, begin, end)
    else:
        _counted(c, loop, begin, end)


def _copies(stmt: Stmt) -> int:
    """How often the loops that are written out within a statement repeat what is in them."""
    written_out = (inner for inner in find(stmt, For) if inner.kind == "unroll")
    return max((_extent(inner) * _copies(inner.body) for inner in written_out), default=1)


def _extent(loop: For) -> int:
    return constant(sub(loop.end, loop.begin)) or 1


def _unrolled(loop: For, begin: int | str, end: int | str) -> bool:
    if not (isinstance(begin, int) and isinstance(end, int)):
        return False
    return end - begin <= 1 or loop.kind == "unroll"


def _counted(c: Context, loop: For, begin: int | str, end: int | str) -> None:
    """A loop that tests at its end, behind a test of whether it runs at all."""
    out = c.out
    changed = emit_memory.written_in(c, loop)
    body, done = out.named(loop.var.name), out.fresh("done")
    front: list[str] = []
    out.lines.append(front)
    if not (isinstance(begin, int) and isinstance(end, int)):
        out.branch(out.pure(f"icmp slt i64 {begin}, {end}"), body, done)
    else:
        out.jump(body)
    before = out.block
    emit_memory.forget(c, changed)
    out.start(body)
    c.depth += 1
    c.depths[loop.var.name] = c.depth
    if isinstance(begin, int) and begin >= 0:
        c.natural.add(loop.var.name)
    head = len(out.lines)
    out.lines.append("")
    with out.loop(front), out.scope():
        variable = out.named(loop.var.name)
        c.variables[loop.var.name] = Value(variable, DType.INDEX)
        execute(c, loop.body)
        following = out.result(f"add nsw i64 {variable}, 1")
        more = out.result(f"icmp slt i64 {following}, {end}")
    c.depth -= 1
    # The loop is closed here, where its last block is known.
    out.lines[head] = f"  {variable} = phi i64 [{begin}, %{before}], [{following}, %{out.block}]"
    out.branch(more, body, done)
    out.start(done)
