"""What a template may know of a task: frozen data, made once, by the rules of legality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorc.analysis import structure
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.tensor_cores import instructions_for
from tensorc.ir.arith import constant, sub
from tensorc.ir.linear import linear
from tensorc.ir.nodes import (
    Binary,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Reduce,
    Select,
    Store,
    Unary,
    Var,
)
from tensorc.ir.walk import children, nodes, variables
from tensorc.schedule.primitives import Inline
from tensorc.schedule.state import State, allocations, names
from tensorc.schedule.step import legal
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a statement: its name, its constant extent, and whether it reduces."""

    name: str
    extent: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class Operand:
    """One read of a statement, one entry of `strides` for each of its axes.

    `bits` are those of an element. `strides` are elements of the row-major buffer by which the
    address moves when the axis grows by one, None when it moves irregularly; `dims` says, for each
    axis, the dimensions it indexes. Data may tell whether it is made at all (`chosen_by_data`), or
    where (`placed_by_data`).
    """

    buffer: str
    shape: tuple[int, ...]
    constant: bool
    temporary: bool
    strides: tuple[int | None, ...]
    dims: tuple[tuple[int, ...], ...]
    plain: bool
    bits: int
    chosen_by_data: bool = False
    placed_by_data: bool = False


@dataclass(frozen=True, slots=True)
class StageFacts:
    """A statement with its axes, operands and result; `fill` names a reduction's fill, None when it
    has several or none beside it.

    `group` is its place among the outermost statements; `inlinable` says that the step `inline` is
    legal for it at the start, and `regular` that its loops hold nothing else, start at 0, and that
    no spatial one carries a dependence. `instructions` are those of the device's tensor cores that
    compute what it sums, the one with the least depth first.
    """

    name: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    result: Operand
    reduces: bool
    fill: str | None
    flops: int
    group: int
    transcendental: bool
    conditional: bool
    inlinable: bool
    regular: bool
    instructions: tuple[str, ...] = ()

    @property
    def spatial(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if not a.reduces)

    @property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.reduces)

    @property
    def iterations(self) -> int:
        total = 1
        for axis in self.axes:
            total *= axis.extent
        return total


@dataclass(frozen=True, slots=True)
class Facts:
    """A task: its stages in text order, and its target. Fills are folded into their reductions."""

    name: str
    stages: tuple[StageFacts, ...]
    target: Target
    symbolic: bool
    names: frozenset[str]

    def __hash__(self) -> int:
        # Templates are run again and again on the same facts, and look things up by them.
        return hash((self.name, self.names))

    def stage(self, name: str) -> StageFacts:
        return next(s for s in self.stages if s.name == name)


def facts(func: Func, target: Target) -> Facts:
    """The facts of a function as it stands, before its first step."""
    found = statements(func)
    by_reduction = {r.name: [f.name for f in found if _fills(f, r)] for r in found}
    fills = frozenset(name for names in by_reduction.values() for name in names)
    stages, symbolic, start = [], False, State.start(func, target)
    for stmt in found:
        symbolic = symbolic or any(_extent(stmt, n) is None for n in range(len(stmt.loops)))
        if stmt.name not in fills:
            own = by_reduction[stmt.name]
            fill = own[0] if len(own) == 1 else None
            inlinable = legal(Inline(stmt.name), start)
            made = _stage(func, stmt, fill, inlinable, _regular(func, stmt, own))
            stages.append(replace(made, instructions=instructions_for(stmt.node, target)))
    return Facts(func.name, tuple(stages), target, symbolic, names(func))


def _regular(func: Func, stmt: Statement, fills: Sequence[str]) -> bool:
    """See `StageFacts.regular`."""
    indexed = frozenset[str]().union(*(variables(i) for i in stmt.node.indices))
    for loop in stmt.loops:
        name = loop.var.name
        inside = {s.name for s in statements(func) if name in s.loop_names}
        serial = loop.kind == "serial" and constant(loop.begin) == 0
        if not serial or not inside <= {stmt.name, *fills}:
            return False
        spatial = name in indexed or not isinstance(stmt.node, Reduce)
        if spatial and not structure.carries_nothing(func, name):
            return False
    return not stmt.conditions


