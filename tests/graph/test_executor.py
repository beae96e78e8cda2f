"""What a network that runs holds on to."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensorc.graph import kernels
from tensorc.graph.compile import compile


def test_code_lives_as_long_as_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls hold addresses in code that is unloaded with the last reference to its module."""
    made: list[weakref.ref[Any]] = []
    build = kernels.build

    def noted(*arguments: Any) -> Any:
        module = build(*arguments)
        made.append(weakref.ref(module))
        return module

    monkeypatch.setattr(kernels, "build", noted)
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
