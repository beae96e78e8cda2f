"""Statements as CUDA C++: loops, phases of threads, stores, and accesses that are moved as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tensorc.analysis.tensor_cores import Product, instruction_of
from tensorc.codegen.cname import c_name
from tensorc.codegen.cuda.ahead import together
from tensorc.codegen.cuda.expressions import (
    PLUS,
    STORED,
    Scope,
    element,
    own_access,
    to_memory,
    write,
)
from tensorc.codegen.cuda.shuffles import combine
from tensorc.codegen.cuda.tensor_cores import compute
from tensorc.codegen.passes.trees import find, lanes_here
from tensorc.dtype import DType
from tensorc.errors import CompileError
from tensorc.ir import arith
from tensorc.ir.grid import BLOCKS, THREADS, VIRTUAL, axis_of, extent_of, is_across, is_thread
from tensorc.ir.interval import interval
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Binary,
    Broadcast,
    Buffer,
    Commit,
    Expr,
    For,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Wait,
)
from tensorc.ir.walk import children, nodes, substitute

WIDEST = 16
"""Bytes that one access to memory can move."""


@dataclass(slots=True)
class Writer:
    """The lines of a kernel in the making.

    Attributes:
        scope: what expressions need to know.
        taken: the C names in use.
        block: threads of a block along each axis.
        aligned: buffers that have to lie at a multiple of so many bytes.
        inside: whether this is within a phase.
        products: the nests that an instruction computes, by their outermost loop.
        settled: the axes on which it is settled which threads come here: those of the loops
            around, and those that are left to the first thread.
    """

    scope: Scope
    taken: set[str]
    block: dict[str, int]
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    aligned: dict[str, int] = field(default_factory=dict)
    products: Mapping[str, Product] = field(default_factory=dict)
    inside: bool = False
    settled: frozenset[str] = frozenset()

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        self.line(f"{head} {{".lstrip())
        self.indent += 1
        yield
        self.indent -= 1
        self.line("}")

    def name(self, wanted: str) -> str:
        made = c_name(wanted, self.taken)
        self.taken.add(made)
        return made


def execute(w: Writer, stmt: Stmt) -> None:
    """Write a statement. What lies in no loop of an axis is left to the first thread on it."""
    if not w.inside and not _is_phase(stmt):
        _execute(w, stmt)
        return
    within = {axis_of(loop) for loop in find(stmt, For)}
    several = (axis for axis, size in w.block.items() if size > 1)
    alone = [axis for axis in several if axis not in w.settled and axis not in within]
    before = w.inside, w.settled
    w.inside, w.settled = True, w.settled.union(alone)
    if alone or not before[0]:
        tests = " && ".join(f"{axis} == 0" for axis in alone)
        with w.braces(f"if ({tests})" if tests else ""):
            _execute(w, stmt)
    else:
        _execute(w, stmt)
    w.inside, w.settled = before


def _execute(w: Writer, stmt: Stmt) -> None:
    match stmt:
        case Seq(body=parts):
            for part in parts:
                execute(w, part)
        case For():
            _loop(w, stmt)
        case If(condition=condition, body=body):
            with w.braces(f"if ({write(w.scope, condition).text})"):
                execute(w, body)
        case Alloc():
            _alloc(w, stmt)
        case Store() | MaskedStore():
            _store(w, stmt)
        case AsyncCopy():
            _copy(w, stmt.body)
        case Barrier() | Commit() | Wait():
            _order(w, stmt)
        case _:
            raise CompileError(f"the CUDA code generator has no {type(stmt).__name__}")


def _order(w: Writer, stmt: Barrier | Commit | Wait) -> None:
    match stmt:
        case Barrier():
            w.line("__syncthreads();")
        case Commit():
            w.line(f"{w.scope.helper('tc_commit')}();")
        case Wait(groups=groups):
            w.line(f"{w.scope.helper('tc_wait')}<{groups}>();")


# Phases -------------------------------------------------------------------------------------------


def _is_phase(stmt: Stmt) -> bool:
    """Whether a statement is run in one piece by each thread that takes part: a loop bound to
    threads, or what one thread runs alone."""
    match stmt:
        case For() if is_thread(stmt):
            return True
        case For() if axis_of(stmt) in BLOCKS:
            return False
        case For() | If():
            return not _divided(stmt)
    return isinstance(stmt, Store | MaskedStore | AsyncCopy)


def _divided(stmt: Stmt) -> bool:
    threads = any(map(is_thread, find(stmt, For)))
    return threads or next(find(stmt, Barrier), None) is not None


def _loop(w: Writer, loop: For) -> None:
    axis = axis_of(loop)
    if loop.var.name in w.products:
        compute(w, w.products[loop.var.name], str(instruction_of(loop)))
        return
    if axis in THREADS or axis in BLOCKS:
        _bound(w, loop, str(axis))
        return
    low, high = interval(loop.begin, w.scope.ranges)[0], interval(loop.end, w.scope.ranges)[1]
    with _variable(w, loop, low, None if high is None else high - 1) as name:
        begin, end = write(w.scope, loop.begin), write(w.scope, loop.end)
        if loop.kind == "unroll" or axis == VIRTUAL:
            w.line("#pragma unroll")
        head = f"{w.scope.index} {name} = {begin.text}; {name} < {end.within(PLUS)}; ++{name}"
        with w.braces(f"for ({head})"):
            execute(w, loop.body)


@contextmanager
def _variable(w: Writer, loop: For, low: int | None, high: int | None) -> Iterator[str]:
    name = w.name(loop.var.name)
    w.scope.names[loop.var.name] = name
    w.scope.ranges[loop.var.name] = (low, high)
    yield name


def _bound(w: Writer, loop: For, axis: str) -> None:
    """The variable is the place on the axis; threads past the loop's end skip its body."""
    low, high = interval(loop.begin, w.scope.ranges)[0], interval(loop.end, w.scope.ranges)[1]
    with _variable(w, loop, low, None if high is None else high - 1) as name:
        begin, extent = write(w.scope, loop.begin), extent_of(loop)
        before, w.settled = w.settled, w.settled | {axis}
        place = axis if w.scope.index == "int" else f"({w.scope.index}){axis}"
        offset = "" if arith.constant(loop.begin) == 0 else f"{begin.within(PLUS)} + "
        declared = len(w.lines)
        w.line(f"const {w.scope.index} {name} = {offset}{place};")
        if is_across(loop):
            combine(w, loop)
        elif axis in THREADS and extent is not None and extent < w.block[axis]:
            with w.braces(f"if ({axis} < {extent})"):
                execute(w, loop.body)
        else:
            execute(w, loop.body)
        w.settled = before
        if not any(re.search(rf"\b{name}\b", line) for line in w.lines[declared + 1 :]):
            # Compilers warn of variables that nothing reads.
            del w.lines[declared]


