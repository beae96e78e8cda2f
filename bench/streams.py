"""Kernels that memory bounds, and rows: one thread, against NumPy's streams and torch.

    python -m bench.streams                         the table
    python -m bench.streams --json streams.json     the same figures as data

Bytes are those that the program reads and writes once, so a rate above another's is less time for
each byte. `gelu` is the tanh form. Every program is a tensor expression with the rules' schedule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

# isort: split
import bench.one_thread  # noqa: F401
from bench.compare import Roof, Row, Turns, arguments, compare, heading, stream, turns_of
from bench.harness import report

# isort: split
import numpy as np
import torch

import tensorc as tc
from tensorc.space.default import default_schedule

STREAM, SUMMED = 4 << 20, 16 << 20
SOFTMAX, LAYERNORM = (1536, 128), (512, 768)
EPSILON = 1e-5
Array = np.ndarray


def gelu_times_plus(size: int) -> tc.Func:
    x, y, z = (tc.placeholder((size,), "f32", name=name) for name in "xyz")

    def value(i: object) -> object:
        inner = 0.7978845608 * (x[i] + 0.044715 * x[i] * x[i] * x[i])
        return 0.5 * x[i] * (1.0 + tc.tanh(inner)) * y[i] + z[i]

    return tc.func_of([x, y, z], [tc.compute((size,), value, name="out")], name="gelu_mul_add")


def triad(size: int) -> tc.Func:
    x, y = (tc.placeholder((size,), "f32", name=name) for name in "xy")
    out = tc.compute((size,), lambda i: x[i] * 3.0 + y[i], name="out")
    return tc.func_of([x, y], [out], name="triad")


def total(size: int) -> tc.Func:
    x = tc.placeholder((size,), "f32", name="x")
    k = tc.reduce_axis(size, name="k")
    return tc.func_of([x], [tc.compute((), lambda: tc.sum(x[k], axis=k), name="out")], name="sum")


def softmax(rows: int, columns: int) -> tc.Func:
    x = tc.placeholder((rows, columns), "f32", name="x")
    k, m = tc.reduce_axis(columns, name="k"), tc.reduce_axis(columns, name="m")
    top = tc.compute((rows,), lambda i: tc.max(x[i, k], axis=k), name="top")
    grown = tc.compute((rows, columns), lambda i, j: tc.exp(x[i, j] - top[i]), name="grown")
    sums = tc.compute((rows,), lambda i: tc.sum(grown[i, m], axis=m), name="sums")
    out = tc.compute((rows, columns), lambda i, j: grown[i, j] / sums[i], name="out")
    return tc.func_of([x], [out], name="softmax")


def layernorm(rows: int, columns: int) -> tc.Func:
    x = tc.placeholder((rows, columns), "f32", name="x")
    scale, shift = (tc.placeholder((columns,), "f32", name=name) for name in ("scale", "shift"))
    k, m = tc.reduce_axis(columns, name="k"), tc.reduce_axis(columns, name="m")
    sums = tc.compute((rows,), lambda i: tc.sum(x[i, k], axis=k), name="sums")
    mean = tc.compute((rows,), lambda i: sums[i] / columns, name="mean")
    squares = tc.compute(
        (rows,), lambda i: tc.sum((x[i, m] - mean[i]) * (x[i, m] - mean[i]), axis=m), name="squares"
    )
    inverse = tc.compute((rows,), lambda i: tc.rsqrt(squares[i] / columns + EPSILON), name="inv")
    out = tc.compute(
        (rows, columns),
        lambda i, j: (x[i, j] - mean[i]) * inverse[i] * scale[j] + shift[j],
        name="out",
    )
    return tc.func_of([x, scale, shift], [out], name="layernorm")


def normal(*shape: int) -> Array:
    """Random numbers where torch puts its own: NumPy's arrays need not begin with a cache line."""
    return torch.randn(shape).numpy()


