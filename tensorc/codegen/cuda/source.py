"""A lowered kernel as the text of a CUDA C++ function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tensorc.analysis.bound import SHARED_ALIGNMENT, bytes_of
from tensorc.analysis.region import loop_ranges
from tensorc.analysis.tensor_cores import Product, instruction_of, product_of
from tensorc.codegen.cuda import helpers
from tensorc.codegen.cuda.expressions import STORED, Scope, own_access
from tensorc.codegen.cuda.names import kernel_name
from tensorc.codegen.cuda.statements import Writer, execute
from tensorc.codegen.passes.trees import sizes_of
from tensorc.dtype import DType
from tensorc.errors import CompileError
from tensorc.ir.grid import THREADS, kernels, loops_of
from tensorc.ir.interval import Interval, contains, interval
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Ramp,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import children, nodes

INT: Interval = (-(2**31), 2**31 - 1)
STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may declare; what is more is asked for at the launch."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: a buffer, a scalar or a size of the function.

    `alignment` is the multiple of bytes at which a buffer has to lie.
    """

    name: str
    dtype: DType
    buffer: bool
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class Text:
    """A kernel as CUDA C++.

    Attributes:
        name: of the entry.
        body: the function, without the helpers that it calls.
        helpers: the device functions that it calls.
        parameters: in the order of the entry's.
        block: threads of a block along x, y and z.
        shared: bytes of shared memory, and of these what the launch has to ask for.
    """

    name: str
    body: str
    helpers: frozenset[str]
    parameters: tuple[Parameter, ...]
    block: tuple[int, int, int]
    shared: int
    dynamic: int


def emit(func: Func, own: Mapping[str, int]) -> Text:
    """The text of a lowered kernel; `own` counts the indices that name a thread."""
    found = kernels(func)
    block = found[0].block() if found else (1, 1, 1)
    taken: set[str] = set()
    entry = kernel_name(func.name)
    taken.add(entry)
    ranges: dict[str, Interval] = dict.fromkeys(sizes_of(func), (0, None))
    index = "int" if _narrow(func, own) else "long long"
    writer = Writer(Scope({}, index, own, ranges), taken, dict(zip(THREADS, block, strict=True)))
    writer.products = _products(func)
    used = _used(func)
    signature = [_declared(writer, name, what, func) for name, what in used.items()]
    shared = _shared(writer, func)
    execute(writer, func.body)
    writer.lines[:0] = [f"    {line}" for line in shared.lines(writer)]
    threads = block[0] * block[1] * block[2]
    head = f'extern "C" __global__ void __launch_bounds__({threads})\n{entry}('
    body = "\n".join([f"{head}{', '.join(signature)}) {{", *writer.lines, "}"])
    parameters = tuple(_parameter(writer, name, what) for name, what in used.items())
    # Not all that was asked for is in the text: of two conversions, one may have undone the other.
    helped = writer.scope.helpers.intersection(re.findall(r"\btc_\w+", body))
    return Text(entry, body, frozenset(helped), parameters, block, shared.total, shared.dynamic)


def _products(func: Func) -> dict[str, Product]:
    """The nests that instructions compute, by their outermost loops."""
    found: dict[str, Product] = {}
    for path, loop in (x for kernel in kernels(func) for x in loops_of(func, kernel.path)):
        name = instruction_of(loop)
        if name is not None:
            product = product_of(func, path, name)
            if isinstance(product, str):
                raise CompileError(f"{name} cannot compute `{loop.var.name}`: {product}")
            found[loop.var.name] = product
    return found


def module_text(kernels_: Iterable[Text]) -> str:
    """The source of all kernels of a program, with the helpers that they call."""
    every = list(kernels_)
    called = {name for kernel in every for name in kernel.helpers}
    parts = [*helpers.texts(sorted(called)), *(kernel.body for kernel in every)]
    return "\n\n".join(parts) + "\n"


# Parameters ---------------------------------------------------------------------------------------


def _used(func: Func) -> dict[str, Buffer | Var]:
    """What the kernel touches of its parameters and sizes, in their order."""
    buffers = _stored(func) | _loaded(func)
    names = {var.name for var in nodes(func, Var)}
    names |= {v.name for b in _buffers(func) for e in b.shape for v in nodes(e, Var)}
    found: dict[str, Buffer | Var] = {}
    for param in func.params:
        if param.name in (buffers if isinstance(param.value, Buffer) else names):
            found[param.name] = param.value
    for size in sizes_of(func):
        if size in names:
            found[size] = Var(size)
    return found


def _buffers(func: Func) -> Iterator[Buffer]:
    """The buffers that are accessed, once for each access."""
    for node in nodes(func, Node):
        if isinstance(node, Load | MaskedLoad | Store | MaskedStore):
            yield node.buffer
        elif isinstance(node, Reduce):
            yield from node.buffers


def _declared(w: Writer, name: str, what: Buffer | Var, func: Func) -> str:
    w.scope.names[name] = made = w.name(name)
    if isinstance(what, Var):
        kind = "long long" if what.dtype is DType.INDEX else w.scope.kind(what.dtype)
        return f"{kind} {made}"
    const = "" if name in _stored(func) else "const "
    restrict = "" if _passes(func, name) else "__restrict__ "
    return f"{const}{STORED[what.dtype]} *{restrict}{made}"


