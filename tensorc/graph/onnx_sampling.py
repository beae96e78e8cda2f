"""ONNX's reads at places that data give, pools undone, and Fourier transforms."""

from __future__ import annotations

import math

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_calls import Call, cast, dimension, maps, permuted, reshaped
from tensorc.graph.onnx_linear import matmul
from tensorc.graph.onnx_windows import check_lists

# A grid of places --------------------------------------------------------------------------------

_MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@maps("GridSample", 16, 20, 22)
def _grid_sample(call: Call) -> Value:
    value, grid, attributes = call[0], call[1], call.attributes
    rank = len(value.shape) - 2
    if rank not in (2, 3):
        raise RefusedError(f"{rank} dimensions of places")
    call.same_dtype(value, grid)
    mode, padding = attributes["mode"], attributes["padding_mode"]
    if mode not in _MODES or padding not in _PADDINGS:
        raise RefusedError(f"mode={mode!r}, padding_mode={padding!r}")
    if _MODES[mode] == 2 and padding != "zeros":
        # ONNX brings the place inside first, ATen each of its neighbours.
        raise RefusedError(f"mode={mode!r} with padding_mode={padding!r}")
    return call.emit(
        f"grid_sampler_{rank}d", self=value, grid=grid, interpolation_mode=_MODES[mode],
        padding_mode=_PADDINGS[padding], align_corners=bool(attributes["align_corners"]),
    )  # fmt: skip


# Pools and columns undone -----------------------------------------------------------------------


@maps("MaxUnpool", 9, 11, 22)
def _max_unpool(call: Call) -> Value:
    """The elements at the indices that a pool took them from, zeros elsewhere."""
    value, places, emit, attributes = call[0], call[1], call.emit, call.attributes
    rank = len(value.shape) - 2
    check_lists(call, rank)
    if places.shape != value.shape:
        raise RefusedError(f"indices of {list(places.shape)} for {list(value.shape)}")
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", (1,) * rank)
    pads = attributes.get("pads", (0,) * (2 * rank))
    inner = tuple(
        (n - 1) * s + k - low - high
        for n, s, k, low, high in zip(
            value.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True
        )
    )
    shape = (*value.shape[:2], *inner)
    if call.get(2) is not None and call.integers(2, "its output_shape") != shape:
        # The indices are those into a tensor of the shape that the windows give.
        return _unpooled_into(call, shape)
    flat = reshaped(emit, value, (value.size,))
    index = reshaped(emit, places, (value.size,))
    zeros = emit("full", size=(math.prod(shape),), fill_value=0, dtype=value.dtype)
    filled = emit("scatter", self=zeros, dim=0, index=index, src=flat)
    return reshaped(emit, filled, shape)


def _unpooled_into(call: Call, own: tuple[int, ...]) -> Value:
    raise RefusedError(
        f"an output_shape of {list(call.integers(2, 'its output_shape'))} where windows give"
        f" {list(own)}"
    )


@maps("Col2Im", 18)
def _columns_to_image(call: Call) -> Value:
    image, block = call.integers(1, "its image_shape"), call.integers(2, "its block_shape")
    rank = len(image)
    pads = call.attributes.get("pads", (0,) * (2 * rank))
    if rank != 2 or pads[:rank] != pads[rank:]:
        raise RefusedError(f"{rank} dimensions with pads {list(pads)}")
    return call.emit(
        "col2im", self=call[0], output_size=image, kernel_size=block, padding=tuple(pads[:rank]),
        dilation=call.attributes.get("dilations", (1, 1)),
        stride=call.attributes.get("strides", (1, 1)),
    )  # fmt: skip


@maps("MelWeightMatrix", 17)
def _mel_weights(call: Call) -> Value:
    """A table whose size its operands are; ONNX's evaluator makes it of known ones."""
    for position in range(5):
        call.known(position, "the table that it makes")
    raise RefusedError("a table that could not be worked out")


# Fourier transforms ------------------------------------------------------------------------------


