"""Attention as one program: when it is, and that it means what its operators mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

from tensorc.graph.backend import interpreted
from tensorc.graph.compile import compile, partitioned
from tensorc.graph.network import load
from tensorc.schedule.facts import facts
from tensorc.space.templates.attention import task as attention_task
from tensorc.target import Target

pytestmark = pytest.mark.torch
Result = torch.Tensor | tuple[torch.Tensor, ...]


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Result]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Result:
        return self.function(*inputs)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.view(1, x.shape[1], count, -1).transpose(1, 2)


def merged(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(1, x.shape[2], -1)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(heads(q, 2), heads(k, 2).transpose(-1, -2)) / 2.0
    return merged(torch.matmul(scores.softmax(-1), heads(v, 2)))


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention(heads(q, 4), heads(k, 2), heads(v, 2), enable_gqa=True)


def split(x: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values from one tensor, as GPT-2 has them."""
    return merged(attention(*(heads(part, 2) for part in x.split(8, -1))))


def with_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scores = torch.bmm(q, k.transpose(1, 2))
    return torch.bmm(scores.softmax(-1), v), scores


def with_shares(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shares = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
    return torch.bmm(shares, v), shares


def across(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-2), v)


def squared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.bmm(q, k.transpose(1, 2))
    return torch.bmm((scores * scores).softmax(-1), v)


def rowwise(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The softmax as the right operand."""
    return torch.bmm(v, torch.bmm(q, k.transpose(1, 2)).softmax(-1))


def shape(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(1, rows, columns)


QKV = (shape(8, 8), shape(6, 8), shape(6, 8))
ONE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "as torch has it": (lambda q, k, v: merged(attention(*(heads(x, 2) for x in (q, k, v)))), QKV),
    "a mask": (lambda q, k, v, m: attention(q, k, v, attn_mask=m), (*QKV, shape(8, 6))),
    "causal": (lambda q, k, v: attention(q, k, v, is_causal=True), (shape(8, 4),) * 3),
    "written out": (by_hand, QKV),
    "of one tensor": (split, (shape(8, 24),)),
    "groups of heads": (grouped, (shape(8, 16), shape(6, 8), shape(6, 8))),
    "a map that reads its scores twice": (squared, QKV),
}
SEVERAL: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "scores that are a result": (with_scores, QKV),
    "a softmax that is a result": (with_shares, QKV),
    "a softmax of columns": (across, QKV),
    "a softmax as the right operand": (rowwise, (shape(6, 4), shape(6, 4), shape(8, 6))),
    "rows that make no blocks": (lambda q, k, v: attention(q, k, v), (shape(13, 8), *QKV[1:])),
}


def compared(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> int:
    """How many products of the network are in programs of their own, once it is known right."""
    module = Wrapped(function).eval()
    network = compile(module, inputs, backend=interpreted)
    with torch.no_grad():
        expected = module(*inputs)
    found = network(*inputs)
    for one, other in zip(
        *((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return sum("bmm" in task.label for task in network.tasks)


@pytest.mark.parametrize("name", ONE)
def test_one_program(name: str) -> None:
    assert compared(*ONE[name]) == 1


@pytest.mark.parametrize("name", SEVERAL)
def test_several_programs(name: str) -> None:
    assert compared(*SEVERAL[name]) == 2


@pytest.mark.parametrize("name", ONE)
def test_its_template_takes_it(name: str) -> None:
    function, inputs = ONE[name]
    _, parts = partitioned(load(Wrapped(function).eval(), inputs), Target.parse("cpu"))
    (func,) = (task.func for task in parts.tasks if "softmax" in task.func.name)
    assert attention_task(facts(func, Target.parse("cpu"))) is not None


@pytest.mark.parametrize("name", ["as torch has it", "of one tensor", "groups of heads"])
def test_compiled_by_its_template(name: str) -> None:
    function, inputs = ONE[name]
    module = Wrapped(function).eval()
    network = compile(module, inputs)
    with torch.no_grad():
        torch.testing.assert_close(network(*inputs), module(*inputs), rtol=1e-4, atol=1e-5)
    assert len(network.tasks) == 1
