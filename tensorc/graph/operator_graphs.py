"""Single operators with what surrounds them in networks, as graphs: what families of tasks are of.

A function here makes the graph of one size. Weights are zeros that take no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Array, Graph, Value
from tensorc.ir.interp.arrays import STORAGE

Shape = tuple[int, ...]


def zeros(value: Value) -> Array:
    """Contents for a constant whose contents do not matter, in storage form and without memory."""
    array: Array = np.broadcast_to(np.zeros((), STORAGE[value.dtype]), value.shape)
    return array


class _Net:
    """A graph in the making."""

    def __init__(self) -> None:
        self.emit = Emit("v", "")
        self.inputs: list[Value] = []
        self.weights: list[Value] = []

    def input(self, *shape: int, dtype: DType = DType.F32) -> Value:
        self.inputs.append(Value(f"x{len(self.inputs)}", shape, dtype))
        return self.inputs[-1]

    def weight(self, *shape: int) -> Value:
        self.weights.append(Value(f"w{len(self.weights)}", shape, DType.F32))
        return self.weights[-1]

    def graph(self, *outputs: Value) -> Graph:
        constants = {value: zeros(value) for value in self.weights}
        made = Graph(tuple(self.inputs), outputs, tuple(self.emit.nodes), constants).pruned()
        made.verify()
        return made

    def ended(self, value: Value, ending: str, channel: int = -1) -> Value:
        """What follows a product: a map, or a sum or product with another tensor."""
        match ending:
            case "" | "bias":
                return value
            case "residual":
                other = self.input(*value.shape)
                return self.emit("relu", self=self.emit("add", self=value, other=other))
            case "gate":
                other = self.input(*value.shape)
                return self.emit("mul", self=self.emit("silu", self=value), other=other)
            case "scale":
                shape = [1] * len(value.shape)
                shape[channel] = value.shape[channel]
                return self.emit("mul", self=value, other=self.input(*shape))
            case "tanh_gelu":
                return self.emit("gelu", self=value, approximate="tanh")
        return self.emit(ending, self=value)


def _plain(size: int | Shape, rank: int) -> Shape:
    return size if isinstance(size, tuple) else (size,) * rank


# Products -----------------------------------------------------------------------------------------


def convolution(
    batch: int, channels: int, image: Shape, outputs: int, kernel: int | Shape, stride: int | Shape,
    padding: int | Shape, ending: str = "bias", *, dilation: int = 1, groups: int = 1,
    transposed: bool = False,
) -> Graph:  # fmt: skip
    """A convolution of 1 to 3 dimensions. A bias belongs to it unless `ending` is ""."""
    net, rank = _Net(), len(image)
    inner = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    result = net.emit(
        "convolution", self=net.input(batch, channels, *image),
        weight=net.weight(*inner, *_plain(kernel, rank)),
        bias=net.weight(outputs) if ending else None,
        stride=_plain(stride, rank), padding=_plain(padding, rank), dilation=(dilation,) * rank,
        transposed=transposed, output_padding=(0,) * rank, groups=groups,
    )  # fmt: skip
    return net.graph(net.ended(result, ending, channel=1))


def depthwise(
    batch: int, channels: int, image: Shape, kernel: int, stride: int, padding: int,
    ending: str = "bias",
) -> Graph:  # fmt: skip
    return convolution(
        batch, channels, image, channels, kernel, stride, padding, ending, groups=channels
    )


def dilated(
    batch: int, channels: int, image: Shape, outputs: int, kernel: int, stride: int, padding: int,
    dilation: int, ending: str = "bias",
) -> Graph:  # fmt: skip
    return convolution(
        batch, channels, image, outputs, kernel, stride, padding, ending, dilation=dilation
    )


def grouped(
    batch: int, channels: int, image: Shape, outputs: int, kernel: int, stride: int, padding: int,
    groups: int, ending: str = "bias",
) -> Graph:  # fmt: skip
    return convolution(
        batch, channels, image, outputs, kernel, stride, padding, ending, groups=groups
    )


def transposed(
    batch: int, channels: int, image: Shape, outputs: int, kernel: int, stride: int, padding: int,
    ending: str = "bias",
) -> Graph:  # fmt: skip
    return convolution(
        batch, channels, image, outputs, kernel, stride, padding, ending, transposed=True
    )


def product(rows: int, inner: int, columns: int) -> Graph:
    """Two matrices that both are arguments."""
    net = _Net()
    return net.graph(net.emit("mm", self=net.input(rows, inner), mat2=net.input(inner, columns)))


def linear(rows: int, inner: int, columns: int, ending: str = "bias") -> Graph:
    """A layer with its weights as torch has them, (columns, inner)."""
    net = _Net()
    x, turned = net.input(rows, inner), net.weight(columns, inner)
    weight = net.emit("permute", self=turned, dims=(1, 0))
    if ending:
        result = net.emit("addmm", self=net.weight(columns), mat1=x, mat2=weight)
    else:
        result = net.emit("mm", self=x, mat2=weight)
    return net.graph(net.ended(result, ending))


def vector_product(rows: int, inner: int) -> Graph:
    net = _Net()
    return net.graph(net.emit("mv", self=net.input(rows, inner), vec=net.input(inner)))


def batched(batch: int, rows: int, inner: int, columns: int, turned: bool = False) -> Graph:
    """Products of matrices, the second ones stored by columns if `turned`."""
    net = _Net()
    x = net.input(batch, rows, inner)
    if turned:
        y = net.emit("permute", self=net.input(batch, columns, inner), dims=(0, 2, 1))
    else:
        y = net.input(batch, inner, columns)
    return net.graph(net.emit("bmm", self=x, mat2=y))


def attention(
    batch: int, heads: int, rows: int, keys: int, depth: int, causal: bool = False
) -> Graph:
    """softmax(Q K^T / sqrt(depth) + mask) V, all stored as (batch, row, head, depth)."""
    net = _Net()

    def by_head(length: int) -> Value:
        x = net.input(batch, length, heads, depth)
        return net.emit("permute", self=x, dims=(0, 2, 1, 3))

    def matrices(x: Value) -> Value:
        return net.emit("view", self=x, size=(batch * heads, *x.shape[2:]))

    query, key, value = by_head(rows), by_head(keys), by_head(keys)
    turned = net.emit("permute", self=key, dims=(0, 1, 3, 2))
    scores = net.emit("bmm", self=matrices(query), mat2=matrices(turned))
    scores = net.emit("mul", self=scores, other=1.0 / math.sqrt(depth))
    if causal:
        scores = net.emit("add", self=scores, other=net.weight(rows, keys))
    shares = net.emit("_softmax", self=scores, dim=-1)
    mixed = net.emit("bmm", self=shares, mat2=matrices(value))
    apart = net.emit("view", self=mixed, size=(batch, heads, rows, depth))
    turned_back = net.emit("permute", self=apart, dims=(0, 2, 1, 3))
    return net.graph(net.emit("view", self=turned_back, size=(batch, rows, heads * depth)))


# Rows ---------------------------------------------------------------------------------------------


def reduction(op: str, shape: Shape, dims: int | Shape) -> Graph:
    """All results of a reduction over some dimensions, of which there may be only one."""
    net = _Net()
    return net.graph(*net.emit.all(op, self=net.input(*shape), dim=dims))


def softmax(shape: Shape, dim: int = -1, log: bool = False) -> Graph:
    net = _Net()
    op = "_log_softmax" if log else "_softmax"
    return net.graph(net.emit(op, self=net.input(*shape), dim=dim))


def layer_norm(rows: int, columns: int, residual: bool = False) -> Graph:
    net = _Net()
    x = net.input(rows, columns)
    if residual:
        x = net.emit("add", self=x, other=net.input(rows, columns))
    return net.graph(
        net.emit(
            "native_layer_norm", self=x, normalized_shape=(columns,), weight=net.weight(columns),
            bias=net.weight(columns), eps=1e-5,
        )
    )  # fmt: skip


def rms_norm(rows: int, columns: int) -> Graph:
    net = _Net()
    x = net.input(rows, columns)
    mean = net.emit("mean", self=net.emit("square", self=x), dim=(-1,), keepdim=True)
    scale = net.emit("rsqrt", self=net.emit("add", self=mean, other=1e-6))
    scaled = net.emit("mul", self=x, other=scale)
    return net.graph(net.emit("mul", self=scaled, other=net.weight(columns)))


def group_norm(batch: int, channels: int, area: int, groups: int) -> Graph:
    net = _Net()
    return net.graph(
        net.emit(
            "native_group_norm", self=net.input(batch, channels, area),
            weight=net.weight(channels), bias=net.weight(channels), N=batch, C=channels, HxW=area,
            group=groups, eps=1e-5,
        )
    )  # fmt: skip


def batch_norm(batch: int, channels: int, area: int) -> Graph:
    """By the statistics of the batch itself."""
    net = _Net()
    return net.graph(
        net.emit(
            "_native_batch_norm_legit.no_stats", self=net.input(batch, channels, area),
            weight=net.weight(channels), bias=net.weight(channels), training=True, momentum=0.1,
            eps=1e-5,
        )
    )  # fmt: skip


# Maps ---------------------------------------------------------------------------------------------


def elementwise(op: str, shape: Shape, other: Shape | float | None = None) -> Graph:
    """An operator, or several with `+` between, of a tensor; the last with another operand."""
    net = _Net()
    value = net.input(*shape)
    *first, last = op.split("+")
    for one in first:
        value = net.emit(one, self=value)
    second: dict[str, Argument] = {}
    if other is not None:
        second["other"] = net.input(*other) if isinstance(other, tuple) else other
    return net.graph(net.emit(last, self=value, **second))


def moved(op: str, shape: Shape, *arguments: int) -> Graph:
    """A copy in another order."""
    net = _Net()
    x = net.input(*shape)
    given: Mapping[str, Mapping[str, Argument]] = {
        "permute": {"dims": arguments},
        "constant_pad_nd": {"pad": arguments, "value": 0.0},
        "flip": {"dims": arguments},
        "roll": {"shifts": arguments[:1], "dims": arguments[1:]},
        "pixel_shuffle": {"upscale_factor": arguments[0]},
    }
    return net.graph(net.emit(op, self=x, **given[op]))


def joined(shape: Shape, dim: int, *extents: int) -> Graph:
    """Tensors that differ in one extent, one behind the other."""
    net = _Net()
    parts = tuple(net.input(*shape[:dim], n, *shape[dim + 1 :]) for n in extents)
    return net.graph(net.emit("cat", tensors=parts, dim=dim))


# Windows, places and orders -----------------------------------------------------------------------


def pooling(
    op: str, shape: Shape, kernel: int, stride: int, padding: int = 0, ending: str = ""
) -> Graph:
    net = _Net()
    size = _plain(kernel, len(shape) - 2)
    result = net.emit(
        op, self=net.input(*shape), kernel_size=size, stride=_plain(stride, len(size)),
        padding=_plain(padding, len(size)),
    )  # fmt: skip
    return net.graph(net.ended(result, ending, channel=1))


def adaptive(op: str, shape: Shape, size: Shape) -> Graph:
    net = _Net()
    return net.graph(net.emit(op, self=net.input(*shape), output_size=size))


def embedding(entries: int, width: int, tokens: int, added: bool = False) -> Graph:
    """Rows of a table, by number; with the positions' rows added."""
    net = _Net()
    table, numbers = net.weight(entries, width), net.input(tokens, dtype=DType.I64)
    rows = net.emit("embedding", weight=table, indices=numbers)
    if added:
        rows = net.emit("add", self=rows, other=net.weight(tokens, width))
    return net.graph(rows)


