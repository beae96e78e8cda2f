"""CUDA kernels of every kind that the emulator must run, with launches and expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator import EmulatedDevice, LaunchReport

Array = NDArray[np.generic]

MATMUL = """
constexpr int T = 16;
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n, int depth) {
  __shared__ float tile_a[T][T];
  __shared__ float tile_b[T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
  float sum = 0;
  for (int start = 0; start < depth; start += T) {
    tile_a[y][x] = a[row * depth + start + x];
    tile_b[y][x] = b[(start + y) * n + column];
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
"""
# Blocks of 128 x 128, 8 x 8 of them in the registers of each of 256 threads.
REGISTERS = """
extern "C" __global__ void registers(const float* a, const float* b, float* c, int n, int depth) {
  __shared__ float tile_a[8][132];
  __shared__ float tile_b[8][128];
  int t = threadIdx.x, x = t % 16 * 4, y = t / 16 * 4;
  const float* from_a = a + (blockIdx.y * 128 + t / 2) * depth + t % 2 * 4;
  const float* from_b = b + t / 32 * n + blockIdx.x * 128 + t % 32 * 4;
  float sum[8][8] = {};
  for (int start = 0; start < depth; start += 8) {
    float4 p = *(const float4*)(from_a + start);
    *(float4*)&tile_b[t / 32][t % 32 * 4] = *(const float4*)(from_b + start * n);
    float parts[4] = {p.x, p.y, p.z, p.w};
    for (int i = 0; i < 4; ++i) tile_a[t % 2 * 4 + i][t / 2] = parts[i];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      float u[8], v[8];
      for (int half = 0; half < 2; ++half) {
        *(float4*)&u[4 * half] = *(const float4*)&tile_a[k][64 * half + y];
        *(float4*)&v[4 * half] = *(const float4*)&tile_b[k][64 * half + x];
      }
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) sum[i][j] += u[i] * v[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; j += 4) {
      int row = blockIdx.y * 128 + i / 4 * 64 + y + i % 4;
      *(float4*)&c[row * n + blockIdx.x * 128 + j / 4 * 64 + x] =
          make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
    }
}
"""
REDUCTION = """
__device__ float over_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  return value;
}
extern "C" __global__ void total(const float* values, float* sums, int count) {
  __shared__ float partial[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    sum += values[i];
  sum = over_warp(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = over_warp(lane < blockDim.x / 32 ? partial[lane] : 0.0f);
    if (lane == 0) sums[blockIdx.x] = sum;
  }
}
"""
TRANSPOSE = """
extern "C" __global__ void transpose(const float* in, float* out, int rows, int columns) {
  __shared__ float tile[32][32 + PAD];
  int x = blockIdx.x * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8)
    tile[j][threadIdx.x] = in[(blockIdx.y * 32 + j) * columns + x];
  __syncthreads();
  int y = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8)
    out[(blockIdx.x * 32 + j) * rows + y] = tile[threadIdx.x][j];
}
"""
SOFTMAX = """
extern "C" __global__ void softmax(const float* in, float* out, int columns) {
  extern __shared__ float scratch[];
  int t = threadIdx.x, lane = t % 32, warp = t / 32, warps = blockDim.x / 32;
  const float* row = in + (long long)blockIdx.x * columns;
  float high = -3.0e38f;
  for (int i = t; i < columns; i += blockDim.x) high = fmaxf(high, row[i]);
  for (int step = 1; step < 32; step *= 2)
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  if (lane == 0) scratch[warp] = high;
  __syncthreads();
  for (int i = 0; i < warps; ++i) high = fmaxf(high, scratch[i]);
  float sum = 0;
  for (int i = t; i < columns; i += blockDim.x) sum += expf(row[i] - high);
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  __syncthreads();
  if (lane == 0) scratch[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  for (int i = t; i < columns; i += blockDim.x)
    out[(long long)blockIdx.x * columns + i] = expf(row[i] - high) / sum;
}
"""
HISTOGRAM = """
extern "C" __global__ void histogram(const unsigned char* data, unsigned* counts, int size) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
    atomicAdd(&mine[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (mine[i] != 0) atomicAdd(&counts[i], mine[i]);
}
"""
# C = A B^T of halves: a block of 32 x 32, two warps of 16 x 32, slices of depth 16, two stages.
TENSOR_CORES = """
typedef unsigned word;
__device__ void copy_16(word to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
extern "C" __global__ void tensor_cores(const HALF* a, const HALF* b, float* c, int n, int depth) {
  __shared__ __align__(16) HALF tile_a[2][32][SPAN];
  __shared__ __align__(16) HALF tile_b[2][32][SPAN];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const HALF* rows_a = a + (long long)blockIdx.y * 32 * depth;
  const HALF* rows_b = b + (long long)blockIdx.x * 32 * depth;
  float sum[4][4] = {};
  auto fetch = [&](int stage, int start) {
    int row = t / 2, part = t % 2 * 8;
    copy_16((word)__cvta_generic_to_shared(&tile_a[stage][row][part]),
            rows_a + row * depth + start + part);
    copy_16((word)__cvta_generic_to_shared(&tile_b[stage][row][part]),
            rows_b + row * depth + start + part);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0, 0);
  #pragma unroll 1
  for (int start = 0, stage = 0; start < depth; start += 16, stage ^= 1) {
    if (start + 16 < depth) {
      fetch(stage ^ 1, start + 16);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    word x[4], y[2][4];
    word from = (word)__cvta_generic_to_shared(
        &tile_a[stage][warp * 16 + lane % 16][lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
    for (int half = 0; half < 2; ++half) {
      from = (word)__cvta_generic_to_shared(
          &tile_b[stage][half * 16 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(y[half][0]), "=r"(y[half][1]), "=r"(y[half][2]), "=r"(y[half][3])
                   : "r"(from) : "memory");
    }
    for (int j = 0; j < 4; ++j)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]),
                     "r"(y[j / 2][j % 2 * 2]), "r"(y[j / 2][j % 2 * 2 + 1]));
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < 4; ++k) {
      int row = blockIdx.y * 32 + warp * 16 + lane / 4 + k / 2 * 8;
      c[row * n + blockIdx.x * 32 + j * 8 + lane % 4 * 2 + k % 2] = sum[j][k];
    }
}
"""


@cache
def ptx_of(source: str, architecture: str = "sm_90", *options: str) -> str:
    return compile_cuda(source, architecture, "ptx", ("-lineinfo", *options)).text


@dataclass(frozen=True)
class Case:
    """A launch: inputs and outputs are made anew by `arrays`, the last of which are outputs."""

    name: str
    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arrays: Callable[[], list[Array]]
    scalars: tuple[int, ...]
    expected: Callable[[list[Array]], Array]
    shared: int = 0
    options: tuple[str, ...] = ()
    tolerance: float = 1e-5
    barriers: int = field(default=0)

    def ptx(self) -> str:
        return ptx_of(self.source, "sm_90", *self.options)


def launched(case: Case, device: EmulatedDevice, ptx: str | None = None) -> tuple[Array, Array]:
    """Runs a case; what it computed and what it should have."""
    arrays = case.arrays()
    expected = case.expected(arrays)
    memory = []
    for number, array in enumerate(arrays):
        last = number == len(arrays) - 1
        held = device.alloc(array.nbytes, f"argument {number}")
        # An output that nobody adds to begins undefined.
        if not last or case.name == "histogram":
            device.copy(held, array)
        memory.append(held)
    scalars = [np.int32(value) for value in case.scalars]
    function = device.load(ptx or case.ptx()).function(case.name)
    device.launch(function, case.grid, case.block, [*memory, *scalars], case.shared)
    device.copy(arrays[-1], memory[-1])
    return arrays[-1], expected


def report_of(case: Case, ptx: str | None = None, **options: object) -> LaunchReport:
    """What the detectors say of a case."""
    device = EmulatedDevice(strict=False, **options)  # type: ignore[arg-type]
    launched(case, device, ptx)
    return device.reports[-1]


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even; finite values."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def matmul(rows: int, columns: int, depth: int) -> Case:
    return Case(
        "matmul", MATMUL, (columns // 16, rows // 16), (16, 16),
        lambda: [_normal(rows, depth), _normal(depth, columns), np.zeros((rows, columns), "f4")],
        (columns, depth), lambda a: a[0].astype("f8") @ a[1].astype("f8"),
        tolerance=1e-4, barriers=2,
    )  # fmt: skip


def registers(size: int, depth: int) -> Case:
    small = matmul(size, size, depth)
    grid = (size // 128, size // 128)
    return replace(small, name="registers", source=REGISTERS, grid=grid, block=(256,))


def softmax(rows: int, columns: int) -> Case:
    return Case(
        "softmax", SOFTMAX, (rows,), (128,),
        lambda: [_normal(rows, columns), np.zeros((rows, columns), "f4")],
        (columns,), lambda a: _softmax(a[0]), shared=16, barriers=3,
    )  # fmt: skip


def tensor_cores(size: int, depth: int, kind: str = "bf16") -> Case:
    def halves() -> Array:
        values = _normal(size, depth)
        return to_bf16(values) if kind == "bf16" else values.astype(np.float16).view(np.uint16)

    def wide(array: Array) -> NDArray[np.float64]:
        half = from_bf16(array) if kind == "bf16" else array.view(np.float16)  # type: ignore[arg-type]
        return half.astype("f8")

    return Case(
        "tensor_cores", TENSOR_CORES.replace("KIND", kind), (size // 32, size // 32), (64,),
        lambda: [halves(), halves()[::-1].copy(), np.zeros((size, size), "f4")],
        (size, depth), lambda a: wide(a[0]) @ wide(a[1]).T,
        options=("-DHALF=unsigned short", "-DSPAN=24"), tolerance=1e-4,
        barriers=2,
    )  # fmt: skip


def transpose(size: int, pad: int = 1) -> Case:
    return Case(
        "transpose", TRANSPOSE, (size // 32, size // 32), (32, 8),
        lambda: [_normal(size, size), np.zeros((size, size), "f4")], (size, size),
        lambda a: a[0].T, options=(f"-DPAD={pad}",), tolerance=0, barriers=1,
    )  # fmt: skip


def histogram(size: int) -> Case:
    return Case(
        "histogram", HISTOGRAM, (2,), (128,),
        lambda: [np.random.default_rng(1).integers(0, 256, size, np.uint8), np.zeros(256, "u4")],
        (size,), lambda a: np.bincount(a[0], minlength=256), tolerance=0, barriers=2,
    )  # fmt: skip


def reduction(size: int) -> Case:
    def sums(a: list[Array]) -> Array:
        padded = np.zeros(-(-size // 256) * 256)
        padded[:size] = a[0]
        return padded.reshape(-1, 2, 128).sum((0, 2))

    return Case(
        "total", REDUCTION, (2,), (128,),
        lambda: [_normal(size), np.zeros(2, "f4")], (size,), sums, tolerance=1e-4, barriers=1,
    )  # fmt: skip


CASES = {
    case.name + suffix: case
    for case, suffix in (
        (matmul(32, 48, 64), ""),
        (registers(128, 24), ""),
        (reduction(1000), ""),
        (transpose(64), ""),
        (softmax(3, 300), ""),
        (histogram(3000), ""),
        (tensor_cores(64, 80), " of bf16"),
        (tensor_cores(32, 48, "f16"), " of f16"),
    )
}
