"""The kernels of the network as tensor expressions, for a fixed number of rows each.

Rows are tokens. They compute what `tensorc.tlm.model` does, up to rounding: sums over channels and
the soft maximum over keys are taken part by part.

Shapes: R rows, C channels, H heads, D channels of a head, S keys of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.ir import build as tc
from tensorc.ir.handles import Handle
from tensorc.ir.nodes import Func
from tensorc.ir.tensors import Tensor

EPSILON = 1e-5
"""What PyTorch's layer norm adds to the variance."""


def norm(rows: int, width: int) -> Func:
    """Layer norm (Ba et al., 2016) of X (R, C) with the weights `scale` and `shift`, (C,)."""
    x = tc.placeholder((rows, width), "f32", name="X")
    scale, shift = (_constant(name, width) for name in ("scale", "shift"))
    first, second = (tc.reduce_axis(width, name=name) for name in ("p", "q"))
    total = tc.compute((rows,), lambda i: tc.sum(x[i, first], axis=first), name="total")

    def off(i: Handle, j: Handle) -> Handle:
        return x[i, j] - total[i] * (1.0 / width)

    square = tc.compute(
        (rows,), lambda i: tc.sum(off(i, second) * off(i, second), axis=second), name="square"
    )

    def normed(i: Handle, j: Handle) -> Handle:
        return off(i, j) * tc.rsqrt(square[i] * (1.0 / width) + EPSILON) * scale[j] + shift[j]

    y = tc.compute((rows, width), normed, name="Y")
    return tc.func_of([x, scale, shift], [y], name="norm")


def heads(rows: int, width: int) -> Func:
    """Queries, keys and values, (3, R, C), of X (R, C): by W (3, C, C) and b (3, C)."""
    x = tc.placeholder((rows, width), "f32", name="X")
    weights, bias = _constant("W", 3, width, width), _constant("b", 3, width)
    k = tc.reduce_axis(width, name="k")
    s = tc.compute(
        (3, rows, width), lambda p, i, j: tc.sum(x[i, k] * weights[p, k, j], axis=k), name="S"
    )
    y = tc.compute((3, rows, width), lambda p, i, j: s[p, i, j] + bias[p, j], name="Y")
    return tc.func_of([x, weights, bias], [y], name="heads")


def linear(rows: int, before: int, after: int) -> Func:
    """X (R, before) by W (before, after), and b (after,) added."""
    return _linear("linear", rows, before, after, lambda x: x)


def residual(rows: int, before: int, after: int) -> Func:
    """The same, added to the residual (R, after)."""
    return _linear("residual", rows, before, after, lambda x: x, residual=True)


def gelu_tanh(rows: int, before: int, after: int) -> Func:
    """The same through GELU's approximation by tanh (Hendrycks and Gimpel, 2016)."""

    def gelu(x: Handle) -> Handle:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (tc.tanh(inner) + 1.0)

    return _linear("gelu_tanh", rows, before, after, gelu)


def gelu_erf(rows: int, before: int, after: int) -> Func:
    """The same through GELU as it is defined."""

    def gelu(x: Handle) -> Handle:
        return x * 0.5 * (tc.erf(x * math.sqrt(0.5)) + 1.0)

    return _linear("gelu_erf", rows, before, after, gelu)


def scores(rows: int, heads: int, size: int, keys: int, *, own: bool) -> Func:
    """How well queries (R, H, D) fit keys: (R, H, S).

    Keys are (H, D, S), the same for all rows, or each row's own, (R, H, D, S).
    """
    queries = tc.placeholder((rows, heads, size), "f32", name="Q")
    shape = (heads, size, keys)
    known = tc.placeholder((rows, *shape) if own else shape, "f32", name="K")
    k = tc.reduce_axis(size, name="k")

    def fit(i: Handle, h: Handle, s: Handle) -> Handle:
        key = known[i, h, k, s] if own else known[h, k, s]
        return tc.sum(queries[i, h, k] * key, axis=k)

    y = tc.compute((rows, heads, keys), fit, name="P")
    return tc.func_of([queries, known], [y], name="scores_own" if own else "scores")


