"""The family of a task: the kind of operator that its group of nodes is built around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc.graph.graph import Node, Value
from tensorc.graph.ops import Kind, operator_of

# The first of these of which a group has an operator is its family.
_FAMILIES: Mapping[str, frozenset[str]] = {
    "matrix product": frozenset({"mm", "addmm", "mv", "addmv", "dot"}),
    "batched product": frozenset({"bmm", "baddbmm", "addbmm"}),
    "layer norm": frozenset({"native_layer_norm"}),
    "group norm": frozenset({"native_group_norm", "_native_batch_norm_legit"}),
    "rms norm": frozenset({"rsqrt"}),
    "softmax": frozenset({"_softmax", "_safe_softmax", "_log_softmax"}),
    "gather": frozenset({"embedding", "index_select", "gather", "index", "take"}),
    "scan": frozenset({"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"}),
    "scatter": frozenset(
        {"scatter", "scatter_add", "index_add", "index_put", "index_copy", "put", "masked_scatter"}
    ),
    "sorting": frozenset({"sort", "argsort", "topk", "kthvalue", "searchsorted"}),
}  # fmt: skip
_SOFTMAX = _FAMILIES["softmax"]
_CONVOLUTIONS = ("convolution", "blocked_convolution", "blocked_depthwise")


def family_of(nodes: Sequence[Node]) -> str:
    """The family of a group of nodes, views among them or not."""
    ops = {node.op.partition(".")[0] for node in nodes}
    for node in nodes:
        if node.op in _CONVOLUTIONS:
            return _convolution(node)
    if ops & _FAMILIES["batched product"] and ops & _SOFTMAX:
        return "attention"
    for family, members in _FAMILIES.items():
        if ops & members and (family != "rms norm" or "mean" in ops):
            return family
    if any("pool" in op for op in ops):
        return "pooling"
    kinds = {operator_of(node).kind for node in nodes}
    if Kind.ROWS in kinds:
        return "reduction"
    return "elementwise" if Kind.POINTWISE in kinds else "movement"


def _convolution(node: Node) -> str:
    weight, groups, dilation = node.get("weight"), node.get("groups", 1), node.get("dilation")
    assert isinstance(weight, Value)
    assert isinstance(dilation, tuple)
    if node.get("transposed"):
        return "transposed convolution"
    if any(step != 1 for step in dilation):
        return "dilated convolution"
    if node.op == "blocked_depthwise" or (groups != 1 and weight.shape[1] == 1):
        return "depthwise convolution"
    if groups != 1:
        return "grouped convolution"
    rank = 2 if node.op == "blocked_convolution" else len(weight.shape) - 2
    return f"{rank}d convolution"
