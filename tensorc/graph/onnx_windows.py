"""The geometry of ONNX's windows: of convolutions and pools, with their ways to give pads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorc.graph.elements import Number, RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call


@dataclass(frozen=True, slots=True)
class Window:
    """Windows over the last dimensions: of `extents`, with `low` and `high` padding around.

    `high` is what the last window reaches, so that no rounding is left to do; `declared` is the
    padding after each dimension that the model gives.
    """

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    declared: tuple[int, ...]

    @classmethod
    def of(cls, call: Call, extents: Sequence[int], kernel: Sequence[int]) -> Window:
        """The windows of a node's attributes. Raises RefusedError: there are none."""
        attributes, rank = call.attributes, len(extents)
        stride = tuple(attributes.get("strides", (1,) * rank))
        dilation = tuple(attributes.get("dilations", (1,) * rank))
        pads = tuple(attributes.get("pads", (0,) * (2 * rank)))
        if not len(kernel) == len(stride) == len(dilation) == len(pads) // 2 == rank:
            raise RefusedError(f"windows of {len(kernel)} dimensions over {rank}")
        if min(*kernel, *stride, *dilation) < 1 or min(pads) < 0:
            raise RefusedError("a size, stride, dilation or pad that is too small")
        low, declared = _pads(attributes, extents, stride, dilation, kernel)
        high, kernel = list(declared), list(kernel)
        for d in range(rank):
            span, whole = dilation[d] * (kernel[d] - 1) + 1, extents[d] + low[d] + declared[d]
            count, rest = divmod(whole - span, stride[d])
            if attributes.get("ceil_mode") and rest:
                # The last window has to begin in the input or before it.
                count += int((count + 1) * stride[d] < extents[d] + low[d])
                high[d] = max(declared[d], count * stride[d] + span - extents[d] - low[d])
            if count < 0:
                raise RefusedError(f"windows of {span} elements in {whole}")
            if count == 0 and dilation[d] == 1 and span > whole:
                # One window, of which only what is there counts.
                kernel[d], high[d] = whole, declared[d]
        return cls(
            tuple(extents), tuple(kernel), stride, dilation, tuple(low), tuple(high),
            tuple(declared),
        )  # fmt: skip

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each dimension."""
        return tuple(
            (n + a + b - d * (k - 1) - 1) // s + 1
            for n, a, b, d, k, s in zip(
                self.extents, self.low, self.high, self.dilation, self.kernel, self.stride,
                strict=True,
            )
        )  # fmt: skip

    def padded(self, emit: Emit, source: Value, border: Number) -> tuple[Value, tuple[int, ...]]:
        """The source and the padding that is left to do on both sides of each dimension."""
        if self.low == self.high:
            return source, self.low
        pairs = zip(reversed(self.low), reversed(self.high), strict=True)
        pad = tuple(p for pair in pairs for p in pair)
        source = emit("constant_pad_nd", self=source, pad=pad, value=border)
        return source, (0,) * len(self.low)


def check_lists(call: Call, rank: int) -> None:
    """Raises RefusedError for an attribute of windows over `rank` dimensions that is too long, too
    short, or has a number that is too small."""
    for name, count, least in (
        ("kernel_shape", rank, 1), ("strides", rank, 1), ("dilations", rank, 1),
        ("output_padding", rank, 0), ("pads", 2 * rank, None),
    ):  # fmt: skip
        given = call.attributes.get(name)
        if given is None:
            continue
        if len(given) != count or (least is not None and min(given) < least):
            raise RefusedError(f"{name}={list(given)} for windows over {rank} dimensions")


def _pads(
    attributes: Mapping[str, Any],
    extents: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
) -> tuple[list[int], list[int]]:
    """The padding before and after each dimension."""
    rank = len(extents)
    automatic = attributes.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        return _same(extents, stride, spans, automatic == "SAME_UPPER")
    if automatic == "VALID":
        return [0] * rank, [0] * rank
    pads = list(attributes.get("pads", (0,) * (2 * rank)))
    return pads[:rank], pads[rank:]


def _same(
    extents: Sequence[int], stride: Sequence[int], spans: Sequence[int], upper: bool
) -> tuple[list[int], list[int]]:
    """Pads for as many windows as strides fit in; the odd one comes after, or before."""
    low, high = [], []
    for extent, step, span in zip(extents, stride, spans, strict=True):
        total = max(0, (-(-extent // step) - 1) * step + span - extent)
        low.append(total // 2 if upper else total - total // 2)
        high.append(total - low[-1])
    return low, high
