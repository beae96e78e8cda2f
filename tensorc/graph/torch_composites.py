"""Operators that are imported as several of core ATen's, without torch taking them apart.

Torch's `run_decompositions` does the same for all operators at once, which takes seconds and leaves
more nodes: these are the common ones. A dropout is none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorc.dtype import DType
from tensorc.graph import (  # noqa: F401 (they enter theirs)
    torch_attention,
    torch_products,
    torch_windows,
)
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Value
from tensorc.graph.ops import find
from tensorc.graph.torch_registry import TABLE, Arguments, Composite, composite
from tensorc.graph.torch_tensors import op_name, schema_arguments

COMPOSITES: Mapping[str, Composite] = TABLE

# Operators whose result is new memory that nothing else refers to.
_FRESH = frozenset(
    {"add", "addmm", "batch_norm", "bmm", "cat", "conv2d", "convolution", "div", "gelu", "linear",
     "mean", "mm", "mul", "relu", "sigmoid", "silu", "sub", "tanh"}
)  # fmt: skip
# Composites that only cover what leaves their operand as it is.
_IDLE = frozenset({"dropout.default", "feature_dropout.default", "alpha_dropout.default"})


def known(node: Any) -> str | None:
    """The name under which a call of the exported program is imported; None when it is not.

    An operator that changes its first operand counts as the one that does not, where nothing else
    reads what it changed, and its result would have that operand's dtype in any case.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    name = op_name(node.target)
    if schema.is_mutable:
        packet, _, overload = name.partition(".")
        name = f"{packet.removesuffix('_')}.{overload}"
        if not packet.endswith("_") or not (name in _IDLE or _alone(node)):
            return None
        if not _keeps_dtype(node):
            return None
    if find(name) is not None:
        return name
    found = TABLE.get(name)
    given = schema_arguments(node.target, node.args, node.kwargs)
    return name if found is not None and found.covers(given) else None


def _alone(node: Any) -> bool:
    """Whether the operand that a node changes is a new tensor that only this node reads."""
    changed = node.args[0]
    made = getattr(changed, "target", None)
    fresh = getattr(changed, "op", "") == "call_function" and hasattr(made, "_schema")
    return (
        fresh
        and op_name(made).partition(".")[0].removesuffix("_") in _FRESH
        and (set(changed.users) == {node} and node.args.count(changed) == 1)
    )


def _keeps_dtype(node: Any) -> bool:
    """Whether no other operand is of a higher dtype than the one that a node changes."""
    own = node.args[0].meta["val"].dtype
    for other in (*node.args[1:], *node.kwargs.values()):
        value: Any = getattr(other, "meta", {}).get("val")
        if hasattr(value, "dtype") and value.dtype != own:
            return False
        if isinstance(other, float) and not own.is_floating_point:
            return False
        if isinstance(other, int) and str(own) == "torch.bool":
            return False
    return True


# Normalisations ---------------------------------------------------------------------------------


@composite(
    "batch_norm.default",
    covers=lambda given: (
        not given["training"] and None not in (given["running_mean"], given["running_var"])
    ),
)
def _batch_norm(
    emit: Emit, self: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    del training, cudnn_enabled
    return emit(
        "_native_batch_norm_legit_no_training", self=self, weight=weight, bias=bias,
        running_mean=running_mean, running_var=running_var, momentum=momentum, eps=eps,
    )  # fmt: skip


@composite("layer_norm.default")
def _layer_norm(
    emit: Emit, self: Value, normalized_shape: Argument, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    del cudnn_enable
    return emit(
        "native_layer_norm", self=self, normalized_shape=normalized_shape, weight=weight,
        bias=bias, eps=eps,
    )  # fmt: skip


@composite("group_norm.default")
def _group_norm(
    emit: Emit, self: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    del cudnn_enabled
    batch, channels, *inner = self.shape
    area = 1
    for extent in inner:
        area *= extent
    return emit(
        "native_group_norm", self=self, weight=weight, bias=bias, N=batch, C=channels, HxW=area,
        group=num_groups, eps=eps,
    )  # fmt: skip


@composite("softmax.int")
def _softmax(emit: Emit, self: Value, dim: int, dtype: DType | None = None) -> Value:
    source = self if dtype in (None, self.dtype) else emit("_to_copy", self=self, dtype=dtype)
    return emit("_softmax", self=source, dim=dim, half_to_float=False)


@composite("log_softmax.int")
def _log_softmax(emit: Emit, self: Value, dim: int, dtype: DType | None = None) -> Value:
    source = self if dtype in (None, self.dtype) else emit("_to_copy", self=self, dtype=dtype)
    return emit("_log_softmax", self=source, dim=dim, half_to_float=False)


# Other layers -----------------------------------------------------------------------------------


@composite("flatten.using_ints")
def _flatten(emit: Emit, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = len(self.shape)
    first, last = start_dim % max(rank, 1), end_dim % max(rank, 1)
    size = 1
    for extent in self.shape[first : last + 1]:
        size *= extent
    return emit("view", self=self, size=(*self.shape[:first], size, *self.shape[last + 1 :]))


@composite(
    "dropout.default", "feature_dropout.default", "alpha_dropout.default",
    "feature_alpha_dropout.default", covers=lambda given: not given["train"],
)  # fmt: skip
def _dropout(emit: Emit, self: Value, p: float, train: bool) -> Value:
    del emit, p, train
    return self


@composite("to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default")
def _to(
    emit: Emit, self: Value, dtype: DType | None = None, other: Value | None = None,
    copy: bool = False,
) -> Value:  # fmt: skip
    """All tensors are on one device and compact, so that only the dtype can change."""
    del copy
    to = other.dtype if other is not None else dtype
    return self if to in (None, self.dtype) else emit("_to_copy", self=self, dtype=to)


@composite("prims.convert_element_type.default")
def _converted(emit: Emit, a: Value, dtype: DType) -> Value:
    return _to(emit, a, dtype)


def _is_compact(given: Arguments) -> bool:
    """Whether a tensor of torch's is all of its memory, in order."""
    tensor = given["self"].meta["val"]
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return bool(tensor.is_contiguous() and whole)


@composite("as_strided.default", "as_strided_copy.default", covers=_is_compact)
def _as_strided(emit: Emit, **arguments: Argument) -> Value:
    return emit("as_strided.compact", **arguments)


@composite("diff.default", covers=lambda given: given.get("n", 1) == 1)
def _diff(
    emit: Emit, self: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
    append: Value | None = None,
) -> Value:  # fmt: skip
    del n
    parts = tuple(part for part in (prepend, self, append) if part is not None)
    whole = emit("cat", tensors=parts, dim=dim) if len(parts) > 1 else self
    extent = whole.shape[dim]
    later = emit("slice", self=whole, dim=dim, start=min(1, extent))
    earlier = emit("slice", self=whole, dim=dim, end=max(extent - 1, 0))
    op = "logical_xor" if whole.dtype is DType.BOOL else "sub"
    return emit(op, self=later, other=earlier)
