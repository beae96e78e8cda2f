"""Composites that are products: matmul, linear and attention."""

from __future__ import annotations

import math

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError, broadcast_shape
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Value
from tensorc.graph.torch_registry import composite


def _view(emit: Emit, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else emit("view", self=value, size=shape)


@composite("linear.default")
def linear(emit: Emit, self: Value, weight: Value, bias: Value | None = None) -> Value:
    """Rows times the transposed weights; what comes before the last dimension is one of rows."""
    if len(weight.shape) == 1:
        if bias is not None:
            raise RefusedError("a bias of one row of weights")
        return matmul(emit, self, weight)
    transposed = emit("permute", self=weight, dims=(1, 0))
    flat = len(self.shape) == 2
    rows = self if flat else emit("view", self=self, size=(-1, self.shape[-1]))
    if bias is None:
        product = emit("mm", self=rows, mat2=transposed)
    else:
        product = emit("addmm", self=bias, mat1=rows, mat2=transposed)
    shape = (*self.shape[:-1], weight.shape[0])
    return product if flat else emit("view", self=product, size=shape)


@composite("matmul.default")
def matmul(emit: Emit, self: Value, other: Value) -> Value:
    """A vector is a row on the left and a column on the right; batches broadcast."""
    a = self if len(self.shape) > 1 else _view(emit, self, (1, *self.shape))
    b = other if len(other.shape) > 1 else _view(emit, other, (*other.shape, 1))
    product = _matrix_product(emit, a, b)
    shape = list(product.shape)
    if len(other.shape) == 1:
        del shape[-1]
    if len(self.shape) == 1:
        del shape[-1 if len(other.shape) == 1 else -2]
    return _view(emit, product, tuple(shape))


def _matrix_product(emit: Emit, a: Value, b: Value) -> Value:
    """The product of matrices with any batch before them."""
    if len(b.shape) == 2:
        rows = _view(emit, a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return _view(emit, emit("mm", self=rows, mat2=b), (*a.shape[:-1], b.shape[-1]))
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    whole = [
        _view(emit, _expanded(emit, one, (*batch, *one.shape[-2:])), (count, *one.shape[-2:]))
        for one in (a, b)
    ]
    product = emit("bmm", self=whole[0], mat2=whole[1])
    return _view(emit, product, (*batch, a.shape[-2], b.shape[-1]))


def _expanded(emit: Emit, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else emit("expand", self=value, size=shape)


@composite(
    "scaled_dot_product_attention.default",
    "_scaled_dot_product_attention_math.default",
    "_scaled_dot_product_flash_attention_for_cpu.default",
    "_scaled_dot_product_fused_attention_overrideable.default",
    covers=lambda given: (
        not given.get("dropout_p") and given.get("dropout_mask") is None
    ),
)  # fmt: skip
def attention(
    emit: Emit, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: None = None,
    scale: float | None = None, enable_gqa: bool = False, attn_bias: Value | None = None,
    return_debug_mask: bool = False,
) -> tuple[Value]:  # fmt: skip
    """softmax(query key^T scale + mask) value; a row that is masked as a whole gives zeros."""
    del dropout_p, dropout_mask, return_debug_mask
    mask = attn_bias if attn_mask is None else attn_mask
    if enable_gqa:
        key, value = (_repeated_heads(emit, one, query.shape[-3]) for one in (key, value))
    order = (*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2)
    scores = _matrix_product(emit, query, emit("permute", self=key, dims=order))
    factor = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale
    scores = emit("mul", self=scores, other=factor)
    if is_causal:
        rows, columns = scores.shape[-2:]
        full = emit("full", size=(rows, columns), fill_value=True, dtype=DType.BOOL)
        causal = _offsets(emit, emit("tril", self=full), scores.dtype)
        scores = emit("add", self=scores, other=causal)
    if mask is not None:
        offsets = _offsets(emit, mask, scores.dtype) if mask.dtype is DType.BOOL else mask
        scores = emit("add", self=scores, other=offsets)
    weights = emit("_safe_softmax", self=scores, dim=-1)
    return (_matrix_product(emit, weights, value),)


def _repeated_heads(emit: Emit, value: Value, heads: int) -> Value:
    """Each head as often as makes `heads`, one after the other."""
    *batch, own, rows, columns = value.shape
    if not own or heads % own:
        raise RefusedError(f"{own} heads for {heads}")
    single = emit("unsqueeze", self=value, dim=-3)
    several = _expanded(emit, single, (*batch, own, heads // own, rows, columns))
    return _view(emit, several, (*batch, heads, rows, columns))


@composite("_trilinear.default")
def trilinear(
    emit: Emit, i1: Value, i2: Value, i3: Value, expand1: tuple[int, ...],
    expand2: tuple[int, ...], expand3: tuple[int, ...], sumdim: tuple[int, ...],
    unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """The product of three tensors, each with new dimensions at `expand`, summed over `sumdim`:
    what torch makes of a bilinear layer."""
    del unroll_dim
    wide = []
    for value, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for place in sorted(places):
            value = emit("unsqueeze", self=value, dim=place)
        wide.append(value)
    product = emit("mul", self=emit("mul", self=wide[0], other=wide[1]), other=wide[2])
    return emit("sum", self=product, dim=sumdim) if sumdim else product


def _offsets(emit: Emit, mask: Value, dtype: DType) -> Value:
    """What to add to scores: 0 where the mask holds, minus infinity elsewhere."""
    numbers: list[Argument] = [
        emit("scalar_tensor", s=number, dtype=dtype) for number in (0.0, -math.inf)
    ]
    return emit("where", condition=mask, self=numbers[0], other=numbers[1])
