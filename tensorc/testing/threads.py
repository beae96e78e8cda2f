"""Questions of threads answered by enumeration, from the interpreter's access log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorc.ir.arith import constant
from tensorc.ir.grid import (
    THREADS,
    Kernel,
    axis_of,
    combines,
    group_of,
    is_across,
    is_thread,
    kernels,
)
from tensorc.ir.interp import Access
from tensorc.ir.interp.program import evaluate
from tensorc.ir.nodes import Alloc, Barrier, For, Func, If, Seq, Stmt
from tensorc.ir.walk import Path, at, enclosing, leaves, statements
from tensorc.testing.oracle import Conflict, conflicts

Values: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[Path, tuple[tuple[str, int], ...]]
"""The phase of an access, and the values of the loops around the phase."""


@dataclass(slots=True)
class _Kernel:
    """A kernel, and where each of its statements is."""

    func: Func
    kernel: Kernel
    paths: Mapping[str, Path]
    known: dict[str, tuple[tuple[For, ...], Path, int]] = field(default_factory=dict)

    def _about(self, statement: str) -> tuple[tuple[For, ...], Path, int]:
        """The loops bound to threads around a statement, its phase, and the loops around that."""
        found = self.known.get(statement)
        if found is None:
            phase = path = self.paths[statement]
            for start, _ in self.kernel.outermost():
                if path[: len(start)] == start:
                    phase = start
            around = [x for _, x in enclosing(self.func, path) if isinstance(x, For)]
            depth = sum(isinstance(x, For) for _, x in enclosing(self.func, phase))
            found = self.known[statement] = (tuple(filter(is_thread, around)), phase, depth)
        return found

    def thread(self, access: Access) -> dict[str, int]:
        """The coordinates of the thread on the axes of the loops around an access."""
        values, found = dict(access.loops), {}
        for loop in self._about(access.statement)[0]:
            begin = constant(loop.begin)
            begin = int(evaluate(loop.begin, values)) if begin is None else begin
            place = values[loop.var.name] - begin
            leaf = at(self.func, self.paths[access.statement])
            assert isinstance(leaf, Stmt)
            if access.kind == "reduce" and is_across(loop) and combines(loop, leaf):
                place -= place % group_of(loop)
            found[str(axis_of(loop))] = place
        return found

    def place(self, access: Access) -> Place:
        _, phase, depth = self._about(access.statement)
        return phase, access.loops[:depth]

    def block(self, access: Access) -> tuple[tuple[str, int], ...]:
        return access.loops[: self.kernel.depth]


def _kernels(func: Func) -> Iterator[_Kernel]:
    every = {leaf.name: path for path, leaf in leaves(func)}
    for kernel in kernels(func):
        start = kernel.path
        paths = {name: path for name, path in every.items() if path[: len(start)] == start}
        yield _Kernel(func, kernel, paths)


def _whole(thread: Mapping[str, int]) -> dict[str, int]:
    return {axis: thread.get(axis, 0) for axis in THREADS}


def passing(func: Func, log: Iterable[Access]) -> Conflict | None:
    """Two accesses between which a barrier would have to stand, where none can: in one run of a
    phase, or through what is in the registers of threads."""
    pairs = list(conflicts(func, log))
    for found in _kernels(func):
        own = _own(found)
        for pair in pairs:
            ends = pair.first, pair.second
            if any(end.statement not in found.paths for end in ends):
                continue
            first, second = (found.thread(end) for end in ends)
            common = first.keys() & second.keys()
            apart = any(first[axis] != second[axis] for axis in common)
            one_phase = found.place(pair.first) == found.place(pair.second)
            if one_phase and _whole(first) != _whole(second):
                return pair
            if apart and pair.first.buffer in own and found.block(ends[0]) == found.block(ends[1]):
                return pair
    return None


def _own(found: _Kernel) -> set[str]:
    """The temporaries of a kernel that are to be in registers, outside of its phases."""
    start, names = found.kernel.path, set()
    phases = [path for path, _ in found.kernel.outermost()]
    for path, node in statements(found.func):
        if isinstance(node, Alloc) and node.buffer.scope in ("register", "local"):
            outside = not any(path[: len(phase)] == phase for phase in phases)
            if path[: len(start)] == start and outside:
                names.add(node.buffer.name)
    return names


def unordered(func: Func, log: Iterable[Access], sizes: Values) -> tuple[Access, Access] | None:
    """Two accesses of different threads of a block to one element, one of them a write, in a
    lowered kernel, with no barrier in between.

    `sizes` holds the values of the sizes and scalars that bounds and conditions read.
    """
    every = list(log)
    for found in _kernels(func):
        epochs = dict(_epochs(found, sizes))
        seen: dict[Any, dict[tuple[int, ...], Access]] = defaultdict(dict)
        written: dict[Any, tuple[tuple[int, ...], Access]] = {}
        for access in every:
            if access.statement not in found.paths:
                continue
            element = access.buffer, access.instance, access.indices
            key = element, found.block(access), epochs[found.place(access)]
            thread = tuple(_whole(found.thread(access)).values())
            seen[key].setdefault(thread, access)
            if access.is_write:
                written.setdefault(key, (thread, access))
            if key in written:
                writer, first = written[key]
                others = (other for t, other in seen[key].items() if t != writer)
                other = next(others, None)
                if other is not None:
                    return other, first
    return None


def _epochs(found: _Kernel, sizes: Values) -> Iterator[tuple[Place, int]]:
    """How many barriers the threads have passed at each run of each phase."""
    start = at(found.func, found.kernel.path)
    assert isinstance(start, Stmt)
    passed = 0
    for path, loops in _steps(start, found.kernel.path, (), sizes):
        if isinstance(at(found.func, path), Barrier):
            passed += 1
        else:
            yield (path, loops), passed


def _steps(
    stmt: Stmt, path: Path, loops: tuple[tuple[str, int], ...], sizes: Values
) -> Iterator[Place]:
    """The runs of phases and barriers, in order."""
    values = {**sizes, **dict(loops)}
    match stmt:
        case For(var=var, begin=begin, end=end, body=body) if not is_thread(stmt):
            for n in range(int(evaluate(begin, values)), int(evaluate(end, values))):
                yield from _steps(body, (*path, "body"), (*loops, (var.name, n)), sizes)
        case If(condition=condition, body=body):
            if evaluate(condition, values):
                yield from _steps(body, (*path, "body"), loops, sizes)
        case Alloc(body=body):
            yield from _steps(body, (*path, "body"), loops, sizes)
        case Seq(body=parts):
            for n, part in enumerate(parts):
                yield from _steps(part, (*path, "body", n), loops, sizes)
        case _:
            yield path, loops
