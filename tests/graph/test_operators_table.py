"""The table of operators as a whole: what it lacks of core ATen, and what every entry must say."""

from __future__ import annotations

import inspect

import pytest
import torch

from tensorc.graph.ops import Kind, find, table
from tensorc.graph.torch_composites import COMPOSITES
from tensorc.graph.torch_import import CHECKS

pytestmark = pytest.mark.torch

GRADIENT = "a gradient, which no forward pass has"
RANDOM = "random numbers"
COMPLEX = "complex numbers"
DYNAMIC = "a shape, or a number outside of tensors, that depends on data"
SYMBOLIC = "a symbolic size, which an export with fixed shapes has not"
# Every overload of core ATen that the table does not have, and why.
LACKING = {
    "_adaptive_avg_pool2d_backward.default": GRADIENT,
    "_embedding_bag.default": "sums of parts whose lengths are data",
    "_fft_c2r.default": COMPLEX,
    "_fft_r2c.default": COMPLEX,
    "_local_scalar_dense.default": DYNAMIC,
    "avg_pool2d_backward.default": GRADIENT,
    "convolution_backward.default": GRADIENT,
    "embedding_dense_backward.default": GRADIENT,
    "native_group_norm_backward.default": GRADIENT,
    "native_layer_norm_backward.default": GRADIENT,
    "nonzero.default": DYNAMIC,
    "rand.default": RANDOM,
    "randn.default": RANDOM,
    "randperm.default": RANDOM,
    "sym_is_contiguous.default": SYMBOLIC,
    "sym_numel.default": SYMBOLIC,
    "sym_size.int": SYMBOLIC,
    "sym_storage_offset.default": SYMBOLIC,
    "sym_stride.int": SYMBOLIC,
}


def core_overloads() -> list[str]:
    """All overloads of ATen's operators with the tag of core ATen that change nothing in memory."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten" and hasattr(torch.ops.aten, packet):
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if operator is None or operator._schema.is_mutable:
                continue
            if torch.Tag.core in operator.tags:
                found.append(f"{packet}.{overload or 'default'}")
    return sorted(found)


def is_known(name: str) -> bool:
    return find(name) is not None or name in COMPOSITES or name.partition(".")[0] in CHECKS


def test_what_is_lacking_of_core_aten():
    core = core_overloads()
    assert len(core) > 180
    assert [name for name in core if not is_known(name)] == sorted(LACKING)


def test_every_argument_of_core_aten_is_one_of_ours():
    """By name, so that none is refused as an unexpected one."""
    ignored = {"layout", "device", "pin_memory", "non_blocking", "memory_format"}
    for name in core_overloads():
        entry = find(name)
        if entry is None:
            continue
        packet, _, overload = name.partition(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
        wanted = {"self" if a.name == "input" else a.name for a in schema.arguments} - ignored
        parameters = inspect.signature(entry.build).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            assert wanted <= set(parameters), name


def test_every_rows_operator_says_what_it_reduces():
    assert all(entry.reduced for entry in table().values() if entry.kind is Kind.ROWS)


def test_no_composite_hides_behind_an_operator_of_its_name():
    assert not [name for name in COMPOSITES if find(name) is not None]
