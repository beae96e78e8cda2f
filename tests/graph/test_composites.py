"""Programs that are imported as they are exported, without being taken apart by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensorc.graph.compile import compile
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_export import _needs_decomposition as needs_decomposition


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def exported(module: nn.Module, *inputs: torch.Tensor) -> Any:
    return torch.export.export(module.eval(), inputs)


def compared(program: Any, *inputs: torch.Tensor) -> None:
    with torch.inference_mode():
        expected, found = program.module()(*inputs), compile(program, inputs)(*inputs)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


AS_EXPORTED = {
    "conv2d": (nn.Conv2d(3, 8, 3, stride=2, padding=1, dilation=2, bias=False), (2, 3, 9, 8)),
    "conv2d in groups": (nn.Conv2d(4, 8, (1, 3), groups=2), (1, 4, 5, 6)),
    "batch_norm": (nn.BatchNorm2d(5), (2, 5, 3, 4)),
    "batch_norm without weights": (nn.BatchNorm2d(5, affine=False), (2, 5, 3, 4)),
    "max_pool2d": (nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (1, 2, 8, 7)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "linear": (nn.Linear(7, 5), (3, 7)),
    "linear of one row": (nn.Linear(7, 5), (7,)),
    "linear of rows of rows": (nn.Linear(7, 5), (2, 3, 7)),
    "linear without bias": (nn.Linear(7, 5, bias=False), (2, 3, 7)),
    "flatten": (nn.Flatten(1, 2), (2, 3, 4, 5)),
    "flatten all": (nn.Flatten(0), (2, 3, 4)),
    "dropout": (nn.Sequential(nn.Dropout(0.5), nn.ReLU()), (2, 3)),
    "in place": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), (2, 4)),
}


@pytest.mark.parametrize("name", AS_EXPORTED)
def test_imported_as_exported(name: str) -> None:
    torch.manual_seed(0)
    module, shape = AS_EXPORTED[name]
    inputs = torch.randn(shape)
    program = exported(module, inputs)
    assert not needs_decomposition(program)
    compared(program, inputs)


def read_again(first: nn.Module, x: torch.Tensor) -> torch.Tensor:
    made = first(x)
    kept = made.view(-1)
    made.add_(1.0)
    return kept * 2


def input_changed(x: torch.Tensor) -> torch.Tensor:
    doubled = x.clone()
    doubled += x
    return doubled.mul_(doubled)


TAKEN_APART = {
    "a view of what is changed": Wrapped(read_again, nn.Linear(4, 4)),
    "a clone that is changed by itself": Wrapped(input_changed),
    "pooling to more than one element": nn.AdaptiveAvgPool2d(2),
    "an operator that is none of ours": Wrapped(lambda x: torch.channel_shuffle(x, 2)),
}


@pytest.mark.parametrize("name", TAKEN_APART)
def test_taken_apart_by_torch(name: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1, 4, 4, 4)
    program = exported(TAKEN_APART[name], inputs)
    assert needs_decomposition(program)
    compared(program, inputs)


def test_training_mode_is_not_covered() -> None:
    program = torch.export.export(nn.BatchNorm2d(3).train(), (torch.randn(2, 3, 4, 4),))
    (node,) = (n for n in program.graph.nodes if "batch_norm" in n.name and n.op == "call_function")
    assert known(node) is None
