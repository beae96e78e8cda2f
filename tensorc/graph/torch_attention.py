"""Composites that are whole layers: what torch's modules call in evaluation without gradients."""

from __future__ import annotations

import math

from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.torch_products import attention, linear, matmul
from tensorc.graph.torch_registry import Arguments, composite


def _without_mask(given: Arguments) -> bool:
    return given.get("mask") is None


@composite("_native_multi_head_attention.default", covers=_without_mask)
def multi_head_attention(
    emit: Emit, query: Value, key: Value, value: Value, embed_dim: int, num_head: int,
    qkv_weight: Value, qkv_bias: Value, proj_weight: Value, proj_bias: Value, mask: None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> Value | tuple[Value, ...]:  # fmt: skip
    """Attention of [batch, tokens, features] by heads; and its weights, or their mean over them."""
    del mask, mask_type
    q, k, v = (
        _heads(emit, part, num_head)
        for part in _projected(emit, (query, key, value), embed_dim, qkv_weight, qkv_bias)
    )
    if not need_weights:
        (mixed,) = attention(emit, q, k, v)
        return linear(emit, _joined(emit, mixed), proj_weight, proj_bias)
    scaled = emit("mul", self=q, other=1 / math.sqrt(embed_dim // num_head))
    scores = matmul(emit, scaled, emit("permute", self=k, dims=(0, 1, 3, 2)))
    weights = emit("_softmax", self=scores, dim=-1, half_to_float=False)
    result = linear(emit, _joined(emit, matmul(emit, weights, v)), proj_weight, proj_bias)
    return result, emit("mean", self=weights, dim=(1,)) if average_attn_weights else weights


def _projected(
    emit: Emit, values: tuple[Value, ...], size: int, weight: Value, bias: Value
) -> tuple[Value, ...]:
    """Queries, keys and values: of one tensor by one product, else by one each."""
    if len(set(values)) == 1:
        whole = linear(emit, values[0], weight, bias)
        return emit.all("split_with_sizes", self=whole, split_sizes=(size,) * 3, dim=-1)
    weights, biases = (
        emit.all("split_with_sizes", self=one, split_sizes=(size,) * 3, dim=0)
        for one in (weight, bias)
    )
    return tuple(linear(emit, *one) for one in zip(values, weights, biases, strict=True))


def _heads(emit: Emit, value: Value, count: int) -> Value:
    """[batch, tokens, features] as [batch, heads, tokens, features of a head]."""
    batch, tokens, size = value.shape
    parts = emit("view", self=value, size=(batch, tokens, count, size // count))
    return emit("permute", self=parts, dims=(0, 2, 1, 3))


def _joined(emit: Emit, value: Value) -> Value:
    """The reverse of `_heads`."""
    batch, count, tokens, size = value.shape
    turned = emit("permute", self=value, dims=(0, 2, 1, 3))
    return emit("view", self=turned, size=(batch, tokens, count * size))


@composite("_transformer_encoder_layer_fwd.default", covers=_without_mask)
def encoder_layer(
    emit: Emit, src: Value, embed_dim: int, num_heads: int, qkv_weight: Value, qkv_bias: Value,
    proj_weight: Value, proj_bias: Value, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Value, norm_bias_1: Value, norm_weight_2: Value, norm_bias_2: Value,
    ffn_weight_1: Value, ffn_bias_1: Value, ffn_weight_2: Value, ffn_bias_2: Value,
    mask: None = None, mask_type: int | None = None,
) -> Value:  # fmt: skip
    """Attention and a block of two linear layers, each added to what it is of; they are normalised
    before (`norm_first`), or these sums are."""
    del mask, mask_type

    def normed(value: Value, weight: Value, bias: Value) -> Value:
        return emit(
            "native_layer_norm", self=value, normalized_shape=(embed_dim,), weight=weight,
            bias=bias, eps=eps,
        )  # fmt: skip

    def attended(value: Value) -> Value:
        result = multi_head_attention(
            emit, value, value, value, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight,
            proj_bias, need_weights=False,
        )  # fmt: skip
        assert isinstance(result, Value)
        return result

    def fed_forward(value: Value) -> Value:
        inner = linear(emit, value, ffn_weight_1, ffn_bias_1)
        active = emit("gelu" if use_gelu else "relu", self=inner)
        return linear(emit, active, ffn_weight_2, ffn_bias_2)

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        middle = emit("add", self=src, other=attended(normed(src, *first)))
        return emit("add", self=middle, other=fed_forward(normed(middle, *second)))
    middle = normed(emit("add", self=src, other=attended(src)), *first)
    return normed(emit("add", self=middle, other=fed_forward(middle)), *second)
