"""Random networks in the graph IR, for passes that must keep the meaning of any."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.graph.elements import operand
from tensorc.graph.graph import Graph, Node, Value
from tensorc.graph.ops import RefusedError, apply
from tensorc.ir import build as tc

SMALL = st.sampled_from([1, 2, 3, 4])


class Builder:
    """A network in the making. `add` works out the results of a node from its arguments."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.constants: dict[Value, np.ndarray] = {}
        self.nodes: list[Node] = []
        self.random = np.random.default_rng(0)

    def input(self, *shape: int) -> Value:
        value = Value(f"x{len(self.inputs)}", shape, DType.F32)
        self.inputs.append(value)
        return value

    def constant(self, *shape: int) -> Value:
        value = Value(f"w{len(self.constants)}", shape, DType.F32)
        self.constants[value] = self.random.uniform(0.5, 1.5, shape).astype(np.float32)
        return value

    def add(net, op: str, /, **arguments: Any) -> Value:
        """A node; the first of its results. Raises RefusedError for arguments that do not fit."""
        draft = Node(op, tuple(arguments.items()), ())
        results = apply(draft, lambda v: operand(tc.placeholder(v.shape, v.dtype)))
        name = f"v{len(net.nodes)}"
        outputs = tuple(
            Value(name if len(results) == 1 else f"{name}.{part}", one.shape, one.dtype)
            for part, one in enumerate(results)
        )
        net.nodes.append(Node(op, tuple(arguments.items()), outputs, f"m{len(net.nodes) % 3}"))
        return outputs[0]

    def graph(self, *outputs: Value) -> Graph:
        graph = Graph(tuple(self.inputs), outputs, tuple(self.nodes), self.constants)
        graph = graph.pruned()
        graph.verify()
        return graph


def arrays_for(graph: Graph, seed: int = 1) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(value.shape).astype(np.float32) for value in graph.inputs]


def _unary(draw: Any, net: Builder, x: Value) -> Value:
    return net.add(draw(st.sampled_from(["relu", "sigmoid", "neg", "tanh"])), self=x)


def _binary(draw: Any, net: Builder, x: Value) -> Value:
    op = draw(st.sampled_from(["add", "mul", "sub", "maximum"]))
    others = [v for v in _values(net) if _broadcasts(v.shape, x.shape)]
    other = draw(st.sampled_from([*others, 0.5]))
    return net.add(op, self=x, other=other)


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(small[::-1], large[::-1], strict=False))


def _permute(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("permute", self=x, dims=tuple(draw(st.permutations(range(len(x.shape))))))


def _view(draw: Any, net: Builder, x: Value) -> Value:
    size, shape = x.size, []
    while size > 1 and len(shape) < 4:
        shape.append(draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])))
        size //= shape[-1]
    return net.add("view", self=x, size=(*shape, size))


def _slice(draw: Any, net: Builder, x: Value) -> Value:
    dim = draw(st.integers(0, len(x.shape) - 1))
    start = draw(st.integers(0, x.shape[dim] - 1))
    end = draw(st.integers(start + 1, x.shape[dim]))
    return net.add("slice", self=x, dim=dim, start=start, end=end, step=draw(st.integers(1, 2)))


def _expand(draw: Any, net: Builder, x: Value) -> Value:
    shape = tuple(draw(SMALL) if n == 1 else n for n in x.shape)
    return net.add("expand", self=x, size=shape)


