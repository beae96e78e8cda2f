"""The graph IR and how it prints; what clean-up, folding and fusion make of typical pieces."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import VerifyError
from tensorc.graph.evaluate import evaluate
from tensorc.graph.graph import Graph, Node, Value
from tensorc.graph.passes import clean_up, fold_batch_norm, fold_constants, fuse, move_scales
from tensorc.graph.tasks import flops, partition
from tensorc.ir.nodes import Load
from tensorc.ir.parse import parse
from tensorc.ir.walk import nodes
from tests.graph.networks import Builder, arrays_for
from tests.graph.test_passes import assert_same, folded, run_fused, values


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def labels(graph: Graph) -> list[str]:
    return [group.label for group in fuse(clean_up(graph))]


# The graph ---------------------------------------------------------------------------------------


def example() -> Graph:
    net = Builder()
    x = net.input(2, 3)
    y = net.add("mul", self=x, other=net.constant(3))
    net.add("relu", self=x)
    return net.graph(net.add("sum", self=y, dim=(1,), keepdim=True))


def test_a_graph_prints_as_a_program():
    assert str(example()) == (
        "def network(x0: f32[2, 3]):\n"
        "    w0: f32[3]  # constant\n"
        "    v0 = mul(self=x0, other=w0)  # f32[2, 3]  m0\n"
        "    v2 = sum(self=v0, dim=[1], keepdim=True)  # f32[2, 1]  m2\n"
        "    return v2"
    )


def test_what_no_output_needs_is_pruned():
    assert ops(example()) == ["mul", "sum"]


def test_a_value_has_one_source_and_exists_before_it_is_used():
    graph = example()
    first, last = graph.nodes
    with pytest.raises(VerifyError, match="uses v0 before it exists"):
        graph.replace(nodes=(last, first)).verify()
    with pytest.raises(VerifyError, match="v0 is defined twice"):
        graph.replace(nodes=(first, first, last)).verify()
    with pytest.raises(VerifyError, match="the outputs uses y"):
        graph.replace(outputs=(Value("y", (), DType.F32),)).verify()
    same_name = Value("v0", (9,), DType.F32)
    with pytest.raises(VerifyError, match="uses v0"):
        graph.replace(nodes=(first, Node("relu", (("self", same_name),), (last.output,)))).verify()


# Clean-up ----------------------------------------------------------------------------------------


@given(st.data())
def test_chains_of_views_become_short_and_stay_right(data):
    net = Builder()
    x = value = net.input(2, 3, 4)
    for _ in range(data.draw(st.integers(1, 5))):
        rank = len(value.shape)
        match data.draw(st.sampled_from(["permute", "permute", "unsqueeze", "squeeze", "t"])):
            case "permute":
                order = tuple(data.draw(st.permutations(range(rank))))
                value = net.add("permute", self=value, dims=order)
            case "unsqueeze":
                value = net.add("unsqueeze", self=value, dim=data.draw(st.integers(0, rank)))
            case "squeeze":
                value = net.add("squeeze", self=value)
            case "t":
                value = net.add("transpose", self=value, dim0=0, dim1=-1)
    graph = net.graph(net.add("neg", self=value))
    cleaned = clean_up(graph)
    assert_same(values(graph), values(cleaned))
    kinds = ops(cleaned)
    assert set(kinds) <= {"permute", "view", "neg"}
    assert not any(a == b for a, b in pairwise(kinds))
    assert cleaned.inputs == (x,)


def test_clean_up_leaves_what_is_needed():
    net = Builder()
    x = net.input(1, 2, 3)
    y = net.add("alias", self=net.add("clone", self=x))
    y = net.add("_to_copy", self=y, dtype=DType.F32)
    y = net.add("expand", self=y, size=(1, 2, 3))
    y = net.add("slice", self=y, dim=1, start=0, end=2)
    y = net.add("permute", self=y, dims=(1, 0, 2))
    y = net.add("unsqueeze", self=net.add("squeeze", self=y, dim=1), dim=0)
    assert ops(clean_up(net.graph(net.add("relu", self=y)))) == ["relu"]


def test_equal_nodes_are_one_and_different_numbers_are_not():
    net = Builder()
    x = net.input(3)
    sums = [net.add("add", self=x, other=number) for number in (1, 1, 1.0, 2)]
    total = net.add("cat", tensors=tuple(sums), dim=0)
    assert ops(clean_up(net.graph(total))) == ["add", "add", "add", "cat"]


def test_safe_softmax_is_one_operator():
    net = Builder()
    x = net.input(2, 4)
    some = net.add("any", self=net.add("logical_not", self=net.add("eq", self=x, other=-np.inf)),
                   dim=-1, keepdim=True)  # fmt: skip
    soft = net.add("_softmax", self=x, dim=-1, half_to_float=False)
    nothing = net.add("logical_not", self=some)
    zero = net.add("full_like", self=soft, fill_value=0)
    graph = net.graph(net.add("where", condition=nothing, self=zero, other=soft))
    assert ops(clean_up(graph)) == ["_safe_softmax"]
    rows = np.array([[1, 2, -np.inf, 0], [-np.inf] * 4], np.float32)
    before, after = (evaluate(g, [rows])[g.outputs[0]] for g in (graph, clean_up(graph)))
    np.testing.assert_allclose(after, before, rtol=1e-6)


# Batch norm --------------------------------------------------------------------------------------


def normalised(source: str) -> Graph:
    net = Builder()
    x = net.input(1, 2, 4, 4)
    y = x
    if source != "input":
        y = net.add(
            "convolution", self=x, weight=net.constant(2, 2, 1, 1), bias=net.constant(2),
            stride=(1, 1), padding=(0, 0), dilation=(1, 1), transposed=source == "transposed",
            output_padding=(0, 0), groups=1,
        )  # fmt: skip
    z = net.add(
        "_native_batch_norm_legit_no_training", self=y, weight=net.constant(2),
        bias=net.constant(2), running_mean=net.constant(2), running_var=net.constant(2),
        momentum=0.1, eps=1e-3,
    )  # fmt: skip
    return net.graph(z, y) if source == "read twice" else net.graph(z)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("convolution", ["convolution"]),
        ("transposed", ["convolution"]),
        ("read twice", ["convolution", "mul", "add"]),
        ("input", ["mul", "add"]),
    ],
)
def test_batch_norm_goes_into_the_convolution_that_it_alone_reads(source, expected):
    graph = normalised(source)
    changed = fold_batch_norm(graph)
    assert ops(changed) == expected
    assert_same(values(graph), values(changed))


def test_batch_norm_of_parameters_that_are_inputs_stays():
    graph = normalised("input")
    weight = next(iter(graph.constants))
    loose = graph.replace(
        inputs=(*graph.inputs, weight),
        constants={v: a for v, a in graph.constants.items() if v != weight},
    )
    assert ops(fold_batch_norm(loose)) == ["_native_batch_norm_legit_no_training"]


# Constants and scales ----------------------------------------------------------------------------


def test_what_depends_on_no_input_is_computed_once():
    net = Builder()
    x, w = net.input(4, 4), net.constant(4, 4)
    position = net.add("arange", end=4)
    later = net.add("sub", self=position, other=net.add("unsqueeze", self=position, dim=1))
    low = net.add("scalar_tensor", s=-1e9)
    mask = net.add("where", condition=net.add("gt", self=later, other=0), self=low,
                   other=net.add("full", size=(4, 4), fill_value=0.0))  # fmt: skip
    turned = net.add("permute", self=net.add("relu", self=w), dims=(1, 0))
    y = net.add("mm", self=net.add("add", self=x, other=mask), mat2=turned)
    graph = net.graph(y)
    changed = folded(clean_up(graph))
    assert ops(changed) == ["permute", "add", "mm"]
    assert_same(values(graph), values(changed))


def test_a_constant_output_is_folded_and_a_view_of_a_constant_is_not():
    net = Builder()
    w = net.constant(2, 3)
    graph = net.graph(net.add("relu", self=w), net.add("permute", self=w, dims=(1, 0)))
    changed = folded(graph)
    assert ops(changed) == ["permute"]
    assert_same(values(graph), values(changed))
    assert_same(values(graph), run_fused(changed))


def test_large_constants_are_computed_when_they_are_needed():
    net = Builder()
    x = net.input(1)
    large = net.add("expand", self=net.constant(1, 1), size=(1 << 13, 1 << 13))
    kept = net.add("relu", self=large)
    graph = net.graph(net.add("mul", self=kept, other=x))
    asked = []
    changed = fold_constants(graph, lambda part: asked.append(part) or {})
    assert ops(changed) == ["expand", "relu", "mul"]
    assert asked == []


def test_scales_move_behind_products():
    net = Builder()
    a, b = net.input(2, 3, 4), net.input(2, 5, 4)
    scaled = net.add("mul", self=a, other=0.5)
    turned = net.add("permute", self=net.add("mul", self=b, other=3), dims=(0, 2, 1))
    graph = net.graph(net.add("bmm", self=scaled, mat2=turned))
    changed = move_scales(graph)
    assert ops(changed) == ["permute", "bmm", "mul"]
    assert changed.nodes[-1].get("other") == 1.5
    assert_same(values(graph), values(changed))


def test_a_scaled_value_that_others_read_keeps_its_scale():
    net = Builder()
    a = net.input(2, 2)
    scaled = net.add("mul", self=a, other=0.5)
    graph = net.graph(net.add("mm", self=scaled, mat2=a), scaled)
    assert ops(move_scales(graph)) == ["mul", "mm"]


# Fusion ------------------------------------------------------------------------------------------


def convolved(net: Builder, x: Value, outputs: int, kernel: int = 1) -> Value:
    return net.add(
        "convolution", self=x, weight=net.constant(outputs, x.shape[1], kernel, kernel), bias=None,
        stride=(1, 1), padding=(kernel // 2, kernel // 2), dilation=(1, 1), transposed=False,
        output_padding=(0, 0), groups=1,
    )  # fmt: skip


def test_a_residual_goes_to_the_branch_that_comes_last():
    net = Builder()
    x = net.input(1, 2, 4, 4)
    left, right = convolved(net, x, 2, 3), convolved(net, x, 2)
    total = net.add("relu", self=net.add("add", self=left, other=right))
    assert labels(net.graph(total)) == ["convolution", "convolution + add + relu"]


def test_maps_that_meet_again_follow_their_anchor():
    net = Builder()
    x = convolved(net, net.input(1, 2, 4, 4), 2)
    swish = net.add("mul", self=net.add("sigmoid", self=x), other=x)
    assert labels(net.graph(swish)) == ["convolution + sigmoid + mul"]


def test_a_value_that_somebody_else_reads_is_written():
    net = Builder()
    x = convolved(net, net.input(1, 2, 4, 4), 2)
    y = net.add("relu", self=x)
    assert labels(net.graph(y, x)) == ["convolution", "relu"]
    assert labels(net.graph(y, net.add("sum", self=x))) == ["convolution", "relu", "sum"]


def test_padding_is_a_stage_before_its_window():
    net = Builder()
    x = net.add("constant_pad_nd", self=net.input(1, 2, 4, 4), pad=(0, 1, 0, 1))
    graph = net.graph(net.add("relu", self=convolved(net, x, 3)))
    (task,) = partition(graph, fuse(clean_up(graph))).tasks
    assert task.label == "constant_pad_nd + convolution + relu"
    stages = [a.buffer.name for a in nodes(task.func, type(task.func.body))]
    assert stages == ["pad", "conv"]


def test_reductions_take_the_maps_around_them():
    net = Builder()
    x = net.input(3, 4)
    square = net.add("pow", self=x, exponent=2)
    inverse = net.add("rsqrt", self=net.add("mean", self=square, dim=(-1,), keepdim=True))
    result = net.add("mul", self=net.add("mul", self=x, other=inverse), other=net.constant(4))
    assert labels(net.graph(result)) == ["pow + mean + rsqrt + mul + mul"]


def test_a_map_between_a_product_and_a_reduction_follows_the_product():
    net = Builder()
    y = net.add("relu", self=convolved(net, net.input(1, 2, 4, 4), 2))
    assert labels(net.graph(net.add("mean", self=y, dim=(2, 3)))) == ["convolution + relu", "mean"]


def test_a_costly_map_is_not_repeated_for_every_reader():
    net = Builder()
    x, small = net.input(4, 5), net.input(5)
    graph = net.graph(net.add("mul", self=x, other=net.add("tanh", self=small)))
    assert labels(graph) == ["tanh", "mul"]


def test_views_are_never_copied_where_a_reader_takes_them():
    net = Builder()
    x = net.input(4, 6)
    a = net.add("permute", self=net.add("slice", self=x, dim=1, start=0, end=3), dims=(1, 0))
    b = net.add("view", self=net.add("permute", self=x, dims=(1, 0)), size=(4, 6))
    c = net.add("add", self=net.add("mm", self=b, mat2=net.constant(6, 3)),
                other=net.add("permute", self=a, dims=(1, 0)))  # fmt: skip
    graph = net.graph(c)
    assert labels(graph) == ["mm + add"]
    assert_same(values(graph), run_fused(clean_up(graph)))


def test_a_permuted_result_is_written_in_the_order_of_its_reader():
    """The merge of attention's heads is an affine store, no division and no copy."""
    net = Builder()
    a, b = net.input(2, 5, 5), net.input(2, 5, 8)
    heads = net.add("permute", self=net.add("bmm", self=a, mat2=b), dims=(1, 0, 2))
    rows = net.add("view", self=heads, size=(5, 16))
    graph = net.graph(net.add("mm", self=rows, mat2=net.constant(16, 4)))
    parts = partition(graph, fuse(clean_up(graph)))
    assert [call.label for call in parts.calls] == ["bmm", "mm"]
    loads = [load for task in parts.tasks for load in nodes(task.func, Load)]
    assert not any("floor" in repr(load.indices) for load in loads)
    assert_same(values(graph), run_fused(clean_up(graph)))


