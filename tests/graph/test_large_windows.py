"""Windows larger than what they slide over, as EfficientNet's last pooling has them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tensorc.graph.backend import interpreted
from tensorc.graph.compile import compile
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch


@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(0, 3),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_means_of_large_windows(extent, kernel, stride, around, ceil, with_pad):
    around = min(around, kernel // 2)
    if not ceil and extent + 2 * around < kernel:
        return
    x = torch.randn(1, 2, extent, extent + 1)
    arguments = ([kernel, kernel], [stride, stride], [around, around], ceil, with_pad)
    try:
        aten.avg_pool2d.default(x, *arguments)
    except RuntimeError:
        return  # torch refuses windows that give no result
    check(aten.avg_pool2d.default, x, *arguments)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_the_greatest_of_large_windows(extent, kernel, stride, spread):
    around = kernel // 2
    if extent + 2 * around < spread * (kernel - 1) + 1:
        return
    x = torch.randn(1, 2, extent, extent + 1)
    arguments = [kernel, kernel], [stride, stride], [around, around], [spread, spread]
    x[x < -0.5] = -torch.inf  # as great as the padding: torch names a place of the input
    check(aten.max_pool2d_with_indices.default, x, *arguments)


def test_no_work_for_what_is_not_there():
    module = nn.AvgPool2d(1280, ceil_mode=True).eval()
    x = torch.randn(1, 3, 7, 7)
    network = compile(module, (x,), backend=interpreted)
    torch.testing.assert_close(network(x), module(x))
    (task,) = network.tasks
    assert task.flops < 3 * 7 * 7 * 4