def _unsqueeze(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("unsqueeze", self=x, dim=draw(st.integers(0, len(x.shape))))


def _reduce(draw: Any, net: Builder, x: Value) -> Value:
    op = draw(st.sampled_from(["mean", "sum", "amax"]))
    dims = draw(st.lists(st.integers(0, len(x.shape) - 1), min_size=1, unique=True))
    return net.add(op, self=x, dim=tuple(dims), keepdim=draw(st.booleans()))


def _softmax(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("_softmax", self=x, dim=-1, half_to_float=False)


def _layer_norm(draw: Any, net: Builder, x: Value) -> Value:
    inner = x.shape[-1:]
    weight, bias = net.constant(*inner), net.constant(*inner)
    return net.add(
        "native_layer_norm", self=x, normalized_shape=inner, weight=weight, bias=bias, eps=1e-3
    )


def _linear(draw: Any, net: Builder, x: Value) -> Value:
    rows = net.add("view", self=x, size=(x.size // x.shape[-1], x.shape[-1]))
    columns = draw(SMALL)
    weight = net.add("permute", self=net.constant(columns, x.shape[-1]), dims=(1, 0))
    result = net.add("addmm", self=net.constant(columns), mat1=rows, mat2=weight)
    return net.add("view", self=result, size=(*x.shape[:-1], columns))


def _convolution(draw: Any, net: Builder, x: Value) -> Value:
    area = net.add("view", self=x, size=(1, 1, -1, x.shape[-1]))
    channels, kernel = draw(SMALL), draw(st.sampled_from([1, 3]))
    result = net.add(
        "convolution", self=area, weight=net.constant(channels, 1, kernel, kernel),
        bias=draw(st.sampled_from([None, net.constant(channels)])), stride=(1, 1),
        padding=(kernel // 2, kernel // 2), dilation=(1, 1), transposed=False,
        output_padding=(0, 0), groups=1,
    )  # fmt: skip
    if not draw(st.booleans()):
        return result
    return net.add(
        "_native_batch_norm_legit_no_training", self=result, weight=net.constant(channels),
        bias=net.constant(channels), running_mean=net.constant(channels),
        running_var=net.constant(channels), momentum=0.1, eps=1e-3,
    )  # fmt: skip


def _pad(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("constant_pad_nd", self=x, pad=(draw(st.integers(0, 1)), 1), value=0.0)


def _cat(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("cat", tensors=(x, x), dim=draw(st.integers(0, len(x.shape) - 1)))


def _written_over(draw: Any, net: Builder, x: Value) -> Value:
    """A map of a part of x in its place: what a change of a view in place becomes."""
    dim = draw(st.integers(0, len(x.shape) - 1))
    end = draw(st.integers(1, x.shape[dim]))
    start = draw(st.sampled_from([0, end - 1]))
    part = net.add("slice", self=x, dim=dim, start=start, end=end)
    return net.add(
        "slice_scatter", self=x, src=_unary(draw, net, part), dim=dim, start=start, end=end
    )


def _scaled_product(draw: Any, net: Builder, x: Value) -> Value:
    rows = net.add("view", self=x, size=(1, x.size // x.shape[-1], x.shape[-1]))
    scaled = net.add("mul", self=rows, other=0.5)
    turned = net.add("permute", self=net.add("mul", self=rows, other=0.25), dims=(0, 2, 1))
    return net.add("bmm", self=scaled, mat2=turned)


_STEPS = [
    _unary, _unary, _binary, _binary, _permute, _view, _slice, _expand, _unsqueeze, _reduce,
    _softmax, _layer_norm, _linear, _convolution, _pad, _cat, _written_over,
    _scaled_product,
]  # fmt: skip
MOST_ELEMENTS = 200


def _values(net: Builder) -> list[Value]:
    made = [value for node in net.nodes for value in node.outputs[:1]]
    return [*net.inputs, *net.constants, *made]


@st.composite
def graphs(draw: Any, steps: int = 8) -> Graph:
    """A graph of random operators, each on a value made before, with one to three outputs."""
    net = Builder()
    for _ in range(draw(st.integers(1, 2))):
        net.input(*draw(st.lists(SMALL, min_size=1, max_size=3)))
    if draw(st.booleans()):
        net.constant(*draw(st.lists(SMALL, min_size=1, max_size=2)))
    for _ in range(draw(st.integers(1, steps))):
        recent = [v for v in _values(net)[-4:] if v.shape and v.size <= MOST_ELEMENTS]
        if not recent:
            break
        step = draw(st.sampled_from(_STEPS))
        try:
            step(draw, net, draw(st.sampled_from(recent)))
        except RefusedError:
            continue
    values = [*net.inputs, *(v for node in net.nodes for v in node.outputs[:1])]
    last = values[-1]
    more = draw(st.lists(st.sampled_from(values), max_size=2))
    return net.graph(last, *more)