def test_outputs_that_are_views_share_what_reshapes_can():
    net = Builder()
    x = net.input(2, 6)
    y = net.add("relu", self=x)
    graph = net.graph(
        y, net.add("view", self=y, size=(3, 4)), net.add("permute", self=y, dims=(1, 0)), x
    )
    assert labels(graph) == ["relu", "permute"]
    assert_same(values(graph), run_fused(clean_up(graph)))


def test_equal_programs_are_one_task_whatever_their_values_are_called():
    net = Builder()
    x = net.input(1, 2, 4, 4)
    for _ in range(3):
        x = net.add("relu", self=convolved(net, x, 2, 3))
    graph = net.graph(x)
    parts = partition(graph, fuse(clean_up(graph)))
    assert [(task.count, task.label) for task in parts.tasks] == [(3, "convolution + relu")]
    assert [call.task for call in parts.calls] == [0, 0, 0]


def test_the_order_of_views_does_not_tell_programs_apart():
    net = Builder()
    x = net.input(2, 3)
    first = net.add("permute", self=net.constant(3, 3), dims=(1, 0))
    second = net.add("permute", self=net.constant(3, 3), dims=(1, 0))
    y = net.add("mm", self=x, mat2=first)
    graph = net.graph(net.add("mm", self=y, mat2=second))
    assert [task.count for task in partition(graph, fuse(clean_up(graph))).tasks] == [2]


