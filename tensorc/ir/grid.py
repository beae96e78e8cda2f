"""Loops bound to the blocks and threads of a CUDA grid.

A bound loop is a parallel loop whose annotation `bind` names an axis, so it means what every
parallel loop means, and only the code generator for CUDA takes notice of the axis:

    for i in parallel(32, bind="blockIdx.x"):
        for j in parallel(256, bind="threadIdx.x"):
            B[i, j] = A[i, j]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from tensorc.ir.arith import constant, sub
from tensorc.ir.nodes import Alloc, For, Func, If, Seq, Stmt
from tensorc.ir.walk import Path, at

BIND = "bind"
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL = "vthread"
AXES = (*BLOCKS, *THREADS, VIRTUAL)


def axis_of(loop: For) -> str | None:
    """The axis to which a loop is bound, None for any other loop."""
    found = dict(loop.annotations).get(BIND) if loop.kind == "parallel" else None
    return found if isinstance(found, str) and found in AXES else None


def is_block(loop: For) -> bool:
    return axis_of(loop) in BLOCKS


def is_thread(loop: For) -> bool:
    return axis_of(loop) in THREADS


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
