"""An element that a loop reads and writes in every iteration is kept in a register meanwhile.

    for k in range(64):                     t = alloc("f32", scope="register")
        C[i, j] += A[i, k] * B[k, j]        t[()] = C[i, j]
                                            for k in range(64):
                                                t[()] += A[i, k] * B[k, j]
                                            C[i, j] = t[()]

No other element of the buffer may be touched in the loop, and the loop must run: then the element
is touched in any case. It may also be a vector of elements, masked or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.codegen.passes.copies import Names
from tensorc.codegen.passes.facts import Facts
from tensorc.codegen.passes.guards import hoisted
from tensorc.codegen.passes.lanes import certain_loads
from tensorc.codegen.passes.trees import (
    every,
    find,
    lanes_here,
    leaves,
    names_in,
    sizes_of,
    touched,
    with_body,
)
from tensorc.ir import arith
from tensorc.ir.nodes import (
    Alloc,
    Binary,
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
    Seq,
    Stmt,
    Store,
)
from tensorc.ir.walk import map_children, nodes, replace, seq


def accumulators(func: Func) -> Func:
    """`func` with such elements in registers, around the outermost loop that allows it."""
    stage = _Stage(Names(func))
    facts = Facts(frozenset(sizes_of(func)))
    return replace(func, body=stage.visit(hoisted(func.body), facts))


@dataclass(frozen=True, slots=True)
class _Element:
    """The element, or the elements of a vector, and the mask under which they are stored. With
    `whole`, they are also read without it."""

    indices: tuple[Expr, ...]
    mask: Expr | None
    whole: bool


@dataclass(frozen=True, slots=True)
class _Stage:
    names: Names

    def visit(self, stmt: Stmt, facts: Facts) -> Stmt:
        """Inner loops first, so that what they keep can be kept further out."""
        match stmt:
            case Seq(body=parts):
                return seq(*(self.visit(part, facts) for part in parts))
            case If(condition=condition, body=body):
                return with_body(stmt, self.visit(body, facts.given(condition)))
            case Alloc(body=body):
                return with_body(stmt, self.visit(body, facts))
            case For(body=body):
                loop = with_body(stmt, self.visit(body, facts.inside(stmt)))
                assert isinstance(loop, For)
                return self._loop(loop, facts)
        return stmt

    def _loop(self, loop: For, facts: Facts) -> Stmt:
        if loop.kind == "parallel" or any(x.kind == "parallel" for x in find(loop.body, For)):
            return loop
        if not facts.decide(Binary("lt", loop.begin, loop.end)):
            return loop
        result: Stmt = loop
        for buffer, element in _kept(loop):
            result = self._in_register(result, loop, buffer, element)
        return result

    def _in_register(self, stmt: Stmt, loop: For, buffer: Buffer, element: _Element) -> Stmt:
        """`stmt` holds the loop."""
        lanes = max(map(lanes_here, element.indices), default=1)
        shape = (arith.index(lanes),) if lanes > 1 else ()
        name = self.names.fresh(f"{buffer.name}.sum")
        register = Buffer(name, shape, buffer.dtype, "register")
        place = (Ramp(arith.index(0), arith.index(1), lanes),) if lanes > 1 else ()
        body = _redirected(stmt, buffer.name, register, place, masked=element.whole)
        kept = Load(register, place)
        first, last = self.names.fresh(name), self.names.fresh(buffer.name)
        loaded: Expr = Load(buffer, element.indices)
        after: Stmt = Store(last, buffer, element.indices, kept)
        if element.mask is not None:
            after = MaskedStore(last, buffer, element.indices, kept, element.mask)
            if not element.whole:
                loaded = MaskedLoad(buffer, element.indices, element.mask)
        before = Store(first, register, place, loaded)
        return Alloc(register, seq(before, body, after), loop.span)


def _kept(loop: For) -> list[tuple[Buffer, _Element]]:
    """The buffers of which a loop touches one element, which it reads first in each iteration."""
    inner = {alloc.buffer.name for alloc in find(loop.body, Alloc)}
    bound = {x.var.name for x in every(loop) if isinstance(x, For)}
    certain = _certain(loop.body)
    found: dict[str, tuple[Buffer, _Element]] = {}
    for leaf in certain:
        buffer = leaf.buffer
        if buffer.name in inner or buffer.name in found or buffer.scope == "register":
            continue
        first = next(other for other in leaves(loop.body) if buffer.name in touched(other))
        if first not in certain or not _reads(first, buffer.name):
            continue
        element = _element(loop.body, buffer.name)
        if element is not None and _plain(element, bound):
            found[buffer.name] = buffer, element
    return list(found.values())


def _plain(element: _Element, bound: set[str]) -> bool:
    """Whether indices and mask are the same all the time, and read no memory."""
    parts = element.indices if element.mask is None else (*element.indices, element.mask)
    loads = any(isinstance(n, Load | MaskedLoad) for part in parts for n in nodes(part, Expr))
    return not loads and all(bound.isdisjoint(names_in(part)) for part in parts)


def _certain(stmt: Stmt) -> list[Store | MaskedStore]:
    """The statements that are executed in every iteration."""
    match stmt:
        case Seq(body=parts):
            return [leaf for part in parts for leaf in _certain(part)]
        case Alloc(body=body):
            return _certain(body)
        case Store() | MaskedStore():
            return [stmt]
    return []


def _reads(leaf: Store | MaskedStore, buffer: str) -> bool:
    """Whether a statement reads a buffer, whatever its choices are."""
    return any(load.buffer.name == buffer for load in certain_loads(leaf.value))


def _element(stmt: Stmt, buffer: str) -> _Element | None:
    """What all accesses of a buffer in a statement agree on, or None."""
    places: set[tuple[Expr, ...]] = set()
    reads: set[Expr | None] = set()
    writes: set[Expr | None] = set()
    for leaf in leaves(stmt):
        if buffer not in touched(leaf):
            continue
        for node in nodes(leaf, Node):
            match node:
                case Load() | Store() if node.buffer.name == buffer:
                    places.add(node.indices)
                    (reads if isinstance(node, Load) else writes).add(None)
                case MaskedLoad() | MaskedStore() if node.buffer.name == buffer:
                    places.add(node.indices)
                    (reads if isinstance(node, MaskedLoad) else writes).add(node.mask)
    if len(places) != 1 or len(writes) != 1 or not reads <= writes | {None}:
        return None
    (indices,), (mask,) = places, writes
    return _Element(indices, mask, whole=None in reads)


def _redirected(
    stmt: Stmt, buffer: str, register: Buffer, place: tuple[Expr, ...], *, masked: bool
) -> Stmt:
    """Accesses of a buffer made ones of the register. Unless stores are to stay `masked`, lanes
    that the mask leaves out hold anything: it leaves them out again in the end."""

    def visit(node: Node) -> Node:
        node = map_children(node, visit)
        match node:
            case Load() | MaskedLoad() if node.buffer.name == buffer:
                return Load(register, place)
            case MaskedStore() if node.buffer.name == buffer and masked:
                return replace(node, buffer=register, indices=place)
            case Store() | MaskedStore() if node.buffer.name == buffer:
                return Store(node.name, register, place, node.value, node.span)
        return node

    result = visit(stmt)
    assert isinstance(result, Stmt)
    return result
