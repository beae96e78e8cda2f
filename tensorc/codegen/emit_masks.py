"""Masked vector access: lanes whose mask does not hold touch no memory.

Memory of our own may be touched in all lanes, so there a masked store becomes a load, a select and
a store, which LLVM can keep in registers.
"""

from __future__ import annotations

from tensorc.codegen.context import Context
from tensorc.codegen.emit_index import known_index
from tensorc.codegen.emit_memory import (
    WIDEST_STEP,
    address,
    forget,
    from_memory,
    lane_of,
    load,
    reverse,
    store,
    to_memory,
)
from tensorc.codegen.emit_ops import select
from tensorc.codegen.passes.flatten import flat_index
from tensorc.codegen.passes.trees import lanes_here
from tensorc.codegen.values import Value, constant, is_literal, memory_type, suffix, vector
from tensorc.ir.nodes import Buffer, Expr, MaskedLoad, MaskedStore, Ramp


def masked_load(c: Context, node: MaskedLoad) -> Value:
    buffer, index = node.buffer, flat_index(node.buffer, node.indices)
    mask = c.evaluate(c, node.mask)
    lanes = mask.lanes
    if mask.text == constant(False, mask.dtype, lanes).text:
        return constant(0, buffer.dtype, lanes)
    if mask.text == constant(True, mask.dtype, lanes).text or _always_inside(c, buffer, index):
        loaded = load(c, buffer, (index,))
        if node.mask == c.active:
            return loaded
        return select(c, mask, loaded, constant(0, buffer.dtype, lanes))
    return _masked_load(c, buffer, index, mask)


def _masked_load(c: Context, buffer: Buffer, index: Expr, mask: Value) -> Value:
    lanes, type_ = mask.lanes, memory_type(buffer.dtype, mask.lanes)
    ending = suffix(memory_type(buffer.dtype), lanes)
    step = known_index(c, index.stride) if isinstance(index, Ramp) else None
    if isinstance(index, Ramp) and step is not None and 1 < abs(step) <= WIDEST_STEP:
        return _spaced_load(c, buffer, index, step, mask)
    if step not in (1, -1) or not isinstance(index, Ramp):
        pointers = _pointers(c, buffer, index, lanes)
        raw = c.out.load(
            buffer.name,
            f"call {type_} @llvm.masked.gather.{ending}.v{lanes}p0(<{lanes} x ptr> align "
            f"{buffer.dtype.bytes} {pointers}, {mask.type} {mask.text}, {type_} zeroinitializer)",
        )
        return from_memory(c, raw, buffer.dtype, lanes)
    where = address(c, buffer, index.base if step == 1 else lane_of(index, lanes - 1))
    bits = mask.text if step == 1 else reverse(c, mask.type, mask.text, lanes)
    bits = _mask_of_load(c, bits, lanes)
    raw = c.out.load(
        where.memory,
        f"call {type_} @llvm.masked.load.{ending}.p0(ptr align {where.alignment} {where.pointer}, "
        f"{mask.type} {bits}, {type_} zeroinitializer)",
    )
    if step == -1:
        raw = reverse(c, type_, raw, lanes)
    return from_memory(c, raw, buffer.dtype, lanes)


def _spaced_load(c: Context, buffer: Buffer, index: Ramp, step: int, mask: Value) -> Value:
    """Every step-th element where the mask holds: one load of all from the first to the last lane,
    with the mask's bits as far apart, and a shuffle."""
    lanes, distance = mask.lanes, abs(step)
    span = lanes * distance
    places = [distance * (lane if step > 0 else lanes - 1 - lane) for lane in range(lanes)]
    lane_at = {place: lane for lane, place in enumerate(places)}
    spread = ", ".join(f"i32 {lane_at.get(place, lanes)}" for place in range(span))
    bits = c.out.pure(
        f"shufflevector {mask.type} {mask.text}, {mask.type} zeroinitializer, "
        f"<{span} x i32> <{spread}>"
    )
    bits = _mask_of_load(c, bits, span)
    where = address(c, buffer, index.base if step > 0 else lane_of(index, lanes - 1))
    type_ = memory_type(buffer.dtype, span)
    ending = suffix(memory_type(buffer.dtype), span)
    whole = c.out.load(
        where.memory,
        f"call {type_} @llvm.masked.load.{ending}.p0(ptr align {where.alignment} {where.pointer}, "
        f"<{span} x i1> {bits}, {type_} zeroinitializer)",
    )
    order = ", ".join(f"i32 {place}" for place in places)
    raw = c.out.pure(f"shufflevector {type_} {whole}, {type_} poison, <{lanes} x i32> <{order}>")
    return from_memory(c, raw, buffer.dtype, lanes)


