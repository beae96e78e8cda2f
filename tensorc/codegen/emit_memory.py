"""Loads and stores: addresses, and the shapes of vector access that LLVM has instructions for.

An address is a base that depends on loop variables and a constant offset from it, so that the many
accesses of an unrolled loop share one base.
"""

from __future__ import annotations

from math import gcd

from tensorc.codegen.context import Context, Place
from tensorc.codegen.emit_index import index_of, known_index, sum_of, total_of
from tensorc.codegen.emit_ops import broadcast
from tensorc.codegen.halves import narrowed, widened
from tensorc.codegen.passes.flatten import flat_index
from tensorc.codegen.passes.storage import ALIGNMENT
from tensorc.codegen.passes.trees import lanes_here, leaves, reads_of
from tensorc.codegen.values import HALVES, Value, memory_type
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.nodes import (
    Broadcast,
    Buffer,
    Expr,
    For,
    Node,
    Ramp,
)
from tensorc.ir.walk import map_children, written

# Address ------------------------------------------------------------------------------------------


class Address:
    """A pointer, the bytes to which it is known to be aligned, and the name of its memory."""

    __slots__ = ("alignment", "memory", "pointer")

    def __init__(self, pointer: str, alignment: int, memory: str):
        self.pointer, self.alignment, self.memory = pointer, alignment, memory


def address(c: Context, buffer: Buffer, index: Expr) -> Address:
    """Where the element of a flat scalar index lies."""
    place = c.places[buffer.name]
    offset, parts = sum_of(c, index)
    if place.unit:
        return _unit(c, buffer, offset, place.unit)
    scalar, width = memory_type(buffer.dtype), buffer.dtype.bytes
    pointer, alignment = place.pointer, place.alignment
    if parts:
        pointer = c.out.pure(f"getelementptr {scalar}, ptr {pointer}, i64 {total_of(c, parts)}")
    if offset:
        pointer = c.out.pure(f"getelementptr {scalar}, ptr {pointer}, i64 {offset}")
    if alignment > width:
        alignment = gcd(alignment, offset * width, *(part[2] * width for part in parts))
    return Address(pointer, alignment, buffer.name)


def _unit(c: Context, buffer: Buffer, offset: int, unit: int) -> Address:
    """A slot of a buffer that lies in registers, made when it is first met."""
    slots = c.units.setdefault(buffer.name, {})
    number = offset // unit
    if number not in slots:
        slots[number] = c.out.named(buffer.name)
        c.out.allocas.append(f"  {slots[number]} = alloca {memory_type(buffer.dtype, unit)}")
    return Address(slots[number], buffer.dtype.bytes, f"{buffer.name}#{number}")


def forget(c: Context, buffers: frozenset[str]) -> None:
    """These buffers may have changed in a way that was not followed."""
    for name in buffers:
        c.out.stored(name)
        for number in c.units.get(name, ()):
            c.out.stored(f"{name}#{number}")