def _passes(func: Func, name: str) -> bool:
    """Whether a value may pass between threads through a buffer.

    A compiler moves loads from what is `__restrict__` across barriers: no other pointer of the
    thread leads there, and of other threads it does not think.
    """
    barrier = next(nodes(func, Barrier), None) is not None
    return barrier and name in _stored(func) and name in _loaded(func)


def _stored(func: Func) -> set[str]:
    stores: list[Store | MaskedStore] = [*nodes(func, Store), *nodes(func, MaskedStore)]
    return {store.buffer.name for store in stores} | _combined(func)


def _loaded(func: Func) -> set[str]:
    loads: list[Load | MaskedLoad] = [*nodes(func, Load), *nodes(func, MaskedLoad)]
    return {load.buffer.name for load in loads} | _combined(func)


def _combined(func: Func) -> set[str]:
    """What threads combine into, which is read and stored."""
    return {buffer.name for node in nodes(func, Reduce) for buffer in node.buffers}


def _parameter(w: Writer, name: str, what: Buffer | Var) -> Parameter:
    alignment = w.aligned.get(name, what.dtype.bytes) if isinstance(what, Buffer) else 1
    return Parameter(name, what.dtype, isinstance(what, Buffer), alignment)


@dataclass(frozen=True, slots=True)
class _Shared:
    """The arrays of shared memory with their offsets, what they take, and the name of the pool that
    they lie in when that is more than a kernel may declare."""

    arrays: tuple[tuple[Buffer, int], ...]
    total: int
    pool: str

    @property
    def dynamic(self) -> int:
        return self.total if self.pool else 0

    def lines(self, w: Writer) -> Iterator[str]:
        """The declarations. An array is aligned so that compilers can join accesses to neighbours,
        unless it ends within what they would join: they read past the end then."""
        if self.pool:
            yield f"extern __shared__ __align__({SHARED_ALIGNMENT}) unsigned char {self.pool}[];"
        for array, offset in self.arrays:
            name, kind = w.scope.names[array.name], STORED[array.dtype]
            if self.pool:
                yield f"{kind} *const {name} = ({kind} *)({self.pool} + {offset});"
                continue
            size = max(bytes_of(array) or 0, array.dtype.bytes)
            whole = SHARED_ALIGNMENT if size % SHARED_ALIGNMENT == 0 else array.dtype.bytes
            alignment = max(w.aligned.get(array.name, 1), whole)
            size = -(-size // alignment) * alignment
            align = f"__align__({alignment}) " if alignment > array.dtype.bytes else ""
            yield f"__shared__ {align}{kind} {name}[{size // array.dtype.bytes}];"


def _shared(w: Writer, func: Func) -> _Shared:
    """The arrays of shared memory, which have their names now."""
    arrays, total = [], 0
    for alloc in nodes(func, Alloc):
        if alloc.buffer.scope == "shared":
            w.scope.names[alloc.buffer.name] = w.name(alloc.buffer.name)
            arrays.append((alloc.buffer, total))
            total += -(-(bytes_of(alloc.buffer) or 0) // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
    return _Shared(tuple(arrays), total, w.name("shared") if total > STATIC_SHARED else "")


# The width of index arithmetic --------------------------------------------------------------------


def _narrow(func: Func, own: Mapping[str, int]) -> bool:
    """Whether no index, bound or condition can leave 32 bits, nor any part of one."""
    scope = Scope({}, "int", own, {})
    return _fits(func.body, scope, ())


def _fits(stmt: Stmt, scope: Scope, loops: tuple[For, ...]) -> bool:
    ranges = loop_ranges(loops)
    match stmt:
        case Seq(body=parts):
            return all(_fits(part, scope, loops) for part in parts)
        case For(begin=begin, end=end, body=body):
            here = _small(begin, scope, ranges) and _small(end, scope, ranges)
            return here and _fits(body, scope, (*loops, stmt))
        case If(condition=condition, body=body):
            return _small(condition, scope, ranges) and _fits(body, scope, loops)
        case Alloc(body=body):
            return _fits(body, scope, loops)
        case AsyncCopy(body=body):
            return _fits(body, scope, loops)
        case Store() | MaskedStore():
            own = own_access(scope, stmt.buffer, stmt.indices)
            mask = (stmt.mask,) if isinstance(stmt, MaskedStore) else ()
            return all(_small(expr, scope, ranges) for expr in (own, stmt.value, *mask))
        case Reduce(buffers=buffers, indices=indices, values=values):
            places = (own_access(scope, buffer, indices) for buffer in buffers)
            return all(_small(expr, scope, ranges) for expr in (*places, *values))
    return True


def _small(expr: Expr, scope: Scope, ranges: Mapping[str, Interval]) -> bool:
    match expr:
        case Load(buffer=buffer, indices=indices) | MaskedLoad(buffer=buffer, indices=indices):
            if not _small(own_access(scope, buffer, indices), scope, ranges):
                return False
            return not isinstance(expr, MaskedLoad) or _small(expr.mask, scope, ranges)
        case Ramp(base=base, stride=stride, lanes=lanes):
            low, high = interval(base, ranges)
            step = interval(stride, ranges)
            if None in (low, high, *step):
                return False
            reach = max(abs(step[0] or 0), abs(step[1] or 0)) * lanes
            return contains(INT, ((low or 0) - reach, (high or 0) + reach)) and _small(
                base, scope, ranges
            )
    if dtype_of(expr) is DType.INDEX and not contains(INT, interval(expr, ranges)):
        return False
    inner = (child for _, child in children(expr) if isinstance(child, Expr))
    return all(_small(child, scope, ranges) for child in inner)
