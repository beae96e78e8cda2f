"""Operators of torch's that stand for one or a few core ATen ones.

Torch itself can take a program apart, but traces all of it again for that. A program that uses no
other operators than core ATen's and those here is imported as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Value
from tensorc.graph.ops import find
from tensorc.graph.torch_tensors import op_name, schema_arguments

Build: TypeAlias = Callable[..., Value]
Arguments: TypeAlias = Mapping[str, Any]

# Operators whose result is new memory that nothing else refers to.
_FRESH = frozenset(
    {"add", "addmm", "batch_norm", "bmm", "cat", "conv2d", "convolution", "div", "gelu", "linear",
     "mean", "mm", "mul", "relu", "sigmoid", "silu", "sub", "tanh"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Composite:
    """How an operator is built, and for which arguments (by name, as torch has them)."""

    build: Build
    covers: Callable[[Arguments], bool]


_TABLE: dict[str, Composite] = {}
COMPOSITES: Mapping[str, Composite] = MappingProxyType(_TABLE)


def _composite(
    name: str, covers: Callable[[Arguments], bool] = lambda _: True
) -> Callable[[Build], Build]:
    def enter(build: Build) -> Build:
        _TABLE[name] = Composite(build, covers)
        return build

    return enter


def known(node: Any) -> str | None:
    """The name under which a call of the exported program is imported; None when it is not.

    An operator that changes its first operand counts as the one that does not, where nothing else
    reads what it changed.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    name = op_name(node.target)
    if schema.is_mutable:
        packet, _, overload = name.partition(".")
        name = f"{packet.removesuffix('_')}.{overload}"
        if not packet.endswith("_") or find(name) is None or not _alone(node):
            return None
        return name
    if find(name) is not None:
        return name
    composite = _TABLE.get(name)
    given = schema_arguments(node.target, node.args, node.kwargs)
    return name if composite is not None and composite.covers(given) else None


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


@_composite("conv2d.default")
def _conv2d(
    emit: Emit, self: Value, weight: Value, bias: Value | None = None,
    stride: Argument = (1, 1), padding: Argument = (0, 0), dilation: Argument = (1, 1),
    groups: int = 1,
) -> Value:  # fmt: skip
    return emit(
        "convolution", self=self, weight=weight, bias=bias, stride=stride, padding=padding,
        dilation=dilation, transposed=False, output_padding=(0, 0), groups=groups,
    )  # fmt: skip


@_composite(
    "batch_norm.default",
    lambda given: (
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


@_composite("max_pool2d.default")
def _max_pool2d(emit: Emit, **arguments: Argument) -> Value:
    return emit("max_pool2d_with_indices", **arguments)


@_composite("adaptive_avg_pool2d.default", lambda given: list(given["output_size"]) == [1, 1])
def _adaptive_avg_pool2d(emit: Emit, self: Value, output_size: Argument) -> Value:
    del output_size
    return emit("mean", self=self, dim=(-1, -2), keepdim=True)


@_composite("linear.default")
def _linear(emit: Emit, self: Value, weight: Value, bias: Value | None = None) -> Value:
    """Rows times the transposed weights; what comes before the last dimension is one of rows."""
    transposed = emit("permute", self=weight, dims=(1, 0))
    flat = len(self.shape) == 2
    rows = self if flat else emit("view", self=self, size=(-1, self.shape[-1]))
    if bias is None:
        product = emit("mm", self=rows, mat2=transposed)
    else:
        product = emit("addmm", self=bias, mat1=rows, mat2=transposed)
    shape = (*self.shape[:-1], weight.shape[0])
    return product if flat else emit("view", self=product, size=shape)


@_composite("flatten.using_ints")
def _flatten(emit: Emit, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = len(self.shape)
    first, last = start_dim % max(rank, 1), end_dim % max(rank, 1)
    size = 1
    for extent in self.shape[first : last + 1]:
        size *= extent
    return emit("view", self=self, size=(*self.shape[:first], size, *self.shape[last + 1 :]))


@_composite("dropout.default", lambda given: not given["train"])
def _dropout(emit: Emit, self: Value, p: float, train: bool) -> Value:
    del emit, p, train
    return self
