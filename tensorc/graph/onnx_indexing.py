"""ONNX's reads and writes at computed places, padding, and masks by place."""

from __future__ import annotations

import math

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.elements import Number, RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Value
from tensorc.graph.onnx_calls import Call, cast, dimension, expanded, maps, reshaped


def from_front(emit: Emit, indices: Value, extent: int) -> Value:
    """Indices of which negative ones count from the end, all counted from the front, as i64."""
    wide = cast(emit, indices, DType.I64)
    negative = emit("lt", self=wide, other=0)
    turned = emit("add", self=wide, other=extent)
    return emit("where", condition=negative, self=turned, other=wide)


def places(emit: Emit, extent: int, position: int, rank: int) -> Value:
    """0, 1, ... along one of `rank` dimensions, the others being 1."""
    line = emit("arange", start=0, end=extent, dtype=DType.I64)
    return reshaped(emit, line, (*(1,) * position, extent, *(1,) * (rank - position - 1)))


# Gather -----------------------------------------------------------------------------------------


@maps("Gather", 1, 11, 13)
def _gather(call: Call) -> Value:
    value, indices, emit = call[0], call[1], call.emit
    axis = call.axis(len(value.shape))
    extent, known = value.shape[axis], call.arrays.get(indices)
    if known is not None:
        if known.size and not (-extent <= known.min() and known.max() < extent):
            raise RefusedError(f"an index out of {extent}")
        if known.size == 1:
            place = int(known.reshape(())) % extent
            one = emit("slice", self=value, dim=axis, start=place, end=place + 1)
            shape = (*value.shape[:axis], *known.shape, *value.shape[axis + 1 :])
            return reshaped(emit, one, shape)
    before: tuple[Argument, ...] = (None,) * axis
    return emit("index", self=value, indices=(*before, indices))


@maps("GatherElements", 11, 13)
def _gather_elements(call: Call) -> Value:
    value, indices = call[0], call[1]
    if len(value.shape) != len(indices.shape):
        raise RefusedError(f"indices of {list(indices.shape)} into {list(value.shape)}")
    axis = call.axis(len(value.shape))
    for d, (n, m) in enumerate(zip(value.shape, indices.shape, strict=True)):
        if d != axis and m > n:
            raise RefusedError(f"indices of {list(indices.shape)} into {list(value.shape)}")
    own = from_front(call.emit, indices, value.shape[axis])
    return call.emit("gather", self=value, dim=axis, index=own)


@maps("GatherND", 11, 12, 13)
def _gather_nd(call: Call) -> Value:
    value, indices, emit = call[0], call[1], call.emit
    batch = call.attributes.get("batch_dims", 0)
    depth = indices.shape[-1] if indices.shape else 0
    rank = len(indices.shape) - 1
    if not 0 < depth <= len(value.shape) - batch or not 0 <= batch <= rank:
        raise RefusedError(f"indices of {list(indices.shape)} into {list(value.shape)}")
    if value.shape[:batch] != indices.shape[:batch]:
        raise RefusedError(
            f"{batch} equal dimensions of {list(indices.shape)}, {list(value.shape)}"
        )
    own = [places(emit, value.shape[d], d, rank) for d in range(batch)]
    own += [emit("select", self=indices, dim=rank, index=n) for n in range(depth)]
    return emit("index", self=value, indices=tuple(own))


@maps("Compress", 9, 11, 28)
def _compress(call: Call) -> Value:
    """The elements, or slices along an axis, at which a known condition holds."""
    value, emit = call[0], call.emit
    chosen = np.flatnonzero(call.known(1, "what its condition selects"))
    if "axis" in call.attributes:
        axis = call.axis(len(value.shape))
    else:
        value, axis = reshaped(emit, value, (value.size,)), 0
    if chosen.size and chosen[-1] >= value.shape[axis]:
        raise RefusedError(f"a condition longer than {value.shape[axis]}")
    index = call.constant(chosen.astype(np.int64))
    return emit("index_select", self=value, dim=axis, index=index)


