"""Windows over images whose channels lie in blocks: (n, c // b, h, w, c % b).

No framework has these operators; the pass `block_channels` makes them. A block of channels is a
vector that windows never step over, whatever the width of the image (Zhang, Franchetti, Low, "High
Performance Zero-Memory Overhead Direct Convolutions", 2018, section 4).
"""

from __future__ import annotations

from tensorc.graph.elements import Index, Operand, plus, reduce_axis, stage, times
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_linear import padded, per_dimension, window_extents
from tensorc.graph.ops_pooling import Ints, Windows, some
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

NAMES = ("n", "c", "h", "w", "b")


class _Geometry:
    """Where the windows of a convolution are."""

    def __init__(
        self, source: Operand, kernel: tuple[int, ...], stride: Ints, padding: Ints, dilation: Ints
    ) -> None:
        self.kernel = kernel
        self.stride, around, self.dilation = (
            per_dimension(one, 2) for one in (stride, padding, dilation)
        )
        edges = (*around, 0)
        self.source = padded(source, edges, edges, 0)
        inner = self.source.shape[2:4]
        self.extents = window_extents(inner, kernel, self.stride, self.dilation)

    def window(self) -> list[Index]:
        return [reduce_axis(k, name) for k, name in zip(self.kernel, ("rh", "rw"), strict=True)]

    def place(self, at: tuple[Handle, Handle], window: list[Index]) -> tuple[Index, ...]:
        return tuple(
            plus(times(i, step), times(r, spread))
            for i, step, r, spread in zip(at, self.stride, window, self.dilation, strict=True)
        )


def _biased(source: Operand, bias: Operand | None) -> Operand:
    if bias is None:
        return source
    return Operand(source.shape, source.dtype, lambda *i: source[i] + bias[i[1], i[4]])


@operator("blocked_convolution", kind=Kind.ANCHOR)
def blocked_convolution(
    self: Operand, weight: Operand, bias: Operand | None, stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...],
) -> Operand:  # fmt: skip
    """`self` is (n, i, h, w, b), `weight` (o, i, kh, kw, b, c), `bias` (o, c); gives
    (n, o, h', w', c)."""
    outputs, inputs, *kernel, depth, lanes = weight.shape
    found = _Geometry(self, tuple(kernel), stride, padding, dilation)

    def element(n: Handle, c: Handle, h: Handle, w: Handle, b: Handle) -> Handle:
        block, channel = reduce_axis(inputs, "rc"), reduce_axis(depth, "rb")
        window = found.window()
        value = found.source[(n, block, *found.place((h, w), window), channel)]
        factor = weight[(c, block, *window, channel, b)]
        return tc.sum(value * factor, axis=some([block, *window, channel]))

    shape = (self.shape[0], outputs, *found.extents, lanes)
    return _biased(stage("conv", shape, NAMES, element)[0], bias)


@operator("blocked_depthwise", kind=Kind.ANCHOR)
def blocked_depthwise(
    self: Operand, weight: Operand, bias: Operand | None, stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...],
) -> Operand:  # fmt: skip
    """`self` is (n, c, h, w, b), `weight` (c, kh, kw, b), `bias` (c, b); so is what it gives."""
    blocks, *kernel, lanes = weight.shape
    found = _Geometry(self, tuple(kernel), stride, padding, dilation)

    def element(n: Handle, c: Handle, h: Handle, w: Handle, b: Handle) -> Handle:
        window = found.window()
        value = found.source[(n, c, *found.place((h, w), window), b)]
        return tc.sum(value * weight[(c, *window, b)], axis=some(window))

    shape = (self.shape[0], blocks, *found.extents, lanes)
    return _biased(stage("conv", shape, NAMES, element)[0], bias)


@operator("blocked_max_pool", kind=Kind.ANCHOR)
def blocked_max_pool(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Operand:  # fmt: skip
    """The values of `max_pool2d_with_indices` of (n, c, h, w, b)."""
    windows = Windows(2, self.shape[2:4], kernel_size, stride, padding, dilation, ceil_mode)
    least: int | float = self.dtype.min
    around = padded(self, (*windows.padding, 0), (*windows.margin, 0), least)

    def greatest(n: Handle, c: Handle, h: Handle, w: Handle, b: Handle) -> Handle:
        window = windows.axes()
        return tc.max(around[(n, c, *windows.place((h, w), window), b)], axis=some(window))

    shape = (*self.shape[:2], *windows.extents, self.shape[4])
    return stage("pool", shape, NAMES, greatest)[0]
