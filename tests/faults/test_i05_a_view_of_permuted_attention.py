"""pytorch #159126, TensorRT #3823: attention's result, permuted, then viewed as a matrix.

Exported, the permuted tensor has strides of its own that a view would respect in torch; here it is
an index map, whatever its strides were.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.faults.networks import in_every_way, network

pytestmark = pytest.mark.torch


def attention(x: torch.Tensor) -> torch.Tensor:
    # [1, 16 heads, 10, 4] each.
    query, key, value = x.reshape(1, 10, 16, 12).transpose(1, 2).split(4, -1)
    result = F.scaled_dot_product_attention(query, key, value)
    return result.permute(2, 0, 1, 3).reshape(10, 64)


@in_every_way
def test_attention_permuted_and_viewed(how: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(10, 192)
    assert torch.allclose(network(attention, x, how), attention(x), atol=1e-5)


def transposed_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.reshape(5, 8, 64).permute(2, 0, 1)
    return (y + 1.0).reshape(320, 8).t().reshape(40, 64)


@in_every_way
def test_views_of_permuted_tensors(how: str) -> None:
    x = torch.arange(40.0 * 64).reshape(40, 64)
    assert torch.equal(network(transposed_twice, x, how), transposed_twice(x))
