"""Properties of all primitives together, over random programs and schedules."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import Kind, ScheduleError
from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.ir.places import sizes_of
from tensorc.ir.walk import leaves
from tensorc.schedule.primitives import Parallel, Reorder, Vectorize
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.state import State, buffers, loops, names
from tensorc.schedule.step import REGISTRY, Step, explain, legal, violations
from tensorc.target import Target
from tensorc.testing import examine, illegal_steps, oracle, programs, schedules
from tensorc.testing.arrays import make_inputs
from tensorc.testing.draw import Drawn, Seeded
from tensorc.testing.programs import ProgramOptions, make_program
from tensorc.testing.schedules import draw_step, primitives_for, start
from tests.schedule.checking import TARGET

SOME = settings(max_examples=80)
SMALL = ProgramOptions(symbolic=0, data_guards=False, extents=(4, 3, 2, 5, 1, 0))


@given(st.data())
@SOME
def test_legal_schedules_keep_the_meaning(data: st.DataObject) -> None:
    trial = data.draw(schedules(data.draw(programs())))
    assert examine(trial.func, trial.steps) is None


@given(st.data())
@SOME
def test_all_that_ask_get_one_answer(data: st.DataObject) -> None:
    func = data.draw(programs())
    s = Schedule(func, TARGET)
    for _ in range(6):
        step = draw_step(Drawn(data.draw), s.state)
        if step is None:
            continue
        verdict, before = explain(step, s.state), s.func
        assert legal(step, s.state) is (verdict is None)
        assert next(violations(step, s.state), None) == verdict
        if verdict is None:
            s.apply(step)
            continue
        with pytest.raises(ScheduleError) as error:
            s.apply(step)
        assert error.value.violation == verdict
        assert s.func is before
        again = pickle.loads(pickle.dumps(error.value))
        assert (again.violation, str(again)) == (verdict, str(error.value))


@given(st.data())
@SOME
def test_names_are_followed(data: st.DataObject) -> None:
    trial = data.draw(schedules(data.draw(programs())))
    states = list(trial.states())
    for step, before, after in zip(trial.steps, states, states[1:], strict=False):
        _follow(step, before, after)


def _follow(step: Step, before: State, after: State) -> None:
    old, new = set(names(before.func)), set(names(after.func))
    for name in old:
        assert (step.forward(before, name) in new) or step.forward(before, name) is None
    for name in step.made(before):
        assert name in new
        assert name not in before.used
    assert {step.forward(before, name) for name in old} - {None} <= new
    assert not (new - old) & before.used
    known = {*loops(after.func), *buffers(after.func), *(s.name for _, s in leaves(after.func))}
    assert known <= new <= after.used


@given(st.data())
@SOME
def test_a_witness_is_in_the_access_log(data: st.DataObject) -> None:
    for verdict in data.draw(illegal_steps(data.draw(programs()))):
        witness = verdict.violation.witness
        if verdict.kind is Kind.ILLEGAL and verdict.violation.code.startswith("DEP"):
            assert witness is not None
            _confirm(verdict.step, verdict.state, witness)


def _confirm(step: Step, state: State, witness: Any) -> None:
    func = state.func
    if step.primitive not in ("parallel", "vectorize", "reorder", "fission", "merge"):
        return
    sizes = dict(witness.sizes)
    if max(sizes.values(), default=0) > 12 or sizes.keys() != set(sizes_of(func)):
        return
    log = run(func, make_inputs(Seeded(0), func, sizes), log=True).log
    found = [
        n
        for n, access in enumerate(log)
        if (access.statement, access.loops) in (witness.source, witness.sink)
        and (access.buffer, access.indices) == witness.element
    ]
    ends = [(log[n].statement, log[n].loops) for n in found]
    assert witness.source in ends
    assert witness.sink in ends
    assert ends.index(witness.source) < len(ends) - 1 - ends[::-1].index(witness.sink)


@pytest.mark.parametrize("seed", range(150))
def test_the_exact_rules_agree_with_brute_force(seed: int) -> None:
    func = make_program(Seeded(f"brute {seed}"), SMALL)
    state = start(func)
    arguments = make_inputs(Seeded(seed), func, {}, special=False)
    pairs = list(oracle.conflicts(func, oracle.log_of(func, arguments)))
    for name in loops(func):
        violation, met = explain(Parallel(name), state), oracle.overlap(pairs, name)
        assert (violation is None) == (met is None), (name, violation, met)
        violation, met = explain(Vectorize(name), state), oracle.out_of_lockstep(func, pairs, name)
        if violation is None or violation.kind is Kind.ILLEGAL:
            assert (violation is None) == (met is None), (name, violation, met)
    for step in Reorder.choices(state):
        violation = explain(step, state)
        if violation is None or violation.kind is Kind.ILLEGAL:
            bad = oracle.reordered(func, step.apply(state).func, arguments, {})
            assert (violation is None) == (bad is None), (step, violation, bad)


@pytest.mark.parametrize("primitive", sorted(REGISTRY))
def test_choices_are_finite_and_fixed(primitive: str) -> None:
    for seed in range(12):
        state = start(make_program(Seeded(seed), ProgramOptions()))
        first = list(REGISTRY[primitive].choices(state))
        assert first == list(REGISTRY[primitive].choices(state))
        assert len(set(first)) == len(first)


def test_every_primitive_finds_a_legal_choice_somewhere() -> None:
    left = set(primitives_for(Target.parse(TARGET)))
    for seed in range(120):
        state = start(make_program(Seeded(seed), ProgramOptions()))
        for name in sorted(left):
            if any(legal(step, state) for step in REGISTRY[name].choices(state)):
                left.discard(name)
    assert not left


def test_a_program_is_not_changed_by_questions() -> None:
    func: Func = make_program(Seeded(3), ProgramOptions())
    state = start(func)
    for name in sorted(REGISTRY):
        for step in REGISTRY[name].choices(state):
            explain(step, state)
    assert state == start(func)
