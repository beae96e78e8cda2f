"""A 3 x 3 convolution with bias and ReLU, scheduled by the rules, compared with a plain NumPy one.

Usage: python examples/conv.py
"""

import functools

import numpy as np

import tensorc as tc
from tensorc.space.default import default_schedule

CHANNELS, FILTERS, HEIGHT, WIDTH = 16, 32, 28, 28


def convolution() -> tc.Func:
    """Y[f, y, x] = max(0, bias[f] + sum over c, r, s of X[c, y + r - 1, x + s - 1] W[f, c, r, s]).

    X is read as zero outside of its borders.
    """
    X = tc.placeholder((CHANNELS, HEIGHT, WIDTH), "f32", name="X")
    W = tc.placeholder((FILTERS, CHANNELS, 3, 3), "f32", name="W")
    bias = tc.placeholder((FILTERS,), "f32", name="bias")
    c, r, s = (tc.reduce_axis(n, name=name) for n, name in ((CHANNELS, "c"), (3, "r"), (3, "s")))

    def pad(c, y, x):
        inside = functools.reduce(tc.logical_and, (y >= 1, y < HEIGHT + 1, x >= 1, x < WIDTH + 1))
        return tc.select(inside, X[c, y - 1, x - 1], 0.0)

    P = tc.compute((CHANNELS, HEIGHT + 2, WIDTH + 2), pad, name="P")
    S = tc.compute(
        (FILTERS, HEIGHT, WIDTH),
        lambda f, y, x: tc.sum(P[c, y + r, x + s] * W[f, c, r, s], axis=(c, r, s)),
        name="S",
    )
    Y = tc.compute(
        (FILTERS, HEIGHT, WIDTH), lambda f, y, x: tc.maximum(S[f, y, x] + bias[f], 0.0), name="Y"
    )
    return tc.func_of([X, W, bias], [Y], name="convolution")


def by_numpy(x, w, bias):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    total = np.einsum("cyxrs,fcrs->fyx", windows, w)
    return np.maximum(total + bias[:, None, None], 0)


def main() -> None:
    func = convolution()
    print(func)
    s = default_schedule(func)
    print(s.trace.to_python())
    random = np.random.default_rng(0)
    x = random.standard_normal((CHANNELS, HEIGHT, WIDTH), "f4")
    w = random.standard_normal((FILTERS, CHANNELS, 3, 3), "f4")
    bias = random.standard_normal(FILTERS, "f4")
    y = tc.build(s).run(x, w, bias)
    print("largest difference from NumPy:", abs(y - by_numpy(x, w, bias)).max())


if __name__ == "__main__":
    main()