def test_parts_of_a_join_are_computed_where_they_are_joined():
    net = Builder()
    x = net.input(2, 4)
    half = net.add("neg", self=net.add("slice", self=x, dim=1, start=0, end=2))
    rest = net.add("slice", self=x, dim=1, start=2, end=4)
    turned = net.add("cat", tensors=(rest, half), dim=1)
    assert labels(net.graph(net.add("mul", self=turned, other=x))) == ["neg + cat + mul"]


def test_a_sum_of_a_product_that_is_normalised_follows_the_product():
    net = Builder()
    x = net.input(3, 4)
    y = net.add("add", self=net.add("mm", self=x, mat2=net.constant(4, 4)), other=x)
    square = net.add("mean", self=net.add("pow", self=y, exponent=2), dim=(-1,), keepdim=True)
    graph = net.graph(net.add("mul", self=y, other=net.add("rsqrt", self=square)))
    assert labels(graph) == ["mm + add", "pow + mean + rsqrt + mul"]


# Work --------------------------------------------------------------------------------------------


def test_flops_count_operations_on_floats_alone():
    func = parse(
        """def f(A: Buffer["f32", 3, 4], I: Buffer["i64", 4], B: Buffer["f32", 3, "out"]):
    for i in range(3):
        B[i] = 0.0
        for k in range(1, 4):
            if k % 2 == 0:
                B[i] += A[i, index(I[k] + 1)] * exp(A[i, k])
"""
    )
    assert flops(func) == 3 * 3 * 3


def test_flops_of_a_running_sum_are_those_of_half_the_square():
    func = parse(
        """def f(A: Buffer["f32", 100], B: Buffer["f32", 100, "out"]):
    for i in range(100):
        B[i] = 0.0
        for k in range(0, i + 1):
            B[i] += A[k]
"""
    )
    assert flops(func) == 100 * 50


def test_arrays_of_the_wrong_shape_are_refused():
    from tensorc.errors import ArgumentError

    graph = example()
    with pytest.raises(ArgumentError, match="x0"):
        evaluate(graph, [np.zeros((3, 2), np.float32)])
    with pytest.raises(ArgumentError, match="expected 1, got 0"):
        evaluate(graph, [])
    assert evaluate(graph, arrays_for(graph))[graph.outputs[0]].shape == (2, 1)