# Memory -------------------------------------------------------------------------------------------


def _alloc(w: Writer, stmt: Alloc) -> None:
    buffer = stmt.buffer
    name = w.scope.names.get(buffer.name)
    if name is None:
        name = w.name(buffer.name)
        w.scope.names[buffer.name] = name
        w.line(f"{STORED[buffer.dtype]} {name}[{max(elements(w.scope, buffer), 1)}];")
    execute(w, stmt.body)


def elements(s: Scope, buffer: Buffer) -> int:
    """How many elements an array of a thread, or of a block, has."""
    total = 1
    for extent in buffer.shape[s.own.get(buffer.name, 0) :]:
        total *= max(arith.constant(extent) or 0, 0)
    return total


def _store(w: Writer, stmt: Store | MaskedStore) -> None:
    s, value = w.scope, stmt.value
    s.loaded, s.lets, s.holds = {}, {}, None
    index = own_access(s, stmt.buffer, stmt.indices)
    while isinstance(value, Let):
        value = _let(w, value)
    if isinstance(stmt, Store) and isinstance(index, Ramp):
        _load_wide(w, value)
        if _store_wide(w, stmt, index, value):
            return
    _lanes(w, stmt, value, lanes_here(index))


def _let(w: Writer, let: Let) -> Expr:
    """A value that is used several times has a variable of its own; a vector is written out."""
    if lanes_here(let.value) > 1:
        return substitute(let.body, {let.var.name: let.value})
    name = w.name(let.var.name)
    kind = w.scope.kind(let.var.dtype)
    w.line(f"const {kind} {name} = {write(w.scope, let.value).text};")
    w.scope.names[let.var.name] = name
    return let.body


def _lanes(w: Writer, stmt: Store | MaskedStore, value: Expr, lanes: int) -> None:
    """The lanes one by one; all are computed before the first of them is stored."""
    s, dtype = w.scope, stmt.buffer.dtype
    loads: list[Load | MaskedLoad] = [*nodes(value, Load), *nodes(value, MaskedLoad)]
    own = (x.indices for x in loads if x.buffer.name == stmt.buffer.name)
    s.holds = stmt.mask if isinstance(stmt, MaskedStore) else None
    if lanes == 1 or all(indices == stmt.indices for indices in own):
        # No lane reads what another one stores.
        for lane in range(lanes):
            w.line(_assignment(w, stmt, lane, value))
        return
    name = w.name(f"{stmt.buffer.name}.lanes")
    w.line(f"{STORED[dtype]} {name}[{lanes}];")
    for lane in range(lanes):
        w.line(f"{_mask(w, stmt, lane)}{name}[{lane}] = {_stored(w, value, lane, dtype)};")
    for lane in range(lanes):
        place = element(s, stmt.buffer, stmt.indices, lane).text
        w.line(f"{_mask(w, stmt, lane)}{place} = {name}[{lane}];")


