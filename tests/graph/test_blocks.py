"""Channels in blocks: the same meaning, in blocks from the first convolution to the last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.graph.evaluate import evaluate
from tensorc.graph.graph import Graph, Value
from tensorc.graph.ops import RefusedError
from tensorc.graph.passes import block_channels, clean_up
from tensorc.graph.passes.blocks import in_planes
from tests.graph.networks import Builder, arrays_for

BLOCK = 4


def convolution(net: Builder, x: Value, filters: int, window: int, **changes: Any) -> Value:
    depth = 1 if changes.get("groups", 1) > 1 else x.shape[1]
    arguments = {
        "bias": net.constant(filters), "stride": (1, 1), "padding": (window // 2,) * 2,
        "dilation": (1, 1), "transposed": False, "output_padding": (0, 0), "groups": 1, **changes,
    }  # fmt: skip
    weight = net.constant(filters, depth, window, window)
    return net.add("convolution", self=x, weight=weight, **arguments)


@st.composite
def vision(draw: Any) -> Graph:
    """Networks of convolutions and what stands between them."""
    net = Builder()
    height, width = draw(st.integers(3, 7)), draw(st.integers(3, 7))
    x = net.input(draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 3, 4, 8])), height, width)
    outputs = [x]
    for _ in range(draw(st.integers(2, 7))):
        image = draw(st.sampled_from([v for v in outputs if len(v.shape) == 4]))
        try:
            outputs.append(draw(st.sampled_from(LAYERS))(draw, net, image))
        except RefusedError:
            continue
    results = draw(st.lists(st.sampled_from(outputs[1:] or outputs), min_size=1, max_size=3))
    return clean_up(net.graph(outputs[-1], *results))


def _dense(draw: Any, net: Builder, x: Value) -> Value:
    filters = draw(st.sampled_from([2, 3, 4, 6, 8]))
    stride = draw(st.sampled_from([(1, 1), (2, 1)]))
    bias = draw(st.sampled_from([None, net.constant(filters)]))
    dilation = draw(st.sampled_from([(1, 1), (1, 2)]))
    window = draw(st.sampled_from([1, 3] if x.shape[3] > 2 else [1]))
    return convolution(net, x, filters, window, stride=stride, bias=bias, dilation=dilation)


def _depthwise(draw: Any, net: Builder, x: Value) -> Value:
    return convolution(net, x, x.shape[1], 3, groups=x.shape[1], stride=draw(
        st.sampled_from([(1, 1), (2, 2)])))  # fmt: skip


def _map(draw: Any, net: Builder, x: Value) -> Value:
    return net.add(draw(st.sampled_from(["relu", "sigmoid", "exp", "neg"])), self=x)


def _pair(draw: Any, net: Builder, x: Value) -> Value:
    shape = draw(
        st.sampled_from([(), (1,), (x.shape[1], 1, 1), (1, x.shape[1], 1, 1), x.shape[2:]])
    )
    other = draw(st.sampled_from([net.constant(*shape), x, 0.5]))
    return net.add(draw(st.sampled_from(["add", "mul", "div"])), self=x, other=other)


def _scaled(draw: Any, net: Builder, x: Value) -> Value:
    """Squeeze and excitation."""
    mean = net.add("mean", self=x, dim=(-1, -2), keepdim=True)
    return net.add("mul", self=x, other=net.add("sigmoid", self=mean))


def _mean(draw: Any, net: Builder, x: Value) -> Value:
    dims = draw(st.sampled_from([(2, 3), (3, 2), (1,), (1, 2)]))
    return net.add("mean", self=x, dim=dims, keepdim=draw(st.booleans()))


def _pool(draw: Any, net: Builder, x: Value) -> Value:
    arguments = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    return net.add("max_pool2d_with_indices", self=x, **arguments)


def _pad(draw: Any, net: Builder, x: Value) -> Value:
    pad = draw(st.sampled_from([(1, 1, 0, 1), (1, 0), (0, 0, 0, 0, 1, 1)]))
    return net.add("constant_pad_nd", self=x, pad=pad, value=draw(st.sampled_from([0.0, 1.0])))


def _residual(draw: Any, net: Builder, x: Value) -> Value:
    return net.add("add", self=_dense(draw, net, x), other=x)


LAYERS = [_dense, _dense, _depthwise, _map, _pair, _scaled, _mean, _pool, _pad, _residual]


def results(graph: Graph) -> list[np.ndarray]:
    known = evaluate(graph, arrays_for(graph))
    return [known[value] for value in graph.outputs]


@given(graph=vision())
def test_blocks_keep_the_meaning(graph: Graph) -> None:
    changed = block_channels(graph, BLOCK)
    changed.verify()
    assert changed.inputs == graph.inputs
    assert [(v.name, v.shape) for v in changed.outputs] == [
        (v.name, v.shape) for v in graph.outputs
    ]
    for before, after in zip(results(graph), results(changed), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


@given(graph=vision())
def test_a_form_in_blocks_holds_its_image(graph: Graph) -> None:
    changed = block_channels(graph, BLOCK)
    arrays = arrays_for(graph)
    known, found = evaluate(graph, arrays), evaluate(changed, arrays)
    for image, planes in changed.blocked.items():
        if image in found:
            np.testing.assert_allclose(
                in_planes(found[image], planes.shape), known[planes], rtol=1e-4, atol=1e-4
            )


def test_between_convolutions_nothing_is_rearranged() -> None:
    net = Builder()
    x = convolution(net, net.input(1, 3, 16, 16), 6, 3, stride=(2, 2))
    x = net.add("relu", self=x)
    x = net.add(
        "max_pool2d_with_indices", self=x, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1)
    )
    y = convolution(net, x, 8, 1)
    y = net.add("hardtanh", self=y, min_val=0.0, max_val=6.0)
    y = net.add("constant_pad_nd", self=y, pad=(0, 1, 0, 1), value=0.0)
    y = convolution(net, y, 8, 3, groups=8, stride=(1, 1), padding=(0, 0))
    y = net.add("mean", self=y, dim=(2, 3), keepdim=False)
    changed = clean_up(block_channels(net.graph(y), BLOCK))
    ops = [node.op for node in changed.nodes]
    assert ops == [
        "constant_pad_nd", "view", "permute", "blocked_convolution", "relu", "blocked_max_pool",
        "blocked_convolution", "hardtanh", "constant_pad_nd", "blocked_depthwise", "mean", "view",
    ]  # fmt: skip


def test_a_last_block_that_is_not_full_ends_at_a_map_of_zero_that_is_not_finite() -> None:
    net = Builder()
    x = convolution(net, net.input(1, 4, 3, 3), 3, 1)
    x = convolution(net, net.add("log", self=x), 4, 1)
    x = convolution(net, net.add("exp", self=x), 4, 1)
    ops = [node.op for node in block_channels(net.graph(x), BLOCK).nodes]
    # The logarithm is of the image in planes, without the zeros behind its three channels.
    assert ops.index("slice") < ops.index("log")
    assert ops.count("blocked_convolution") == 3


@pytest.mark.parametrize("block", [1, 4])
def test_convolutions_that_do_not_follow_each_other_stay(block: int) -> None:
    net = Builder()
    x = convolution(net, net.input(1, 4, 3, 3), 4, 1)
    graph = net.graph(net.add("_softmax", self=x, dim=-1, half_to_float=False))
    assert block_channels(graph, block) is graph


class Bottleneck(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.expand = torch.nn.Conv2d(24, 48, 1)
        self.apart = torch.nn.Conv2d(48, 48, 3, padding=1, groups=48)
        self.project = torch.nn.Conv2d(48, 24, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(image))
        y = torch.nn.functional.hardtanh(self.expand(x), 0.0, 6.0)
        return x + self.project(torch.relu(self.apart(y)))


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu"])
def test_a_network_in_blocks_is_compiled_and_compared_by_the_names_of_its_module(
    target: str,
) -> None:
    module, image = Bottleneck().eval(), torch.rand(1, 3, 13, 13)
    compiled = tc.compile(module, (image,), target=target)
    assert compiled.graph.blocked
    with torch.no_grad():
        torch.testing.assert_close(compiled(image), module(image), rtol=1e-4, atol=1e-4)
    comparison = compiled.compare(module, image)
    assert {"relu", "relu_1", "hardtanh"} <= {layer.value for layer in comparison.layers}
    assert comparison.first_off is None
