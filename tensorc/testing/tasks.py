"""Random tasks: small programs of the families that networks are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tensorc.ir import build as tc
from tensorc.ir.build import Handle, Tensor
from tensorc.ir.nodes import Func
from tensorc.testing.draw import Drawn, Source

EXTENTS = (4, 8, 3, 1, 16, 5, 7, 12, 13, 17, 24, 33)


def _extent(source: Source, most: int = 33) -> int:
    return source.pick([n for n in EXTENTS if n <= most])


def _stage(name: str, shape: tuple[Any, ...], element: Callable[..., Handle]) -> Tensor:
    return tc.compute(shape, element, name=name)


def _axes(*extents: int) -> list[Any]:
    return [tc.reduce_axis(n, name=f"r{place}") for place, n in enumerate(extents)]


def _finished(source: Source, name: str, inputs: list[Tensor], sums: Tensor, rank: int) -> Func:
    """The sums as they are, or with an addition and a ReLU behind them, or read transposed."""
    match source.pick(("plain", "relu", "residual", "transposed")):
        case "relu":
            out = _stage("Y", sums.shape, lambda *p: tc.maximum(sums[p], 0.0))
        case "residual":
            other = tc.placeholder(sums.shape, "f32", name="R")
            inputs = [*inputs, other]
            out = _stage("Y", sums.shape, lambda *p: sums[p] + other[p])
        case "transposed" if rank > 1:
            shape = (*sums.shape[:-2], sums.shape[-1], sums.shape[-2])
            out = _stage("Y", shape, lambda *p: sums[(*p[:-2], p[-1], p[-2])])
        case _:
            out = sums
    return tc.func_of(inputs, [out], name=name)


def product(source: Source) -> Func:
    """A matrix product, some with batches, a transposed operand, weights."""
    batch = source.pick((1, 1, 2, 3))
    m, n, k = (_extent(source) for _ in range(3))
    across, fixed = source.chance(30), batch == 1 and source.chance(50)
    a = tc.placeholder((batch, m, k), "f32", name="A")
    b = tc.placeholder(
        (batch, n, k) if across else (batch, k, n), "f32", name="B", mode="const" if fixed else "in"
    )
    (r,) = _axes(k)
    sums = _stage(
        "C",
        (batch, m, n),
        lambda g, i, j: tc.sum(a[g, i, r] * (b[g, j, r] if across else b[g, r, j]), axis=r),
    )
    return _finished(source, "product", [a, b], sums, 3)


def _padded(data: Tensor, size: int, pad: int) -> Tensor:
    if not pad:
        return data

    def inside(place: Any) -> Any:
        return tc.logical_and(place >= pad, place < size + pad)

    shape = (*data.shape[:2], size + 2 * pad, size + 2 * pad)
    return _stage(
        "P",
        shape,
        lambda n, c, y, x: tc.select(
            tc.logical_and(inside(y), inside(x)), data[n, c, y - pad, x - pad], 0.0
        ),
    )


def _window(source: Source) -> tuple[int, int, int, int, int]:
    """Taps, step, padding, size of the data and of the result."""
    taps, step = source.pick((3, 1, 2, 5)), source.pick((1, 2))
    pad = source.pick((0, taps // 2))
    size = source.pick((5, 7, 8, 12, 17))
    return taps, step, pad, size, (size + 2 * pad - taps) // step + 1


def convolution(source: Source) -> Func:
    """A convolution of NCHW data, some grouped."""
    groups = source.pick((1, 1, 2))
    channels, filters = (groups * _extent(source, 8) for _ in range(2))
    taps, step, pad, size, out = _window(source)
    own, made = channels // groups, filters // groups
    data = tc.placeholder((1, channels, size, size), "f32", name="X")
    weight = tc.placeholder((filters, own, taps, taps), "f32", name="W", mode="const")
    padded = _padded(data, size, pad)
    c, r, s = _axes(own, taps, taps)

    def term(n: Any, k: Any, y: Any, x: Any) -> Any:
        first = k // made * own + c if groups > 1 else c
        return padded[n, first, y * step + r, x * step + s] * weight[k, c, r, s]

    sums = _stage("C", (1, filters, out, out), lambda *p: tc.sum(term(*p), axis=[c, r, s]))
    return _finished(source, "convolution", [data, weight], sums, 4)


def window(source: Source) -> Func:
    """A depthwise convolution or the largest of a window."""
    channels = _extent(source, 8)
    taps, step, pad, size, out = _window(source)
    data = tc.placeholder((1, channels, size, size), "f32", name="X")
    weight = tc.placeholder((channels, taps, taps), "f32", name="W", mode="const")
    r, s = _axes(taps, taps)
    shape = (1, channels, out, out)
    if source.chance(50):
        padded = _padded(data, size, pad)
        sums = _stage(
            "C",
            shape,
            lambda n, c, y, x: tc.sum(
                padded[n, c, y * step + r, x * step + s] * weight[c, r, s], axis=[r, s]
            ),
        )
        return _finished(source, "depthwise", [data, weight], sums, 4)
    small = (size - taps) // step + 1
    top = _stage(
        "M",
        (1, channels, small, small),
        lambda n, c, y, x: tc.max(data[n, c, y * step + r, x * step + s], axis=[r, s]),
    )
    return tc.func_of([data], [top], name="pool")


def reduction(source: Source) -> Func:
    """A sum or the largest along rows, columns or both."""
    m, n = _extent(source), source.pick((8, 40, 5, 70, 300))
    x = tc.placeholder((m, n), "f32", name="X")
    reduce = source.pick((tc.sum, tc.max))
    match source.pick(("rows", "columns", "both")):
        case "rows":
            (r,) = _axes(n)
            out = _stage("S", (m,), lambda i: reduce(x[i, r], axis=r))
        case "columns":
            (r,) = _axes(m)
            out = _stage("S", (n,), lambda j: reduce(x[r, j], axis=r))
        case _:
            q, r = _axes(m, n)
            out = _stage("S", (), lambda: reduce(x[q, r], axis=[q, r]))
    return tc.func_of([x], [out], name="reduction")


def softmax(source: Source) -> Func:
    m, n = _extent(source), source.pick((8, 40, 5, 70))
    x = tc.placeholder((m, n), "f32", name="X")
    r, s = _axes(n, n)
    top = _stage("M", (m,), lambda i: tc.max(x[i, r], axis=r))
    grown = _stage("G", (m, n), lambda i, j: tc.exp(x[i, j] - top[i]))
    total = _stage("S", (m,), lambda i: tc.sum(grown[i, s], axis=s))
    out = _stage("Y", (m, n), lambda i, j: grown[i, j] / total[i])
    return tc.func_of([x], [out], name="softmax")


def norm(source: Source) -> Func:
    m, n = _extent(source), source.pick((8, 40, 5, 70))
    x = tc.placeholder((m, n), "f32", name="X")
    scale = tc.placeholder((n,), "f32", name="W", mode="const")
    r, s = _axes(n, n)
    sums = _stage("S", (m,), lambda i: tc.sum(x[i, r], axis=r))
    mean = _stage("A", (m,), lambda i: sums[i] / float(n))

    def square(i: Any) -> Any:
        return (x[i, s] - mean[i]) * (x[i, s] - mean[i])

    squares = _stage("V", (m,), lambda i: tc.sum(square(i), axis=s))
    out = _stage(
        "Y",
        (m, n),
        lambda i, j: (x[i, j] - mean[i]) * tc.rsqrt(squares[i] / float(n) + 1e-5) * scale[j],
    )
    return tc.func_of([x, scale], [out], name="norm")


def pointwise(source: Source) -> Func:
    """Maps one after the other; some are read more than once, transposed or along a row."""
    m, n = _extent(source), _extent(source)
    a = tc.placeholder((m, n), "f32", name="A")
    b = tc.placeholder((n, m) if (across := source.chance(30)) else (m, n), "f32", name="B")
    row = tc.placeholder((n,), "f32", name="V", mode="const")
    first = source.pick((tc.tanh, lambda v: v * 2.0, tc.sigmoid))
    t = _stage("T", (m, n), lambda i, j: first(a[i, j]))
    u = _stage("U", (m, n), lambda i, j: t[i, j] * row[j] + t[i, j])
    out = _stage("Y", (m, n), lambda i, j: u[i, j] + (b[j, i] if across else b[i, j]))
    return tc.func_of([a, b, row], [out], name="pointwise")


FAMILIES: Mapping[str, Callable[[Source], Func]] = {
    "pointwise": pointwise,
    "product": product,
    "reduction": reduction,
    "convolution": convolution,
    "window": window,
    "softmax": softmax,
    "norm": norm,
}
"""Name -> a random task of the family, the simplest one first."""


def make_task(source: Source, family: str | None = None) -> Func:
    """A random task, from decisions of `source`; `tasks` describes it."""
    return FAMILIES[source.pick(tuple(FAMILIES)) if family is None else family](source)


@st.composite
def tasks(draw: st.DrawFn, *, family: str | None = None) -> Func:
    """Tasks that CPU templates take: products, convolutions, windows, reductions, norms, maps.

    All are of 32-bit floats and constant extents; many extents are prime, some are 1.

    Args:
        draw: given by Hypothesis.
        family: a name of `FAMILIES`; drawn when not given.
    """
    return make_task(Drawn(draw), family)