def kernel(
    func: tc.Func, *arrays: Array, expected: Array, tolerance: float = 1e-4
) -> Callable[[], object]:
    """The scheduled function on these arrays, the result last, once that is known to be right."""
    module = tc.build(default_schedule(func))
    arrays[-1].fill(np.nan)
    module(*arrays)
    np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=tolerance)
    return lambda: module(*arrays)


def streams(turns: Turns) -> list[Row]:
    x, y, z = (normal(STREAM) for _ in range(3))
    inner = 0.7978845608 * (x + 0.044715 * x**3)
    expected = 0.5 * x * (1 + np.tanh(inner)) * y + z
    out = normal(STREAM)
    gelu = kernel(gelu_times_plus(STREAM), x, y, z, out, expected=expected)
    plain = kernel(triad(STREAM), x, y, out, expected=x * 3 + y)

    def numpy_triad() -> None:
        np.multiply(x, 3.0, out=out)
        np.add(out, y, out=out)

    tensors = [torch.from_numpy(a) for a in (x, y, z)]

    def eager() -> torch.Tensor:
        return torch.nn.functional.gelu(tensors[0], approximate="tanh") * tensors[1] + tensors[2]

    roof = stream("triad", out, y, x)
    ours = {"default": (plain, roof)}
    rows = compare("triad 4M", 12.0 * STREAM, "GB/s", ours, {"numpy": numpy_triad}, turns)
    own = Roof("triad of ours", plain, 12.0 * STREAM)
    ours = {"default": (gelu, own)}
    rows += compare("gelu(x)*y+z 4M", 16.0 * STREAM, "GB/s", ours, {"torch": eager}, turns)
    return rows


def sums(turns: Turns) -> list[Row]:
    x = normal(SUMMED)
    expected = np.asarray(x.sum(dtype=np.float64), np.float32)
    # The sum of so many numbers around zero is small beside the sum of their sizes.
    result, tolerance = np.empty((), np.float32), 1e-6 * SUMMED
    ours = kernel(total(SUMMED), x, result, expected=expected, tolerance=tolerance)
    peers = {"numpy": x.sum, "torch": torch.from_numpy(x).sum}
    roof = stream("read", x)
    return compare("sum 16M", 4.0 * SUMMED, "GB/s", {"default": (ours, roof)}, peers, turns)


def rows_of(turns: Turns) -> list[Row]:
    a, out = normal(*SOFTMAX), normal(*SOFTMAX)
    ta = torch.from_numpy(a)
    ours = kernel(softmax(*SOFTMAX), a, out, expected=torch.softmax(ta, 1).numpy())
    roof = stream("copy", out, a)
    peers = {"torch": lambda: torch.softmax(ta, 1)}
    case = "softmax " + "x".join(map(str, SOFTMAX))
    rows = compare(case, 2.0 * a.nbytes, "GB/s", {"default": (ours, roof)}, peers, turns)
    b, out = normal(*LAYERNORM), normal(*LAYERNORM)
    scale, shift = (normal(LAYERNORM[1]) for _ in range(2))
    tensors = [torch.from_numpy(array) for array in (b, scale, shift)]

    def eager() -> torch.Tensor:
        return torch.nn.functional.layer_norm(tensors[0], LAYERNORM[1:], *tensors[1:], EPSILON)

    ours = kernel(layernorm(*LAYERNORM), b, scale, shift, out, expected=eager().numpy())
    roof = stream("copy", out, b)
    case = "layernorm " + "x".join(map(str, LAYERNORM))
    return rows + compare(
        case, 2.0 * b.nbytes, "GB/s", {"default": (ours, roof)}, {"torch": eager}, turns
    )


def main() -> int:
    options = arguments(__doc__).parse_args()
    turns = turns_of(options)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.inference_mode():
        rows = [
            *streams(turns),
            *sums(turns),
            *rows_of(turns),
        ]
    report(heading(turns), rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
