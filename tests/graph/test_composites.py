"""Programs that are imported as they are exported, without being taken apart by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensorc.graph.compile import compile
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_export import _needs_decomposition as needs_decomposition
from tensorc.graph.unsupported import UnsupportedNetworkError


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
    "max_pool1d": (nn.MaxPool1d(3, stride=2, padding=1), (2, 3, 9)),
    "max_pool3d": (nn.MaxPool3d((1, 2, 2)), (1, 2, 3, 4, 4)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "adaptive_avg_pool2d to more": (nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 4, 5)),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d(1), (2, 3, 4, 5, 2)),
    "conv1d": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 7)),
    "conv1d of one sequence": (nn.Conv1d(3, 4, 3, padding=1), (3, 7)),
    "conv2d to the same size": (
        nn.Conv2d(3, 4, (4, 3), padding="same", dilation=(1, 2)),
        (1, 3, 7, 8),
    ),
    "conv2d without padding": (nn.Conv2d(3, 4, 3, padding="valid"), (3, 7, 8)),
    "conv3d": (nn.Conv3d(2, 2, 2, groups=2), (1, 2, 3, 4, 3)),
    "conv_transpose1d": (nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2, dilation=2), (1, 4, 5, 4)),
    "conv_transpose2d of one image": (nn.ConvTranspose2d(4, 2, 3), (4, 5, 4)),
    "layer_norm": (nn.LayerNorm((4, 5)), (2, 3, 4, 5)),
    "group_norm": (nn.GroupNorm(2, 6), (2, 6, 3, 2)),
    "softmax": (nn.Softmax(-1), (2, 5)),
    "log_softmax": (nn.LogSoftmax(1), (2, 5, 3)),
    "zero padding": (nn.ZeroPad2d((1, 2, 0, 1)), (1, 2, 3, 4)),
    "reflection padding": (nn.ReflectionPad2d(2), (1, 2, 3, 4)),
    "replication padding": (nn.ReplicationPad1d((1, 2)), (2, 3, 4)),
    "circular padding": (nn.CircularPad2d((1, 2, 0, 1)), (1, 2, 3, 4)),
    "linear": (nn.Linear(7, 5), (3, 7)),
    "linear of one row": (nn.Linear(7, 5), (7,)),
    "linear of rows of rows": (nn.Linear(7, 5), (2, 3, 7)),
    "linear without bias": (nn.Linear(7, 5, bias=False), (2, 3, 7)),
    "flatten": (nn.Flatten(1, 2), (2, 3, 4, 5)),
    "flatten all": (nn.Flatten(0), (2, 3, 4)),
    "dropout": (nn.Sequential(nn.Dropout(0.5), nn.ReLU()), (2, 3)),
    "dropout in place": (nn.Dropout(0.5, inplace=True), (2, 3)),
    "in place": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), (2, 4)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
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
    "a sum with a wider operand": Wrapped(lambda x: x.mul(2).add_(x.double())),
    "a product with a mask": Wrapped(lambda x: x.mul(2).mul_(x > 0)),
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


# Functions of several tensors ---------------------------------------------------------------------


def attention(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda *inputs: F.scaled_dot_product_attention(*inputs, **options)


def compared_as_exported(function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    program = exported(Wrapped(function), *inputs)
    assert not needs_decomposition(program)
    compared(program, *inputs)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
def test_attention(options: dict[str, Any], batch: tuple[int, ...]) -> None:
    compared_as_exported(attention(**options), (*batch, 5, 8), (*batch, 7, 8), (*batch, 7, 6))


def test_attention_with_masks() -> None:
    shapes = [(2, 3, 5, 8)] * 3
    compared_as_exported(attention(), *shapes, (5, 5))
    compared_as_exported(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0), *shapes, (2, 1, 5, 5)
    )

    def masked(q, k, v):
        mask = torch.ones(5, 5, dtype=torch.bool)
        mask = torch.cat([mask[:2], torch.zeros(1, 5, dtype=torch.bool), mask[3:]])
        return F.scaled_dot_product_attention(q, k, v, mask)

    compared_as_exported(masked, *shapes)


def test_attention_of_grouped_heads() -> None:
    grouped = attention(enable_gqa=True, is_causal=True)
    compared_as_exported(grouped, (2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8))


def test_attention_as_torch_takes_it_apart() -> None:
    compared_as_exported(
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0],
        *[(2, 3, 5, 8)] * 3,
    )
    compared_as_exported(
        lambda q, k, v: torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0],
        *[(2, 3, 5, 8)] * 3,
    )
    with pytest.raises(UnsupportedNetworkError) as caught:
        compared_as_exported(
            lambda q, k, v: torch.ops.aten._scaled_dot_product_attention_math(q, k, v),
            *[(2, 3, 5, 8)] * 3,
        )
    (problem,) = caught.value.problems
    assert problem.what == "result 1 of _scaled_dot_product_attention_math.default"


@pytest.mark.parametrize(
    "shapes",
    [
        ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 3)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)),
        ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((2, 0, 4), (4, 5)),
        ((0, 3, 4), (0, 4, 5)),
    ],
    ids=str,
)  # fmt: skip
def test_products_of_any_rank(shapes: tuple[tuple[int, ...], ...]) -> None:
    compared_as_exported(torch.matmul, *shapes)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.float64) + 1,
        lambda x: x.to(torch.int32).type_as(x),
        lambda x: x.diff(dim=-1),
        lambda x: x.diff(dim=0, prepend=x[:1], append=x[:0]),
        lambda x: (x > 0).diff(),
        lambda x: (x > 0) & (x < 1) | (x == 2),
        lambda x: torch.max(x, -x) - torch.min(x, x * 2),
        lambda x: x.as_strided((2, 3), (1, 2), 1),
        lambda x: F.softmax(x, -1, dtype=torch.float64),
    ],
    ids=range(9),
)
def test_other_functions(function: Callable[..., Any]) -> None:
    compared_as_exported(function, (3, 5))


def test_a_strided_view_of_a_part_is_taken_apart_or_refused() -> None:
    x = torch.randn(4, 3)
    program = exported(Wrapped(lambda x: x[1:].as_strided((2, 3), (3, 1))), x)
    with pytest.raises(UnsupportedNetworkError, match="as_strided"):
        compile(program, (x,))