@maps("ReverseSequence", 10, 28)
def _reverse_sequence(call: Call) -> Value:
    """The first `lengths` elements along the time axis in reverse; one length for each batch."""
    value, emit, rank = call[0], call.emit, len(call[0].shape)
    time, batch = call.axis(rank, "time_axis"), call.axis(rank, "batch_axis")
    if call[1].shape != (value.shape[batch],) or time == batch:
        raise RefusedError(f"lengths of {list(call[1].shape)} for {list(value.shape)}")
    line = places(emit, value.shape[time], time, rank)
    shape = tuple(value.shape[batch] if d == batch else 1 for d in range(rank))
    lengths = reshaped(emit, cast(emit, call[1], DType.I64), shape)
    back = emit("sub", self=emit("sub", self=lengths, other=1), other=line)
    inside = emit("lt", self=line, other=lengths)
    index = emit("where", condition=inside, self=back, other=line)
    return emit("gather", self=value, dim=time, index=expanded(emit, index, value.shape))


@maps("OneHot", 9, 11, 28)
def _one_hot(call: Call) -> Value:
    indices, emit = call[0], call.emit
    depth, rank = int(call.number(1, "its depth")), len(call[0].shape) + 1
    if depth < 1 or call[2].shape != (2,):
        raise RefusedError(f"a depth of {depth} and values of {list(call[2].shape)}")
    axis = dimension(call.attributes.get("axis", -1), rank)
    own = from_front(emit, indices, depth)
    column = emit("unsqueeze", self=own, dim=axis)
    here = emit("eq", self=column, other=places(emit, depth, axis, rank))
    off, on = (emit("select", self=call[2], dim=0, index=n) for n in range(2))
    return emit("where", condition=here, self=on, other=off)


# Scatter ----------------------------------------------------------------------------------------


@maps("ScatterElements", 11, 13, 16, 18)
def _scatter_elements(call: Call) -> Value:
    value, indices, updates, emit = call[0], call[1], call[2], call.emit
    call.same_dtype(value, updates)
    reduction = call.attributes.get("reduction", "none")
    if indices.shape != updates.shape or len(indices.shape) != len(value.shape):
        raise RefusedError(f"indices of {list(indices.shape)} into {list(value.shape)}")
    axis = call.axis(len(value.shape))
    own = from_front(emit, indices, value.shape[axis])
    return _scattered(emit, value, axis, own, updates, reduction)


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scattered(
    emit: Emit, value: Value, axis: int, indices: Value, updates: Value, reduction: str
) -> Value:
    if reduction == "none":
        return emit("scatter", self=value, dim=axis, index=indices, src=updates)
    if reduction not in _REDUCTIONS:
        raise RefusedError(f"reduction={reduction!r}")
    return emit(
        "scatter_reduce", self=value, dim=axis, index=indices, src=updates,
        reduce=_REDUCTIONS[reduction],
    )  # fmt: skip


maps("Scatter", 9, 11)(_scatter_elements)


@maps("ScatterND", 11, 13, 16, 18)
def _scatter_nd(call: Call) -> Value:
    """Slices set, or added to, at indices whose last dimension are places."""
    value, indices, updates, emit = call[0], call[1], call[2], call.emit
    call.same_dtype(value, updates)
    reduction = call.attributes.get("reduction", "none")
    depth = indices.shape[-1] if indices.shape else 0
    expected = (*indices.shape[:-1], *value.shape[depth:])
    if not 0 < depth <= len(value.shape) or updates.shape != expected:
        raise RefusedError(f"updates of {list(updates.shape)} at {list(indices.shape)}")
    last = len(indices.shape) - 1
    own = tuple(emit("select", self=indices, dim=last, index=n) for n in range(depth))
    if reduction in ("none", "add"):
        add = reduction == "add"
        return emit("index_put", self=value, indices=own, values=updates, accumulate=add)
    # Slices are rows of a matrix, each found by one number.
    row = from_front(emit, own[0], value.shape[0])
    for place, extent in zip(own[1:], value.shape[1:], strict=False):
        above = emit("mul", self=row, other=extent)
        row = emit("add", self=above, other=from_front(emit, place, extent))
    count, width = row.size, math.prod(value.shape[depth:])
    flat = reshaped(emit, value, (math.prod(value.shape[:depth]), width))
    index = expanded(emit, reshaped(emit, row, (count, 1)), (count, width))
    rows = reshaped(emit, updates, (count, width))
    return reshaped(emit, _scattered(emit, flat, 0, index, rows, reduction), value.shape)


