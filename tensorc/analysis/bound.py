"""The rules of bound nests: how blocks and threads nest, and the limits of the device."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorc.analysis.across import across, combined, exchanged
from tensorc.analysis.tensor_cores import tensorized
from tensorc.analysis.threads import owned, phases_apart
from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.arith import constant
from tensorc.ir.grid import (
    BLOCKS,
    THREADS,
    VIRTUAL,
    Kernel,
    axis_of,
    extent_of,
    is_block,
    kernels,
    loops_of,
)
from tensorc.ir.nodes import Alloc, Buffer, For, Func
from tensorc.ir.walk import Path, enclosing, statements, variables, written
from tensorc.target import Target

PRIVATE = ("local", "register")
SHARED_ALIGNMENT = 16
"""Bytes to which buffers in shared memory are aligned."""


def bound_violations(func: Func, target: Target) -> Iterator[Violation]:
    """Why the bound loops of a function cannot run as kernels on a device, cheapest first."""
    for kernel in kernels(func):
        broken = [
            *_nesting(func, kernel),
            *_extents(func, kernel),
            *_limits(func, kernel, target),
            *_memory(func, kernel, target),
            *tensorized(func, kernel, target),
        ]
        yield from broken
        if not broken:
            for path, loop in kernel.across():
                yield from across(func, path, loop)
            yield from phases_apart(func, kernel)
            for path, alloc in temporaries(func, kernel):
                if alloc.buffer.scope in PRIVATE:
                    yield from owned(func, kernel, path, alloc)


def temporaries(func: Func, kernel: Kernel) -> Iterator[tuple[Path, Alloc]]:
    """The allocations of a kernel that lie in none of its phases."""
    phases = [path for path, _ in kernel.outermost()]
    for path, node in allocations(func, kernel.path):
        if not any(path[: len(phase)] == phase for phase in phases):
            yield path, node


def allocations(func: Func, below: Path) -> Iterator[tuple[Path, Alloc]]:
    """The allocations of the subtree at a path."""
    for path, node in statements(func):
        if isinstance(node, Alloc) and path[: len(below)] == below:
            yield path, node


def bytes_of(buffer: Buffer) -> int | None:
    """The size of a compact buffer when it is known."""
    extents = [constant(extent) for extent in buffer.shape]
    if None in extents:
        return None
    return prod(max(n or 0, 0) for n in extents) * buffer.dtype.bytes


# How loops nest -----------------------------------------------------------------------------------


def _nesting(func: Func, kernel: Kernel) -> Iterator[Violation]:
    """STR009: blocks outside of threads, in a perfect nest, and each axis once on a way down."""
    first = {path for path, _ in kernel.blocks}
    for path, loop in loops_of(func, kernel.path):
        axis, name = axis_of(loop), loop.var.name
        if axis is None or axis == VIRTUAL:
            continue
        around = [x for _, x in enclosing(func, path) if isinstance(x, For)]
        same = next((x for x in around if axis_of(x) == axis), None)
        if same is not None:
            reason = f"`{same.var.name}` around it is bound to {axis} already"
            yield malformed("STR009", f"cannot bind `{name}` to {axis}: {reason}", path)
        elif is_block(loop) and path not in first:
            reason = "blocks are the outermost loops of a kernel, with nothing between them"
            outer = func_loop(func, kernel.path).var.name
            where = f"`{name}` lies inside of `{outer}`"
            message = f"cannot bind `{name}` to {axis}: {where}, and {reason}"
            yield malformed("STR009", message, kernel.path, path)
    for path, loop in kernel.across():
        if kernel.chain(path) is None:
            phase = next(x.var.name for p, x in kernel.outermost() if path[: len(p)] == p)
            reason = f"`{phase}` around it holds more than it"
            message = f"threads cannot combine the iterations of `{loop.var.name}`: {reason}"
            advice = f"fission `{phase}` before and after it"
            yield malformed("STR009", message, path, advice=advice)


def func_loop(func: Func, path: Path) -> For:
    """The loop at a path."""
    return next(x for where, x in loops_of(func, path) if where == path)


def _extents(func: Func, kernel: Kernel) -> Iterator[Violation]:
    """STR004, STR006: a launch knows the extents of blocks, and the compiler those of threads."""
    blocks = {x.var.name for _, x in kernel.blocks}
    for path, loop in kernel.blocks:
        if (variables(loop.begin) | variables(loop.end)) & blocks:
            reason = "its bounds read another block's loop"
            yield malformed("STR006", f"cannot bind `{loop.var.name}` to blocks: {reason}", path)
    for path, loop in loops_of(func, kernel.path):
        if axis_of(loop) in (*THREADS, VIRTUAL) and extent_of(loop) is None:
            reason = "its extent is not a constant"
            advice = f"split `{loop.var.name}`, then bind the inner part"
            message = f"cannot bind `{loop.var.name}` to {axis_of(loop)}: {reason}"
            yield malformed("STR004", message, path, advice=advice)


# The device's limits ------------------------------------------------------------------------------


def _limits(func: Func, kernel: Kernel, target: Target) -> Iterator[Violation]:
    """TGT001: how many threads a block has, how many blocks a grid, and copies a virtual thread."""
    for path, loop in loops_of(func, kernel.path):
        axis, extent = axis_of(loop), extent_of(loop)
        if axis is None or extent is None:
            continue
        most = _most(axis, target)
        if extent > most:
            reason = f"it has {extent} iterations, {axis} at most {most}"
            message = f"cannot bind `{loop.var.name}` to {axis}: {reason}"
            advice = f"split `{loop.var.name}`, then bind the inner part"
            yield malformed("TGT001", message, path, advice=advice)
    if any(extent_of(loop) is None for _, loop in kernel.threads):
        return
    sizes, most = kernel.block(), target.limit("threads_per_block")
    if prod(sizes) > most:
        shape = " x ".join(map(str, sizes))
        reason = f"a block would have {shape} threads, at most {most} are possible"
        paths = [path for path, _ in kernel.threads]
        yield malformed("TGT001", f"too many threads: {reason}", *paths)


MOST_COPIES = 64
"""A virtual thread is written out, so this many iterations at most."""


def _most(axis: str, target: Target) -> int:
    kind, _, letter = axis.partition(".")
    if kind == VIRTUAL:
        return MOST_COPIES
    return target.limit(f"{'grid' if axis in BLOCKS else 'block'}_{letter}")


def _aligned(size: int) -> int:
    return -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT


def _exchanged(func: Func, kernel: Kernel) -> Iterator[int]:
    """The bytes of shared memory that reductions across threads take."""
    for path, loop in kernel.across():
        chain = kernel.chain(path)
        for stmt in combined(func, loop):
            for buffer in written(stmt.node):
                yield exchanged(kernel, chain or (loop,)) * buffer.dtype.bytes


def _memory(func: Func, kernel: Kernel, target: Target) -> Iterator[Violation]:
    """STR002, STR003, STR004, TGT001: where temporaries are allocated, and how much is shared."""
    for path, node in enclosing(func, kernel.path):
        if isinstance(node, Alloc) and node.buffer.scope in (*PRIVATE, "shared"):
            loop, name = func_loop(func, kernel.path).var.name, node.buffer.name
            reason = f"`{name}` is {node.buffer.scope} and allocated around `{loop}`"
            message = f"cannot run `{loop}` as a grid: {reason}, where all of it would share it"
            yield malformed("STR003", message, path, kernel.path)
    total = 0
    outside = {path for path, _ in temporaries(func, kernel)}
    for path, node in allocations(func, kernel.path):
        if node.buffer.scope != "shared":
            continue
        size, name = bytes_of(node.buffer), node.buffer.name
        if path not in outside:
            reason = "it is allocated inside of a loop bound to threads, so each has its own"
            yield malformed("STR002", f"`{name}` cannot be shared: {reason}", path)
        elif size is None:
            yield malformed("STR004", f"`{name}` cannot be shared: its size is unknown", path)
        else:
            total += _aligned(size)
    total += sum(_aligned(size) for size in _exchanged(func, kernel))
    most = target.limit("shared_dynamic_per_block")
    if total > most:
        reason = f"a block would take {total} bytes of shared memory, it may have {most}"
        advice = "split the loops and copy at an inner one, around a smaller tile"
        paths = [p for p, n in allocations(func, kernel.path) if n.buffer.scope == "shared"]
        yield malformed("TGT001", f"too much shared memory: {reason}", *paths, advice=advice)
