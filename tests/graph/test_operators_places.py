"""Reading and writing at computed places against torch, on random small shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.graph.backend import interpreted
from tensorc.graph.evaluate import evaluate_node
from tests.graph.drawing import (
    boxes,
    dims,
    extents,
    shapes,
    tensors,
)
from tests.graph.torch_nodes import check, node_of

aten = torch.ops.aten
pytestmark = pytest.mark.torch


# Reading at computed places ----------------------------------------------------------------------


@given(st.data())
def test_gathers(data):
    extents = st.tuples(st.integers(1, 4), st.integers(1, 3))
    x = data.draw(tensors(shape=extents, dtype=torch.float32))
    kind = data.draw(st.sampled_from([torch.int64, torch.int32]))

    def indices(shape, extent, low=0):
        return torch.randint(low, extent, shape).to(kind)

    shape = data.draw(shapes)
    check(aten.embedding.default, x, indices(shape, x.shape[0]))
    check(aten.index_select.default, x, 1, indices((3,), x.shape[1]))
    check(aten.index.Tensor, x, [None, indices(shape, x.shape[1], -x.shape[1]).long()])
    both = [indices((2, 1), x.shape[0]).long(), indices((3,), x.shape[1]).long()]
    check(aten.index.Tensor, x, both)
    along = data.draw(st.sampled_from([0, 1]))
    picked = [min(2, n) for n in x.shape]
    check(aten.gather.default, x, along, indices(picked, x.shape[along]).long())


def test_indices_that_do_not_lie_together():
    x = torch.randn(2, 3, 4)
    check(aten.index.Tensor, x, [torch.tensor([0, 1]), None, torch.tensor([3, -1])])
    check(aten.index.Tensor, x, [None, torch.tensor([[2], [0]]), torch.tensor([3, -1])])


@given(st.data())
def test_joining_and_padding(data):
    x = data.draw(tensors(shape=boxes, dtype=[torch.float32, torch.int32, torch.bool]))
    at = dims(data.draw, x)
    parts = [x]
    for _ in range(data.draw(st.integers(1, 2))):
        shape = list(x.shape)
        shape[at] = data.draw(extents)
        parts.append(data.draw(tensors(shape=tuple(shape))))
    check(aten.cat.default, parts, at)
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * data.draw(st.integers(0, x.dim())))]
    check(aten.constant_pad_nd.default, x, pads, data.draw(st.sampled_from([0, 1])))
    if x.shape[-1] > 1:
        check(aten.constant_pad_nd.default, x, [-1, 1], 0)
    first = x[..., :1]
    src = data.draw(tensors(shape=tuple(first.shape), dtype=x.dtype))
    check(aten.slice_scatter.default, x, src, -1, 0, 1)


def test_joins_with_nothing_and_scatters():
    check(aten.cat.default, [torch.zeros(0), torch.randn(2, 3)], 0)
    check(aten.cat.default, [torch.zeros(2, 0), torch.zeros(2, 0)], 1)
    check(aten.slice_scatter.default, torch.zeros(7, 2), torch.randn(3, 2), 0, 1, 7, 2)
    check(aten.select_scatter.default, torch.zeros(4, 2), torch.randn(4), 1, -1)


def test_padding_by_the_edge():
    x = torch.randn(1, 2, 4, 5)
    check(aten.reflection_pad2d.default, x, [2, 3, 1, 0])
    check(aten.replication_pad2d.default, x, [2, 3, 1, 0])


def test_reading_without_dimensions():
    one, zero = torch.tensor(5.0), torch.tensor(0)
    check(aten.gather.default, one, 0, zero)
    check(aten.gather.default, one, 0, zero[None])
    check(aten.gather.default, one[None], 0, zero)
    check(aten.index_select.default, one, 0, zero)
    check(aten.index_select.default, one, 0, zero[None])
    check(aten.index_select.default, torch.randn(2, 3), 1, zero + 2)
    check(aten.scatter_add.default, one, 0, zero, one)


def test_more_reading_and_padding():
    x = torch.randn(3, 4, 5)
    check(aten.take.default, x, torch.tensor([[0, 59], [-1, 7]]))
    for pad in ([1, 2, 2, 1], [-1, 1, -2, 1], [2, -1], [3, 0, 0, 4], [-1, -1]):
        check(aten._pad_circular.default, x, pad)
    check(aten.diagonal_scatter.default, torch.randn(4, 5), torch.randn(4), 1)
    check(aten.diagonal_scatter.default, x, torch.randn(3, 3), -1, 1, 2)


# Writing at computed places ----------------------------------------------------------------------

few = settings(max_examples=20)
WAYS = ["sum", "mean", "prod", "amax", "amin"]


@few
@given(st.data())
def test_scatters(data):
    rank = data.draw(st.integers(1, 3))
    box = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    at = data.draw(st.integers(-rank, rank - 1))
    kind = data.draw(st.sampled_from([torch.float32, torch.int64]))
    x = data.draw(tensors(shape=box, dtype=kind, special=False))
    shape = [data.draw(st.integers(0, n)) for n in box]
    shape[at] = data.draw(st.integers(0, 4))
    source = data.draw(tensors(shape=tuple(n + 1 for n in shape), dtype=kind, special=False))
    index = torch.randint(box[at], shape)
    check(aten.scatter_add.default, x, at, index, source)
    check(aten.scatter.value, x, at, index, 3)
    for way in WAYS:
        include = data.draw(st.booleans())
        check(aten.scatter_reduce.two, x, at, index, source, way, include_self=include)
    # Places that are all different: torch writes in any order.
    distinct = torch.stack([torch.randperm(box[at]) for _ in range(x.numel() // box[at])], 1)
    distinct = distinct.reshape(box[at], *(n for d, n in enumerate(box) if d != at % rank))
    check(aten.scatter.src, x, at, distinct.movedim(0, at), x.flip(0))


@few
@given(st.data())
def test_writing_slices(data):
    x = data.draw(tensors(shape=(3, 4), dtype=torch.float32, special=False))
    at = data.draw(st.sampled_from([0, 1, -1]))
    count = data.draw(st.integers(0, 3))
    index = torch.randperm(x.shape[at])[:count]
    shape = list(x.shape)
    shape[at] = count
    source = data.draw(tensors(shape=tuple(shape), dtype=torch.float32, special=False))
    check(aten.index_copy.default, x, at, index, source)
    check(aten.index_fill.int_Scalar, x, at, index - x.shape[at], 2.5)
    check(aten.index_fill.int_Tensor, x, at, index, torch.tensor(2.5))
    again = torch.randint(x.shape[at], (count,))
    check(aten.index_add.default, x, at, again, source, alpha=data.draw(st.sampled_from([1, 2])))
    way = data.draw(st.sampled_from(["prod", "mean", "amax", "amin"]))
    include = data.draw(st.booleans())
    check(aten.index_reduce.default, x, at, again, source, way, include_self=include)


@pytest.mark.parametrize("accumulate", [False, True])
def test_writing_at_indices(accumulate):
    torch.manual_seed(0)
    x, box = torch.randn(4, 3), torch.randn(2, 3, 4)
    rows, columns = torch.tensor([0, 3, -2]), torch.tensor([[1], [2]])
    for indices, values in [
        ([rows], torch.randn(3, 3)),
        ([rows], torch.tensor(1.0)),
        ([rows], torch.randn(1, 3)),
        ([None, torch.tensor([0, 2])], torch.randn(4, 2)),
        ([rows, columns], torch.randn(2, 3)),
        ([x > 0], torch.tensor(1.5)),
        ([x > 0], torch.tensor([1.5])),
        ([x[:, 0] > 0], torch.randn(3)),
    ]:
        check(aten.index_put.default, x, indices, values, accumulate)
    apart = [torch.tensor([0, 1]), None, torch.tensor([1, -1])]
    check(aten.index_put.default, box, apart, torch.randn(2, 3), accumulate)
    inner = [None, torch.tensor([0, 2]), torch.tensor([1, 3])]
    check(aten.index_put.default, box, inner, torch.randn(2, 2), accumulate)
    check(aten.put.default, x, torch.tensor([0, 5, 11]), torch.randn(3), accumulate)


def test_nothing_is_read_from_and_written_to_nothing():
    nothing, nowhere = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    check(aten.take.default, nothing, nowhere)
    check(aten.put.default, nothing, nowhere, torch.zeros(0))
    check(aten.put.default, torch.ones(2), nowhere, torch.zeros(0))
    check(aten.index_select.default, nothing, 0, nowhere)
    check(aten.index_put.default, torch.ones(2, 3), [nowhere], torch.zeros(0, 3))
    check(aten.masked_scatter.default, nothing, nothing > 0, torch.zeros(0))


def test_equal_places_add_up_and_the_last_write_stays():
    x, index = torch.zeros(3), torch.tensor([1, 1, 0, 1])
    values = torch.tensor([1.0, 2.0, 4.0, 8.0])
    check(aten.index_put.default, x, [index], values, True)
    check(aten.index_add.default, x, 0, index, values)
    check(aten.index_put.default, x, [index], values, False)


def test_places_outside_are_written_nowhere():
    node, arrays = node_of(
        aten.scatter.value,
        (torch.zeros(3), 0, torch.tensor([1, 7, -9]), 2.0),
        {},
        (torch.zeros(3),),
    )
    (result,) = evaluate_node(node, arrays, interpreted)
    assert result.tolist() == [0.0, 2.0, 0.0]


def test_masks_take_the_next_element():
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    check(aten.masked_scatter.default, x, x > 0, torch.randn(12))
    check(aten.masked_scatter.default, x, torch.tensor([True, False, True]), torch.randn(3, 4))
    check(aten.masked_scatter.default, x, x > 9, torch.randn(0))
