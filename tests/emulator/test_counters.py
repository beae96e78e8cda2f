"""Counters with the figures that the published model gives for well-known access patterns."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.emulator import AccessCounters, EmulatedDevice, by_line
from tests.emulator.kernels import Case, launched, ptx_of, tensor_cores, transpose

PATTERNS = """
extern "C" __global__ void strided(const float* in, float* out, int stride) {
  out[threadIdx.x] = in[threadIdx.x * stride];
}
extern "C" __global__ void wide(const float4* in, float4* out, int stride) {
  __shared__ float4 cells[256];
  cells[threadIdx.x * stride] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = cells[threadIdx.x * stride];
}
"""


def counted(case: Case) -> tuple[AccessCounters, ...]:
    device = EmulatedDevice(counters=True)
    launched(case, device)
    return device.reports[-1].counters


def pattern(name: str, stride: int, size: int) -> dict[tuple[str, str], AccessCounters]:
    device = EmulatedDevice(counters=True)
    function = device.load(ptx_of(PATTERNS)).function(name)
    held = [device.wrap(np.zeros(size, np.float32)) for _ in range(2)]
    device.launch(function, 1, 32, [*held, np.int32(stride)])
    return {(each.space, each.kind): each for each in device.reports[-1].counters}


@pytest.mark.parametrize(("pad", "factor"), [(0, 32.0), (1, 1.0), (2, 2.0)])
def test_columns_of_a_tile_in_shared_memory(pad: int, factor: float) -> None:
    counters = {(c.space, c.kind): c for c in by_line(counted(transpose(64, pad)))}
    assert counters["shared", "read"].conflict_factor == factor
    assert counters["shared", "write"].conflict_factor == 1.0
    for kind in ("read", "write"):
        assert counters["global", kind].sectors_per_request == 4.0
        assert counters["global", kind].efficiency == 1.0
        assert counters["global", kind].requests == 64 * 64 // 32


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (100, 32)])
def test_strides_cost_sectors(stride: int, sectors: int) -> None:
    counters = pattern("strided", stride, 32 * stride)
    assert counters["global", "read"].sectors_per_request == sectors
    assert counters["global", "read"].efficiency == 4 / sectors
    assert counters["global", "write"].sectors_per_request == 4


@pytest.mark.parametrize(("stride", "factor"), [(1, 1.0), (2, 2.0), (8, 8.0)])
def test_sixteen_bytes_are_served_by_quarters_of_a_warp(stride: int, factor: float) -> None:
    counters = pattern("wide", stride, 4 * 32)
    assert counters["shared", "read"].conflict_factor == factor
    assert counters["shared", "read"].ideal == 4
    assert counters["global", "read"].sectors_per_request == 16


def test_rows_of_matrices_conflict_without_a_gap() -> None:
    """Rows of 16 halves are 32 bytes apart: eight of them share half of the banks."""
    assert {c.conflict_factor for c in counted(tensor_cores(32, 32)) if c.kind == "read"} >= {1.0}
    dense = tensor_cores(32, 32)
    options = ("-DHALF=unsigned short", "-DSPAN=16")
    packed = Case(**{**{f: getattr(dense, f) for f in dense.__dataclass_fields__},
                     "options": options})  # fmt: skip
    rows = [c for c in counted(packed) if "ldmatrix" in c.instruction]
    assert {c.conflict_factor for c in rows} == {2.0}


def test_lines_gather_their_instructions() -> None:
    parts = counted(transpose(32))
    lines = by_line(parts)
    assert sum(c.requests for c in lines) == sum(c.requests for c in parts)
    assert {c.place.source_line for c in lines} == {6, 10}
    assert "conflict factor 1.00" in "\n".join(str(line) for line in lines)


def test_logs_longer_than_their_buffer_are_counted_whole() -> None:
    """One block of 65,536 * 2 accesses and more."""
    source = """
extern "C" __global__ void many(const float* in, float* out, int rounds) {
  float sum = 0;
  for (int i = 0; i < rounds; ++i) sum += in[i];
  out[threadIdx.x] = sum;
}
"""
    device = EmulatedDevice(counters=True, detect=False)
    function = device.load(ptx_of(source)).function("many")
    data, out = np.ones(3000, np.float32), np.zeros(64, np.float32)
    device.launch(function, 1, 64, [device.wrap(data), device.wrap(out), np.int32(3000)])
    reads = [c for c in device.reports[-1].counters if c.kind == "read"]
    assert sum(c.lanes for c in reads) == 64 * 3000
    assert sum(c.sectors for c in reads) == 2 * 3000
    assert out.tolist() == [3000.0] * 64
