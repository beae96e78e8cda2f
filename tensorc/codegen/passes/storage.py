"""Where temporaries live: on the stack while they are small, else at fixed offsets of a workspace.

A workspace has one shared part, and one part for each worker of the parallel loops. A buffer that
is allocated inside a parallel loop belongs to a worker. Buffers whose lifetimes do not meet share
memory. A lifetime is an interval of positions in the text; a use inside a loop that does not also
hold the allocation lasts as long as the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorc.codegen.passes.extents import bound
from tensorc.codegen.passes.facts import Facts
from tensorc.codegen.passes.flatten import extent_of
from tensorc.codegen.passes.registers import unit_of
from tensorc.codegen.passes.trees import find, sizes_of, touched, with_buffers
from tensorc.errors import CompileError
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, If, MaskedStore, Seq, Stmt, Store, Var
from tensorc.ir.walk import replace

Home: TypeAlias = Literal["stack", "shared", "worker"]

MAX_STACK = 4096
"""Bytes of temporaries on the stack of a function."""
ALIGNMENT = 64
"""Bytes to which every slot of a workspace is aligned."""
_NOTHING = arith.index(0)


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer's place: offset and size in bytes, and the first and last position of its life.

    A buffer that is always accessed in whole units of so many elements is a set of values rather
    than memory.
    """

    buffer: str
    home: Home
    offset: Expr
    size: Expr
    live: tuple[int, int]
    unit: int = 0


@dataclass(frozen=True, slots=True)
class Storage:
    """The plan of a function: its slots, and the bytes of a workspace that they need."""

    slots: tuple[Slot, ...]
    shared: Expr
    worker: Expr

    @property
    def workspace(self) -> bool:
        """Whether the function takes a workspace at all."""
        return any(slot.home != "stack" for slot in self.slots)

    def home(self, buffer: str) -> Slot:
        return next(slot for slot in self.slots if slot.buffer == buffer)

    def verify(self, sizes: frozenset[str]) -> None:
        """Raises CompileError unless slots that are live at one time are surely apart."""
        facts = Facts(sizes)
        for position, a in enumerate(self.slots):
            for b in self.slots[position + 1 :]:
                if a.home != b.home or a.home == "stack" or not _meet(a.live, b.live):
                    continue
                if not _apart(a, b, facts):
                    raise CompileError(f"the storage of {a.buffer} and {b.buffer} overlaps")

    def __str__(self) -> str:
        rows = [
            f"{slot.buffer}: {slot.home} at {_text(slot.offset)}, {_text(slot.size)} bytes, "
            f"live {slot.live[0]}..{slot.live[1]}"
            for slot in self.slots
        ]
        return "\n".join(rows) or "no temporaries"


def _text(size: Expr) -> str:
    number = arith.constant(size)
    return "a symbolic number" if number is None else str(number)


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _apart(a: Slot, b: Slot, facts: Facts) -> bool:
    """Whether two slots are surely disjoint in memory."""
    before = linear(arith.sub(b.offset, arith.add(a.offset, a.size)))
    after = linear(arith.sub(a.offset, arith.add(b.offset, b.size)))
    return facts.proves(before) or facts.proves(after)


# Lifetimes ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Temporary:
    buffer: Buffer
    size: Expr
    unit: int
    parallel: bool
    loops: int
    first: int = -1
    last: int = -1

    def use(self, first: int, last: int) -> None:
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)


class _Lifetimes:
    """Numbers the leaf statements, and extends each temporary over its uses."""

    def __init__(self) -> None:
        self.found: dict[str, _Temporary] = {}
        self.position = 0

    def visit(self, stmt: Stmt, loops: tuple[For, ...]) -> None:
        """`loops` are those around the statement, outermost first."""
        match stmt:
            case Seq(body=body):
                for part in body:
                    self.visit(part, loops)
            case If(body=body):
                self.visit(body, loops)
            case For():
                self._loop(stmt, loops)
            case Alloc(buffer=buffer, body=body):
                parallel = any(loop.kind == "parallel" for loop in loops)
                shared = any(loop.kind == "parallel" for loop in find(body, For))
                unit = 0 if shared else unit_of(stmt)
                self.found[buffer.name] = _Temporary(
                    buffer, _bytes(buffer, loops), unit, parallel, len(loops)
                )
                self.visit(body, loops)
            case Store() | MaskedStore():
                for name in touched(stmt):
                    if name in self.found:
                        self.found[name].use(self.position, self.position)
                self.position += 1

    def _loop(self, loop: For, loops: tuple[For, ...]) -> None:
        start = self.position
        self.visit(loop.body, (*loops, loop))
        for temporary in self.found.values():
            if temporary.loops <= len(loops) and temporary.last >= start:
                temporary.use(start, self.position - 1)


