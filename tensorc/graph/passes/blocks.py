"""Channels in blocks: images of convolutions as (n, c // b, h, w, c % b), b lanes of a vector.

In planes, a vector of a 1 x 1 convolution runs over pixels, whose rows of 7 or 14 fill no vector,
and a tile touches a page for each channel. In blocks a tile reads and writes on and on. Between
convolutions everything stays in blocks: maps, pools and means over the image follow, so that only
the edges of the network are rearranged, and those by index maps.

A last block that is not full holds zeros behind the convolution that makes it, and whatever finite
numbers maps make of zeros further on; weights of zero take them out again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.graph import Argument, Array, Graph, Node, Value, map_values
from tensorc.graph.ops import Kind, operator_of, reduced_dimensions

WASTE = 1.5
"""A last block may make an image at most so many times larger."""

FINITE = frozenset(
    {
        "abs", "add", "clamp", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
        "maximum", "minimum", "mul", "neg", "relu", "sigmoid", "silu", "sub", "tanh",
    }
)  # fmt: skip
"""Maps that make a finite number of zeros, whatever their other arguments are, if finite."""

_MEANS = frozenset({"mean", "sum", "amax", "amin"})


def block_channels(graph: Graph, block: int) -> Graph:
    """The graph with its convolutions over blocks of `block` channels, if any follows another."""
    if block < 2:
        return graph
    blocker = _Blocker(graph, block)
    changed = graph.rewritten(blocker.change)
    if not blocker.handed_on:
        return graph
    changed = changed.replace(constants={**graph.constants, **blocker.constants})
    blocked = {**graph.blocked, **blocker.origins}
    return changed.replace(blocked=blocked).pruned()


class _Blocker:
    def __init__(self, graph: Graph, block: int) -> None:
        self.block = block
        self.known: Mapping[Value, Array] = graph.constants
        self.constants: dict[Value, Array] = {}
        self.users = graph.users()
        self.outputs = set(graph.outputs)
        # The form in blocks of a value, and the other way round.
        self.blocks: dict[Value, Value] = {}
        self.origins: dict[Value, Value] = {}
        self.handed_on = self.views = 0
        self.made: list[Node] = []

    def change(self, node: Node) -> Iterable[Node]:
        """The nodes to have in place of one: in blocks, then back in planes for who needs that."""
        self.made = []
        if not self._convolution(node) and not self._follower(node):
            self.made.append(node)
        return tuple(self.made)

    def _follower(self, node: Node) -> bool:
        if not any(value in self.blocks for value in node.inputs):
            return False
        if node.op == "max_pool2d_with_indices":
            return self._pool(node)
        if node.op in _MEANS:
            return self._mean(node)
        if node.op == "constant_pad_nd":
            return self._pad(node)
        return operator_of(node).kind is Kind.POINTWISE and self._map(node)

    # Convolutions ---------------------------------------------------------------------------------

    def _convolution(self, node: Node) -> bool:
        """Whether the node was one that blocks suit."""
        source, weight, bias = (node.get(name) for name in ("self", "weight", "bias"))
        if node.op != "convolution" or node.get("transposed") or weight not in self.known:
            return False
        if bias is not None and bias not in self.known:
            return False
        assert isinstance(source, Value)
        assert isinstance(weight, Value)
        if len(weight.shape) != 4 or len(source.shape) != 4 or source.dtype is not DType.F32:
            return False
        if not self._fills(weight.shape[0]) or node.output.shape[2:] == (1, 1):
            return False
        groups, depth = node.get("groups"), source.shape[1]
        if groups == 1 and (source in self.blocks or depth < self.block or depth % self.block == 0):
            self._dense(node, source, weight, bias)
        elif groups == depth == weight.shape[0] and source in self.blocks:
            self._depthwise(node, source, weight, bias)
        else:
            return False
        self.handed_on += source in self.blocks
        return True

    def _fills(self, channels: int) -> bool:
        return self._whole(channels) <= WASTE * channels

    def _whole(self, channels: int) -> int:
        return -(-channels // self.block) * self.block

    def _dense(self, node: Node, source: Value, weight: Value, bias: Argument) -> None:
        depth = source.shape[1]
        lanes = self.block if source in self.blocks else min(self.block, depth)
        outputs, inputs = self._whole(weight.shape[0]), -(-depth // lanes) * lanes
        array = _grown(self.known[weight], (outputs, inputs))
        array = array.reshape(-1, self.block, inputs // lanes, lanes, *weight.shape[2:])
        packed = self._constant(weight, array.transpose(0, 2, 4, 5, 3, 1))
        if source not in self.blocks:
            node, source = self._padded(node, source)
        image = self._in_blocks(source, lanes)
        self._windows(node, "blocked_convolution", image, packed, bias)

    def _padded(self, node: Node, source: Value) -> tuple[Node, Value]:
        """The convolution without its padding, and its source with it, whose rows are long."""
        around = node.get("padding")
        assert isinstance(around, tuple)
        height, width = around * 2 if len(around) == 1 else around
        if not (isinstance(height, int) and isinstance(width, int) and height + width):
            return node, source
        *outer, rows, columns = source.shape
        shape = (*outer, rows + 2 * height, columns + 2 * width)
        grown = Value(f"{node.output.name}.padded", shape, source.dtype)
        pad = (width, width, height, height)
        self.made.append(_node("constant_pad_nd", grown, self=source, pad=pad, value=0.0))
        return node.with_arguments({"padding": (0, 0)}), grown

    def _depthwise(self, node: Node, source: Value, weight: Value, bias: Argument) -> None:
        array = _grown(self.known[weight], (self._whole(weight.shape[0]),))
        array = array.reshape(-1, self.block, *weight.shape[2:])
        packed = self._constant(weight, array.transpose(0, 2, 3, 1))
        self._windows(node, "blocked_depthwise", self.blocks[source], packed, bias)

    def _windows(self, node: Node, op: str, image: Value, weight: Value, bias: Argument) -> None:
        if isinstance(bias, Value):
            array = _grown(self.known[bias], (self._whole(bias.shape[0]),))
            bias = self._constant(bias, array.reshape(-1, self.block))
        where = {name: node.get(name) for name in ("stride", "padding", "dilation")}
        arguments = {"self": image, "weight": weight, "bias": bias, **where}
        self._result(dataclasses.replace(node, op=op, arguments=tuple(arguments.items())))

    def _constant(self, value: Value, array: Array) -> Value:
        made = Value(f"{value.name}.blocked", array.shape, value.dtype)
        self.constants[made] = np.ascontiguousarray(array)
        return made

    # Followers ------------------------------------------------------------------------------------

    def _pool(self, node: Node) -> bool:
        values, indices = node.outputs
        if indices in self.users or indices in self.outputs:
            return False
        source = self._block_of(node)
        op = "blocked_max_pool"
        changed = dataclasses.replace(node, op=op, outputs=(values,))
        self._result(changed.with_arguments({"self": source}))
        return True

    def _pad(self, node: Node) -> bool:
        """Around the image, not of its channels."""
        around = node.get("pad")
        if not isinstance(around, tuple) or len(around) > 4:
            return False
        pad = (0, 0, *around)
        self._result(node.with_arguments({"self": self._block_of(node), "pad": pad}))
        return True

    def _mean(self, node: Node) -> bool:
        """Over the whole image: what is left has its channels in order."""
        if reduced_dimensions(node) != (node.inputs[0].shape, (2, 3)):
            return False
        image = self._block_of(node)
        batch, blocks, _, _, lanes = image.shape
        means = self._value(node.output, (batch, blocks, 1, 1, lanes))
        arguments: dict[str, Argument] = {"self": image, "dim": (2, 3), "keepdim": True}
        changed = dataclasses.replace(node, outputs=(means,)).with_arguments(arguments)
        self.made.append(changed)
        whole = self._viewed(means, (batch, blocks * lanes), f"{node.output.name}.whole")
        channels = node.inputs[0].shape[1]
        if channels < blocks * lanes:
            whole = self._sliced(whole, channels)
        self.made.append(_node("view", node.output, self=whole, size=node.output.shape))
        return True

    def _block_of(self, node: Node) -> Value:
        return self.blocks[node.inputs[0]]

    def _map(self, node: Node) -> bool:
        """A map of images of one shape, and of what is the same along some of their dimensions."""
        shape = node.output.shape
        if len(node.outputs) > 1 or len(shape) != 4 or not self._keeps(node):
            return False
        self._result(
            dataclasses.replace(
                node,
                arguments=tuple(
                    (name, map_values(argument, lambda value: self._alongside(value, shape)))
                    for name, argument in node.arguments
                ),
            )
        )
        return True

    def _keeps(self, node: Node) -> bool:
        """Whether a map in blocks is the same map: where the last block is not full, a finite one,
        of other images in blocks and of numbers alone."""
        shape = node.output.shape
        images = [value for value in node.inputs if value in self.blocks and value.shape == shape]
        if shape[1] % self.block == 0:
            return bool(images)
        known = (value in images or _channels(value) == 1 for value in node.inputs)
        return bool(images) and node.op.partition(".")[0] in FINITE and all(known)

    def _alongside(self, value: Value, shape: tuple[int, ...]) -> Value:
        """An operand of a map of images of `shape`, with a dimension for the lanes."""
        if value.shape == shape:
            return self._in_blocks(value, self.block)
        aligned = (1,) * (4 - len(value.shape)) + value.shape
        return self._rearranged(value, aligned, self.block if aligned[1] > 1 else 1)

    # Forms ----------------------------------------------------------------------------------------

    def _result(self, node: Node) -> None:
        """A node that gives the form in blocks of what it gave, and the way back."""
        planes = node.output
        batch, channels, height, width = planes.shape
        blocks = self._whole(channels) // self.block
        image = self._value(planes, (batch, blocks, height, width, self.block))
        self.made.append(dataclasses.replace(node, outputs=(image,)))
        self.blocks[planes], self.origins[image] = image, planes
        whole = blocks * self.block
        apart = (batch, blocks, self.block, height, width)
        back = Value(f"{planes.name}.planes", apart, planes.dtype)
        self.made.append(_node("permute", back, self=image, dims=(0, 1, 4, 2, 3)))
        if whole == channels:
            self.made.append(_node("view", planes, self=back, size=planes.shape))
        else:
            full = self._viewed(back, (batch, whole, height, width), f"{planes.name}.full")
            self.made.append(_node("slice", planes, self=full, dim=1, start=0, end=channels))

    def _in_blocks(self, value: Value, lanes: int) -> Value:
        """The image in blocks, by an index map unless it is made so."""
        return self.blocks.get(value) or self._rearranged(value, value.shape, lanes)

    def _rearranged(self, value: Value, shape: tuple[int, ...], lanes: int) -> Value:
        """Blocks of a value in planes, seen as `shape`."""
        batch, channels, height, width = shape
        blocks = channels // lanes
        self.views += 1
        name = f"{value.name}.view{self.views}"
        apart = self._viewed(value, (batch, blocks, lanes, height, width), f"{name}.planes")
        image = Value(name, (batch, blocks, height, width, lanes), value.dtype)
        self.made.append(_node("permute", image, self=apart, dims=(0, 1, 3, 4, 2)))
        return image

    def _viewed(self, value: Value, shape: tuple[int, ...], name: str) -> Value:
        view = Value(name, shape, value.dtype)
        self.made.append(_node("view", view, self=value, size=shape))
        return view

    def _sliced(self, value: Value, channels: int) -> Value:
        part = Value(f"{value.name}.part", (value.shape[0], channels), value.dtype)
        self.made.append(_node("slice", part, self=value, dim=1, start=0, end=channels))
        return part

    def _value(self, planes: Value, shape: tuple[int, ...]) -> Value:
        return Value(f"{planes.name}.blocked", shape, planes.dtype)


def in_planes(array: Array, shape: tuple[int, ...]) -> Array:
    """The image of `shape` that an array holds, in blocks of channels or as it is."""
    if array.ndim != len(shape) + 1:
        return array
    batch, blocks, height, width, lanes = array.shape
    planes = array.transpose(0, 1, 4, 2, 3).reshape(batch, blocks * lanes, height, width)
    return planes[:, : shape[1]]


def _channels(value: Value) -> int:
    return value.shape[-3] if len(value.shape) > 2 else 1


def _grown(array: Array, shape: tuple[int, ...]) -> Array:
    """With zeros behind its first dimensions."""
    missing = [(0, whole - n) for whole, n in zip(shape, array.shape, strict=False)]
    rest = [(0, 0)] * (array.ndim - len(missing))
    return np.pad(array, [*missing, *rest])


def _node(op: str, output: Value, **arguments: Argument) -> Node:
    return Node(op, tuple(arguments.items()), (output,))
