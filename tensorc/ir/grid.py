"""Loops bound to the blocks and threads of a CUDA grid.

A bound loop is a parallel loop whose annotation `bind` names an axis, so it means what every
parallel loop means, and only the code generator for CUDA takes notice of the axis:

    for i in parallel(32, bind="blockIdx.x"):
        for j in parallel(256, bind="threadIdx.x"):
            B[i, j] = A[i, j]

A serial loop may be bound to threads, too, when it carries nothing but the reductions in it. Each
thread then reduces what falls to it into an element of its own, and the threads combine these; the
first of them puts the result into the element:

    for i in parallel(32, bind="blockIdx.x"):
        for k in range(256, bind="threadIdx.x"):
            B[i] += A[i, k]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from tensorc.ir.arith import constant, sub
from tensorc.ir.nodes import Alloc, For, Func, If, Reduce, Seq, Stmt
from tensorc.ir.walk import Path, at, nodes, variables

BIND = "bind"
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL = "vthread"
AXES = (*BLOCKS, *THREADS, VIRTUAL)
GROUP = "group"
"""How many neighbours along the axis combine their iterations of a serial loop bound to threads;
all of them where the loop has no such note, which only lowered programs have."""
WARP = 32


def axis_of(loop: For) -> str | None:
    """The axis to which a loop is bound, None for any other loop."""
    if loop.kind not in _AXES_OF_KIND or not loop.annotations:
        return None
    found = dict(loop.annotations).get(BIND)
    return found if isinstance(found, str) and found in _AXES_OF_KIND[loop.kind] else None


_AXES_OF_KIND = {"parallel": AXES, "serial": THREADS}


def is_block(loop: For) -> bool:
    return axis_of(loop) in BLOCKS


def is_thread(loop: For) -> bool:
    return axis_of(loop) in THREADS


def is_across(loop: For) -> bool:
    """Whether threads combine the iterations of a loop, which is a reduction's."""
    return loop.kind == "serial" and is_thread(loop)


def group_of(loop: For) -> int:
    """How many iterations of such a loop are combined into one element."""
    found = dict(loop.annotations).get(GROUP)
    return found if isinstance(found, int) else max(extent_of(loop) or 1, 1)


@lru_cache(maxsize=1024)
def combines(loop: For, node: Stmt) -> bool:
    """Whether a statement of a loop is a reduction into one element, the same in all iterations:
    what threads combine when the loop is bound to them as a serial one."""
    if not isinstance(node, Reduce):
        return False
    if any(key == GROUP for key, _ in loop.annotations):
        return True
    inner = {loop.var.name} | {x.var.name for x in nodes(loop.body, For)}
    own = {alloc.buffer.name for alloc in nodes(loop.body, Alloc)}
    alike = not any(variables(index) & inner for index in node.indices)
    return alike and own.isdisjoint(buffer.name for buffer in node.buffers)


def extent_of(loop: For) -> int | None:
    """The number of iterations when it is known; never negative."""
    extent = constant(sub(loop.end, loop.begin))
    return None if extent is None else max(extent, 0)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What runs as one kernel: the subtree of an outermost loop that is bound to blocks or threads.

    `blocks` are the loops bound to blocks, which begin it as a perfect nest, and `threads` all
    those bound to threads, each with its path. `depth` counts the loops around its body: those
    around it, and `blocks`.
    """

    path: Path
    blocks: tuple[tuple[Path, For], ...]
    threads: tuple[tuple[Path, For], ...]
    depth: int

    @property
    def body(self) -> Path:
        """Where what one block does begins."""
        return (*self.blocks[-1][0], "body") if self.blocks else self.path

    def outermost(self) -> Iterator[tuple[Path, For]]:
        """The loops bound to threads that lie in no other such loop: the phases of the kernel."""
        last: Path | None = None
        for path, loop in self.threads:
            if last is None or path[: len(last)] != last:
                last = path
                yield path, loop

    def block(self) -> tuple[int, int, int]:
        """How many threads a block has along x, y and z: the largest extent bound to each axis."""
        sizes = dict.fromkeys(THREADS, 1)
        for _, loop in self.threads:
            axis = axis_of(loop)
            assert axis is not None
            sizes[axis] = max(sizes[axis], extent_of(loop) or 1)
        return sizes[THREADS[0]], sizes[THREADS[1]], sizes[THREADS[2]]

    def across(self) -> Iterator[tuple[Path, For]]:
        """The loops whose iterations threads combine."""
        return ((path, loop) for path, loop in self.threads if is_across(loop))

    def chain(self, path: Path) -> tuple[For, ...] | None:
        """The loops from a phase down to one of its loops, each the whole body of the one before;
        None where there is anything else between."""
        inner = next(loop for at_, loop in self.threads if at_ == path)
        for start, loop in self.outermost():
            if path[: len(start)] == start:
                chain = [loop]
                while chain[-1] is not inner:
                    body = chain[-1].body
                    if not isinstance(body, For) or not is_thread(body):
                        return None
                    chain.append(body)
                return tuple(chain)
        return None

    def shuffled(self, loop: For) -> int:
        """How many neighbours along the axis of a loop lie in one warp, whatever the others do: a
        power of two, or 0 where rows of threads begin within a warp and end in another one."""
        x = self.block()[0]
        if axis_of(loop) != THREADS[0] or (x % WARP and x & (x - 1)) or (x % WARP and x > WARP):
            return 0
        return min(x, WARP)


@lru_cache(maxsize=512)
def kernels(func: Func) -> tuple[Kernel, ...]:
    """The kernels of a function in text order."""
    return tuple(_kernels(func.body, ("body",), 0))


def _kernels(stmt: Stmt, path: Path, depth: int) -> Iterator[Kernel]:
    match stmt:
        case For() if is_block(stmt) or is_thread(stmt):
            blocks: list[tuple[Path, For]] = []
            here, inner = path, cast(Stmt, stmt)
            while isinstance(inner, For) and is_block(inner):
                blocks.append((here, inner))
                here, inner = (*here, "body"), inner.body
            threads = tuple(x for x in _loops(stmt, path) if is_thread(x[1]))
            yield Kernel(path, tuple(blocks), threads, depth + len(blocks))
        case For(body=body):
            yield from _kernels(body, (*path, "body"), depth + 1)
        case If(body=body) | Alloc(body=body):
            yield from _kernels(body, (*path, "body"), depth)
        case Seq(body=parts):
            for position, part in enumerate(parts):
                yield from _kernels(part, (*path, "body", position), depth)


def loops_of(func: Func, path: Path) -> Iterator[tuple[Path, For]]:
    """The loops of the subtree at `path`, outer before inner."""
    root = at(func, path)
    assert isinstance(root, Stmt)
    return _loops(root, path)


def _loops(stmt: Stmt, path: Path) -> Iterator[tuple[Path, For]]:
    match stmt:
        case For(body=body):
            yield path, stmt
            yield from _loops(body, (*path, "body"))
        case If(body=body) | Alloc(body=body):
            yield from _loops(body, (*path, "body"))
        case Seq(body=parts):
            for position, part in enumerate(parts):
                yield from _loops(part, (*path, "body", position))