@maps("DFT", 17, 20)
def _fourier(call: Call) -> Value:
    """Products with the matrices of cosines and sines, in f64.

    The last dimension has the real part, or both parts.
    """
    value, attributes, emit = call[0], call.attributes, call.emit
    rank = len(value.shape)
    parts = value.shape[-1]
    if call.version < 20:
        axis = dimension(attributes["axis"], rank)
    else:
        axis = dimension(-2 if call.get(2) is None else int(call.number(2, "`axis`")), rank)
    if axis == rank - 1 or parts not in (1, 2) or not value.dtype.is_float:
        raise RefusedError(f"axis {axis} of {value.dtype}{list(value.shape)}")
    inverse, half = bool(attributes["inverse"]), bool(attributes["onesided"])
    extent = value.shape[axis]
    default = 2 * (extent - 1) if inverse and half else extent
    length = default if call.get(1) is None else int(call.number(1, "`dft_length`"))
    if length < 1 or (half and inverse != (parts == 2)):
        raise RefusedError(f"a length of {length}, or one side of {parts} parts")
    if half and inverse:
        used = min(extent, length // 2 + 1)
        tables = _half_tables(used, length)
    else:
        used = min(extent, length)
        tables = _tables(used, length, length // 2 + 1 if half else length, inverse)
    order = (*(d for d in range(rank - 1) if d != axis), axis)
    columns = [_part(emit, value, n, order, used) for n in range(parts)]
    results = _turned(call, columns, tables, both=not (half and inverse))
    back = tuple(order.index(d) for d in range(rank - 1))
    moved = [emit("unsqueeze", self=permuted(emit, one, back), dim=-1) for one in results]
    joined = moved[0] if len(moved) == 1 else emit("cat", tensors=tuple(moved), dim=-1)
    return cast(emit, joined, value.dtype)


def _part(emit: Emit, value: Value, n: int, order: tuple[int, ...], used: int) -> Value:
    """The real or imaginary part in f64, the transformed dimension last."""
    part = cast(emit, emit("select", self=value, dim=len(order), index=n), DType.F64)
    return emit("slice", self=permuted(emit, part, order), dim=-1, start=0, end=used)


def _turned(
    call: Call, columns: list[Value], tables: tuple[Array, Array], *, both: bool
) -> list[Value]:
    """(r + i s) (c - i d) for real parts r, imaginary ones s, and tables c, d."""
    emit = call.emit
    c, d = (call.constant(table) for table in tables)
    real = matmul(emit, columns[0], c)
    if len(columns) == 2:
        real = emit("add", self=real, other=matmul(emit, columns[1], d))
    if not both:
        return [real]
    imaginary = emit("neg", self=matmul(emit, columns[0], d))
    if len(columns) == 2:
        imaginary = emit("add", self=imaginary, other=matmul(emit, columns[1], c))
    return [real, imaginary]


def _tables(used: int, length: int, results: int, inverse: bool) -> tuple[Array, Array]:
    """cos and sin of the angles 2 pi j k / length, for j < used and k < results."""
    turns = np.outer(np.arange(used), np.arange(results)) % length
    cosines, sines = _circle(length)
    share = 1 / length if inverse else 1.0
    return cosines[turns] * share, sines[turns] * (-share if inverse else share)


def _half_tables(used: int, length: int) -> tuple[Array, Array]:
    """The tables that give a real signal from the first half of its transform."""
    c, d = _tables(used, length, length, True)
    twice = np.full((used, 1), 2.0)
    twice[0] = 1.0
    if length % 2 == 0 and used == length // 2 + 1:
        twice[-1] = 1.0
    return c * twice, d * twice


def _circle(length: int) -> tuple[Array, Array]:
    """Cosines and sines of the parts of a full turn; those that are 0 are exactly 0."""
    angles = 2 * np.pi * np.arange(length) / length
    tables = []
    for table in (np.cos(angles), np.sin(angles)):
        tables.append(np.where(np.abs(table) < 1e-15 * length, 0.0, table))
    return tables[0], tables[1]
