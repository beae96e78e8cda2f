"""The memory plan against a run that writes and checks every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import VerifyError
from tensorc.graph.graph import Value
from tensorc.graph.plan import ALIGNMENT, Plan, plan_memory, verify_plan
from tensorc.graph.tasks import Call


@st.composite
def programs(draw):
    """Calls that each write one or two values and read some that were written before."""
    source = Value("x", (4,), DType.F32)
    made, calls = [source], []
    for number in range(draw(st.integers(1, 10))):
        reads = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
        sizes = draw(st.lists(st.integers(0, 100), min_size=1, max_size=2))
        outputs = tuple(Value(f"v{number}.{k}", (size,), DType.F32) for k, size in enumerate(sizes))
        calls.append(Call(number, (*reads, *outputs), outputs, "", ""))
        made += outputs
    elsewhere = draw(st.lists(st.sampled_from(made[1:]), max_size=2, unique=True))
    return calls, elsewhere


def bytes_survive(plan: Plan, calls: list[Call]) -> bool:
    """Whether each call finds its inputs when every value is written byte by byte."""
    arena: list[Value | None] = [None] * plan.size

    def cells(value: Value) -> range:
        return range(plan.offsets[value], plan.offsets[value] + value.bytes)

    for call in calls:
        inputs = [v for v in call.values if v in plan.offsets and v not in call.outputs]
        if any(arena[cell] != value for value in inputs for cell in cells(value)):
            return False
        for value in call.outputs:
            for cell in cells(value) if value in plan.offsets else ():
                arena[cell] = value
        # A kernel writes while it still reads, and all its outputs are to be there at the end.
        for value in (*inputs, *(v for v in call.outputs if v in plan.offsets)):
            if any(arena[cell] != value for cell in cells(value)):
                return False
    return True


@given(programs())
def test_a_plan_is_right_and_verified(program):
    calls, elsewhere = program
    plan = plan_memory(calls, elsewhere)
    verify_plan(plan, calls)
    assert bytes_survive(plan, calls)
    assert set(plan.offsets) == {v for c in calls for v in c.outputs if v not in elsewhere}
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets.values())
    assert plan.size <= sum(-(-v.bytes // ALIGNMENT) * ALIGNMENT for v in plan.offsets)


@given(programs(), st.data())
def test_the_verifier_agrees_with_brute_force_on_any_plan(program, data):
    calls, elsewhere = program
    values = [v for call in calls for v in call.outputs if v not in elsewhere]
    offsets = {value: ALIGNMENT * data.draw(st.integers(0, 6)) for value in values}
    plan = Plan(offsets, max((offsets[v] + v.bytes for v in values), default=0))
    try:
        verify_plan(plan, calls)
        accepted = True
    except VerifyError:
        accepted = False
    assert accepted == bytes_survive(plan, calls)


def chain(length: int, size: int = 64) -> list[Call]:
    values = [Value(f"v{n}", (size,), DType.F32) for n in range(length + 1)]
    return [Call(n, (values[n], values[n + 1]), (values[n + 1],), "", "") for n in range(length)]


def test_a_chain_needs_two_buffers():
    assert plan_memory(chain(10), ()).size == 2 * 64 * 4


def test_values_outside_the_arena_are_refused():
    calls = chain(2)
    (first,) = calls[0].outputs
    plan = plan_memory(calls, ())
    for offset in (-ALIGNMENT, 4, plan.size):
        with pytest.raises(VerifyError, match="lies at"):
            verify_plan(Plan({**plan.offsets, first: offset}, plan.size), calls)


def test_a_clash_within_a_call_names_both_values():
    calls = chain(2)
    plan = Plan({calls[0].outputs[0]: 0, calls[1].outputs[0]: 0}, 256)
    with pytest.raises(VerifyError, match=r"call 1 has v2 and v1 in one place"):
        verify_plan(plan, calls)
