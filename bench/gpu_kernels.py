"""The golden kernels of `bench.gpu`: their programs, in two sizes, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorc as tc
from bench import gpu_schedules as steps
from bench.gpu_attention import attention, attention_program
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.space.default import default_schedule
from tests.codegen.cuda import golden_products
from tests.codegen.cuda.products import program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Golden:
    """A program by its sizes; `small` is for the emulator and `large` for a device.

    `reference` takes the inputs in order and gives the output; `torch` is an expression in x, the
    inputs as tensors on the device, that computes the same, and `flops` counts its operations.
    `schedule` takes the program and a target; by default, the rules do. `tolerance` is the largest
    error that is right, relative to the largest result.
    """

    make: Callable[..., Func]
    small: tuple[int, ...]
    large: tuple[int, ...]
    reference: Callable[..., Array]
    torch: str
    flops: Callable[..., int] = lambda *sizes: int(np.prod(sizes))
    schedule: Callable[[Func, str], Schedule] = default_schedule
    tolerance: float = 1e-4


def matmul(kind: str) -> Callable[..., Func]:
    """A product of matrices of this element type, summed up in f32."""
    return lambda m, n, depth: parse(program(kind, m, n, depth))


def as_written(name: str) -> Callable[[Func, str], Schedule]:
    """The steps of a golden kernel of the tests, for a program of its form."""

    def schedule(func: Func, target: str) -> Schedule:
        buffers = [p.value for p in func.params if isinstance(p.value, Buffer)]
        first, last = ([constant(e) or 0 for e in b.shape] for b in (buffers[0], buffers[-1]))
        rows, depth = first
        sizes = (rows, depth, 0) if name == "transpose" else (rows, last[1], depth)
        return golden_products.GOLDEN[name].schedule(*sizes, target)

    return schedule


def conv2d(channels: int, filters: int, side: int) -> Func:
    X, W = _input("X", channels, side + 2, side + 2), _input("W", filters, channels, 3, 3)
    c, y, x = (tc.reduce_axis(n, name=a) for a, n in (("c", channels), ("y", 3), ("x", 3)))
    Y = tc.compute(
        (filters, side, side),
        lambda f, h, w: tc.sum(X[c, h + y, w + x] * W[f, c, y, x], axis=(c, y, x)),
        name="Y",
    )
    return tc.func_of([X, W], [Y], name="conv2d")


def depthwise(channels: int, side: int) -> Func:
    X, W = _input("X", channels, side + 2, side + 2), _input("W", channels, 3, 3)
    y, x = tc.reduce_axis(3, name="y"), tc.reduce_axis(3, name="x")
    Y = tc.compute(
        (channels, side, side),
        lambda c, h, w: tc.sum(X[c, h + y, w + x] * W[c, y, x], axis=(y, x)),
        name="Y",
    )
    return tc.func_of([X, W], [Y], name="depthwise")


def reduction(rows: int, columns: int) -> Func:
    A, k = _input("A", rows, columns), tc.reduce_axis(columns, name="k")
    B = tc.compute((rows,), lambda i: tc.sum(A[i, k], axis=k), name="B")
    return tc.func_of([A], [B], name="reduction")


def transpose(rows: int, columns: int) -> Func:
    return parse(golden_products.TRANSPOSE.format(m=rows, n=columns))


def elementwise(rows: int, columns: int) -> Func:
    A, C = _input("A", rows, columns), _input("C", rows, columns)
    B = tc.compute((rows, columns), lambda i, j: tc.maximum(A[i, j] + C[i, j], 0.0), name="B")
    return tc.func_of([A, C], [B], name="elementwise")


def _input(name: str, *shape: int) -> Any:
    return tc.placeholder(shape, "f32", name=name)


def _windows(x: Array, w: Array) -> Array:
    side = x.shape[-1] - 2
    views = [x[:, a : a + side, b : b + side] for a in range(3) for b in range(3)]
    return np.einsum("achw,fca->fhw", np.stack(views), w.reshape(*w.shape[:2], 9))


def _each_window(x: Array, w: Array) -> Array:
    side = x.shape[-1] - 2
    parts = [x[:, a : a + side, b : b + side] * w[:, a, b][:, None, None]
             for a in range(3) for b in range(3)]  # fmt: skip
    return np.sum(parts, axis=0)


def _of_pixels(x: Array, w: Array) -> Array:
    high, wide = x.shape[1] - 2, x.shape[2] - 2
    return np.asarray(sum(x[:, a : a + high, b : b + wide] @ w[a, b]
                          for a in range(3) for b in range(3)))  # fmt: skip


def _softmax(a: Array) -> Array:
    e = np.exp(a - a.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _layer_norm(a: Array, g: Array) -> Array:
    d = a - a.mean(1, keepdims=True)
    return np.asarray(d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g)


def _attention(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(_softmax(q @ k.T / np.sqrt(q.shape[1])) @ v)


CASES: Mapping[str, Golden] = {
    "matmul f32": Golden(
        matmul("f32"), (128, 128, 24), (4096, 4096, 4096), np.matmul, "x[0] @ x[1]",
        lambda m, n, k: 2 * m * n * k, as_written("matmul f32"),
    ),
    "matmul bf16": Golden(
        matmul("bf16"), (128, 128, 128), (4096, 4096, 4096), np.matmul, "x[0] @ x[1]",
        lambda m, n, k: 2 * m * n * k, as_written("matmul bf16"),
    ),
    "conv2d": Golden(
        conv2d, (8, 16, 8), (64, 64, 56), _windows,
        "torch.nn.functional.conv2d(x[0][None], x[1])[0]",
        lambda c, f, s: 18 * c * f * s * s,
    ),
    "depthwise": Golden(
        depthwise, (4, 16), (512, 56), _each_window,
        "torch.nn.functional.conv2d(x[0][None], x[1][:, None], groups=x[0].shape[0])[0]",
        lambda c, s: 18 * c * s * s,
    ),
    "conv2d of pixels": Golden(
        steps.conv2d_program, (1, 8, 128, 8, 16), (16, 128, 128, 64, 64), _of_pixels,
        "torch.nn.functional.conv2d(x[0].movedim(3, 1), x[1].movedim((3, 2), (0, 1)))"
        ".movedim(1, 3)",
        lambda n, c, f, h, w: 18 * n * c * f * h * w, steps.conv2d,
    ),
    "attention": Golden(
        attention_program, (64, 256), (4096, 256), _attention,
        "torch.nn.functional.scaled_dot_product_attention(*(t[None, None] for t in x))[0, 0]",
        lambda m, n: 4 * 64 * m * n, attention, tolerance=2e-3,
    ),
    "softmax": Golden(
        steps.softmax_program, (2, 2048), (8192, 4096), _softmax, "torch.softmax(x[0], 1)",
        schedule=steps.rows_in_registers,
    ),
    "layer norm": Golden(
        steps.layer_norm_program, (2, 2048), (8192, 4096), _layer_norm,
        "torch.nn.functional.layer_norm(x[0], x[1].shape, x[1])",
        schedule=steps.rows_in_registers,
    ),
    "total": Golden(
        steps.total_program, (128, 1024), (8192, 8192), lambda a: a.sum().reshape(1),
        "x[0].sum().reshape(1)", schedule=steps.total,
    ),
    "reduction": Golden(
        reduction, (6, 300), (8192, 8192), lambda a: a.sum(1), "x[0].sum(1)"
    ),
    "transpose": Golden(
        transpose, (96, 64), (8192, 8192), lambda a: a.T * 1, "x[0].T.contiguous()",
        schedule=as_written("transpose"),
    ),
    "elementwise": Golden(
        elementwise, (8, 96), (8192, 8192), lambda a, c: np.maximum(a + c, 0),
        "torch.relu(x[0] + x[1])",
    ),
}  # fmt: skip
