"""Accesses that a launch must not make, each reported with its source line and not executed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensorc.emulator import EmulatedDevice, EmulationError, LaunchReport
from tensorc.emulator.device import LAST_EPOCH
from tests.emulator.kernels import ptx_of

KERNELS = """
extern "C" __global__ void shift(const float* in, float* out, int offset) {
  int i = threadIdx.x;
  out[i] = in[i + offset];
}
extern "C" __global__ void wide(const float* in, float* out, int offset) {
  float4 x = *(const float4*)(in + offset);
  *(float4*)out = x;
}
extern "C" __global__ void fill(float* out, int count) {
  if (threadIdx.x < count) out[threadIdx.x] = threadIdx.x;
}
extern "C" __global__ void shared(float* out, int at, int written) {
  __shared__ float cells[32];
  if (threadIdx.x < written) cells[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = cells[threadIdx.x + at];
}
extern "C" __global__ void bytes(const unsigned char* in, unsigned char* out, int n) {
  __shared__ unsigned char cells[64];
  if (threadIdx.x < n) cells[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = cells[threadIdx.x];
}
extern "C" __global__ void pointer(float* out, int choose) {
  __shared__ float cells[32];
  float mine[32];
  for (int i = 0; i < 32; ++i) mine[i] = i;
  cells[threadIdx.x] = threadIdx.x;
  __syncwarp();
  float* p = choose == 0 ? cells : choose == 1 ? mine : out;
  p[(threadIdx.x * 7 + choose) % 32] += 1.0f;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void diverge(float* out, int kind) {
  if (kind == 0 && threadIdx.x == 3) return;
  if (kind == 1 && threadIdx.x < 32) { __syncthreads(); out[0] = 1; }
  else { __syncthreads(); out[1] = 2; }
  if (kind == 2) asm volatile("trap;");
  if (kind == 3) while (atomicAdd(&out[2], 0.0f) == 0.0f) {}
}
__device__ int counter = 40;
__constant__ float table[4] = {1.0f, 2.5f, -3.0f, 4.0f};
extern "C" __global__ void module(float* out) {
  out[threadIdx.x] = table[threadIdx.x % 4];
  if (threadIdx.x == 0) out[32] = ++counter;
}
"""


def refused(kernel: str, *arguments: object, block: int = 32, **options: object) -> LaunchReport:
    device = EmulatedDevice(**options)  # type: ignore[arg-type]
    function = device.load(ptx_of(KERNELS)).function(kernel)
    held = [
        device.wrap(value, f"argument {n}") if isinstance(value, np.ndarray) else np.int32(value)  # type: ignore[call-overload]
        for n, value in enumerate(arguments)
    ]
    with pytest.raises(EmulationError) as caught:
        device.launch(function, 1, block, held)
    return caught.value.report


@pytest.mark.parametrize("detect", [False, True])
@pytest.mark.parametrize("offset", [1, 33, -1, 10**8, -(10**8)])
def test_out_of_bounds(offset: int, detect: bool) -> None:
    before, canary = np.zeros(32, np.float32), np.full(32, 7, np.float32)
    report = refused("shift", before, canary, offset, detect=detect)
    [finding] = report.findings
    assert not report.completed
    assert finding.kind == "OutOfBounds"
    assert finding.access.place.source_line == 4
    assert "`ld.global" in str(finding)
    assert (canary == 7).sum() >= (1 if offset == 1 else 32)


@pytest.mark.parametrize("detect", [False, True])
def test_misaligned(detect: bool) -> None:
    data, out = np.zeros(64, np.float32), np.zeros(4, np.float32)
    [finding] = refused("wide", data, out, 3, block=1, detect=detect).findings
    assert str(finding) == (
        "Misaligned: a read of 16 bytes at byte 12 of argument 0, which is no multiple of 16: "
        f"thread (0, 0, 0) at {finding.access.place}, `{finding.access.instruction}`, "
        "block (0, 0, 0)"
    )
    assert finding.access.place.source_line in (7, 8)


@pytest.mark.parametrize("detect", [False, True])
def test_read_only_arrays_are_not_written(detect: bool) -> None:
    out = np.zeros(32, np.float32)
    out.flags.writeable = False
    [finding] = refused("fill", out, 32, detect=detect).findings
    assert finding.kind == "ReadOnlyWrite"
    assert not out.any()


@pytest.mark.parametrize(("at", "written", "kind"), [
    (0, 20, "Uninitialised"), (5, 32, "OutOfBounds"), (-1, 32, "OutOfBounds"),
])  # fmt: skip
def test_shared_memory(at: int, written: int, kind: str) -> None:
    [finding] = refused("shared", np.zeros(32, np.float32), at, written).findings
    assert finding.kind == kind
    assert finding.memory == "shared memory"
    if kind == "Uninitialised":
        assert (finding.offset, finding.access.thread) == (80, (20, 0, 0))


def test_single_bytes_are_watched() -> None:
    data, out = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    [finding] = refused("bytes", data, out, 63, block=64).findings
    assert (finding.kind, finding.offset) == ("Uninitialised", 63)


def test_what_nobody_wrote_in_global_memory() -> None:
    device = EmulatedDevice(strict=False)
    module = device.load(ptx_of(KERNELS))
    half, out = device.alloc(256, "half"), device.wrap(np.zeros(32, np.float32))
    device.launch(module.function("fill"), 1, 32, [half, np.int32(20)])
    device.launch(module.function("shift"), 1, 32, [half, out, np.int32(0)])
    assert device.reports[0].findings == ()
    [finding] = device.reports[1].findings
    assert (finding.kind, finding.memory, finding.offset) == ("Uninitialised", "half", 80)
    device.copy(half, np.zeros(64, np.float32))
    device.launch(module.function("shift"), 1, 32, [half, out, np.int32(0)])
    assert device.reports[2].findings == ()


def test_cells_become_finer_when_a_kernel_needs_it() -> None:
    device = EmulatedDevice(strict=False)
    module = device.load(ptx_of(KERNELS))
    data, out = device.alloc(64, "data"), device.wrap(np.zeros(64, np.uint8))
    device.launch(module.function("fill"), 1, 32, [data, np.int32(15)])
    device.launch(module.function("bytes"), 1, 64, [data, out, np.int32(64)])
    [finding] = device.reports[1].findings
    assert (finding.kind, finding.memory, finding.offset) == ("Uninitialised", "data", 60)


@pytest.mark.parametrize("detect", [False, True])
@pytest.mark.parametrize("choose", [0, 1, 2])
def test_generic_pointers_lead_to_their_windows(choose: int, detect: bool) -> None:
    """Threads write different cells of shared or global memory, or each its own copy."""
    out = np.full(32, 10, np.float32)
    device = EmulatedDevice(detect=detect, strict=False)
    function = device.load(ptx_of(KERNELS)).function("pointer")
    device.launch(function, 1, 32, [device.wrap(out), np.int32(choose)])
    if choose == 1:
        i = np.arange(32)
        np.testing.assert_array_equal(out, i + ((i * 7 + 1) % 32 == i))
        assert device.reports[-1].findings == ()
    elif detect:
        assert {finding.kind for finding in device.reports[-1].findings} == {"Race"}


def test_freed_memory_is_no_memory() -> None:
    device = EmulatedDevice()
    function = device.load(ptx_of(KERNELS)).function("fill")
    address = np.uint64(device.alloc(128).address)
    gc.collect()
    with pytest.raises(EmulationError, match="belongs to no buffer"):
        device.launch(function, 1, 32, [address, np.int32(32)])


@pytest.mark.parametrize(("kind", "name", "completed"), [
    (0, "BarrierAfterExit", True), (1, "BarrierDivergence", False), (2, "Trapped", False),
    (3, "StepLimit", False),
])  # fmt: skip
def test_control_flow_that_goes_wrong(kind: int, name: str, completed: bool) -> None:
    report = refused("diverge", np.zeros(3, np.float32), kind, block=64, steps=1000)
    assert name in {finding.kind for finding in report.findings}
    assert report.completed is completed


def test_module_variables_keep_their_values() -> None:
    device = EmulatedDevice()
    function = device.load(ptx_of(KERNELS)).function("module")
    out = np.zeros(33, np.float32)
    for expected in (41, 42):
        device.launch(function, 1, 32, [device.wrap(out)])
        assert out[:5].tolist() == [1.0, 2.5, -3.0, 4.0, 1.0]
        assert out[32] == expected
    another = device.load(ptx_of(KERNELS)).function("module")
    device.launch(another, 1, 32, [device.wrap(out)])
    assert out[32] == 41


def test_epochs_begin_anew_before_they_end() -> None:
    device = EmulatedDevice(strict=False)
    fill = device.load(ptx_of(KERNELS)).function("fill")
    memory = device.alloc(128, "memory")
    device.launch(fill, 1, 32, [memory, np.int32(16)])
    device._epoch = LAST_EPOCH + 1
    device.launch(fill, 1, 32, [memory, np.int32(8)])
    assert device._epoch < 100
    shift = device.load(ptx_of(KERNELS)).function("shift")
    out = device.wrap(np.zeros(32, np.float32))
    device.launch(shift, 1, 32, [memory, out, np.int32(0)])
    [finding] = [each for report in device.reports for each in report.findings]
    assert (finding.kind, finding.offset) == ("Uninitialised", 64)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads change over at nearly every instruction of Python's."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_share_a_device(hasty_threads: None) -> None:
    device = EmulatedDevice()
    fill = device.load(ptx_of(KERNELS)).function("fill")
    device.launch(fill, 1, 32, [device.alloc(128), np.int32(32)])

    def work(_: int) -> list[int]:
        held = [device.alloc(128) for _ in range(400)]
        for memory in held[::40]:
            device.launch(fill, 1, 32, [memory, np.int32(32)])
        return [memory.address for memory in held]

    with ThreadPoolExecutor(4) as pool:
        addresses = [each for made in pool.map(work, range(4)) for each in made]
    assert len(set(addresses)) == 1600


def test_a_thread_captures_for_itself() -> None:
    device = EmulatedDevice()
    fill = device.load(ptx_of(KERNELS)).function("fill")
    mine, other = np.zeros(32, np.float32), np.zeros(32, np.float32)
    memory, count = device.wrap(mine), np.int32(32)

    def elsewhere() -> None:
        device.launch(fill, 1, 32, [device.wrap(other), count])
        device.sync()

    def work() -> None:
        device.launch(fill, 1, 32, [memory, count])
        with ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere).result()

    graph = device.capture(work)
    assert (mine[31], other[31], len(graph.launches)) == (0, 31, 1)
    graph.launch()
    assert mine[31] == 31
