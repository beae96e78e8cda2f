"""What a network that runs holds on to."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensorc.graph import kernels
from tensorc.graph.compile import compile
from tests.codegen.test_jit_fork import child_can, held_by_a_thread


def test_code_lives_as_long_as_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls hold addresses in code that is unloaded with the last reference to its module."""
    made: list[weakref.ref[Any]] = []
    build = kernels.Module

    def noted(*arguments: Any) -> Any:
        module = build(*arguments)
        made.append(weakref.ref(module))
        return module

    monkeypatch.setattr(kernels, "Module", noted)
    layers = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8), nn.Softmax(-1)).eval()
    x = torch.randn(6, 24)
    with torch.inference_mode():
        expected = layers(x)
        network = compile(layers, (x,))
    gc.collect()
    alive = [ref for ref in made if ref() is not None]
    assert len(alive) >= len(network.tasks)
    for _ in range(3):
        np.testing.assert_allclose(network(x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)
    del network
    gc.collect()
    assert [ref for ref in alive if ref() is not None] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.timeout(60)
def test_a_fork_while_another_thread_runs_the_network() -> None:
    x = np.ones((2, 3), np.float32)
    network = compile(nn.ReLU().eval(), (torch.ones(2, 3),))
    with held_by_a_thread(network._executor._lock):
        assert child_can(lambda: np.testing.assert_array_equal(network(x), x))
    np.testing.assert_array_equal(network(x), x)


@pytest.mark.parametrize("way", ["none", "default"])
def test_tensors_are_taken_by_their_addresses(way: str) -> None:
    """Without an array in between, where all of them fit; else by arrays, with equal results."""
    layer = nn.Sequential(nn.Linear(6, 5), nn.ReLU()).eval()
    x = torch.randn(3, 6)
    network = compile(layer, (x,), scheduler=way)
    assert network._executor.direct
    taken = network._inputs.addresses
    with torch.no_grad():
        expected = layer(x)
        torch.testing.assert_close(network(x), expected)
    assert taken([x]) == [x.data_ptr()]
    strided = torch.randn(6, 3).t()
    for odd in (strided, x.double(), x[:2], x.numpy(), torch.randn(3, 6, requires_grad=True)[:]):
        fits = isinstance(odd, torch.Tensor) and odd.requires_grad
        assert (taken([odd]) is not None) == fits
    assert taken([x, x]) is None
    with torch.no_grad():
        torch.testing.assert_close(network(strided), layer(strided))
    np.testing.assert_allclose(network(x.numpy()), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_an_output_that_is_an_input_is_copied() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = torch.relu(x)
            return x, y, y

    x = torch.randn(4)
    network = compile(Same().eval(), (x,))
    assert not network._executor.direct
    same, one, other = network(x)
    torch.testing.assert_close(same, x)
    torch.testing.assert_close(one, torch.relu(x))
    torch.testing.assert_close(other, one)
    assert same.data_ptr() != x.data_ptr()
    assert one.data_ptr() != other.data_ptr()
