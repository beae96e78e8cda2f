"""Composites that move windows: convolutions, pools and padding."""

from __future__ import annotations

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Value
from tensorc.graph.ops_linear import per_dimension
from tensorc.graph.torch_registry import Arguments, composite


@composite("conv1d.default", "conv2d.default", "conv3d.default")
def convolution(
    emit: Emit, self: Value, weight: Value, bias: Value | None = None, stride: Argument = (1,),
    padding: Argument = (0,), dilation: Argument = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    return _with_batch(
        emit, self, len(weight.shape), weight=weight, bias=bias, stride=stride, padding=padding,
        dilation=dilation, transposed=False, output_padding=(0,), groups=groups,
    )  # fmt: skip


@composite("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def transposed_convolution(
    emit: Emit, self: Value, weight: Value, bias: Value | None = None, stride: Argument = (1,),
    padding: Argument = (0,), output_padding: Argument = (0,), groups: int = 1,
    dilation: Argument = (1,),
) -> Value:  # fmt: skip
    return _with_batch(
        emit, self, len(weight.shape), weight=weight, bias=bias, stride=stride, padding=padding,
        dilation=dilation, transposed=True, output_padding=output_padding, groups=groups,
    )  # fmt: skip


def _with_batch(emit: Emit, source: Value, rank: int, **arguments: Argument) -> Value:
    """A convolution of an input whose batch may be left out."""
    if len(source.shape) == rank:
        return emit("convolution", self=source, **arguments)
    single = emit("unsqueeze", self=source, dim=0)
    return emit("squeeze", self=emit("convolution", self=single, **arguments), dim=0)


@composite("conv1d.padding", "conv2d.padding", "conv3d.padding")
def padded_convolution(
    emit: Emit, self: Value, weight: Value, bias: Value | None = None, stride: Argument = (1,),
    padding: str = "valid", dilation: tuple[int, ...] = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    """`same` keeps the extents: where the padding is odd, there is one more behind."""
    rank = len(weight.shape) - 2
    around: tuple[int, ...] = (0,)
    if padding == "same":
        spread = per_dimension(dilation, rank)
        totals = [d * (k - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
        around = tuple(total // 2 for total in totals)
        if any(total % 2 for total in totals):
            extra = tuple(side for total in reversed(totals) for side in (0, total % 2))
            self = emit("constant_pad_nd", self=self, pad=extra)
    elif padding != "valid":
        raise RefusedError(f"padding={padding!r}")
    return _with_batch(
        emit, self, len(weight.shape), weight=weight, bias=bias, stride=stride, padding=around,
        dilation=dilation, transposed=False, output_padding=(0,), groups=groups,
    )  # fmt: skip


@composite("max_pool2d.default")
def max_pool2d(emit: Emit, **arguments: Argument) -> Value:
    return emit("max_pool2d_with_indices", **arguments)


@composite("max_pool3d.default")
def max_pool3d(emit: Emit, **arguments: Argument) -> Value:
    return emit("max_pool3d_with_indices", **arguments)


@composite("max_pool1d.default")
def max_pool1d(
    emit: Emit, self: Value, kernel_size: tuple[int, ...], stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,), dilation: tuple[int, ...] = (1,), ceil_mode: bool = False,
) -> Value:  # fmt: skip
    """A pool of images of one row."""
    pooled = emit(
        "max_pool2d_with_indices", self=emit("unsqueeze", self=self, dim=-2),
        kernel_size=(1, *kernel_size), stride=(1, *stride) if stride else (),
        padding=(0, *padding), dilation=(1, *dilation), ceil_mode=ceil_mode,
    )  # fmt: skip
    return emit("squeeze", self=pooled, dim=-2)


@composite(
    "adaptive_avg_pool2d.default", covers=lambda given: None not in tuple(given["output_size"])
)
def adaptive_avg_pool2d(emit: Emit, self: Value, output_size: Argument) -> Value:
    if output_size in ((1, 1), (1,)):
        return emit("mean", self=self, dim=(-1, -2), keepdim=True)
    return emit("_adaptive_avg_pool2d", self=self, output_size=output_size)


@composite(
    "adaptive_avg_pool3d.default", covers=lambda given: None not in tuple(given["output_size"])
)
def adaptive_avg_pool3d(emit: Emit, self: Value, output_size: Argument) -> Value:
    if output_size in ((1, 1, 1), (1,)):
        return emit("mean", self=self, dim=(-1, -2, -3), keepdim=True)
    return emit("_adaptive_avg_pool3d", self=self, output_size=output_size)


_MODES = {"reflect": "reflection_pad", "replicate": "replication_pad"}


def _is_padded(given: Arguments) -> bool:
    sides, mode = len(given["pad"]), given.get("mode", "constant")
    return mode in ("constant", "circular") or (mode in _MODES and sides in (2, 4, 6))


@composite("pad.default", covers=_is_padded)
def pad(
    emit: Emit, self: Value, pad: tuple[int, ...], mode: str = "constant",
    value: float | None = None,
) -> Value:  # fmt: skip
    if mode == "constant":
        return emit("constant_pad_nd", self=self, pad=pad, value=value or 0)
    if mode == "circular":
        return emit("_pad_circular", self=self, pad=pad)
    return emit(f"{_MODES[mode]}{len(pad) // 2}d", self=self, padding=pad)
