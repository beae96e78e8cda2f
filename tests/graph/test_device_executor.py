"""Networks on a device: what is captured and when, what lives how long, and arrays of a GPU."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorc as tc
from tensorc.emulator.device import EmulatedDevice, EmulationError
from tensorc.graph.device_arguments import GpuCall
from tensorc.graph.device_executor import DeviceExecutor, Scratch
from tensorc.graph.graph import Value
from tensorc.runtime.cuda import CudaModule
from tensorc.runtime.device import DeviceError
from tests.schedule.checking import schedule

pytestmark = pytest.mark.torch


class Watched(EmulatedDevice):
    """The emulator, which writes down what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def alloc(self, size: int, name: str = "") -> Any:
        self.log.append("alloc")
        return super().alloc(size, name)

    def capture(self, work: Callable[[], None]) -> Any:
        self.log.append("capture")
        return super().capture(work)


def small() -> nn.Module:
    torch.manual_seed(3)
    # A convolution has temporaries of the host: the padded image, and what comes before the ReLU.
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()).eval()


def test_a_network_is_captured_once() -> None:
    module, device = small(), Watched()
    network = tc.compile(
        module, (torch.zeros(1, 2, 6, 6),), "cuda:sm_80", device=device, capture=True
    )
    plain = tc.compile(module, (torch.zeros(1, 2, 6, 6),))
    device.log.clear()
    launches = []
    for number in range(4):
        x = torch.randn(1, 2, 6, 6)
        torch.testing.assert_close(network(x), plain(x), rtol=1e-4, atol=1e-5)
        launches.append(len(device.reports) - sum(launches))
        if number == 0:
            assert set(device.log) == {"alloc"}
            device.log.clear()
        gc.collect()
    assert device.log == ["capture"]
    assert len(set(launches)) == 1
    assert network.compare(module, x).error < 1e-5
    assert all(one.best > 0 for one in network.profile(x, runs=2).tasks)


def test_without_capture_temporaries_are_fresh() -> None:
    device = Watched()
    network = tc.compile(small(), (torch.zeros(1, 2, 6, 6),), "cuda:sm_80", device=device)
    device.log.clear()
    network(torch.zeros(1, 2, 6, 6))
    first = device.log.count("alloc")
    network(torch.zeros(1, 2, 6, 6))
    assert device.log.count("alloc") == 2 * first > 0
    assert "capture" not in device.log


def test_temporaries_of_equal_size_are_shared_by_calls_and_not_within_one() -> None:
    scratch = Scratch(EmulatedDevice())
    first, second = scratch.of_call(), scratch.of_call()
    a, b = first("a", 64), first("b", 64)
    assert a.address != b.address
    assert first("a", 64) is a
    assert second("x", 64) is a
    assert second("y", 64) is b
    assert second("z", 64).address not in (a.address, b.address)
    assert scratch.of_call()("a", 128).address != a.address


def copying(device: Any) -> Callable[[Any, Any], None]:
    s = schedule(
        'def f(A: Buffer["f32", 8], B: Buffer["f32", 8, "out"]):\n'
        "    for i in range(8):\n        B[i] = A[i] + 1.0\n",
        "cuda:sm_80",
    )
    s.bind("i", "threadIdx.x")
    function = device.load(tc.build(s, device="emulated").ptx()).function("f")
    return lambda a, b: device.launch(function, 1, 8, [a, b])


def test_a_graph_runs_on_what_lies_at_its_addresses() -> None:
    device = EmulatedDevice()
    launch = copying(device)
    a, b = np.zeros(8, np.float32), np.zeros(8, np.float32)
    held = [device.wrap(a), device.wrap(b)]

    def work() -> None:
        launch(held[0], held[1])
        launch(held[1], held[1])

    graph = device.capture(work)
    assert not device.reports
    assert not b.any()
    for value in (1.0, 5.0):
        a[:] = value
        graph.launch()
        assert (b == value + 2).all()
    assert len(device.reports) == 4
    # A graph keeps no memory: that is for who launches it.
    held.clear()
    gc.collect()
    with pytest.raises(EmulationError, match="OutOfBounds"):
        graph.launch()


