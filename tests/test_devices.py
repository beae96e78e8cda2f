"""CUDA targets: architectures, devices, and their limits."""

from __future__ import annotations

import pickle

import pytest

from tensorc.errors import TargetError
from tensorc.target import Target
from tensorc.target.devices import ARCHITECTURES, DEVICES

NAMES = [*ARCHITECTURES, *DEVICES]


@pytest.mark.parametrize("name", NAMES)
def test_a_device_is_a_target_with_limits(name: str) -> None:
    target = Target.parse(f"cuda:{name}")
    assert (target.kind, target.triple, target.l3) == ("cuda", "", 0)
    assert target.cpu in ARCHITECTURES
    assert Target.from_json(target.to_json()) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert target.limit("threads_per_block") <= target.limit("threads_per_sm")
    static, dynamic = (target.limit(f"shared_{kind}_per_block") for kind in ("static", "dynamic"))
    assert static <= dynamic <= target.limit("shared_per_sm")
    # A vector register holds one widest access to memory.
    assert target.vector_bits == 8 * target.limit("vector_bytes")
    assert target.vector_registers * target.vector_bits <= 32 * target.limit("registers_per_thread")


@pytest.mark.parametrize("text", ["cuda:rtx 4090", "cuda:RTX4090", "cuda:rtx-4090"])
def test_names_are_read_without_regard_to_case_and_spaces(text: str) -> None:
    assert Target.parse(text) == Target.parse("cuda:RTX 4090")


def test_an_architecture_is_the_first_device_of_it() -> None:
    assert Target.parse("cuda:sm_90") == Target.parse("cuda:H100")
    assert Target.parse("cuda:H200").cores == Target.parse("cuda:H100").cores


def test_limits_are_of_the_right_axis() -> None:
    """tinygrad PR#1447 had the limits of a grid in the order z, y, x."""
    target = Target.parse("cuda:sm_80")
    grid = tuple(target.limit(f"grid_{axis}") for axis in "xyz")
    block = tuple(target.limit(f"block_{axis}") for axis in "xyz")
    assert grid == (2**31 - 1, 65535, 65535)
    assert block == (1024, 1024, 64)


@pytest.mark.parametrize("text", ["cuda", "cuda:", "cuda:sm_70", "cuda:sm_9", "cuda:Voodoo 2"])
def test_an_unknown_device_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(TargetError) as refused:
        Target.parse(text)
    for name in NAMES:
        assert name in str(refused.value)


@pytest.mark.parametrize("name", ["", "90", "sm_", "sm_09", "gfx90", "sm_90x"])
def test_an_architecture_has_the_form_of_one(name: str) -> None:
    with pytest.raises(TargetError, match="the architecture of a cuda device cannot be"):
        Target("cuda", "", name)


def test_a_target_without_limits_says_where_they_are() -> None:
    with pytest.raises(TargetError, match=r"does not state.*'grid_x'; it states none.*cuda:NAME"):
        Target("cuda", "", "sm_90a").limit("grid_x")


def test_options_are_refused() -> None:
    with pytest.raises(TargetError, match="an option of a cuda target cannot be 'cores=4'"):
        Target.parse("cuda:H100;cores=4")
