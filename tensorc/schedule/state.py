"""A schedule in progress, as a value: the nest now, the target, and what became of every name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tensorc.analysis.effects import Statement, statements
from tensorc.ir.arith import constant, sub
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func
from tensorc.ir.walk import Path
from tensorc.ir.walk import statements as all_statements
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Retired:
    """A name that is gone: the number (from 1) and the text of the step that consumed it."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class State:
    """What every step reads and returns.

    `used` holds all names ever used, so that none is used twice; `packs` the functions that bring
    a constant parameter into the layout that the nest now wants (parameter name -> Func).
    """

    func: Func
    target: Target
    strict_float: bool = False
    used: frozenset[str] = frozenset()
    retired: Mapping[str, Retired] = field(default_factory=dict, hash=False)
    packs: tuple[tuple[str, Func], ...] = ()

    @classmethod
    def start(cls, func: Func, target: Target, *, strict_float: bool = False) -> State:
        return cls(func, target, strict_float, names(func))

    def with_func(self, func: Func) -> State:
        """The state after a step: the new nest, with the new names marked as used."""
        return replace(self, func=func, used=self.used | names(func))

    def fresh(self, wanted: str, taken: frozenset[str] = frozenset()) -> str:
        """`wanted`, or the first of wanted_2, wanted_3, ... that was never used."""
        name, number = wanted, 2
        while name in self.used or name in taken:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def loop(self, name: str) -> Loop:
        """The loop of this name. Raises KeyError; steps check with `find_loop` first."""
        return loops(self.func)[name]

    def loops_alike(self, func: Func) -> bool:
        """Whether another nest has the same loops at the same places."""
        here, there = loops(self.func), loops(func)
        return {n: x.path for n, x in here.items()} == {n: x.path for n, x in there.items()}

    def find_loop(self, name: str) -> Loop | None:
        return loops(self.func).get(name)

    def find_statement(self, name: str) -> Statement | None:
        return next((s for s in statements(self.func) if s.name == name), None)

    def find_buffer(self, name: str) -> Buffer | None:
        return buffers(self.func).get(name)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the nest and where it is."""

    node: For
    path: Path

    @property
    def name(self) -> str:
        return self.node.var.name

    @property
    def extent(self) -> Expr:
        return sub(self.node.end, self.node.begin)

    @property
    def constant_extent(self) -> int | None:
        """The number of iterations when it is known; never negative."""
        extent = constant(self.extent)
        return None if extent is None else max(extent, 0)


@lru_cache(maxsize=512)
def loops(func: Func) -> dict[str, Loop]:
    """The loops of a function by name, outer before inner."""
    return {
        node.var.name: Loop(node, path)
        for path, node in all_statements(func)
        if isinstance(node, For)
    }


@lru_cache(maxsize=512)
def buffers(func: Func) -> dict[str, Buffer]:
    """The buffers of a function by name: parameters, then allocations in text order."""
    found = {p.name: p.value for p in func.params if isinstance(p.value, Buffer)}
    for _, node in all_statements(func):
        if isinstance(node, Alloc):
            found[node.buffer.name] = node.buffer
    return found


@lru_cache(maxsize=512)
def allocations(func: Func) -> dict[str, tuple[Path, Alloc]]:
    """The allocations of a function by buffer name."""
    return {
        node.buffer.name: (path, node)
        for path, node in all_statements(func)
        if isinstance(node, Alloc)
    }


@lru_cache(maxsize=512)
def names(func: Func) -> frozenset[str]:
    """Every name of a function: itself, parameters, sizes, loops, buffers, statements."""
    parameters = (param.name for param in func.params)
    written = (stmt.name for stmt in statements(func))
    return frozenset({func.name, *parameters, *loops(func), *buffers(func), *written})
