"""The strategies draw what they say, shrink towards the simple, and show how to rebuild it."""

from __future__ import annotations

import numpy as np
from hypothesis import find, given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.interp import from_storage, run
from tensorc.ir.nodes import Buffer, For, Func, Load, Reduce, Store, Var
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes
from tensorc.schedule import primitives
from tensorc.schedule.step import explain
from tensorc.testing import Trial, illegal_steps, inputs, oracle, programs, schedules
from tensorc.testing.arrays import make_inputs
from tensorc.testing.draw import Seeded
from tensorc.testing.programs import ProgramOptions, make_program

FAST = settings(max_examples=60)


@given(st.data())
@FAST
def test_programs_are_well_formed_and_run(data: st.DataObject) -> None:
    func = data.draw(programs(gathers=data.draw(st.booleans())))
    verify(func)
    assert parse(print_func(func)) == func
    for given_ in data.draw(inputs(func)):
        run(func, given_)


def test_most_programs_have_a_conflict() -> None:
    conflicts = 0
    for seed in range(300):
        func = make_program(Seeded(seed), ProgramOptions())
        sizes = dict.fromkeys(("N", "M"), 5)
        given_ = make_inputs(Seeded(0), func, sizes)
        conflicts += oracle.has_conflict(func, oracle.log_of(func, given_))
    assert conflicts >= 240


def test_programs_hold_every_form() -> None:
    drawn = [make_program(Seeded(seed), ProgramOptions(gathers=True)) for seed in range(400)]
    reduces = {r.op for f in drawn for r in nodes(f, Reduce)}
    assert {"sum", "max", "argmax", "argmin", "welford", "logsumexp"} <= reduces
    assert {p.mode for f in drawn for p in f.params} == {"in", "const", "out", "inout"}
    assert {b.dtype for f in drawn for b in _buffers(f)} >= {
        DType.of(n) for n in ("bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64")
    }
    triangular = [x for f in drawn for x in nodes(f, For) if _reads_a_loop(x, f)]
    symbolic = [f for f in drawn if any(isinstance(e, Var) for b in _buffers(f) for e in b.shape)]
    gathers = [n for f in drawn for n in nodes(f, Load) for i in n.indices for _ in nodes(i, Load)]
    assert len(triangular) >= 10
    assert len(symbolic) >= 40
    assert len(gathers) >= 40


def _buffers(func: Func) -> list[Buffer]:
    held = [p.value for p in func.params if isinstance(p.value, Buffer)]
    return held + [s.buffer for s in nodes(func, Store)]


def _reads_a_loop(loop: For, func: Func) -> bool:
    names = {x.var.name for x in nodes(func, For)}
    return any(v.name in names for e in (loop.begin, loop.end) for v in nodes(e, Var))


def test_a_program_shrinks_to_one_short_stage() -> None:
    smallest = find(programs(), lambda func: True)
    assert len([*nodes(smallest, Store), *nodes(smallest, Reduce)]) <= 2
    assert len(list(nodes(smallest, For))) <= 1


def test_a_schedule_shrinks_to_no_step() -> None:
    func = make_program(Seeded(1), ProgramOptions())
    assert find(schedules(func), lambda trial: True).steps == ()
    one = find(schedules(func), lambda trial: bool(trial.steps))
    assert len(one.steps) == 1


def test_what_is_shown_rebuilds_it() -> None:
    func = make_program(Seeded(5), ProgramOptions())
    trial = find(schedules(func), lambda found: len(found.steps) >= 2)
    names = {c.__name__: c for c in (Trial, *_steps())}
    assert eval(repr(trial), {"parse": parse, "Var": Var, "DType": DType, **names}) == trial
    assert repr(programs(stages=2)) == "programs(stages=2)"
    assert repr(schedules(func, most=3)).startswith("schedules(")


def _steps() -> list[type]:
    return [getattr(primitives, name) for name in primitives.__all__]


@given(st.data())
@FAST
def test_schedules_are_legal(data: st.DataObject) -> None:
    func = data.draw(programs())
    trial = data.draw(schedules(func))
    assert len(list(trial.states())) == len(trial.steps) + 1


@given(st.data())
@FAST
def test_illegal_steps_are_refused(data: st.DataObject) -> None:
    for verdict in data.draw(illegal_steps(data.draw(programs()))):
        assert explain(verdict.step, verdict.state) == verdict.violation
        assert not verdict.accepted


def test_arrays_hold_odd_values() -> None:
    text = """
def f(A: Buffer["f32", 40], B: Buffer["i8", 40], C: Buffer["bool", 40], O: Buffer["f32", "out"]):
    O[()] = A[0]
"""
    func = parse(text)
    floats, integers = set(), set()
    for seed in range(40):
        given_ = make_inputs(Seeded(seed), func, {})
        floats |= {repr(v) for v in from_storage(given_["A"], DType.F32).tolist()}
        integers |= set(given_["B"].tolist())
        assert given_["C"].dtype == np.bool_
    assert {"nan", "inf", "-inf", "-0.0"} <= floats
    assert any(0 < abs(float(v)) < 2e-45 for v in floats if v not in ("nan", "inf", "-inf"))
    assert {-128, 127, 0} <= integers
