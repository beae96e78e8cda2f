"""Lanes that a condition keeps from memory, on every level of machine that runs here.

A condition of lanes is made of parts that all lanes share, parts that are known when the code is
made, and parts that are neither, so that a machine's vector may hold lanes of which LLVM knows
that they are on, or off, beside others.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.ir.parse import parse
from tensorc.testing import machine
from tensorc.testing.draw import Seeded
from tests.codegen.running import check, random_arguments

DTYPES = ("f32", "f32", "f64", "i64", "i32", "i16", "i8", "bf16")
LANES = (4, 8, 8, 16, 16, 32, 64)
PARTS = ("shared", "shared", "first", "last", "block", "every", "row", "some", "data")


def part(source: Seeded, lanes: int, data: bool) -> str:
    """Over the lane `v`, the loop variable `i` (0 to 2), the scalars `m` and `n`, and data."""
    place = source.integer(0, lanes)
    outer = source.pick("imn")
    match source.pick(PARTS if data else PARTS[:-1]):
        case "shared":
            return f"{outer} < {source.integer(0, 4)}"
        case "first":
            return f"v < {place}"
        case "last":
            return f"v >= {place}"
        case "block":
            return f"v // {lanes // 4} == {source.integer(0, 3)}"
        case "every":
            return f"v % {source.pick((2, 4))} < {source.integer(0, 3)}"
        case "row":
            return f"(v + {place}) // {lanes // 2} < {source.integer(0, 2)}"
        case "some":
            return f"v + {outer} < {place}"
    return "M[v] > 0"


def condition(source: Seeded, lanes: int, data: bool) -> str:
    text = part(source, lanes, data)
    for _ in range(source.integer(0, 2)):
        text = f"({text} {source.pick(('and', 'and', 'or'))} {part(source, lanes, data)})"
    return text


def program(source: Seeded) -> str:
    """A part of the lanes lies outside of one array, so that its accesses must be masked."""
    lanes, dtype = source.pick(LANES), source.pick(DTYPES)
    step, before = source.pick((1, 1, 1, -1, 2, 5)), source.pick((0, 0, 1, 3, 8))
    place = f"v * {step} - {before}" if step > 0 else f"{lanes - 1 - before} - v"
    outside = source.pick((source.integer(0, lanes), source.integer(0, 4) * lanes // 4))
    width = max(1, lanes * abs(step) - before - outside)
    parts = [f"{place} < {width}", f"{place} >= 0", condition(source, lanes, data=False)]
    shared = f" and {source.pick('imn')} < {source.integer(1, 3)}" if source.chance(50) else ""
    read, written = (place, "v") if source.chance(75) else ("v", place)
    columns = {"v": lanes, place: width}
    if written == "v" and source.chance(75):
        parts[2] = condition(source, lanes, data=True)
        value = f"A[i, {read}]"
        stored = f"B[i, v] = select({' and '.join(parts)}{shared}, {value}, {dtype}(0))"
    else:
        stored = f"if {' and '.join(parts)}:\n                B[i, {written}] = A[i, {read}]"
    return f"""
def f(m: index, n: index, M: Buffer["i32", {lanes}], A: Buffer["{dtype}", 3, {columns[read]}],
      B: Buffer["{dtype}", 3, {columns[written]}, "inout"]):
    for i in range(3):
        for v in vectorize({lanes}):
            {stored}
"""


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(st.integers(0, 1 << 30))
def test_lanes_that_are_off_touch_nothing(seed: int) -> None:
    source = Seeded(seed)
    func, target = parse(program(source)), source.pick(machine.targets())
    check(func, random_arguments(func, {}, seed), target=target)
