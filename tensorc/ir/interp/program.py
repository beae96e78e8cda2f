"""From a function to a Python function that runs it on lists of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from tensorc.ir.interp.bounded import BOUNDS_NAMES, BoundedExpressions
from tensorc.ir.interp.copies import Copies
from tensorc.ir.interp.expressions import Expressions, Place, has_load
from tensorc.ir.interp.ranges import LARGEST_SIZE, range_of
from tensorc.ir.interp.scalars import FLOATS, NAMES, rounder_f32
from tensorc.ir.interp.scope import Scope, Slot, Source
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Expr,
    For,
    Func,
    If,
    Let,
    MaskedStore,
    Prefetch,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
    Wait,
)
from tensorc.ir.places import sizes_of
from tensorc.ir.types import lanes_of
from tensorc.ir.walk import nodes, variables

# Loops and conditions that one Python function may nest; its compiler gives up at 20 loops.
NESTING = 12

Main: TypeAlias = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Options:
    """What a program records beside its outputs, whether it permutes parallel loops, and whether
    loops that are bound to threads run as threads."""

    log: bool = False
    permuted: bool = False
    bounds: bool = False
    threads: bool = False


@lru_cache(maxsize=512)
def compiled(func: Func, options: Options) -> Callable[..., Main]:
    """`make(**services)` gives `main(*elements of each parameter, *sizes)`.

    The services are "f32" (rounds to f32), "note" (takes a record of the log), "instances" (numbers
    for allocations), "permute" (of a range), and "errors" (an `Errors` for each float dtype).
    """
    kind = Statements
    if options.threads:
        from tensorc.ir.interp.threads import ThreadStatements

        kind = ThreadStatements
    text, constants = kind(func, options).generate()
    namespace: dict[str, Any] = {**NAMES, **constants, "Copies": Copies}
    if options.bounds:
        namespace |= BOUNDS_NAMES
    exec(compile(text, "<interpreted>", "exec"), namespace)
    made: Callable[..., Main] = namespace["make"]
    return made


def evaluate(expr: Expr, values: Mapping[str, bool | int | float]) -> Any:
    """The value of an expression that reads no buffer, for given values of its variables."""
    names = tuple(sorted(values))
    return _compiled_expression(expr, names)(rounder_f32(), *(values[name] for name in names))


@lru_cache(maxsize=4096)
def _compiled_expression(expr: Expr, names: tuple[str, ...]) -> Callable[..., Any]:
    source = Source(reserved=variables(expr))
    scope = Scope(variables={name: source.fresh(name) for name in names}, statement="expression")
    text = Expressions(source, scope, log=False).value(expr)
    arguments = ", ".join(("f32", *scope.variables.values()))
    body = "".join(f"\n {line}" for line in [*_flattened(source.functions), f"return {text}"])
    namespace: dict[str, Any] = dict(NAMES)
    exec(f"def evaluated({arguments}):{body}\n", namespace)
    made: Callable[..., Any] = namespace["evaluated"]
    return made


def _names(func: Func) -> Iterator[str]:
    """The names of all variables."""
    yield from variables(func)
    yield from (loop.var.name for loop in nodes(func, For))
    yield from (let.var.name for let in nodes(func, Let))


def _flattened(functions: Sequence[str]) -> list[str]:
    return [line for function in functions for line in function.split("\n")]


class Statements:
    """Generates the statements of one function."""

    thread = "()"
    """Which thread it is whose asynchronous copies these are."""
    late = False

    def __init__(self, func: Func, options: Options):
        self.func, self.options = func, options
        self.source = Source(reserved=frozenset(_names(func)))
        self.scope = Scope()
        self.expressions = (
            BoundedExpressions(self.source, self.scope)
            if options.bounds
            else Expressions(self.source, self.scope, log=options.log)
        )
        self.lines: list[str] = []
        self.indent = 0
        self.nesting = 0

    def generate(self) -> tuple[str, dict[str, object]]:
        names = {param.name: self.source.fresh(param.name) for param in self.func.params}
        for param in self.func.params:
            if isinstance(param.value, Var):
                self.scope.variables[param.name] = names[param.name]
        arguments = [*names.values()]
        for size in sizes_of(self.func):
            self.scope.variables[size] = self.source.fresh(size)
            self.scope.ranges[size] = (0, LARGEST_SIZE)
            arguments.append(self.scope.variables[size])
        for param in self.func.params:
            if isinstance(param.value, Buffer):
                extents = self._extents(param.value)
                writable = param.mode in ("out", "inout")
                self.scope.slots[param.name] = Slot(
                    param.value, names[param.name], extents, "0", param.mode == "out", writable
                )
        self._stmt(self.func.body)
        main = [f"def main({', '.join(arguments)}):", *(f" {line}" for line in self.lines)]
        lines = [*_flattened(self.source.functions), *main, "return main"]
        if next(nodes(self.func, AsyncCopy), None) is not None:
            lines.insert(0, "copies = Copies()")
        if self.options.bounds:
            lines = [f"errors_{name} = errors[{name!r}]" for name in FLOATS] + lines
        body = "".join(f"\n {line}" for line in lines)
        return f"def make(f32, note, instances, permute, errors):{body}\n", self.source.constants

    def _line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def _extents(self, buffer: Buffer) -> tuple[str, ...]:
        extents = []
        for position, dimension in enumerate(buffer.shape):
            text = self.expressions.value(dimension)
            if not (text.isdigit() or text.isidentifier()):
                name = self.source.fresh(f"{buffer.name}_extent{position}")
                self._line(f"{name} = {text}")
                text = name
            extents.append(text)
        return tuple(extents)

    # Statements

    def _stmt(self, stmt: Stmt) -> None:
        self.scope.statement = _title(stmt)
        match stmt:
            case Seq(body=body):
                for part in body:
                    self._stmt(part)
                if not body:
                    self._line("pass")
            case For():
                self._for(stmt)
            case If(condition=condition, body=body):
                self._line(f"if {self.expressions.value(condition)}:")
                self._nested(body)
            case Alloc():
                self._alloc(stmt)
            case Store() | MaskedStore():
                self._store(stmt)
            case Reduce():
                self._reduce(stmt)
            case _:
                self._lowered(stmt)

    def _lowered(self, stmt: Stmt) -> None:
        match stmt:
            case Prefetch() | Barrier():
                self._line("pass")
            case AsyncCopy(body=body):
                self.late = True
                self._store(body)
                self.late = False
            case Commit():
                self._line(f"copies.commit({self.thread})")
            case Wait(groups=groups):
                self._line(f"copies.wait({self.thread}, {groups})")
            case _:
                raise TypeError(f"not a statement: {stmt!r}")

    def _nested(self, body: Stmt) -> None:
        """A block; a function of its own when blocks nest too deep for one."""
        self.nesting += 1
        if self.nesting % NESTING:
            with self._indented():
                self._stmt(body)
        else:
            lines, indent = self.lines, self.indent
            self.lines, self.indent = [], 0
            self._stmt(body)
            call = self.source.split_off(self.lines, self.scope)
            self.lines, self.indent = lines, indent + 1
            self._line(call)
            self.indent = indent
        self.nesting -= 1

    def _for(self, stmt: For) -> None:
        begin, end = self.expressions.value(stmt.begin), self.expressions.value(stmt.end)
        values = f"range({begin}, {end})"
        if self.options.permuted and stmt.kind == "parallel":
            values = f"permute({values})"
        self._run(stmt, values)

    def _run(self, stmt: For, values: str) -> None:
        """The loop over these values, in Python."""
        low, high = (range_of(e, self.scope.ranges) for e in (stmt.begin, stmt.end))
        name, loops = stmt.var.name, self.scope.loops
        python_name = self.source.fresh(name)
        self._line(f"for {python_name} in {values}:")
        self.scope.variables[name] = python_name
        self.scope.ranges[name] = (low[0], max(low[0], high[1] - 1))
        self.scope.loops = (*loops, name)
        self._nested(stmt.body)
        self.scope.loops = loops
        del self.scope.variables[name], self.scope.ranges[name]

    def _alloc(self, stmt: Alloc) -> None:
        extents, instance = self._extents(stmt.buffer), "0"
        name = self.source.fresh(stmt.buffer.name)
        self._line(f"{name} = [None] * ({' * '.join(extents) or '1'})")
        if self.options.log:
            instance = self.source.fresh(f"{name}_instance")
            self._line(f"{instance} = next(instances)")
        self.scope.slots[stmt.buffer.name] = Slot(stmt.buffer, name, extents, instance, True, True)
        self._stmt(stmt.body)
        del self.scope.slots[stmt.buffer.name]

    def _store(self, stmt: Store | MaskedStore) -> None:
        lanes, doubt = lanes_of_stmt(stmt), self.expressions.doubt(stmt.indices)
        if isinstance(stmt, Store) and lanes == 1 and not doubt:
            place = self._target(stmt.buffer, stmt.indices, "'write', None")
            value = self.expressions.stored(stmt.value)
            self._write(place, value)
            return
        mask = stmt.mask if isinstance(stmt, MaskedStore) else None
        with self._gathered(lanes, (stmt.buffer,), stmt.indices, (stmt.value,), mask) as gathered:
            (place,), (value,) = gathered
            self._note(place, "'write', None")
            self._write(place, value)

    def _write(self, place: Place, value: str) -> None:
        if self.late:
            to = f"{place.slot.name}, {place.position}"
            self._line(f"copies.begin({self.thread}, {to}, {value})")
        else:
            self._line(f"{place.slot.name}[{place.position}] = {value}")

    def _reduce(self, stmt: Reduce) -> None:
        note = f"'reduce', {stmt.op!r}"
        lanes = lanes_of_stmt(stmt)
        if lanes > 1 or any(map(has_load, stmt.indices)):
            with self._gathered(lanes, stmt.buffers, stmt.indices, stmt.values) as gathered:
                for place in gathered[0]:
                    self._note(place, note)
                self._combine(stmt, *gathered)
            return
        values, places = [], []
        for value in stmt.values:
            values.append(self._assigned("value", self.expressions.stored(value)))
        for buffer in stmt.buffers:
            place = self._target(buffer, stmt.indices, note)
            places.append(replace(place, position=self._assigned("at", place.position)))
        self._combine(stmt, places, values)

    def _combine(self, stmt: Reduce, places: Sequence[Place], values: Sequence[str]) -> None:
        """One step of a reduction: the elements become combine(elements, values)."""
        held = [
            self._assigned("held", self.expressions.element(place, place.position))
            for place in places
        ]
        dtypes = [place.slot.buffer.dtype for place in places]
        result = self.expressions.combination(stmt.op, dtypes, held, values)
        targets = ", ".join(f"{place.slot.name}[{place.position}]" for place in places)
        self._line(f"{targets} = {result}")

    def _assigned(self, hint: str, text: str) -> str:
        name = self.source.fresh(hint)
        self._line(f"{name} = {text}")
        return name

    def _target(self, buffer: Buffer, indices: Sequence[Expr], note: str = "") -> Place:
        """The place that a statement writes; refuses a parameter that is not to be written."""
        place = self.expressions.place(buffer, indices, note if self.options.log else "")
        if place.slot.writable:
            return place
        refusal = f"{place.site}.read_only({place.indices}, {self.scope.loop_values()})"
        return replace(place, position=f"({place.position}, {refusal})")

    def _note(self, place: Place, note: str) -> None:
        if self.options.log:
            loops = self.scope.loop_values()
            self._line(
                f"note(({place.site}, {place.slot.instance}, {place.indices}, {loops}, {note}))"
            )

    @contextmanager
    def _gathered(
        self,
        lanes: int,
        buffers: Sequence[Buffer],
        indices: Sequence[Expr],
        values: Sequence[Expr],
        mask: Expr | None = None,
    ) -> Iterator[tuple[list[Place], list[str]]]:
        """Compute all the lanes of a statement, then open the loop that writes them, in lane order.

        Gives the places and the names of the values of one lane. A masked lane still computes its
        value, its indices and whatever these load: only the write is masked.
        """
        rows, places, expressions = self.source.fresh("rows"), [], self.expressions
        self._line(f"{rows} = []")
        self._line(f"for lane in range({lanes}):")
        with self._indented(in_lanes=True):
            computed = [self._assigned("value", expressions.stored(value)) for value in values]
            self._doubt([*indices, *([] if mask is None else [mask])], buffers, computed)
            binds, indices = expressions.bind_loads(indices)
            for bind in binds:
                self._line(bind.replace(":=", "=", 1))
            if mask is not None:
                self._line(f"if not {expressions.value(mask)}: continue")
            for buffer in buffers:
                place = self._target(buffer, indices)
                position = self._assigned("at", place.position)
                where = self._assigned("where", place.indices)
                places.append(replace(place, position=position, indices=where))
            names = [*computed, *(name for p in places for name in (p.position, p.indices))]
            self._line(f"{rows}.append(({', '.join(names)},))")
            expressions.release(binds)
        self._line(f"for {', '.join(names)}, in {rows}:")
        with self._indented():
            yield places, computed

    def _doubt(
        self, deciding: Sequence[Expr], buffers: Sequence[Buffer], values: Sequence[str]
    ) -> None:
        """Where a write is undecided, so is all that the buffers hold, and what is written."""
        doubt = self.expressions.doubt(deciding)
        if not doubt:
            return
        error = self._assigned("doubt", doubt)
        for buffer in buffers:
            self._line(f"if {error}: smear({self.scope.slots[buffer.name].name})")
        for value in values:
            self._line(f"{value} = tainted({value}, {error})")

    @contextmanager
    def _indented(self, *, in_lanes: bool = False) -> Iterator[None]:
        self.indent += 1
        self.scope.in_lanes = in_lanes
        yield
        self.scope.in_lanes = False
        self.indent -= 1


def lanes_of_stmt(stmt: Store | MaskedStore | Reduce) -> int:
    """The lanes of a statement: 1, or those of the widest of its indices, values and mask."""
    values = stmt.values if isinstance(stmt, Reduce) else (stmt.value,)
    mask = (stmt.mask,) if isinstance(stmt, MaskedStore) else ()
    return max(lanes_of(expr) for expr in (*stmt.indices, *values, *mask))


def _title(stmt: Stmt) -> str:
    match stmt:
        case Store(name=name) | Reduce(name=name) | MaskedStore(name=name):
            return name
        case For(var=var):
            return f"for {var.name}"
        case Alloc(buffer=buffer):
            return f"alloc {buffer.name}"
    return "if"
