"""Small networks for a CUDA device, on the emulated one, against torch."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tensorc.errors import ArgumentError
from tensorc.graph.compile import compile
from tensorc.runtime.device import DeviceError
from tests.graph.test_networks import Attention, TinyResNet

pytestmark = pytest.mark.torch
CASES = {
    "convolutions": (TinyResNet, (1, 3, 16, 16)),
    "attention": (Attention, (1, 6, 16)),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_a_network_is_equal_to_torch(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    module, inputs = make().eval(), torch.randn(shape)
    compiled = compile(module, (inputs,), "cuda:sm_80", device="emulated")
    with torch.no_grad():
        expected = module(inputs)
    torch.testing.assert_close(compiled(inputs), expected, rtol=1e-4, atol=1e-4)


def test_devices_and_targets_that_do_not_fit() -> None:
    module = torch.nn.Linear(4, 4).eval()
    given = (torch.zeros(2, 4),)
    for option in ({"device": "emulated"}, {"capture": True}):
        with pytest.raises(ArgumentError, match="it is for a cuda target"):
            compile(module, given, "cpu", **option)
    with pytest.raises(ArgumentError, match="no device 'tpu'"):
        compile(module, given, "cuda:sm_80", device="tpu")
    with pytest.raises(ArgumentError, match="no scheduler"):
        compile(module, given, "cuda:sm_80", "best", device="emulated")
    with pytest.raises(ArgumentError, match="capture"):
        compile(module, given, "cuda:sm_80", device="emulated", capture="yes")
    if importlib.util.find_spec("cupy") is None:
        with pytest.raises(DeviceError, match="CuPy is not installed"):
            compile(module, given, "cuda:sm_80")
