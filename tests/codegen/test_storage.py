"""Where temporaries go."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.codegen.passes.storage import MAX_STACK, Slot, Storage, plan
from tensorc.codegen.pipeline import lower
from tensorc.errors import CompileError
from tensorc.ir.arith import constant, index
from tensorc.ir.interp import evaluate
from tensorc.ir.parse import parse
from tests.codegen.programs import PROGRAMS
from tests.codegen.running import check, host, random_arguments


def slots_of(text: str) -> Mapping[str, Slot]:
    return {slot.buffer: slot for slot in plan(parse(text)).slots}


def test_small_is_on_the_stack() -> None:
    slots = slots_of("""
def f(O: Buffer["f32", 4, "out"]):
    S = alloc("f32", 1000)
    T = alloc("f32", 25)
    R = alloc("f32", 24, scope="register")
    for i in range(4):
        S[i] = 1.0
        T[i] = 1.0
        R[i] = 1.0
        O[i] = S[i] + T[i] + R[i]
""")
    assert {name: slot.home for name, slot in slots.items()} == {
        "R": "stack",
        "S": "stack",
        "T": "shared",
    }
    assert MAX_STACK == 4 * (1000 + 24)


def test_lifetimes_that_do_not_meet_share() -> None:
    slots = slots_of("""
def f(O: Buffer["f32", 4000, "out"]):
    S = alloc("f32", 4000)
    for i in range(4000):
        S[i] = 1.0
    T = alloc("f32", 4000)
    for j in range(4000):
        T[j] = S[j]
    U = alloc("f32", 4000)
    for k in range(4000):
        U[k] = T[k]
    for l in range(4000):
        O[l] = U[l]
""")
    assert slots["S"].offset == slots["U"].offset != slots["T"].offset


def test_use_in_a_loop_lasts_as_long_as_the_loop() -> None:
    """In the second iteration S is read after T was written in the first."""
    slots = slots_of("""
def f(O: Buffer["f32", 4000, "out"]):
    S = alloc("f32", 4000)
    for i in range(4000):
        S[i] = 1.0
    for t in range(2):
        for k in range(4000):
            O[k] = S[k]
        T = alloc("f32", 4000)
        for j in range(4000):
            T[j] = 2.0
        for l in range(4000):
            O[l] = T[l]
""")
    assert slots["S"].offset != slots["T"].offset


def test_inside_a_parallel_loop_is_per_worker() -> None:
    slots = slots_of(PROGRAMS["workspaces"][0])
    assert slots["T"].home == "shared"
    assert slots["U"].home == "worker"


def test_overlap_is_found() -> None:
    slots = [
        Slot("A", "shared", index(0), index(100), (0, 4)),
        Slot("B", "shared", index(64), index(10), (4, 9)),
        Slot("C", "shared", index(64), index(10), (5, 9)),
    ]
    with pytest.raises(CompileError, match="A and B"):
        Storage(tuple(slots), index(128), index(0)).verify(frozenset())
    Storage((slots[0], slots[2]), index(128), index(0)).verify(frozenset())
    with pytest.raises(CompileError, match="B and C"):
        Storage(tuple(slots[1:]), index(128), index(0)).verify(frozenset())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1025, 9000)), min_size=1, max_size=6))
def test_plans_are_sound(shape: list[tuple[int, int]]) -> None:
    """Stages in a row: each reads some of the temporaries before it."""
    lines = ['def f(O: Buffer["f32", 4, "out"]):']
    for number, (reach, size) in enumerate(shape):
        lines.append(f'    T{number} = alloc("f32", {size})')
        sources = [f"T{n}[i{number}]" for n in range(max(0, number - reach), number)]
        value = " + ".join(sources) or "1.0"
        lines.append(f"    for i{number} in range(4):")
        lines.append(f"        T{number}[i{number}] = {value}")
    lines.append("    for i in range(4):")
    lines.append(f"        O[i] = T{len(shape) - 1}[i]")
    func = parse("\n".join(lines) + "\n")
    lowered = lower(func, host())
    slots = [slot for slot in lowered.storage.slots if slot.home != "stack"]
    for slot in slots:
        offset, size = constant(slot.offset), constant(slot.size)
        assert offset is not None
        assert size is not None
        assert offset % 64 == 0
        assert offset + size <= (constant(lowered.storage.shared) or 0)
    check(func, random_arguments(func, {}))


@pytest.mark.parametrize("n", [0, 1, 2, 31, 100])
def test_symbolic_sizes_never_overlap(n: int) -> None:
    lowered = lower(parse(PROGRAMS["symbolic_scratch"][0]), host())
    values = {"N": n}
    spans = sorted(
        (slot.home, int(evaluate(slot.offset, values)), int(evaluate(slot.size, values)), slot.live)
        for slot in lowered.storage.slots
    )
    for a in spans:
        for b in spans:
            if a is not b and a[0] == b[0] and a[3][0] <= b[3][1] and b[3][0] <= a[3][1]:
                assert a[1] + a[2] <= b[1] or b[1] + b[2] <= a[1]
