"""apache/tvm #18339, #18362, #18574: an import stopped at the first operator that it lacked.

Their operators mm, mean without dimensions and index_put are supported here; of what is not, one
error has every operator with the modules that use it, and how often.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensorc as tc
from tests.faults.networks import in_every_way, network

pytestmark = pytest.mark.torch


@in_every_way
def test_products_and_means_of_everything(how: str) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    assert torch.allclose(network(lambda x: torch.mm(x, x).mean(), x, how), (x @ x).mean())


# The rules for schedules leave a task as it is whose places are data, and say so.
@pytest.mark.filterwarnings("ignore:the task .* runs unscheduled")
@in_every_way
def test_writing_at_indices(how: str) -> None:
    x = torch.arange(12.0).reshape(4, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y[torch.tensor([2, 0]), torch.tensor([1, -1])] = x[:2, 0]
        y[x > 7] = 5.0
        return y.index_put((torch.tensor([1, 1]),), x[0], accumulate=True)

    assert torch.equal(network(function, x, how), function(x))


class Decomposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x) + torch.linalg.eigvalsh(x)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(3)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), Noisy(), Noisy())
        self.head = Decomposed()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


def test_all_is_listed_with_its_modules() -> None:
    with pytest.raises(tc.UnsupportedError) as caught:
        tc.compile(Network().eval(), (torch.randn(3, 3),))
    found = {problem.what: (problem.count, problem.places) for problem in caught.value.problems}
    assert found["randn.default"] == (2, (("layers.1", 1), ("layers.2", 1)))
    assert found["_linalg_svd.default"] == (1, (("head", 1),))
    assert found["_linalg_eigh.default"] == (1, (("head", 1),))
    assert "randn.default: no such operator (2 times, in layers.1, layers.2)" in str(caught.value)
