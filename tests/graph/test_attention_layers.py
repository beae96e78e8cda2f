"""The layers of torch that are one operator in evaluation, and threads that compile at once."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from tensorc.graph.backend import interpreted
from tensorc.graph.compile import compile_network
from tensorc.graph.dynamo import EagerFallbackWarning
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_export import load
from tensorc.target import Target

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch.*"),
]
aten = torch.ops.aten


class Calls(nn.Module):
    """Calls an operator on an input and on tensors of its own."""

    def __init__(self, operator: Any, tensors: list[torch.Tensor], *rest: Any):
        super().__init__()
        self.operator, self.rest = operator, rest
        self.names = [f"t{n}" for n in range(len(tensors))]
        for name, tensor in zip(self.names, tensors, strict=True):
            self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.operator(
            *inputs, *self.rest[0], *map(self.get_buffer, self.names), *self.rest[1]
        )


def checked(module: nn.Module, *inputs: torch.Tensor) -> None:
    program = torch.export.export(module.eval(), inputs)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert all(known(node) for node in calls if "aten" in str(node.target))
    network = compile_network(load(program), Target.parse("cpu"), backend=interpreted)
    torch.testing.assert_close(network(*inputs), module(*inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_attention_by_heads(same: bool, average: bool) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(12, 4), torch.randn(12), torch.randn(4, 4), torch.randn(4)]
    rest = ((4, 2), (None, True, average))
    x = torch.randn(2, 3, 4)
    if same:
        module: nn.Module = Calls(
            lambda q, *more: aten._native_multi_head_attention(q, q, q, *more), weights, *rest
        )
        checked(module, x)
    else:
        module = Calls(aten._native_multi_head_attention, weights, *rest)
        checked(module, x, torch.randn(2, 3, 4), torch.randn(2, 3, 4))


LAYERS = {
    "normalised after": nn.TransformerEncoderLayer(4, 2, 6, batch_first=True),
    "normalised before": nn.TransformerEncoderLayer(
        4, 2, 6, batch_first=True, norm_first=True, activation="gelu"
    ),
    "attention": nn.MultiheadAttention(4, 2, batch_first=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_compiled_without_gradients(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = LAYERS[name].eval()
    x = torch.randn(2, 3, 4)
    given = (x, x, x) if name == "attention" else (x,)
    fast = torch.compile(layer, backend="tensorc", options={"scheduler": "none"})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", EagerFallbackWarning)
        torch.testing.assert_close(fast(*given), layer(*given), rtol=1e-4, atol=1e-5)


def test_threads_meet_new_shapes_at_once() -> None:
    """What compiles for one thread left how modules are called alone for the others."""
    torch._dynamo.reset()
    layer = nn.Linear(4, 4)
    fast = torch.compile(layer, backend="tensorc", options={"scheduler": "none"})
    inputs = [torch.randn(n % 3 + 1, 4) for n in range(12)]

    def called(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return fast(x)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(called, inputs))
    for x, result in zip(inputs, found, strict=True):
        torch.testing.assert_close(result, layer(x).detach(), rtol=1e-4, atol=1e-5)
