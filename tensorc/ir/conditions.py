"""What finds where a program breaks each condition of verify.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, get_args

from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Binary,
    Broadcast,
    Buffer,
    Commit,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    LoopKind,
    MaskedLoad,
    MaskedStore,
    Mode,
    Node,
    Param,
    Prefetch,
    Ramp,
    Reduce,
    Scope,
    Select,
    Seq,
    Store,
    Unary,
    Var,
    Wait,
)
from tensorc.ir.operands import INTEGERS, OPERANDS, REDUCTIONS
from tensorc.ir.places import Place, buffers_of, sizes_of
from tensorc.ir.print import print_expr
from tensorc.ir.types import dtype_of, lanes_of
from tensorc.ir.walk import written
from tensorc.ir.words import counted

MAX_LANES = 64

_OF_PARAMETER = "parameter's shape"

Fault: TypeAlias = tuple[Place, str]


@dataclass(frozen=True, slots=True)
class Program:
    func: Func
    places: tuple[Place, ...]
    lowered: bool


# Names --------------------------------------------------------------------------------------------


def _repeated(found: Iterable[tuple[Place, str]], what: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for place, name in found:
        if name in seen:
            yield place, f"{what} `{name}` is already taken"
        seen.add(name)


def unique_parameters(program: Program) -> Iterator[Fault]:
    named = ((p, p.node.name) for p in program.places if isinstance(p.node, Param))
    return _repeated(named, "the parameter name")


def unique_buffers(program: Program) -> Iterator[Fault]:
    def named() -> Iterator[tuple[Place, str]]:
        for place in program.places:
            match place.node:
                case Param(value=Buffer(name=name)) | Alloc(buffer=Buffer(name=name)):
                    yield place, name

    return _repeated(named(), "the buffer name")


def unique_statements(program: Program) -> Iterator[Fault]:
    named = (
        (p, p.node.name) for p in program.places if isinstance(p.node, Store | Reduce | MaskedStore)
    )
    return _repeated(named, "the statement name")


def unique_variables(program: Program) -> Iterator[Fault]:
    taken = set(sizes_of(program.func))
    for place in program.places:
        match place.node:
            case For(var=Var(name=name)) | Param(value=Var(name=name)):
                if name in taken:
                    yield place, f"the variable name `{name}` is already taken"
                taken.add(name)
            case Let(var=Var(name=name)) if name in place.around.variables:
                yield place, f"`let {name}` hides the variable `{name}` around it"


# Scopes -------------------------------------------------------------------------------------------


def variables(program: Program) -> Iterator[Fault]:
    for place in program.places:
        if not isinstance(place.node, Var):
            continue
        found = place.around.variables.get(place.node.name)
        if found is None:
            known = ", ".join(place.around.variables) or "none"
            yield place, f"`{place.node.name}` is no variable here; in scope: {known}"
        elif found is not place.node.dtype:
            yield place, f"`{place.node.name}` is used as {place.node.dtype}, but it is {found}"


def buffers(program: Program) -> Iterator[Fault]:
    for place in program.places:
        for buffer in buffers_of(place.node):
            found = place.around.buffers.get(buffer.name)
            if found is None:
                known = ", ".join(place.around.buffers) or "none"
                yield place, f"`{buffer.name}` is no buffer here; in scope: {known}"
            elif found is not buffer and found != buffer:
                yield place, f"`{buffer.name}` is not the buffer that is declared by this name"


def sizes(program: Program) -> Iterator[Fault]:
    """The sizes are read off the shapes of the arguments, so each must be there to read."""
    alone = set(sizes_of(program.func, alone=True))
    for place in program.places:
        match place.node:
            case Var(name=name) if name not in alone and place.around.pure == _OF_PARAMETER:
                yield place, f"the size `{name}` is no dimension of its own anywhere"


def pure(program: Program) -> Iterator[Fault]:
    for place in program.places:
        if place.around.pure and isinstance(place.node, Load | MaskedLoad):
            yield place, f"{_text(place.node)} reads a buffer, which a {place.around.pure} may not"


def modes(program: Program) -> Iterator[Fault]:
    modes = {param.name: param.mode for param in program.func.params}
    for place in program.places:
        match place.node:
            case Param(value=Var(), mode=mode) if mode not in ("in", "const"):
                yield place, f'a scalar is an "in" parameter, not "{mode}"'
            case Store() | Reduce() | MaskedStore():
                for buffer in written(place.node):
                    mode = modes.get(buffer.name, "out")
                    if mode in ("in", "const"):
                        yield place, f'`{buffer.name}` is written, but its mode is "{mode}"'


# Shapes and dtypes --------------------------------------------------------------------------------


def rank(program: Program) -> Iterator[Fault]:
    for place in program.places:
        node = place.node
        for buffer in buffers_of(node):
            assert isinstance(node, Load | MaskedLoad | Store | MaskedStore | Reduce | Prefetch)
            indices = node.indices
            if len(indices) != len(buffer.shape):
                yield (
                    place,
                    f"`{buffer.name}` has {counted(len(buffer.shape), 'dimension')}, "
                    f"not {len(indices)}",
                )
        for buffer in _declared(node):
            if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
                strides = f"{len(buffer.strides)} strides for {len(buffer.shape)} dimensions"
                yield place, f"`{buffer.name}` has {strides}"


def operands(program: Program) -> Iterator[Fault]:
    for place in program.places:
        match place.node:
            case Unary(op=op, a=a):
                yield from _accepts(place, op, a)
            case Binary(op=op, a=a, b=b):
                if not _differ(a, b):
                    yield from _accepts(place, op, a)
                else:
                    yield place, f"{_text(place.node)} mixes {_both(a, b)}"
            case Select(a=a, b=b) if _differ(a, b):
                yield place, f"{_text(place.node)} chooses between {_both(a, b)}"
            case Ramp(base=a, stride=b) if _differ(a, b):
                yield place, f"{_text(place.node)} mixes {_both(a, b)}"
            case Ramp(base=a) if dtype_of(a) not in INTEGERS:
                yield place, f"{_text(place.node)} is of {dtype_of(a)}; a ramp is of integers"
            case Let(var=var, value=value) if var.dtype is not dtype_of(value):
                yield place, f"`let {var.name}` is {var.dtype}, but its value {dtype_of(value)}"


def _accepts(place: Place, op: str, a: Expr) -> Iterator[Fault]:
    legal = OPERANDS.get(op)  # type: ignore[call-overload]
    if legal is None:
        yield place, f"`{op}` is no operation"
    elif dtype_of(a) not in legal:
        assert isinstance(place.node, Expr)
        yield place, f"{_text(place.node)} is of {dtype_of(a)}; `{op}` takes {_list(legal)}"


def are_bool(program: Program) -> Iterator[Fault]:
    for place in program.places:
        match place.node:
            case If(condition=c) | Select(condition=c) | MaskedLoad(mask=c) | MaskedStore(mask=c):
                if dtype_of(c) is not DType.BOOL:
                    yield place, f"the condition {_text(c)} is {dtype_of(c)}, not bool"


def are_index(program: Program) -> Iterator[Fault]:
    for place in program.places:
        for what, expr in _positions(place.node):
            if dtype_of(expr) is not DType.INDEX:
                yield place, f"the {what} {_text(expr)} is {dtype_of(expr)}, not index"


def _positions(node: Node) -> Iterator[tuple[str, Expr]]:
    """The expressions that say where or how often."""
    match node:
        case For(var=var, begin=begin, end=end):
            yield from (("loop variable", var), ("bound", begin), ("bound", end))
        case Load(indices=indices) | MaskedLoad(indices=indices) | Store(indices=indices):
            yield from (("index", index) for index in indices)
        case MaskedStore(indices=indices) | Reduce(indices=indices) | Prefetch(indices=indices):
            yield from (("index", index) for index in indices)
    for buffer in _declared(node):
        yield from (("extent", extent) for extent in buffer.shape)


def stored(program: Program) -> Iterator[Fault]:
    for place in program.places:
        match place.node:
            case Store(buffer=buffer, value=value) | MaskedStore(buffer=buffer, value=value):
                if dtype_of(value) is not buffer.dtype:
                    what = f"the value {_text(value)} is {dtype_of(value)}"
                    yield place, f"{what}, but `{buffer.name}` holds {buffer.dtype}"


def reductions(program: Program) -> Iterator[Fault]:
    for place in program.places:
        if isinstance(place.node, Reduce):
            yield from ((place, reason) for reason in _reduction(place.node))


def _reduction(stmt: Reduce) -> Iterator[str]:
    combiner, legal = COMBINERS.get(stmt.op), REDUCTIONS.get(stmt.op)
    if combiner is None or legal is None:
        yield f"`{stmt.op}` is no reduction; there are {', '.join(COMBINERS)}"
        return
    given = (len(stmt.buffers), len(stmt.values))
    if given != (combiner.arity, combiner.arity):
        counts = f"{given[0]} buffers and {given[1]} values"
        yield f"`{stmt.op}` takes {combiner.arity} of each, not {counts}"
        return
    for buffer, value, dtypes in zip(stmt.buffers, stmt.values, legal, strict=True):
        if buffer.dtype not in dtypes:
            yield f"`{buffer.name}` holds {buffer.dtype}; `{stmt.op}` takes {_list(dtypes)}"
        if dtype_of(value) is not buffer.dtype:
            what = f"the value {_text(value)} is {dtype_of(value)}"
            yield f"{what}, but `{buffer.name}` holds {buffer.dtype}"
    held = {buffer.dtype for buffer in stmt.buffers}
    if stmt.op in ("welford", "logsumexp") and len(held) > 1:
        yield f"the buffers of `{stmt.op}` hold one dtype, not {_list(held)}"
    for name, count in Counter(buffer.name for buffer in stmt.buffers).items():
        if count > 1:
            yield f"`{name}` stands {count} times among the buffers"


# Forms --------------------------------------------------------------------------------------------


def words(program: Program) -> Iterator[Fault]:
    """Only what the type checker would refuse, so that what is read from elsewhere is safe."""
    for place in program.places:
        node = place.node
        if isinstance(node, For) and node.kind not in get_args(LoopKind):
            yield place, f"`{node.kind}` is no loop kind; there are {_list(get_args(LoopKind))}"
        if isinstance(node, Param) and node.mode not in get_args(Mode):
            yield place, f"`{node.mode}` is no mode; there are {_list(get_args(Mode))}"
        for buffer in _declared(node):
            if buffer.scope not in get_args(Scope):
                yield place, f"`{buffer.scope}` is no scope; there are {_list(get_args(Scope))}"
            elif isinstance(node, Param) and buffer.scope != "global":
                yield place, f'a parameter has the scope "global", not "{buffer.scope}"'


def numbers(program: Program) -> Iterator[Fault]:
    for place in program.places:
        node = place.node
        if isinstance(node, Ramp | Broadcast) and node.lanes < 1:
            yield place, f"a vector of {node.lanes} lanes"
        for buffer in _declared(node):
            if buffer.dtype is DType.INDEX:
                yield place, "a buffer holds data, not index"
            for extent in buffer.shape:
                if isinstance(extent, Const) and extent.value < 0:
                    yield place, f"the extent {extent.value} is negative"
            alignment = buffer.alignment
            if alignment is not None and (alignment < 1 or alignment & (alignment - 1)):
                yield place, f"the alignment {alignment} is no power of two"


def sequences(program: Program) -> Iterator[Fault]:
    for place in program.places:
        if isinstance(place.node, Seq):
            body = place.node.body
            if any(isinstance(part, Seq) for part in body):
                yield place, "a sequence directly in a sequence; flatten it with `walk.seq`"
            elif len(body) == 1:
                yield place, "a sequence of one statement; use the statement"


def vectorized(program: Program) -> Iterator[Fault]:
    for place in program.places:
        match place.node:
            case For(kind="vectorize", begin=begin, end=end):
                extent = arith.constant(arith.sub(end, begin))
                if extent is None:
                    yield place, "a vectorize loop runs a constant number of times"
                elif extent > MAX_LANES:
                    yield place, f"a vectorize loop of {extent} lanes; at most {MAX_LANES}"


_LOWERED = (
    Ramp, Broadcast, Let, MaskedLoad, MaskedStore, Prefetch, Barrier, AsyncCopy, Commit, Wait
)  # fmt: skip


def lowered(program: Program) -> Iterator[Fault]:
    for place in program.places:
        if isinstance(place.node, _LOWERED) and not program.lowered:
            yield place, f"{type(place.node).__name__} belongs to lowered programs only"
        if isinstance(place.node, AsyncCopy) and not isinstance(place.node.body.value, Load):
            yield place, "what is copied asynchronously is what a load reads"


def lanes(program: Program) -> Iterator[Fault]:
    if not program.lowered:
        return
    for place in program.places:
        known, node = dict(place.around.lanes), place.node
        parts = [lanes_of(part, known) for part in _together(node)]
        wide = sorted({lanes for lanes in parts if lanes > 1})
        if len(wide) > 1:
            yield place, f"vectors of {' and '.join(map(str, wide))} lanes together"
        elif wide and isinstance(node, For | If | Alloc | Param | Ramp | Broadcast | Prefetch):
            yield place, f"a vector of {wide[0]} lanes where one value belongs"
        elif wide and isinstance(node, Store | MaskedStore) and _one(node.indices, known):
            yield place, f"{wide[0]} lanes are stored in one element"


def _one(indices: tuple[Expr, ...], known: dict[str, int]) -> bool:
    """Whether scalar indices name one element."""
    return all(lanes_of(index, known) == 1 for index in indices)


def _together(node: Node) -> tuple[Expr, ...]:
    """The expressions of a node that are computed lane by lane together, or have no lanes."""
    match node:
        case Unary() | Let():
            return ()
        case Binary(a=a, b=b) | Ramp(base=a, stride=b) | For(begin=a, end=b):
            return a, b
        case Select(condition=condition, a=a, b=b):
            return condition, a, b
        case Broadcast(value=a) | If(condition=a):
            return (a,)
        case Load(indices=indices) | Prefetch(indices=indices):
            return indices
        case MaskedLoad(indices=indices, mask=mask):
            return *indices, mask
        case Store(indices=indices, value=value):
            return *indices, value
        case MaskedStore(indices=indices, value=value, mask=mask):
            return *indices, value, mask
        case Reduce(indices=indices, values=values):
            return *indices, *values
    return tuple(extent for buffer in _declared(node) for extent in buffer.shape)


# Messages -----------------------------------------------------------------------------------------


def _declared(node: Node) -> tuple[Buffer, ...]:
    """The buffer that a node declares."""
    match node:
        case Param(value=Buffer() as buffer) | Alloc(buffer=buffer):
            return (buffer,)
    return ()


def _differ(a: Expr, b: Expr) -> bool:
    return dtype_of(a) is not dtype_of(b)


def _both(a: Expr, b: Expr) -> str:
    return f"{dtype_of(a)} and {dtype_of(b)}"


def _list(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


def _text(expr: Expr) -> str:
    text = print_expr(expr)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"
