"""Modules for devices: what is passed, what is refused, what is kept."""

from __future__ import annotations

import ctypes
import importlib.util
import pickle
from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.cubin import parameters
from tensorc.emulator.device import EmulatedDevice
from tensorc.errors import ArgumentError, CompileError
from tensorc.runtime.device import DeviceError
from tests.codegen.cuda.checking import schedule

SCALED = """
def scaled(
    A: Buffer["f32", N], alpha: f32, n: i64, half: f16, on: bool, B: Buffer["f32", N, "out"]
):
    for i in range(N):
        B[i] = select(on and i64(i) < n, A[i] * alpha + f32(half), 0.0)
"""


def bound(text: str = SCALED) -> tc.Schedule:
    s = schedule(text)
    block, thread = s.split("i", 32)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    return s


def test_parameters_are_packed_as_the_cubin_has_them() -> None:
    module = tc.build(bound(), device="emulated")
    (kernel,) = module.kernels
    names = [parameter.name for parameter in kernel.text.parameters]
    assert names == ["A", "alpha", "n", "half", "on", "B", "N"]
    assert parameters(module.cubin())["scaled"] == (8, 4, 8, 4, 1, 8, 8)
    a = np.arange(70, dtype=np.float32)
    found = module.run(a, 2.0, 50, np.float16(0.5), True)
    np.testing.assert_array_equal(found, np.where(np.arange(70) < 50, 2 * a + 0.5, 0))


def test_an_image_that_is_no_cubin() -> None:
    with pytest.raises(CompileError, match="no cubin"):
        parameters(b".version 9.0")
    with pytest.raises(CompileError, match="damaged cubin"):
        parameters(b"\x7fELF\x02\x01" + bytes(100))


def test_compiling_needs_no_device() -> None:
    module = tc.build(bound())
    assert "__global__" in module.source()
    assert ".entry scaled" in module.ptx()
    if importlib.util.find_spec("cupy") is None:
        a = np.zeros(3, np.float32)
        with pytest.raises(DeviceError, match=r"CuPy is not installed .*tensorc\[cuda13\]"):
            module.run(a, 1.0, 1, np.float16(0), True)


def test_what_a_module_for_a_cpu_can_and_this_cannot() -> None:
    module = tc.build(bound())
    assert repr(module).endswith("cuda:sm_90; 1 kernel; device cupy>")
    assert "def call(*arguments):" in module.source("entry")
    again = pickle.loads(pickle.dumps(module))
    assert (again.source(), again.target, repr(again)) == (
        module.source(), module.target, repr(module)
    )  # fmt: skip
    with pytest.raises(tc.TargetError, match=r"`save` .* this one is for cuda:sm_90: `cubin\(\)`"):
        module.save("f.o")
    with pytest.raises(tc.TargetError, match=r"`profile` .* `report\(\)`"):
        module.profile()
    with pytest.raises(tc.TargetError, match=r"`address` .* call the module"):
        _ = module.address
    with pytest.raises(tc.ArgumentError, match="`A`: arguments have no names but an order: A, al"):
        module(A=1)


def test_devices_and_stages_that_are_not_there() -> None:
    s = bound()
    with pytest.raises(tc.ArgumentError, match="legal here: emulated, cupy"):
        tc.build(s, device="tpu")
    with pytest.raises(tc.ArgumentError, match="object is no device"):
        tc.build(s, device=object())  # type: ignore[arg-type]
    with pytest.raises(tc.ArgumentError, match="legal here: ir, entry, cuda, ptx, kernel"):
        tc.build(s, device="emulated").source("sass")
    with pytest.raises(tc.ArgumentError, match="a device is for cuda targets"):
        tc.build(tc.parse(SCALED), device="emulated")


def test_a_grid_that_is_too_large_is_refused_at_the_launch() -> None:
    s = schedule(
        """
def rows(A: Buffer["i8", N], B: Buffer["i8", N, "out"]):
    for i in range(N):
        B[i] = A[i]
"""
    )
    s.bind("i", "blockIdx.y")
    module = tc.build(s, device="emulated")
    with pytest.raises(tc.LimitError, match=r"blockIdx.y has 65536 blocks, at most 65535"):
        module.run(np.zeros(65536, np.int8))


class OnGpu:
    """An array that says that it is on a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


class Gpu(EmulatedDevice):
    """The emulator behind what a GPU takes: cubins, and arrays there."""

    ptx = ""

    @property
    def name(self) -> str:
        return "gpu"

    def load(self, image: bytes | str, file: str = "") -> Any:
        assert isinstance(image, bytes)
        assert image[:4] == b"\x7fELF"
        return super().load(self.ptx)

    def at(self, address: int, size: int) -> Any:
        raw = (ctypes.c_uint8 * size).from_address(address)
        return self.wrap(np.frombuffer(memoryview(raw), np.uint8))


def test_arrays_of_a_gpu() -> None:
    device = Gpu()
    module = tc.build(bound(), device=device)
    device.ptx = module.ptx()
    a, b = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    module(OnGpu(a), 3.0, 40, np.float16(0), True, OnGpu(b))
    np.testing.assert_array_equal(b, 3 * a)
    with pytest.raises(tc.ArgumentError, match="an array of the CPU"):
        module(a, 3.0, 40, np.float16(0), True, b)
    with pytest.raises(tc.ArgumentError, match="its dtype is float64, needed f32"):
        module(OnGpu(a.astype("f8")), 3.0, 40, np.float16(0), True, OnGpu(b))


def test_constants_in_another_layout() -> None:
    """The emulated device reads what the CPU has packed; a GPU cannot."""
    a = tc.placeholder((8, 16), "f32", name="A")
    w = tc.placeholder((16, 40), "f32", name="W", mode="const")
    k = tc.reduce_axis(16, name="k")
    c = tc.compute((8, 40), lambda i, j: tc.sum(a[i, k] * w[k, j], axis=k), name="C")
    s = tc.Schedule(tc.func_of([a, w], [c], name="mm"), "cuda:sm_90")
    s.transform_layout("W", lambda k, j: (j // 16, k, j % 16))
    s.bind("i", "blockIdx.x")
    module = tc.build(s, device="emulated")
    draw = np.random.default_rng(0)
    left, right = draw.random((8, 16), dtype="f4"), draw.random((16, 40), dtype="f4")
    found = np.empty((8, 40), np.float32)
    for _ in range(2):
        module(left, right, found)
        np.testing.assert_allclose(found, left @ right, rtol=1e-5)

    class Elsewhere(EmulatedDevice):
        name = "elsewhere"

    with pytest.raises(ArgumentError, match="packed where the CPU reads"):
        tc.build(s, device=Elsewhere())(left, right, found)
