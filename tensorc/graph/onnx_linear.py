"""ONNX's products: matrices and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorc.graph.elements import RefusedError, broadcast_shape
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call, expanded, maps, permuted, reshaped
from tensorc.graph.onnx_windows import Window, check_lists

# Matrices ---------------------------------------------------------------------------------------


@maps("Gemm", 1, 6, 7, 9, 11, 13)
def _gemm(call: Call) -> Value:
    """alpha * A B + beta * C, with A and B turned if so asked."""
    emit, attributes = call.emit, call.attributes
    a, b, c = call[0], call[1], call.get(2)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise RefusedError(f"a product of shapes {list(a.shape)} and {list(b.shape)}")
    dtype = call.same_dtype(a, b, c)
    alpha, beta = attributes["alpha"], attributes["beta"]
    if not dtype.is_float and (int(alpha), int(beta)) != (alpha, beta):
        raise RefusedError(f"alpha={alpha}, beta={beta} of {dtype}")
    a = permuted(emit, a, (1, 0)) if attributes["transA"] else a
    b = permuted(emit, b, (1, 0)) if attributes["transB"] else b
    if c is not None and beta != 0:
        return emit("addmm", self=c, mat1=a, mat2=b, beta=beta, alpha=alpha)
    product = emit("mm", self=a, mat2=b)
    return product if alpha == 1 else emit("mul", self=product, other=alpha)


@maps("MatMul", 1, 9, 13)
def _matmul(call: Call) -> Value:
    call.same_dtype(call[0], call[1])
    return matmul(call.emit, call[0], call[1])


def matmul(emit: Emit, a: Value, b: Value) -> Value:
    """The product of the last two dimensions, as `numpy.matmul` takes it: those before them
    broadcast, and an operand of one dimension is a row or a column."""
    if not a.shape or not b.shape:
        raise RefusedError("a product of a single number")
    left, right = a.shape, b.shape
    a = reshaped(emit, a, (1, *left)) if len(left) == 1 else a
    b = reshaped(emit, b, (*right, 1)) if len(right) == 1 else b
    if a.shape[-1] != b.shape[-2]:
        raise RefusedError(f"a product of shapes {list(left)} and {list(right)}")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    result = _product(emit, a, b, batch)
    shape = (*batch, *a.shape[-2 : -1 if len(left) > 1 else -2])
    return reshaped(emit, result, shape if len(right) == 1 else (*shape, b.shape[-1]))


def _product(emit: Emit, a: Value, b: Value, batch: tuple[int, ...]) -> Value:
    if math.prod(b.shape[:-2]) == 1 and math.prod(a.shape[:-2]) == math.prod(batch):
        # What comes before the last dimension is one of rows.
        rows = reshaped(emit, a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return emit("mm", self=rows, mat2=reshaped(emit, b, b.shape[-2:]))
    count = math.prod(batch)
    flat = []
    for one in (a, b):
        whole = expanded(emit, one, (*batch, *one.shape[-2:]))
        flat.append(reshaped(emit, whole, (count, *one.shape[-2:])))
    return emit("bmm", self=flat[0], mat2=flat[1])


# Convolutions -----------------------------------------------------------------------------------


@maps("Conv", 1, 11, 22)
def _conv(call: Call) -> Value:
    source, weight = call[0], call[1]
    call.same_dtype(source, weight, call.get(2))
    return convolution(call, source, weight, call.get(2))


def convolution(call: Call, source: Value, weight: Value, bias: Value | None) -> Value:
    """A convolution by the attributes of a node; what is beside the input is zero."""
    rank = len(source.shape) - 2
    groups = _groups(call)
    _check_windows(call, source, weight, rank)
    if source.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise RefusedError(f"{groups} groups of shape {list(source.shape)}, {list(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RefusedError(f"a bias of shape {list(bias.shape)} for {weight.shape[0]} channels")
    window = Window.of(call, source.shape[2:], weight.shape[2:])
    source, around = window.padded(call.emit, source, 0)
    return call.emit(
        "convolution", self=source, weight=weight, bias=bias, stride=window.stride,
        padding=around, dilation=window.dilation, transposed=False,
        output_padding=(0,) * rank, groups=groups,
    )  # fmt: skip


def _groups(call: Call) -> int:
    groups: int = call.attributes["group"]
    if groups < 1:
        raise RefusedError(f"group={groups}")
    return groups


def _check_windows(call: Call, source: Value, weight: Value, rank: int) -> None:
    if rank < 1 or len(weight.shape) != rank + 2:
        raise RefusedError(f"shapes {list(source.shape)} and {list(weight.shape)}")
    call.refuse_attribute("kernel_shape", weight.shape[2:])


@maps("ConvTranspose", 1, 11, 22)
def _transposed(call: Call) -> Value:
    """The whole of the result, of which the pads are then cut off."""
    emit, attributes = call.emit, call.attributes
    source, weight, bias = call[0], call[1], call.get(2)
    call.same_dtype(source, weight, bias)
    rank = len(source.shape) - 2
    _check_windows(call, source, weight, rank)
    check_lists(call, rank)
    groups = _groups(call)
    if source.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise RefusedError(f"{groups} groups of shape {list(source.shape)}, {list(weight.shape)}")
    ones = (1,) * rank
    stride, dilation = attributes.get("strides", ones), attributes.get("dilations", ones)
    extra = attributes.get("output_padding", (0,) * rank)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    whole = [
        (n - 1) * s + e + r
        for n, s, e, r in zip(source.shape[2:], stride, extra, reach, strict=True)
    ]
    low, high = _cut(call, source.shape[2:], stride, whole)
    even = low == high and all(0 <= p < r for p, r in zip(low, reach, strict=True))
    within = min(*low, *high) >= 0
    result = emit(
        "convolution", self=source, weight=weight, bias=bias if within else None,
        stride=tuple(stride), padding=tuple(low) if even else (0,) * rank,
        dilation=tuple(dilation), transposed=True, output_padding=tuple(extra), groups=groups,
    )  # fmt: skip
    if even:
        return result
    pad = [-p for pair in zip(reversed(low), reversed(high), strict=True) for p in pair]
    result = emit("constant_pad_nd", self=result, pad=tuple(pad))
    if within or bias is None:
        return result
    column = reshaped(emit, bias, (*bias.shape, *(1,) * rank))
    return emit("add", self=result, other=column)


def _cut(
    call: Call, extents: Sequence[int], stride: Sequence[int], whole: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut off the whole result, before and after each dimension; less than 0 is added."""
    attributes, rank = call.attributes, len(extents)
    automatic, asked = attributes["auto_pad"], attributes.get("output_shape")
    if asked is not None or automatic in ("SAME_UPPER", "SAME_LOWER"):
        if asked is None:
            asked = [n * s for n, s in zip(extents, stride, strict=True)]
        if len(asked) not in (rank, rank + 2) or min(asked) < 1:
            raise RefusedError(f"output_shape={list(asked)} over {rank} dimensions")
        totals = [w - n for w, n in zip(whole, list(asked)[-rank:], strict=True)]
        # The larger half comes off the end for SAME_UPPER, off the beginning otherwise. What is
        # missing is added at the end.
        less = 0 if automatic == "SAME_UPPER" else 1
        low = [(max(t, 0) + less) // 2 for t in totals]
        return low, [t - p for t, p in zip(totals, low, strict=True)]
    if automatic == "VALID":
        return [0] * rank, [0] * rank
    pads = list(attributes.get("pads", (0,) * (2 * rank)))
    return pads[:rank], pads[rank:]