def _fills(fill: Statement, reduction: Statement) -> bool:
    """Is `fill` the store of a constant beside a reduction into the same buffer, or several?"""
    node, other = fill.node, reduction.node
    return (
        isinstance(node, Store)
        and isinstance(other, Reduce)
        and isinstance(node.value, Const)
        and node.buffer in other.buffers
        and fill.loop_names == reduction.loop_names[: len(fill.loops)]
    )


def _stage(
    func: Func, stmt: Statement, fill: str | None, inlinable: bool, regular: bool
) -> StageFacts:
    indexed = frozenset[str]().union(*(variables(i) for i in stmt.node.indices))
    reduces = isinstance(stmt.node, Reduce)
    axes = tuple(
        Axis(loop.var.name, _extent(stmt, n) or 0, reduces and loop.var.name not in indexed)
        for n, loop in enumerate(stmt.loops)
    )
    values = stmt.node.values if isinstance(stmt.node, Reduce) else (stmt.node.value,)
    loads = dict.fromkeys(load for value in values for load in nodes(value, Load))
    chosen = frozenset[Load]().union(*map(_chosen_by_data, values))
    operands = tuple(
        replace(
            _operand(func, stmt, load.buffer, load.indices),
            chosen_by_data=load in chosen,
            placed_by_data=any(map(_loads, load.indices)),
        )
        for load in loads
    )
    target = stmt.node.buffers[0] if isinstance(stmt.node, Reduce) else stmt.node.buffer
    result = _operand(func, stmt, target, stmt.node.indices)
    arithmetic = [n for value in values for n in nodes(value, Unary)]
    return StageFacts(
        stmt.name,
        axes,
        operands,
        result,
        reduces,
        fill,
        sum(1 for value in values for n in nodes(value, Expr) if not isinstance(n, Var | Load)),
        next((int(t) for t in stmt.time if isinstance(t, int)), 0),
        any(n.op in _TRANSCENDENTAL for n in arithmetic),
        any(True for value in values for _ in nodes(value, Select)),
        inlinable,
        regular,
    )


def _loads(expr: Expr) -> frozenset[Load]:
    return frozenset(nodes(expr, Load))


def _chosen_by_data(expr: Expr) -> frozenset[Load]:
    """The loads that are made only if a condition on data holds."""
    match expr:
        case Select(condition=condition, a=a, b=b) if _loads(condition):
            return _chosen_by_data(condition) | _loads(a) | _loads(b)
        case Binary(op="and" | "or", a=a, b=b) if _loads(a):
            return _chosen_by_data(a) | _loads(b)
    inner = (child for _, child in children(expr) if isinstance(child, Expr))
    return frozenset[Load]().union(*map(_chosen_by_data, inner))


_TRANSCENDENTAL = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos"})


def _extent(stmt: Statement, number: int) -> int | None:
    loop = stmt.loops[number]
    extent = constant(sub(loop.end, loop.begin))
    return None if extent is None else max(extent, 0)


def _operand(func: Func, stmt: Statement, buffer: Buffer, indices: tuple[Expr, ...]) -> Operand:
    shape = tuple(constant(e) or 0 for e in buffer.shape)
    names = stmt.loop_names
    strides: list[int | None] = [0] * len(names)
    dims: list[list[int]] = [[] for _ in names]
    step, plain = 1, True
    for dim in reversed(range(len(shape))):
        form = linear(indices[dim])
        for atom, coefficient in form.terms.items():
            if isinstance(atom, Var) and atom.name in names:
                place = names.index(atom.name)
                dims[place].append(dim)
                known = strides[place]
                strides[place] = None if known is None else known + coefficient * step
            else:
                plain = False
                for name in variables(atom) & set(names):
                    strides[names.index(name)] = None
        step *= shape[dim]
    modes = {p.name: p.mode for p in func.params}
    return Operand(
        buffer.name,
        shape,
        modes.get(buffer.name) == "const",
        buffer.name in allocations(func),
        tuple(strides),
        tuple(tuple(sorted(d)) for d in dims),
        plain,
        8 * buffer.dtype.bytes,
    )
