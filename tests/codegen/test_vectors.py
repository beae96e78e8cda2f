"""What vectorised loops become. That it means the same is in test_lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.codegen.passes.reductions import reductions
from tensorc.codegen.passes.trees import find, leaves
from tensorc.codegen.passes.vectors import MAX_LANES, vectors
from tensorc.ir.nodes import For, Func, If, Load, MaskedLoad, MaskedStore, Ramp, Store
from tensorc.ir.parse import parse
from tensorc.ir.walk import nodes
from tests.codegen.running import check, check_stages, random_arguments


def lowered(text: str) -> Func:
    return vectors(reductions(parse(text)))


def test_loops_move_outside_of_the_lanes() -> None:
    func = lowered("""
def f(A: Buffer["f32", 9, 8], O: Buffer["f32", 8, "out"]):
    for v in vectorize(8):
        O[v] = 0.0
        for k in range(9):
            O[v] += A[k, v]
""")
    assert [loop.var.name for loop in find(func, For)] == ["k"]
    assert all(isinstance(leaf.indices[-1], Ramp) for leaf in leaves(func))


def test_bounds_that_differ_between_lanes_run_lane_by_lane() -> None:
    func = lowered("""
def f(A: Buffer["f32", 8, 8], O: Buffer["f32", 8, "out"]):
    for v in vectorize(8):
        O[v] = 0.0
        for k in range(v):
            O[v] += A[k, v]
""")
    first, second = leaves(func)
    assert isinstance(first.indices[0], Ramp)
    assert not list(nodes(second, Ramp))
    assert [loop.var.name for loop in find(func, For)] == ["v.lane", "k"]


def test_a_masked_load_implies_a_masked_store() -> None:
    """fault_kinds 2: what was not loaded is not stored."""
    func = lowered("""
def f(A: Buffer["f32", N], O: Buffer["f32", N, "inout"]):
    for i in range((N + 7) // 8):
        for v in vectorize(8):
            if i * 8 + v < N:
                O[i * 8 + v] = A[i * 8 + v] * 2.0
""")
    (leaf,) = leaves(func)
    assert isinstance(leaf, MaskedStore)
    (load,) = nodes(leaf, MaskedLoad)
    assert load.mask == leaf.mask
    # That some lane is active follows from the extent of the loop.
    assert next(find(func, If), None) is None


def test_agreed_conditions_stay_conditions() -> None:
    func = lowered("""
def f(A: Buffer["f32", 9, 8], O: Buffer["f32", 9, 8, "inout"], n: index):
    for i in range(9):
        for v in vectorize(8):
            if i < n and v < 3:
                O[i, v] = A[i, v]
""")
    (guard,) = find(func, If)
    assert not list(nodes(guard.condition, Ramp))


def test_speculation_needs_proof() -> None:
    """A load behind a choice is done for all lanes only where no lane can leave the buffer."""
    func = lowered("""
def f(A: Buffer["f32", 8], M: Buffer["bool", 8], O: Buffer["f32", 8, "out"]):
    for v in vectorize(8):
        O[v] = select(M[v], A[v], 0.0) + select(M[v] and v < 7, A[v + 1], 0.0)
""")
    (store,) = leaves(func)
    assert sum(1 for load in nodes(store, MaskedLoad) if load.buffer.name == "A") == 1
    assert sum(1 for load in nodes(store, Load) if load.buffer.name == "A") == 1


@pytest.mark.parametrize("count", [0, 1, 2, 5, MAX_LANES])
def test_extents(count: int) -> None:
    text = f"""
def f(A: Buffer["f32", 70], O: Buffer["f32", 70, "inout"]):
    for v in vectorize({count}):
        O[v] = A[v] * 2.0
"""
    func = parse(text)
    arguments = random_arguments(func, {})
    check_stages(func, arguments)
    check(func, arguments, exact=True)
    stores = list(leaves(lowered(text)))
    assert bool(stores) == (count > 0)
    assert any(map(_is_vector, stores)) == (count > 1)


def _is_vector(leaf: Any) -> bool:
    return isinstance(leaf, Store) and isinstance(leaf.indices[0], Ramp)


def test_nested_lanes() -> None:
    func = parse("""
def f(A: Buffer["f32", 3, 5], O: Buffer["f32", 3, 5, "out"]):
    for u in vectorize(3):
        for v in vectorize(5):
            O[u, v] = A[u, v] + 1.0
""")
    arguments = random_arguments(func, {})
    check_stages(func, arguments)
    check(func, arguments, exact=True)


INDICES = st.sampled_from(
    ["v", "v + 1", "12 - v", "v * 2", "v * 3 + 1", "v // 2", "v % 4", "3", "v // 3 * 2 + v % 3",
     "24 - v * 2", "index(I[v]) % 25", "(v * 7) % 25"]
)  # fmt: skip
CONDITIONS = st.sampled_from(
    ["True", "v < 5", "3 <= v", "2 < v and v < 9", "v % 2 == 0", "v != 4", "v < 3 or 8 < v",
     "I[v] > 0", "n < v", "v == n", "v * 2 < 9", "5 - v > 1", "not v < n"]
)  # fmt: skip


@given(INDICES, INDICES, CONDITIONS, CONDITIONS, st.integers(2, 13), st.integers(-1, 14))
def test_accesses_under_masks(
    read: str, written: str, mask: str, choice: str, count: int, n: int
) -> None:
    """Contiguous, reversed, strided, repeated, gathered; masked and not; in every combination."""
    guard = mask if "I[" not in mask else "True"
    func = parse(f"""
def f(A: Buffer["f32", 40], I: Buffer["i32", 13], O: Buffer["f32", 40, "inout"], n: index):
    for v in vectorize({count}):
        t = alloc("f32", 2)
        t[1] = A[{read}]
        if {guard}:
            t[0] = select({choice}, A[{read}] * 2.0, A[{written}])
            O[{written}] = t[0] + t[1]
""")
    rng = np.random.default_rng(count)
    arguments = {
        "A": rng.integers(-9, 9, 40).astype(np.float32),
        "I": np.abs(rng.integers(0, 60, 13)).astype(np.int32) - 9 * (choice == "I[v] > 0"),
        "O": rng.integers(-9, 9, 40).astype(np.float32),
        "n": n,
    }
    check_stages(func, arguments)
    check(func, arguments, exact=True)


def test_gather_by_a_masked_index() -> None:
    """The index itself may only be read in some lanes."""
    func = parse("""
def f(A: Buffer["f32", 25], I: Buffer["i32", 13], O: Buffer["f32", 13, "out"]):
    T = alloc("i32", 13)
    for i in range(7):
        T[i] = abs(I[i])
    for v in vectorize(13):
        O[v] = select(v < 7, A[index(T[v]) % 25], 0.0)
""")
    arguments = random_arguments(func, {})
    check_stages(func, arguments)
    check(func, arguments, exact=True)
