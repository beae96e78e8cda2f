"""CUDA C++ as people write it: the library's functions, calls, arrays, switches, structures."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tensorc.emulator import EmulatedDevice, EmulationError, UnsupportedInstructionError
from tests.emulator.kernels import ptx_of
from tests.emulator.single import Array

# NVRTC's own code of these runs: polynomials, tables, local arrays, calls, 64-bit integers.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "sinf(x * 1000.0f)": lambda x: np.sin((x * np.float32(1000)).astype("f8")),
    "cosf(x * 3e5f)": lambda x: np.cos((x * np.float32(3e5)).astype("f8")),
    "expf(x)": np.exp, "logf(fabsf(x))": lambda x: np.log(abs(x)), "tanhf(x)": np.tanh,
    "powf(fabsf(x), 1.7f)": lambda x: abs(x) ** 1.7, "erff(x)": np.vectorize(math.erf),
    "cbrtf(x)": np.cbrt, "atan2f(x, 2.0f)": lambda x: np.arctan2(x, 2),
    "fmodf(x * 64.0f, 3.0f)": lambda x: np.fmod(x * 64, 3), "rsqrtf(x * x)": lambda x: 1 / abs(x),
    "floorf(x) + ceilf(x) + truncf(x) + rintf(x)":
        lambda x: np.floor(x) + np.ceil(x) + np.trunc(x) + np.rint(x),
    "(float)sin((double)x * 1e6)": lambda x: np.sin(x * 1e6),
    "(float)pow((double)fabsf(x), 0.3)": lambda x: abs(x) ** 0.3,
    "(float)((double)x / 3.5 + sqrt((double)fabsf(x)))": lambda x: x / 3.5 + np.sqrt(abs(x)),
    "(float)((long long)(x * 1048576.0f) / 12345LL % 1000LL)":
        lambda x: np.fmod(np.trunc(np.trunc(x * 2**20) / 12345), 1000),
    "(float)(isnan(x) ? 1 : signbit(x) ? 3 : 4)": lambda x: np.where(np.signbit(x), 3, 4),
}  # fmt: skip
MATHS = "\n".join(
    f'extern "C" __global__ void f{number}(const float* in, float* out) '
    f"{{ float x = in[threadIdx.x]; out[threadIdx.x] = {text}; }}"
    for number, text in enumerate(FUNCTIONS)
)
LANGUAGE = """
struct Table { float factor[6]; int count; };
__device__ __noinline__ float sum_of(const float* from, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += from[i];
  return sum;
}
__device__ __noinline__ float over_block(float value) {
  __shared__ float cells[64];
  __syncthreads();
  cells[threadIdx.x] = value;
  __syncthreads();
  return sum_of(cells, 64);
}
__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) ^ fibonacci(n - 2);
}
extern "C" __global__ void calls(const float* in, float* out) {
  float x = in[threadIdx.x];
  if (threadIdx.x > 5) x += sum_of(in, threadIdx.x);
  out[threadIdx.x] = over_block(x) + over_block(1.0f);
}
extern "C" __global__ void recursive(const float* in, float* out) {
  out[threadIdx.x] = fibonacci((int)in[threadIdx.x]);
}
extern "C" __global__ void cases(const float* in, float* out) {
  float x = in[threadIdx.x];
  switch (threadIdx.x % 7) {
    case 0: x += 1; break;
    case 1: x *= 2; break;
    case 2: x = -x; break;
    case 3: x = x * x; break;
    case 4: x = 3; break;
    case 5: x -= 5; break;
    default: x = 0;
  }
  out[threadIdx.x] = x;
}
extern "C" __global__ void arrays(const float* in, float* out) {
  float mine[40], sum = 0;
  for (int i = 0; i < 40; ++i) mine[i] = in[(threadIdx.x + i) % 64];
  __syncthreads();
  for (int i = 0; i < 40; ++i) sum += mine[(i * threadIdx.x) % 40];
  out[threadIdx.x] = sum;
}
extern "C" __global__ void structure(const float* in, float* out, Table table) {
  out[threadIdx.x] = in[threadIdx.x] * table.factor[threadIdx.x % table.count];
}
extern "C" __global__ void counts(const float* in, float* out) {
  int c = __syncthreads_count(in[threadIdx.x] > 0), a = __syncthreads_and(in[threadIdx.x] > -100);
  out[threadIdx.x] = c + 100 * a + 1000 * __syncthreads_or(in[threadIdx.x] > 100);
}
extern "C" __global__ void atomics(const float* in, float* out) {
  __shared__ int most, least;
  __shared__ unsigned long long count;
  __shared__ float sum;
  if (threadIdx.x == 0) { most = -1000; least = 1000; count = 0; sum = 0; }
  __syncthreads();
  int value = (int)(in[threadIdx.x] * 16);
  atomicMax(&most, value);
  atomicMin(&least, value);
  atomicAdd(&count, 3ULL);
  atomicAdd(&sum, 0.5f);
  __syncthreads();
  out[threadIdx.x] = most * 1e6f + least * 1e3f + count + sum;
}
extern "C" __global__ void prints(const float* in, float* out) {
  if (in[0] > 1e30f) printf("%f", in[0]);
  out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void asserts(const float* in, float* out) {
  if (in[threadIdx.x] > 1e30f) __trap();
  out[threadIdx.x] = in[threadIdx.x];
}
"""
IN = np.random.default_rng(0).integers(-400, 400, 64).astype(np.float32) / 64 + np.float32(1 / 128)


def run(source: str, name: str, *more: np.generic, data: Array = IN) -> Array:
    out = np.zeros(64, np.float32)
    device = EmulatedDevice()
    function = device.load(ptx_of(source)).function(name)
    device.launch(function, 1, 64, [device.wrap(data), device.wrap(out), *more])
    return out


@pytest.mark.parametrize(("number", "text"), list(enumerate(FUNCTIONS)), ids=list(FUNCTIONS))
def test_functions_of_the_library(number: int, text: str) -> None:
    expected = FUNCTIONS[text](IN.astype("f8"))
    if text.startswith(("sinf", "cosf")):
        expected = FUNCTIONS[text](IN)
    np.testing.assert_allclose(run(MATHS, f"f{number}"), expected, rtol=1e-6, atol=1e-6)


def test_functions_are_called() -> None:
    x = IN.astype("f8")
    values = x + np.where(np.arange(64) > 5, np.r_[0, np.cumsum(x)[:-1]], 0)
    np.testing.assert_allclose(run(LANGUAGE, "calls"), values.sum() + 64, rtol=1e-5)


def test_recursion_is_refused() -> None:
    with pytest.raises(UnsupportedInstructionError, match="calls itself"):
        run(LANGUAGE, "recursive")


def test_switches() -> None:
    cases = [lambda x: x + 1, lambda x: 2 * x, lambda x: -x, lambda x: x * x, lambda x: 3,
             lambda x: x - 5, lambda x: 0]  # fmt: skip
    expected = np.array([cases[i % 7](x) for i, x in enumerate(IN)], np.float32)
    np.testing.assert_array_equal(run(LANGUAGE, "cases"), expected)


def test_local_arrays_live_across_barriers() -> None:
    i, t = np.arange(40), np.arange(64)[:, None]
    expected = IN[(t + i * t % 40) % 64].astype("f8").sum(1)
    np.testing.assert_allclose(run(LANGUAGE, "arrays"), expected, rtol=1e-5)


def test_structures_are_passed_by_value() -> None:
    table = np.zeros((), [("factor", "f4", 6), ("count", "i4")])
    table["factor"], table["count"] = np.arange(6), 5
    expected = IN * (np.arange(64) % 5)
    np.testing.assert_array_equal(run(LANGUAGE, "structure", table[()]), expected)


def test_barriers_that_count() -> None:
    expected = (IN > 0).sum() + 100 * (IN > -100).all() + 1000 * (IN > 100).any()
    assert run(LANGUAGE, "counts").tolist() == [float(expected)] * 64


def test_atomics_of_every_width() -> None:
    values = np.trunc(IN * 16)
    expected = np.float32(values.max() * 1e6 + values.min() * 1e3 + 3 * 64 + 32)
    assert run(LANGUAGE, "atomics").tolist() == [pytest.approx(expected, rel=1e-6)] * 64


def test_what_is_printed_is_not_seen() -> None:
    np.testing.assert_array_equal(run(LANGUAGE, "prints"), IN)
    np.testing.assert_array_equal(run(LANGUAGE, "asserts"), IN)
    huge = IN.copy()
    huge[17] = 2e30
    with pytest.raises(EmulationError, match=r"Trapped: the kernel gave up: thread \(17, 0, 0\)"):
        run(LANGUAGE, "asserts", data=huge)
