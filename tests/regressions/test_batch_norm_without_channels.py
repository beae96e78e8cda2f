"""A tensor of one dimension and no element has no channels; batch norm looked for them."""

import pytest
import torch
from torch import nn

import tensorc as tc

pytestmark = pytest.mark.torch


class Norm(nn.Module):
    def forward(self, x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(x, mean, variance, training=False)


def test_it_is_the_tensor_itself() -> None:
    empty = (torch.empty(0), torch.empty(0), torch.empty(0))
    network = tc.compile(Norm().eval(), empty, scheduler="none")
    assert network(*empty).shape == (0,)