@maps("TensorScatter", 24)
def _tensor_scatter(call: Call) -> Value:
    """A cache whose rows from a place on, one for each batch, are those of an update."""
    past, update, emit = call[0], call[1], call.emit
    call.same_dtype(past, update)
    rank = len(past.shape)
    axis = call.axis(rank)
    extent, count = past.shape[axis], update.shape[axis]
    if axis == 0 or update.shape != (*past.shape[:axis], count, *past.shape[axis + 1 :]):
        raise RefusedError(f"an update of {list(update.shape)} of {list(past.shape)}")
    line = places(emit, extent, axis, rank)
    offset = line
    if call.get(2) is not None:
        column = reshaped(emit, cast(emit, call[2], DType.I64), (-1, *(1,) * (rank - 1)))
        offset = emit("sub", self=line, other=column)
    if call.attributes["mode"] == "circular":
        offset = emit("remainder", self=offset, other=extent)
    above = emit("ge", self=offset, other=0)
    inside = emit("logical_and", self=above, other=emit("lt", self=offset, other=count))
    index = emit("where", condition=inside, self=offset, other=0)
    rows = emit("gather", self=update, dim=axis, index=expanded(emit, index, past.shape))
    return emit("where", condition=inside, self=rows, other=past)


# Padding ----------------------------------------------------------------------------------------


@maps("Pad", 1, 2, 11, 13, 18, 19, 21, 23, 24, 25)
def _pad(call: Call) -> Value:
    value, rank = call[0], len(call[0].shape)
    pads = call.attributes.get("paddings") if call.version < 2 else call.named("pads", 1)
    if pads is None:
        raise RefusedError("no pads")
    axes = call.named("axes", 3) if call.version >= 18 else None
    named = [dimension(axis, rank) for axis in (range(rank) if axes is None else axes)]
    if len(pads) != 2 * len(named):
        raise RefusedError(f"{len(pads)} pads for {len(named)} dimensions")
    low, high = [0] * rank, [0] * rank
    for position, axis in enumerate(named):
        low[axis], high[axis] = pads[position], pads[position + len(named)]
    mode = call.attributes["mode"]
    if mode == "constant":
        pairs = zip(reversed(low), reversed(high), strict=True)
        pad = tuple(p for pair in pairs for p in pair)
        return call.emit("constant_pad_nd", self=value, pad=pad, value=_border(call))
    if mode not in ("reflect", "edge", "wrap"):
        raise RefusedError(f"mode={mode!r}")
    for axis in range(rank):
        if low[axis] or high[axis]:
            value = _indexed_pad(call, value, axis, (low[axis], high[axis]), mode)
    return value


def _border(call: Call) -> Number:
    if call.version < 11:
        return float(call.attributes["value"])
    if call.get(2) is None:
        return 0
    return call.number(2, "what it pads with")


def _indexed_pad(call: Call, value: Value, axis: int, pads: tuple[int, int], mode: str) -> Value:
    """Padded along one dimension; each element is one of the source, at a known place."""
    extent = value.shape[axis]
    line = np.arange(extent)[max(-pads[0], 0) : extent - max(-pads[1], 0)]
    if not line.size:
        raise RefusedError(f"pads {list(pads)} of an extent of {extent}")
    around = (max(pads[0], 0), max(pads[1], 0))
    index = np.pad(line, around, mode)  # type: ignore[call-overload]
    return call.emit("index_select", self=value, dim=axis, index=call.constant(index))


@maps("Trilu", 14)
def _triangle(call: Call) -> Value:
    diagonal = 0 if call.get(1) is None else int(call.number(1, "its diagonal"))
    if len(call[0].shape) < 2:
        raise RefusedError(f"a tensor of {len(call[0].shape)} dimensions")
    op = "triu" if call.attributes["upper"] else "tril"
    return call.emit(op, self=call[0], diagonal=diagonal)


@maps("TopK", 1, 10, 11, 24)
def _top(call: Call) -> tuple[Value, ...]:
    value, attributes = call[0], call.attributes
    count = attributes["k"] if call.version < 10 else int(call.number(1, "`k`"))
    axis = call.axis(len(value.shape))
    if not 0 <= count <= value.shape[axis]:
        raise RefusedError(f"{count} of {value.shape[axis]} elements")
    return call.emit.all(
        "topk", self=value, k=count, dim=axis, largest=bool(attributes.get("largest", 1)),
        sorted=True,
    )  # fmt: skip
