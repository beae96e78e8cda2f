"""A function of torch's as a network that is compiled and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensorc as tc
from tensorc.graph.backend import interpreted

# As `tc.compile` does by default, compiled without a schedule, and interpreted.
HOW: dict[str, dict[str, Any]] = {
    "scheduled": {},
    "plain": {"scheduler": "none"},
    "interpreted": {"backend": interpreted},
}
in_every_way = pytest.mark.parametrize("how", HOW)


class _Network(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def network(function: Callable[..., torch.Tensor], x: torch.Tensor, how: str) -> torch.Tensor:
    """What the network gives for an input for which it was compiled."""
    found = tc.compile(_Network(function).eval(), (x,), **HOW[how])(x)
    assert isinstance(found, torch.Tensor)
    return found