# Packing ------------------------------------------------------------------------------------------


def plan(func: Func) -> Storage:
    """A place for every temporary of a function."""
    lifetimes = _Lifetimes()
    lifetimes.visit(func.body, ())
    temporaries = list(lifetimes.found.values())
    stack, rest = _on_stack(temporaries)
    shared, shared_size = _packed([t for t in rest if not t.parallel], "shared")
    worker, worker_size = _packed([t for t in rest if t.parallel], "worker")
    storage = Storage((*stack, *shared, *worker), shared_size, worker_size)
    storage.verify(frozenset(sizes_of(func)))
    return storage


def _on_stack(temporaries: list[_Temporary]) -> tuple[list[Slot], list[_Temporary]]:
    """The small ones, registers first, and the others."""
    chosen, others, total = [], [], 0
    for t in sorted(temporaries, key=lambda t: t.buffer.scope != "register"):
        size = arith.constant(t.size)
        if size is not None and total + size <= MAX_STACK:
            total += size
            chosen.append(_slot(t, "stack", arith.index(0)))
        else:
            others.append(t)
    return chosen, others


def _bytes(buffer: Buffer, loops: tuple[For, ...]) -> Expr:
    """The size of a buffer, at most, in any iteration of the loops around it."""
    if buffer.strides is not None:
        return arith.mul(extent_of(buffer), arith.index(buffer.dtype.bytes))
    total: Expr = arith.index(buffer.dtype.bytes)
    for extent in buffer.shape:
        most = bound(extent, loops, upper=True)
        total = arith.mul(most if _is_plain(most) else arith.maximum(most, _NOTHING), total)
    return total


def _is_plain(extent: Expr) -> bool:
    """Whether an extent cannot be negative by the way it is written."""
    return isinstance(extent, Var) or arith.constant(extent) is not None


def _slot(t: _Temporary, home: Home, offset: Expr) -> Slot:
    unit = t.unit if home == "stack" else 0
    return Slot(t.buffer.name, home, offset, t.size, (t.first, t.last), unit)


def _aligned(size: Expr) -> Expr:
    return arith.mul(arith.ceildiv(size, ALIGNMENT), arith.index(ALIGNMENT))


def _packed(temporaries: list[_Temporary], home: Home) -> tuple[list[Slot], Expr]:
    """Sizes that are known go largest first to the lowest offset that is free for their lifetime.
    A symbolic size shares only with an equal one."""
    known = [t for t in temporaries if arith.constant(t.size) is not None]
    known.sort(key=lambda t: -(arith.constant(t.size) or 0))
    slots: list[Slot] = []
    for t in known:
        slots.append(_slot(t, home, arith.index(_lowest(t, slots))))
    end: Expr = _aligned(arith.index(max((_end(slot) for slot in slots), default=0)))
    groups: list[tuple[Expr, Expr, list[Slot]]] = []
    for t in temporaries:
        if t in known:
            continue
        size, made = t.size, _slot(t, home, end)
        for offset, other, members in groups:
            if other == size and not any(_meet(made.live, m.live) for m in members):
                members.append(replace_slot(made, offset))
                break
        else:
            groups.append((end, size, [made]))
            end = arith.add(end, _aligned(size))
    return slots + [slot for _, _, members in groups for slot in members], end


def replace_slot(slot: Slot, offset: Expr) -> Slot:
    return Slot(slot.buffer, slot.home, offset, slot.size, slot.live)


def _end(slot: Slot) -> int:
    return (arith.constant(slot.offset) or 0) + (arith.constant(slot.size) or 0)


def _lowest(t: _Temporary, slots: list[Slot]) -> int:
    size = arith.constant(t.size) or 0
    busy = sorted(
        (arith.constant(slot.offset) or 0, _end(slot))
        for slot in slots
        if _meet(slot.live, (t.first, t.last))
    )
    offset = 0
    for start, end in busy:
        if offset + size <= start:
            break
        offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
    return offset


# The stage ----------------------------------------------------------------------------------------


def place(func: Func, storage: Storage) -> Func:
    """The scope of every temporary says where it went: "register" or "local" for the stack,
    "global" for a workspace."""
    new: dict[str, Buffer] = {}
    for alloc in find(func, Alloc):
        buffer = alloc.buffer
        if storage.home(buffer.name).home != "stack":
            new[buffer.name] = replace(buffer, scope="global", alignment=ALIGNMENT)
        elif buffer.scope not in ("register", "local"):
            new[buffer.name] = replace(buffer, scope="local")
    return with_buffers(func, new) if new else func