def allocate(c: Context, buffer: Buffer) -> None:
    """Give a temporary its place. What is known of it may stay: it is written before it is read."""
    slot = c.slots[buffer.name]
    size = arith.constant(slot.size)
    elements = None if size is None else size // buffer.dtype.bytes
    if slot.unit:
        place = Place("", buffer.dtype.bytes, elements, slot.unit)
    elif slot.home == "stack":
        place = c.places.get(buffer.name) or _on_stack(c, buffer, elements or 0)
    else:
        base = c.shared if slot.home == "shared" else c.worker
        offset = index_of(c, slot.offset)
        pointer = c.out.pure(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base
        place = Place(pointer, ALIGNMENT, elements)
    c.places[buffer.name] = place


def _on_stack(c: Context, buffer: Buffer, elements: int) -> Place:
    pointer = c.out.named(buffer.name)
    type_ = memory_type(buffer.dtype)
    # An array type, not a count: the optimiser leaves an alloca with a count in memory.
    held = f"[{max(elements, 1)} x {type_}]"
    c.out.allocas.append(f"  {pointer} = alloca {held}, align {ALIGNMENT}")
    return Place(pointer, ALIGNMENT, elements)


def written_in(c: Context, loop: For) -> frozenset[str]:
    """The buffers that a loop writes."""
    found = c.writes.get(id(loop))
    if found is None:
        found = frozenset(b.name for leaf in leaves(loop) for b in written(leaf))
        c.writes[id(loop)] = found
    return found


# Between memory and registers ---------------------------------------------------------------------


def from_memory(c: Context, raw: str, dtype: DType, lanes: int) -> Value:
    if dtype in HALVES:
        raw = widened(c, raw, dtype, lanes)
    elif dtype is DType.BOOL:
        raw = c.out.pure(f"icmp ne {memory_type(dtype, lanes)} {raw}, {_zero(lanes)}")
    return Value(raw, dtype, lanes)


def to_memory(c: Context, value: Value) -> str:
    if value.dtype in HALVES:
        return narrowed(c, value.text, value.dtype, value.lanes)
    if value.dtype is DType.BOOL:
        type_ = memory_type(DType.BOOL, value.lanes)
        return c.out.pure(f"zext {value.type} {value.text} to {type_}")
    return value.text


def _zero(lanes: int) -> str:
    return "0" if lanes == 1 else "zeroinitializer"


def lane_of(expr: Expr, lane: int) -> Expr:
    """The scalar expression for one lane of a vector expression that reads no memory."""

    def visit(node: Node) -> Node:
        match node:
            case Ramp(base=base, stride=stride):
                return arith.add(base, arith.mul(stride, arith.index(lane)))
            case Broadcast(value=value):
                return value
        return map_children(node, visit)

    result = visit(expr)
    assert isinstance(result, Expr)
    return result


WIDEST_STEP = 4
"""Elements so far apart are loaded with what lies between them."""

# Plain access -------------------------------------------------------------------------------------


def load(c: Context, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
    index = flat_index(buffer, indices)
    match index:
        case Ramp(base=base, stride=stride, lanes=lanes):
            step = known_index(c, stride)
            if step in (1, -1):
                return _contiguous_load(c, buffer, index, step)
            if step == 0:
                return broadcast(c, load(c, buffer, (base,)), lanes)
            if step is not None and abs(step) <= WIDEST_STEP:
                return _spaced_load(c, buffer, index, step)
        case Broadcast(value=value, lanes=lanes):
            return broadcast(c, load(c, buffer, (value,)), lanes)
    lanes = lanes_here(index)
    if lanes > 1:
        return _gathered(c, buffer, index, lanes)
    where = address(c, buffer, index)
    type_ = memory_type(buffer.dtype)
    raw = c.out.load(where.memory, f"load {type_}, ptr {where.pointer}, align {where.alignment}")
    return from_memory(c, raw, buffer.dtype, 1)


def prefetch(c: Context, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """A request for the second-level cache: the first holds what is being read now."""
    where = address(c, buffer, flat_index(buffer, indices))
    c.out.effect(f"call void @llvm.prefetch.p0(ptr {where.pointer}, i32 0, i32 2, i32 1)")


def _first(index: Ramp, step: int) -> Expr:
    """The index of the lane that lies lowest in memory."""
    return index.base if step == 1 else lane_of(index, index.lanes - 1)


def _contiguous_load(c: Context, buffer: Buffer, index: Ramp, step: int) -> Value:
    where = address(c, buffer, _first(index, step))
    type_ = memory_type(buffer.dtype, index.lanes)
    raw = c.out.load(where.memory, f"load {type_}, ptr {where.pointer}, align {where.alignment}")
    if step < 0:
        raw = reverse(c, type_, raw, index.lanes)
    return from_memory(c, raw, buffer.dtype, index.lanes)


def _spaced_load(c: Context, buffer: Buffer, index: Ramp, step: int) -> Value:
    """Every step-th element: whole vectors that cover them, and shuffles. What lies between the
    first and the last lane may be read, since it is on their pages."""
    lanes, distance = index.lanes, abs(step)
    span = (lanes - 1) * distance + 1
    first = index.base if step > 0 else lane_of(index, lanes - 1)
    starts = [min(start, span - lanes) for start in range(0, span, lanes)]
    places = [distance * (lane if step > 0 else lanes - 1 - lane) for lane in range(lanes)]
    # A lane comes from the first piece that has it: from `raw` once that is an earlier one.
    owner = [next(n for n, s in enumerate(starts) if s <= p < s + lanes) for p in places]
    type_ = memory_type(buffer.dtype, lanes)
    raw = "poison"
    for number, start in enumerate(starts):
        where = address(c, buffer, arith.add(first, arith.index(start)))
        piece = c.out.load(
            where.memory, f"load {type_}, ptr {where.pointer}, align {where.alignment}"
        )
        order = ", ".join(
            f"i32 {place - start + lanes if own == number else lane if own < number else 'poison'}"
            for lane, (place, own) in enumerate(zip(places, owner, strict=True))
        )
        raw = c.out.pure(f"shufflevector {type_} {raw}, {type_} {piece}, <{lanes} x i32> <{order}>")
    return from_memory(c, raw, buffer.dtype, lanes)


def reverse(c: Context, type_: str, text: str, lanes: int) -> str:
    order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
    return c.out.pure(f"shufflevector {type_} {text}, {type_} poison, <{lanes} x i32> <{order}>")


def _addresses(c: Context, buffer: Buffer, index: Expr, lanes: int) -> list[Address]:
    """Where each lane of a vector index lies."""
    if not reads_of(index):
        return [address(c, buffer, lane_of(index, lane)) for lane in range(lanes)]
    # What lies in registers is read whole, so that a lane cannot ask for its part of the index.
    places, found = c.evaluate(c, index), []
    scalar, width = memory_type(buffer.dtype), buffer.dtype.bytes
    for lane in range(lanes):
        number = c.out.pure(f"extractelement {places.type} {places.text}, i64 {lane}")
        pointer = f"getelementptr {scalar}, ptr {c.places[buffer.name].pointer}, i64 {number}"
        found.append(Address(c.out.pure(pointer), width, buffer.name))
    return found


def _gathered(c: Context, buffer: Buffer, index: Expr, lanes: int) -> Value:
    """Lane by lane. Equal addresses are loaded once."""
    scalar, type_ = memory_type(buffer.dtype), memory_type(buffer.dtype, lanes)
    raw = "poison"
    for lane, where in enumerate(_addresses(c, buffer, index, lanes)):
        element = c.out.load(
            where.memory, f"load {scalar}, ptr {where.pointer}, align {where.alignment}"
        )
        raw = c.out.pure(f"insertelement {type_} {raw}, {scalar} {element}, i64 {lane}")
    return from_memory(c, raw, buffer.dtype, lanes)


def store(c: Context, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
    index = flat_index(buffer, indices)
    raw = to_memory(c, value)
    if isinstance(index, Ramp):
        step = known_index(c, index.stride)
        if step in (1, -1):
            _contiguous_store(c, buffer, index, step, raw)
            return
    lanes = lanes_here(index)
    if lanes > 1:
        _scattered(c, buffer, index, raw, lanes)
        return
    where = address(c, buffer, index)
    _write(c, where, memory_type(buffer.dtype), raw)


def _write(c: Context, where: Address, type_: str, raw: str) -> None:
    c.out.effect(f"store {type_} {raw}, ptr {where.pointer}, align {where.alignment}")
    text = f"load {type_}, ptr {where.pointer}, align {where.alignment}"
    c.out.stored(where.memory, text, raw)


def _contiguous_store(c: Context, buffer: Buffer, index: Ramp, step: int, raw: str) -> None:
    type_ = memory_type(buffer.dtype, index.lanes)
    if step < 0:
        raw = reverse(c, type_, raw, index.lanes)
    _write(c, address(c, buffer, _first(index, step)), type_, raw)


def _scattered(c: Context, buffer: Buffer, index: Expr, raw: str, lanes: int) -> None:
    """Lane by lane, in their order."""
    scalar, type_ = memory_type(buffer.dtype), memory_type(buffer.dtype, lanes)
    for lane, where in enumerate(_addresses(c, buffer, index, lanes)):
        element = c.out.pure(f"extractelement {type_} {raw}, i64 {lane}")
        _write(c, where, scalar, element)