def masked_store(c: Context, node: MaskedStore) -> None:
    buffer, index = node.buffer, flat_index(node.buffer, node.indices)
    mask = c.evaluate(c, node.mask)
    lanes = mask.lanes
    if mask.text == constant(False, mask.dtype, lanes).text:
        return
    c.active = node.mask
    value = c.evaluate(c, node.value)
    c.active = None
    if mask.text == constant(True, mask.dtype, lanes).text:
        store(c, buffer, (index,), value)
    elif _always_inside(c, buffer, index) and isinstance(index, Ramp):
        # A ramp of constant stride other than 0 has distinct lanes, so that no two stores meet.
        store(c, buffer, (index,), select(c, mask, value, load(c, buffer, (index,))))
    else:
        _masked_store(c, buffer, index, mask, to_memory(c, value))


def _masked_store(c: Context, buffer: Buffer, index: Expr, mask: Value, raw: str) -> None:
    lanes, type_ = mask.lanes, memory_type(buffer.dtype, mask.lanes)
    ending = suffix(memory_type(buffer.dtype), lanes)
    step = known_index(c, index.stride) if isinstance(index, Ramp) else None
    if step not in (1, -1) or not isinstance(index, Ramp):
        pointers = _pointers(c, buffer, index, lanes)
        c.out.effect(
            f"call void @llvm.masked.scatter.{ending}.v{lanes}p0({type_} {raw}, <{lanes} x ptr> "
            f"align {buffer.dtype.bytes} {pointers}, {mask.type} {mask.text})"
        )
    else:
        where = address(c, buffer, index.base if step == 1 else lane_of(index, lanes - 1))
        bits = mask.text
        if step == -1:
            raw, bits = reverse(c, type_, raw, lanes), reverse(c, mask.type, bits, lanes)
        bits = _mask_of_store(c, buffer, bits, lanes)
        c.out.effect(
            f"call void @llvm.masked.store.{ending}.p0({type_} {raw}, ptr align "
            f"{where.alignment} {where.pointer}, {mask.type} {bits})"
        )
    forget(c, frozenset((buffer.name,)))


def _mask_of_load(c: Context, mask: str, lanes: int) -> str:
    """The mask of a masked load in a form that LLVM cannot evaluate, where it would load too much.

    LLVM 22 keeps the masks of AVX and AVX2 in the sign bits of wide lanes. For a part of a mask of
    which it can prove that no lane holds, it chooses ones, which have no sign, and then takes what
    is not zero for a lane that holds: it loads the whole part (`SimplifyDemandedBits` of the mask
    in `combineMaskedLoad`, then `combineMaskedLoadConstantMask`, X86ISelLowering.cpp). Such a load,
    and that of a part of which it can prove that its lanes hold, has no size, over which a later
    pass aborts. A literal is split into parts before all that, and rightly.
    """
    affected = c.target.has("avx") and not c.target.has("avx512f")
    return mask if is_literal(mask) or not affected else _opaque(c, mask, lanes)


def _mask_of_store(c: Context, buffer: Buffer, mask: str, lanes: int) -> str:
    """The mask of a masked store in a form that LLVM cannot evaluate, where it would store too
    much.

    LLVM 22 joins a truncation to a masked store behind it, and then makes a store of one element
    of it when it finds that the mask holds in one lane only: of the element before the truncation
    (`reduceMaskedStoreToScalarStore` in X86ISelLowering.cpp does not look at the memory's type).
    """
    narrow = memory_type(buffer.dtype) in ("i8", "i16", "i32")
    return _opaque(c, mask, lanes) if narrow and c.target.has("avx512f") else mask


def _opaque(c: Context, mask: str, lanes: int) -> str:
    """The same mask. LLVM can prove of no lane whether it holds."""
    bits, splat = vector("i1", lanes), vector("i32", lanes)
    zero = c.out.pure('call i32 asm "", "=r,0"(i32 0)')
    first = c.out.pure(f"insertelement {splat} poison, i32 {zero}, i64 0")
    every = c.out.pure(f"shufflevector {splat} {first}, {splat} poison, {splat} zeroinitializer")
    never = c.out.pure(f"icmp ne {splat} {every}, zeroinitializer")
    return c.out.pure(f"xor {bits} {mask}, {never}")


def _pointers(c: Context, buffer: Buffer, index: Expr, lanes: int) -> str:
    """A vector of addresses."""
    offsets = c.evaluate(c, index)
    base = c.places[buffer.name].pointer
    return c.out.pure(
        f"getelementptr {memory_type(buffer.dtype)}, ptr {base}, {vector('i64', lanes)} "
        f"{offsets.text}"
    )


def _always_inside(c: Context, buffer: Buffer, index: Expr) -> bool:
    """Whether the buffer is our own and all lanes lie in it, whatever the mask says."""
    elements = c.places[buffer.name].elements
    if elements is None or not isinstance(index, Ramp):
        return False
    first, step = known_index(c, index.base), known_index(c, index.stride)
    if first is None or not step:
        return False
    last = first + step * (lanes_here(index) - 1)
    return min(first, last) >= 0 and max(first, last) < elements
