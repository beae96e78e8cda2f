"""A network of which only the second result of an operator is used had no place for its task."""

import pytest
import torch

import tensorc as tc
from tensorc.graph.backend import interpreted

pytestmark = pytest.mark.torch


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.max(0).indices


def test_only_the_second_result_is_used() -> None:
    x = torch.randn(3, 4)
    found = tc.compile(Places().eval(), (x,), backend=interpreted)
    assert torch.equal(found(x), x.argmax(0))