def _assignment(w: Writer, stmt: Store | MaskedStore, lane: int, value: Expr) -> str:
    place = element(w.scope, stmt.buffer, stmt.indices, lane).text
    return f"{_mask(w, stmt, lane)}{place} = {_stored(w, value, lane, stmt.buffer.dtype)};"


def _copy(w: Writer, stmt: Store) -> None:
    """A copy without the thread's registers, which is known to be whole."""
    load = stmt.value
    assert isinstance(load, Load)
    ends = []
    for buffer, indices in ((stmt.buffer, stmt.indices), (load.buffer, load.indices)):
        index = own_access(w.scope, buffer, indices)
        lanes = lanes_here(index)
        size = lanes * buffer.dtype.bytes
        w.aligned[buffer.name] = max(w.aligned.get(buffer.name, 1), size)
        ends.append(f"&{w.scope.names[buffer.name]}[{write(w.scope, index).text}]")
    w.line(f"{w.scope.helper('tc_copy')}<{size}>({', '.join(ends)});")


def _stored(w: Writer, value: Expr, lane: int, dtype: DType) -> str:
    return to_memory(w.scope, write(w.scope, value, lane), dtype).text


def _mask(w: Writer, stmt: Store | MaskedStore, lane: int) -> str:
    if isinstance(stmt, Store):
        return ""
    return f"if ({write(w.scope, stmt.mask, lane).text}) "


# Accesses that are moved as one -------------------------------------------------------------------


def _load_wide(w: Writer, value: Expr) -> None:
    """Neighbours that are surely read are loaded as one."""
    for load in dict.fromkeys(_certain(value)):
        text = _neighbours(w, load)
        if text:
            name = w.name(f"{load.buffer.name}.vec")
            w.line(f"const auto {name} = {text};")
            w.scope.loaded[load] = name


def _neighbours(w: Writer, load: Load) -> str:
    """The text of the load of neighbours as one, "" where they cannot be."""
    index = own_access(w.scope, load.buffer, load.indices)
    if not isinstance(index, Ramp) or not _wide(w, load.buffer, index):
        return ""
    kind = _vector(w, load.buffer.dtype, index.lanes)
    return f"*(const {kind} *)&{_address(w, load.buffer, index)}"


def _certain(expr: Expr) -> Iterator[Load]:
    """The vector loads that are performed whatever the data."""
    match expr:
        case Load():
            yield expr
            return
        case Select(condition=condition):
            yield from _certain(condition)
            return
        case Binary(op="and" | "or", a=a):
            yield from _certain(a)
            return
        case Ramp() | Broadcast():
            return
    for _, child in children(expr):
        if isinstance(child, Expr):
            yield from _certain(child)


def _store_wide(w: Writer, stmt: Store, index: Ramp, value: Expr) -> bool:
    """Whether a store of neighbours could be written as one."""
    if not _wide(w, stmt.buffer, index):
        return False
    s, dtype = w.scope, stmt.buffer.dtype
    kind, place = _vector(w, dtype, index.lanes), _address(w, stmt.buffer, index)
    if isinstance(value, Load) and value in s.loaded:
        # A copy: what was loaded is stored as it is, in one line.
        w.lines.pop()
        text = _neighbours(w, value)
    else:
        inside = ", ".join(_stored(w, value, lane, dtype) for lane in range(index.lanes))
        text = f"{kind}{{{{{inside}}}}}"
    w.line(f"*({kind} *)&{place} = {text};")
    return True


def _vector(w: Writer, dtype: DType, lanes: int) -> str:
    return f"{w.scope.helper('tc_vec')}<{STORED[dtype]}, {lanes}>"


def _address(w: Writer, buffer: Buffer, index: Ramp) -> str:
    return f"{w.scope.names[buffer.name]}[{write(w.scope, index.base).text}]"


def _wide(w: Writer, buffer: Buffer, index: Ramp) -> bool:
    """Whether neighbours can be moved as one: they lie in memory, at a multiple of their size.

    The base is known to be such a multiple when all its terms are; where parameters lie is for the
    launch to check.
    """
    size = index.lanes * buffer.dtype.bytes
    if buffer.scope in ("register", "local") or arith.constant(index.stride) != 1:
        return False
    if size & (size - 1) or index.lanes == 1 or size > WIDEST:
        return False
    if together(index) is None:
        return False
    w.aligned[buffer.name] = max(w.aligned.get(buffer.name, 1), size)
    return True