def soften(rows: int, heads: int, keys: int) -> Func:
    """One part of a soft maximum (Milakov and Gimelshein, 2018).

    Given are the scores P (R, H, S) of the part, what is added to them, (R, S), which is 0 or minus
    infinity, and the greatest score and the sum of the exponentials before, (R, H) each. Made are
    the exponentials (R, H, S), the new greatest score and sum, and what all that was summed up
    before has to be multiplied by, (R, H).
    """
    fits = tc.placeholder((rows, heads, keys), "f32", name="P")
    added = tc.placeholder((rows, keys), "f32", name="added")
    most, total = (tc.placeholder((rows, heads), "f32", name=n) for n in ("most", "total"))
    first, second = (tc.reduce_axis(keys, name=name) for name in ("p", "q"))
    own = tc.compute(
        (rows, heads),
        lambda i, h: tc.max(fits[i, h, first] + added[i, first], axis=first),
        name="own",
    )
    new = tc.compute((rows, heads), lambda i, h: tc.maximum(own[i, h], most[i, h]), name="new")
    shares = tc.compute(
        (rows, heads, keys),
        lambda i, h, s: tc.exp(fits[i, h, s] + added[i, s] - new[i, h]),
        name="E",
    )
    less = tc.compute((rows, heads), lambda i, h: tc.exp(most[i, h] - new[i, h]), name="less")
    part = tc.compute(
        (rows, heads), lambda i, h: tc.sum(shares[i, h, second], axis=second), name="part"
    )
    whole = tc.compute(
        (rows, heads), lambda i, h: total[i, h] * less[i, h] + part[i, h], name="whole"
    )
    return tc.func_of([fits, added, most, total], [shares, new, whole, less], name="soften")


def mix(rows: int, heads: int, size: int, keys: int, *, own: bool) -> Func:
    """Values by the exponentials E (R, H, S), and what was summed up before by `less`: (R, H, D).

    Values are (H, S, D), the same for all rows, or each row's own, (R, H, S, D).
    """
    shares = tc.placeholder((rows, heads, keys), "f32", name="E")
    shape = (heads, keys, size)
    values = tc.placeholder((rows, *shape) if own else shape, "f32", name="V")
    less = tc.placeholder((rows, heads), "f32", name="less")
    before = tc.placeholder((rows, heads, size), "f32", name="before")
    k = tc.reduce_axis(keys, name="k")

    def mixed(i: Handle, h: Handle, d: Handle) -> Handle:
        value = values[i, h, k, d] if own else values[h, k, d]
        return tc.sum(shares[i, h, k] * value, axis=k)

    s = tc.compute((rows, heads, size), mixed, name="S")
    y = tc.compute(
        (rows, heads, size), lambda i, h, d: before[i, h, d] * less[i, h] + s[i, h, d], name="Y"
    )
    return tc.func_of([shares, values, less, before], [y], name="mix_own" if own else "mix")


def _linear(
    name: str,
    rows: int,
    before: int,
    after: int,
    activation: Callable[[Handle], Handle],
    *,
    residual: bool = False,
) -> Func:
    x = tc.placeholder((rows, before), "f32", name="X")
    weights, bias = _constant("W", before, after), _constant("b", after)
    r = tc.placeholder((rows, after), "f32", name="R")
    k = tc.reduce_axis(before, name="k")
    s = tc.compute((rows, after), lambda i, j: tc.sum(x[i, k] * weights[k, j], axis=k), name="S")

    def finished(i: Handle, j: Handle) -> Handle:
        found = activation(s[i, j] + bias[j])
        return found + r[i, j] if residual else found

    y = tc.compute((rows, after), finished, name="Y")
    return tc.func_of([x, weights, bias, *([r] if residual else [])], [y], name=name)


def _constant(name: str, *shape: int) -> Tensor:
    return tc.placeholder(shape, "f32", name=name, mode="const")