def test_nothing_but_launches_is_captured() -> None:
    device = EmulatedDevice()
    memory = device.alloc(32)
    works: dict[str, Callable[[], object]] = {
        "alloc": lambda: device.alloc(4),
        "copy": lambda: device.copy(memory, np.zeros(8, np.float32)),
        "sync": device.sync,
        "capture": lambda: device.capture(lambda: None),
    }
    for name, work in works.items():
        with pytest.raises(DeviceError, match=f"`{name}` while launches are captured"):
            device.capture(work)  # type: ignore[arg-type]
    device.sync()


class OnGpu:
    """An array that says that it is on a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


class Gpu(EmulatedDevice):
    """The emulator as a GPU of CuPy: arrays there, streams, and cubins, in whose place the PTX
    stands that the emulator needs."""

    def __init__(self) -> None:
        super().__init__()
        self.stream, self.synced = 0, list[int | None]()

    @property
    def name(self) -> str:
        return "gpu"

    def load(self, image: bytes | str, file: str = "") -> Any:
        assert isinstance(image, bytes)
        return super().load(PTX[image])

    def current_stream(self) -> int:  # type: ignore[override]
        return self.stream

    def sync(self, stream: int | None = None) -> None:
        self.synced.append(stream)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> OnGpu:
        return OnGpu(np.empty(shape, dtype))

    def at(self, address: int, size: int) -> Any:
        raw = (ctypes.c_uint8 * size).from_address(address)
        return super().wrap(np.frombuffer(memoryview(raw), np.uint8))

    def wrap(self, array: Any, name: str = "") -> Any:
        return super().wrap(array.array, name)


PTX: dict[bytes, str] = {}


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Gpu, nn.Module]:
    def compile(module: Any) -> None:
        PTX[module.cubin()] = module.ptx()

    monkeypatch.setattr(CudaModule, "compile", compile)
    module, device = nn.Sequential(nn.Linear(6, 8), nn.ReLU()).eval(), Gpu()
    network = tc.compile(module, (torch.zeros(3, 6),), "cuda:sm_80", device=device)
    return network, device, module


def test_arrays_of_a_gpu_give_arrays_there(on_gpu: tuple[Any, Gpu, nn.Module]) -> None:
    network, device, module = on_gpu
    for _ in range(3):
        x = np.random.default_rng(0).standard_normal((3, 6), np.float32)
        found = network(OnGpu(x))
        assert isinstance(found, OnGpu)
        expected = module(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(found.array, expected, rtol=1e-5, atol=1e-6)
    # The caller waits for its stream itself; another stream waits for what runs on this one.
    assert device.synced == []
    device.stream = 5
    network(OnGpu(x))
    network(OnGpu(x))
    assert device.synced == [0]
    np.testing.assert_allclose(network(x), expected, rtol=1e-5, atol=1e-6)
    assert device.synced == [0, 5]


def test_arrays_of_a_gpu_that_do_not_fit(on_gpu: tuple[Any, Gpu, nn.Module]) -> None:
    network, _, _ = on_gpu
    x = np.zeros((6, 6), np.float32)
    for wrong, message in (
        (x, r"compiled for .*f32\[3, 6\], got float32\[6, 6\]"),
        (x[:3].astype("f8"), r"got float64\[3, 6\]"),
        (x[::2], "strides are .*; pass a compact array"),
    ):
        with pytest.raises(tc.ArgumentError, match=message):
            network(OnGpu(wrong))
    assert isinstance(network._executor, DeviceExecutor)


def test_arrays_of_both_sides_are_refused() -> None:
    values = [Value(name, tc.DType.F32, (2,)) for name in "xy"]
    x = np.zeros(2, np.float32)
    with pytest.raises(tc.ArgumentError, match=r"`y`: .* is not on the GPU, where other inputs"):
        GpuCall(Gpu(), values, [OnGpu(x), x], values)
