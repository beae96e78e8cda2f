"""What `CupyDevice` passes to CuPy, which is a recording double here."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import tensorc as tc
from tensorc.runtime.cupy_device import CupyDevice
from tensorc.runtime.device import DeviceError
from tests.schedule.checking import schedule


class CudaRuntimeError(RuntimeError):
    """As CuPy names it."""


class Stream:
    """A stream, the current one in a `with` block."""

    stack: ClassVar[list[Stream]] = []

    def __init__(self, ptr: int = 7, non_blocking: bool = False) -> None:
        self.ptr, self.non_blocking = ptr, non_blocking

    def __enter__(self) -> Self:
        self.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.pop()

    def synchronize(self) -> None:
        LOG.append(("sync", self.ptr))

    def begin_capture(self) -> None:
        assert self.non_blocking
        LOG.append(("begin", self.ptr))

    def end_capture(self) -> Any:
        LOG.append(("end", self.ptr))
        return SimpleNamespace(launch=lambda: LOG.append(("graph", Stream.stack[-1].ptr)))


LOG: list[Any] = []


def _launch(grid: Any, block: Any, arguments: Any, shared: int) -> None:
    if grid == (13, 1, 1):
        raise CudaRuntimeError("no such grid")
    LOG.append(("launch", Stream.stack[-1].ptr, grid, block, arguments, shared))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CupyDevice:
    def alloc(size: int) -> Any:
        if size > 1 << 40:
            raise MemoryError
        return SimpleNamespace(ptr=4096, size=size)

    module = SimpleNamespace(load=lambda image: None, get_function=lambda name: function)
    function = type("Function", (), {"ptr": 99, "__call__": lambda self, *x: _launch(*x)})()
    cuda = SimpleNamespace(
        is_available=lambda: True, Stream=Stream, ExternalStream=Stream, alloc=alloc,
        get_current_stream=lambda: Stream.stack[-1],
        function=SimpleNamespace(Module=lambda: module),
        runtime=SimpleNamespace(CUDARuntimeError=CudaRuntimeError, memcpyDefault=4,
                                memcpyAsync=lambda *x: LOG.append(("copy", *x))),
        driver=SimpleNamespace(
            CUDADriverError=CudaRuntimeError, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
            funcSetAttribute=lambda *x: LOG.append(("attribute", *x))),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=np.empty))
    monkeypatch.setattr(Stream, "stack", [Stream(0)])
    LOG.clear()
    return CupyDevice()


def kernel(device: CupyDevice) -> Any:
    s = schedule(
        'def f(A: Buffer["f32", N], alpha: f32, B: Buffer["f32", N, "out"]):\n'
        "    for i in range(N):\n        B[i] = A[i] * alpha\n",
        "cuda:sm_80",
    )
    s.bind("i", "blockIdx.x")
    return device.load(tc.build(s, device="emulated").cubin()).function("f")


def test_a_launch_has_its_arguments_and_its_stream(device: CupyDevice) -> None:
    function, memory = kernel(device), device.alloc(40)
    part = device.part(memory, 16, 24)
    arguments = [memory, np.float32(2.0), part, np.int64(10)]
    device.launch(function, 10, (32, 2), arguments, 50_000, stream=5)
    assert LOG[0] == ("attribute", 99, 8, 50_000)
    what, stream, grid, block, packed, shared = LOG[1]
    assert (what, stream, grid, block, shared) == ("launch", 5, (10, 1, 1), (32, 2, 1), 50_000)
    assert [(x.dtype.str, x) for x in packed] == [
        ("<u8", 4096), ("<f4", 2.0), ("<u8", 4112), ("<i8", 10)
    ]  # fmt: skip
    with pytest.raises(tc.ArgumentError, match=r"\(8, 4, 8, 8\) bytes, not \(8, 8, 8, 8\)"):
        device.launch(function, 10, 32, [memory, np.float64(2.0), memory, np.int64(10)])
    with pytest.raises(DeviceError, match="the launch of f failed: no such grid"):
        device.launch(function, 13, 32, arguments)
    with pytest.raises(DeviceError, match="bytes cannot be allocated"):
        device.alloc(1 << 41)


def test_launches_are_captured_on_a_stream_of_their_own(device: CupyDevice) -> None:
    function, memory = kernel(device), device.alloc(40)
    arguments = [memory, np.float32(2.0), memory, np.int64(10)]

    def work() -> None:
        for blocks in (1, 2):
            device.launch(function, blocks, 32, arguments)

    graph = device.capture(work)
    assert [x[:2] for x in LOG] == [("begin", 7), ("launch", 7), ("launch", 7), ("end", 7)]
    LOG.clear()
    graph.launch()
    graph.launch(stream=5)
    with Stream(6):
        graph.launch()
        assert device.current_stream() == 6
    assert LOG == [("graph", 0), ("graph", 5), ("graph", 6)]


def test_a_capture_that_fails_is_ended(device: CupyDevice) -> None:
    function, memory = kernel(device), device.alloc(40)
    arguments = [memory, np.float32(2.0), memory, np.int64(10)]
    with pytest.raises(DeviceError, match="the launch of f failed: no such grid"):
        device.capture(lambda: device.launch(function, 13, 32, arguments))
    assert [x[0] for x in LOG] == ["begin", "end"]
    assert len(Stream.stack) == 1


def test_copies_go_along_the_stream(device: CupyDevice) -> None:
    array = np.arange(4, dtype=np.float32)
    memory = device.constant(array)
    device.copy(array, memory, stream=3)
    place = array.ctypes.data
    assert [("copy", 4096, place, 16, 4, 0), ("copy", place, 4096, 16, 4, 3)] == LOG
    device.sync(3)
    assert LOG[-1] == ("sync", 3)
