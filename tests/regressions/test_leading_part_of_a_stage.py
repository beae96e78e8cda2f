"""A result that is the first part of a stage was given all of the stage's memory: the program wrote
past the end of the caller's array."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorc as tc
from tensorc.errors import VerifyError
from tensorc.graph.backend import declared_shape, interpreted
from tensorc.graph.executor import Executor, PlainTask
from tensorc.graph.network import load
from tensorc.graph.passes import fuse
from tensorc.graph.tasks import partition
from tensorc.ir import build
from tests.graph.networks import Builder


class Halves(torch.nn.Module):
    """Views of one tensor that are changed in place."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.clone().chunk(2, 1)
        a += b
        b.copy_(a * 2)
        a.relu_()
        return a, b


@pytest.mark.torch
def test_views_that_are_changed_in_place_are_results() -> None:
    x = torch.randn(4, 6)
    found = tc.compile(Halves().eval(), (x,), backend=interpreted)(x)
    assert all(map(torch.equal, found, Halves()(x)))


@pytest.mark.torch
def test_a_result_takes_as_many_elements_as_it_has() -> None:
    graph = load(Halves().eval(), (torch.randn(4, 6),)).graph
    parts = partition(graph, fuse(graph))
    for call in parts.calls:
        params = parts.tasks[call.task].func.params
        sizes = [int(np.prod(declared_shape(param.value))) for param in params]
        assert sizes == [value.size for value in call.values]


def test_a_program_for_other_values_is_refused() -> None:
    net = Builder()
    x = net.input(2, 3)
    graph = net.graph(net.add("relu", self=x))
    parts = partition(graph, fuse(graph))
    given = build.placeholder((2, 3), "f32", name="X0")
    made = build.compute((3, 3), lambda i, j: given[0, j], name="Y")
    func = build.func_of([given], [made])
    wrong = replace(parts, tasks=(replace(parts.tasks[0], func=func),))
    with pytest.raises(VerifyError, match="a parameter has the elements of its value"):
        Executor(graph, wrong, [PlainTask(func, interpreted)])