def picked(op: str, shape: Shape, dim: int, places: Shape) -> Graph:
    """Elements (`gather`) or slices (`index_select`) along one dimension, by number."""
    net = _Net()
    index = net.input(*places, dtype=DType.I64)
    return net.graph(net.emit(op, self=net.input(*shape), dim=dim, index=index))


def placed(op: str, shape: Shape, count: int) -> Graph:
    """`count` rows, or elements of each row, put or added where numbers say."""
    net = _Net()
    x = net.input(*shape)
    if op == "scatter_add":
        spread = (*shape[:-1], count)
        index, source = net.input(*spread, dtype=DType.I64), net.input(*spread)
        return net.graph(net.emit(op, self=x, dim=-1, index=index, src=source))
    index, source = net.input(count, dtype=DType.I64), net.input(count, *shape[1:])
    if op == "index_put":
        return net.graph(net.emit(op, self=x, indices=(index,), values=source))
    return net.graph(net.emit(op, self=x, dim=0, index=index, source=source))


def ordered(op: str, shape: Shape, k: int | None = None) -> Graph:
    """A sort, or the k-th of it, or the first k."""
    net = _Net()
    given: dict[str, Argument] = {} if k is None else {"k": k}
    return net.graph(*net.emit.all(op, self=net.input(*shape), **given))


def scan(op: str, shape: Shape, dim: int) -> Graph:
    net = _Net()
    return net.graph(*net.emit.all(op, self=net.input(*shape), dim=dim))


BUILDERS: Mapping[str, Callable[..., Graph]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            convolution, depthwise, dilated, grouped, transposed, product, linear, vector_product,
            batched, attention, reduction, softmax, layer_norm, rms_norm, group_norm, batch_norm,
            elementwise, moved, joined, pooling, adaptive, embedding, picked, placed, ordered, scan,
        )
    }
)  # fmt: skip
