"""Views of tensors without elements were looked into for the index of one."""

import pytest
import torch
from torch import nn

import tensorc as tc

pytestmark = pytest.mark.torch


class Merged(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        heads = q.view(1, q.shape[1], 2, 4).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return mixed.transpose(1, 2).reshape(1, -1, 8)


def test_there_is_nothing_to_attend_to() -> None:
    empty = torch.empty(1, 0, 8)
    network = tc.compile(Merged().eval(), (empty,), scheduler="none")
    assert network(empty).shape == (1, 0, 8)
