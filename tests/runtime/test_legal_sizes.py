"""A call refuses the sizes for which an access would leave its array, and no others."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorc as tc
from tensorc.analysis.affine import NotAffineError, model
from tensorc.analysis.evaluate import evaluate
from tensorc.analysis.legal_sizes import first_outside, legal_sizes
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, InterpreterError
from tensorc.ir.arith import TRUE
from tensorc.ir.interp import run
from tensorc.ir.nodes import Buffer, Const, Func, Var
from tensorc.ir.print import print_expr
from tensorc.ir.walk import replace, rewrite, with_buffers
from tensorc.testing import programs
from tensorc.testing.arrays import make_inputs
from tensorc.testing.draw import Seeded

FILL = 'def f(B: Buffer["f32", N, "out"]):\n    for i in range(8):\n        B[i] = 0.0\n'
REFUSED = r"N = 4 \(dimension 0 of `B`\): .* B\[4\] at \(i=4\), outside of .*\(4\); legal: 8 <= N"
HEAD = 'def f(A: Buffer["f32", N], I: Buffer["i32", M], K: index, B: Buffer["f32", M, "out"]):\n'
CONDITIONS = {
    "for i in range(M):\n        B[i] = 0.0": "true",
    "for i in range(M):\n        B[i] = A[i]": "M <= N",
    "for i in range(M):\n        if i < N:\n            B[i] = A[i]": "true",
    "for i in range(M):\n        B[i] = select(i < N, A[i], 0.0)": "true",
    "for i in range(K):\n        B[i] = 0.0": "K <= M",
    "for i in range(1, M):\n        B[i - 1] = A[i * 2]": "2 <= M and M * 2 <= N + 1 or M < 2",
    "for i in range(M):\n        B[i] = A[index(I[i])]": "1 <= N or N == 0 and M == 0",
    "for i in range(M):\n        B[i] = select(I[i] > 0, A[i], 0.0)": "true",
}


@pytest.mark.parametrize("body", CONDITIONS)
def test_the_condition(body):
    found = legal_sizes(tc.parse(f"{HEAD}    {body}\n"))
    assert ("true" if found == TRUE else print_expr(found)) == CONDITIONS[body]


def test_a_call_refuses_sizes_that_lead_outside():
    module = tc.build(tc.parse(FILL))
    small, exact = np.ones(4, "f4"), np.ones(8, "f4")
    for kernel in (module, pickle.loads(pickle.dumps(module))):
        with pytest.raises(ArgumentError, match=REFUSED) as caught:
            kernel(small)
        assert caught.value.argument == "N"
    assert small.all()
    module(exact)
    assert not exact.any()


def test_a_schedule_is_asked_as_its_source():
    schedule = tc.Schedule(tc.parse(FILL))
    schedule.vectorize(schedule.split(schedule.loops()[0], 3)[1])
    with pytest.raises(ArgumentError, match=REFUSED):
        tc.build(schedule)(np.ones(4, "f4"))


def test_an_emulated_device_is_asked_too():
    schedule = tc.Schedule(tc.parse(FILL), target="cuda:sm_90")
    schedule.bind(schedule.loops()[0], "threadIdx.x")
    with pytest.raises(ArgumentError, match=REFUSED):
        tc.build(schedule, device="emulated")(np.ones(4, "f4"))


def test_the_c_function_returns_a_number_before_it_writes():
    module = tc.build(tc.parse(FILL))
    small = np.ones(4, "f4")
    function = module.signature.function(module.address)
    assert function(small.ctypes.data, 4) == 1
    assert small.all()
    assert "1: the sizes lead outside of an array; legal: 8 <= N" in module.source("header")


def test_a_function_without_sizes_asks_nothing():
    func = tc.parse(FILL.replace("N", "8"))
    before = model.cache_info()
    assert legal_sizes(func) == TRUE
    assert model.cache_info() == before


def opened(func: Func) -> Func:
    """The program with a size of its own in place of each constant extent of its parameters."""
    changed = {}
    for param in func.params:
        if isinstance(param.value, Buffer):
            shape = tuple(
                Var(f"{param.name}_{n}", DType.INDEX) if isinstance(extent, Const) else extent
                for n, extent in enumerate(param.value.shape)
            )
            changed[param.value] = replace(param.value, shape=shape)
    params = tuple(replace(p, value=changed.get(p.value, p.value)) for p in func.params)

    def change(buffer: Buffer) -> Buffer:
        return changed.get(buffer, buffer)

    body = rewrite(func.body, lambda node: with_buffers(node, change))
    return replace(func, params=params, body=body)


def is_affine(func: Func) -> bool:
    program = model(func)
    try:
        return all(
            program.access(stmt, n)[1] and program.bounds(stmt, access)
            for stmt in program.statements
            for n, access in enumerate(stmt.accesses)
        )
    except NotAffineError:
        return False


@settings(max_examples=40)
@given(programs(stages=2, data_guards=False, iterations=60), st.data())
def test_the_entry_refuses_exactly_what_the_interpreter_does(func, data):
    func = opened(func)
    names = model(func).symbols
    near = {p.name: p.value for p in func.params}
    sizes = {name: data.draw(st.integers(0, 9), name) for name in names if name not in near}
    scalars = {name: 2 for name in names if name in near}
    arguments = make_inputs(Seeded(0), func, sizes, special=False)
    legal = evaluate(legal_sizes(func), sizes | scalars)
    try:
        run(func, arguments)
    except InterpreterError as error:
        assume("out of bounds" in str(error))
        assert not legal or not is_affine(func)
    else:
        assert legal
    assert bool(legal) == (first_outside(func, sizes | scalars) == "")
