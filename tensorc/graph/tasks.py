"""Tasks: the distinct programs of a network, and the calls of them that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorc.graph.graph import Graph, Value
from tensorc.graph.lower import Group, lower
from tensorc.ir.arith import constant, sub
from tensorc.ir.interval import Interval, interval
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Reduce,
    Seq,
    Stmt,
    Store,
    Unary,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import nodes


@dataclass(frozen=True, slots=True)
class Task:
    """A program that a network runs `count` times.

    Attributes:
        func: the program.
        label: the operators it is made of.
        count: how often the network calls it.
        flops: arithmetic operations on floats of one call, a function of a real number as one.
        bytes: of its parameters, each read or written once: what memory must move at least.
        places: the modules whose results the calls give.
    """

    func: Func
    label: str
    count: int
    flops: int
    bytes: int
    places: tuple[str, ...]

    @property
    def shape(self) -> str:
        """The parameters, as text."""
        return ", ".join(
            f"{p.name}: {p.value.dtype}{[constant(e) for e in p.value.shape]}"
            for p in self.func.params
            if isinstance(p.value, Buffer)
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a task: its number, the value that is each of its parameters, those it writes."""

    task: int
    values: tuple[Value, ...]
    outputs: tuple[Value, ...]
    label: str
    where: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A graph as calls of tasks, in order."""

    tasks: tuple[Task, ...]
    calls: tuple[Call, ...]


def partition(graph: Graph, groups: Sequence[Group]) -> Partition:
    """The tasks of fused groups. Equal programs are one task, whatever their values are called."""
    lowered: dict[str, Func] = {}
    numbers: dict[Func, int] = {}
    calls = []
    for group in groups:
        structure = _structure(group, graph)
        if structure not in lowered:
            lowered[structure] = lower(group, graph.constants.__contains__)
        number = numbers.setdefault(lowered[structure], len(numbers))
        where = next(n.where for n in group.nodes if set(n.outputs) & set(group.outputs))
        calls.append(
            Call(number, (*group.inputs, *group.outputs), group.outputs, group.label, where)
        )
    tasks = tuple(_task(func, calls, number) for func, number in numbers.items())
    return Partition(tasks, tuple(calls))


def _task(func: Func, calls: Sequence[Call], number: int) -> Task:
    own = [call for call in calls if call.task == number]
    places = tuple(dict.fromkeys(call.where for call in own))
    size = sum(value.bytes for value in own[0].values)
    return Task(func, own[0].label, len(own), flops(func), size, places)


def _structure(group: Group, graph: Graph) -> str:
    """A text that equal groups have in common: their nodes with values by number and shape."""
    numbers: dict[Value, int] = {}

    def name(value: Value) -> str:
        number = numbers.setdefault(value, len(numbers))
        constant = "c" if value in graph.constants else ""
        return f"%{number}{constant}{value.dtype}{value.shape}"

    def text(argument: object) -> str:
        if isinstance(argument, Value):
            return name(argument)
        if isinstance(argument, tuple):
            return f"({','.join(map(text, argument))})"
        return repr(argument)

    lines = [
        f"{node.op}({';'.join(f'{k}={text(a)}' for k, a in node.arguments)})"
        f"->{','.join(map(name, node.outputs))}"
        for node in group.nodes
    ]
    return "\n".join((*lines, ",".join(map(name, group.outputs))))


def flops(func: Func) -> int:
    """The float operations of a function without symbolic sizes; guards count as if they held."""
    return _flops(func.body, {})


def _flops(stmt: Stmt, ranges: Mapping[str, Interval]) -> int:
    match stmt:
        case Seq(body=parts):
            return sum(_flops(part, ranges) for part in parts)
        case If(body=body) | Alloc(body=body):
            return _flops(body, ranges)
        case For(var=variable, begin=begin, end=end, body=body):
            least, most = interval(sub(end, begin), ranges)
            # Bounds that depend on outer loops (running sums) count as half way between.
            count = (max(least or 0, 0) + max(most or 0, 0)) // 2
            reach = (interval(begin, ranges)[0], (interval(end, ranges)[1] or 0) - 1)
            return count * _flops(body, {**ranges, variable.name: reach})
        case Store(value=value):
            return _operations(value)
        case Reduce(values=values, buffers=buffers):
            own = sum(buffer.dtype.is_float for buffer in buffers)
            return own + sum(map(_operations, values))
    raise TypeError(f"not a statement of an unscheduled program: {stmt!r}")


def _operations(expr: Expr) -> int:
    found = (node for node in nodes(expr, Expr) if isinstance(node, Unary | Binary))
    return sum(dtype_of(node.a).is_float for node in found)
