"""A function as a program of the host: what is launched, in which order, and between which memory.

Each outermost bound loop becomes a kernel, a function of its own. What stands outside of bound
loops and computes something becomes a kernel of one thread, so that every program has a meaning on
a device; loops and conditions around kernels stay with the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.codegen.cuda.names import kernel_name
from tensorc.codegen.passes.extents import bound
from tensorc.codegen.passes.trees import find, leaves, names_in, with_body
from tensorc.ir import arith
from tensorc.ir.grid import is_block, is_thread
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, If, Param, Seq, Stmt, node
from tensorc.ir.walk import replace, replace_buffer, seq

# What the host does around a launch, outermost first.
Host: TypeAlias = tuple[For | If, ...]


@node
class Launch(Stmt):
    """The host runs kernel number `kernel` once."""

    kernel: int


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel before it is lowered, and the loops and conditions of the host around its launch.

    Its parameters are those of the whole function, then the temporaries of the host that are there,
    then the variables of the loops around.
    """

    func: Func
    host: Host

    @property
    def around(self) -> tuple[For, ...]:
        """The loops of the host."""
        return _loops(self.host)


def split(func: Func) -> tuple[Stmt, tuple[Part, ...]]:
    """The host's program, whose leaves are launches, and the kernels."""
    stage = _Stage(func)
    body = stage.visit(func.body, (), ())
    return body, tuple(stage.parts)


class _Stage:
    def __init__(self, func: Func):
        self.func = func
        self.parts: list[Part] = []

    def visit(self, stmt: Stmt, host: Host, memory: tuple[Buffer, ...]) -> Stmt:
        if _begins(stmt) or not any(map(_begins, find(stmt, For))):
            return self._launch(stmt, host, memory)
        match stmt:
            case For(body=body) | If(body=body):
                return with_body(stmt, self.visit(body, (*host, stmt), memory))
            case Alloc(buffer=buffer, body=body):
                held = _in_memory(buffer, _loops(host))
                return Alloc(held, self.visit(body, host, (*memory, held)), stmt.span)
            case Seq():
                return seq(*(self.visit(part, host, memory) for part in _grouped(stmt)))
        raise TypeError(f"not a statement of the unlowered IR: {stmt!r}")

    def _launch(self, stmt: Stmt, host: Host, memory: tuple[Buffer, ...]) -> Stmt:
        if next(leaves(stmt), None) is None:
            return Seq(())
        name = kernel_name(self.func.name)
        first = name if not self.parts else f"{name}_{len(self.parts) + 1}"
        params = [*self.func.params, *(Param(buffer, "inout") for buffer in memory)]
        params += [Param(loop.var) for loop in _loops(host)]
        body = _with_memory(stmt, memory)
        self.parts.append(Part(Func(first, tuple(params), body, self.func.span), host))
        return Launch(len(self.parts) - 1)


def _loops(host: Host) -> tuple[For, ...]:
    return tuple(stmt for stmt in host if isinstance(stmt, For))


def _begins(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and (is_block(stmt) or is_thread(stmt))


def _grouped(stmt: Seq) -> Iterator[Stmt]:
    """The parts of a sequence; neighbours without bound loops together."""
    plain: list[Stmt] = []
    for part in stmt.body:
        if any(map(_begins, find(part, For))):
            if plain:
                yield seq(*plain)
            plain = []
            yield part
        else:
            plain.append(part)
    if plain:
        yield seq(*plain)


def _in_memory(buffer: Buffer, around: tuple[For, ...]) -> Buffer:
    """The buffer in the device's memory, in a size that holds it in every iteration."""
    shape = tuple(bounded(extent, around) for extent in buffer.shape)
    return replace(buffer, scope="global", shape=shape)


def bounded(extent: Expr, loops: tuple[For, ...]) -> Expr:
    """The most that an extent can be in these loops."""
    if names_in(extent).isdisjoint(loop.var.name for loop in loops):
        return extent
    return arith.maximum(bound(extent, loops, upper=True), arith.index(0))


def _with_memory(stmt: Stmt, memory: tuple[Buffer, ...]) -> Stmt:
    for buffer in memory:
        stmt = replace_buffer(stmt, buffer.name, buffer)
    return stmt
