"""What is no schedule, no trace and no program: a typed error that names the argument."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import tensorc as tc
from tensorc.analysis.violation import Violation
from tensorc.errors import Kind
from tensorc.ir.parse import parse
from tensorc.runtime.module import RuntimeCheckError

MATMUL = """
def matmul(A: Buffer["f32", 64, 64], B: Buffer["f32", 64, 64], C: Buffer["f32", 64, 64, "out"]):
    P = alloc("f32", 64)
    for i in range(64):
        for j in range(64):
            C[i, j] = 0.0
            for k in range(64):
                C[i, j] += A[i, k] * B[k, j]
    for m in range(64):
        P[m] = A[m, 0]
    for n in range(64):
        C[0, n] = P[n]
"""

# A method of a schedule, and how the refusal begins.
STEPS = [
    ('split("l", 4)', "error[REF001]: there is no loop `l`"),
    ('split(["i"], 4)', "error[ARG001]: cannot apply split: `loop` is ['i'], needed a name"),
    ('split("i", 0)', "error[ARG001]: cannot split `i`: the factor 0 is no integer from 1"),
    ('split("i", -4)', "error[ARG001]: cannot split `i`: the factor -4 is no integer from 1"),
    ('split("i", 2.5)', "error[ARG001]: cannot split `i`: the factor 2.5 is no integer from 1"),
    ('split("i", True)', "error[ARG001]: cannot split `i`: the factor True is no integer from 1"),
    ('split("i", "8")', "error[ARG001]: cannot split `i`: the factor '8' is no integer from 1"),
    ('split("i", [8, None])', "error[ARG001]: cannot split `i`: the factor None is no integer"),
    ('split("i", 8, tail=3)', "error[ARG001]: cannot apply split: `tail` is 3, needed a name"),
    ('reorder(["i", "j"])', "error[ARG001]: cannot apply reorder: `order` is"),
    ("reorder()", "error[ARG001]: cannot reorder: name two or more different loops"),
    ("parallel(None)", "error[ARG001]: cannot apply parallel: `loop` is None, needed a name"),
    ('cache_read("C", "A", layout="ij")', "error[REF001]: there is no loop `ij`"),
    ('cache_read("C", "A", layout=3)', "error[ARG001]: cannot apply cache_read: `layout` is (3,)"),
    ('cache_read("C", "A", at=3)', "error[ARG001]: cannot apply cache_read: `at` is 3, needed a"),
    ('cache_write("C", scope=["x"])', "error[ARG001]: cannot apply cache_write: `scope` is ['x']"),
    ('compute_at("P", "n", recompute=1)', "error[ARG001]: cannot apply compute_at: `recompute`"),
    ('transform_layout("P", lambda d: (d, "x"))', "error[ARG001]: cannot apply transform_layout:"),
    ('transform_layout("P", ("d0",))', "error[ARG001]: cannot apply transform_layout: `layout`"),
    ('transform_layout("P", lambda: ())', "error[RGN003]: cannot change the layout of `P`:"),
    ('pad("i", 0)', "error[ARG001]: cannot pad `i`: the multiple 0 is no integer from 1"),
    ('pad("i", 2.5)', "error[ARG001]: cannot pad `i`: the multiple 2.5 is no integer from 1"),
    ('inline(["P"])', "error[ARG001]: cannot apply inline: `statement` is ['P'], needed a name"),
    ('fuse("i", "i")', "error[STR001]: cannot fuse `i` and `i`"),
    ('merge("i", "i")', "error[STR005]: cannot merge `i` and `i`"),
    ('apply("split")', "argument `step`: expected a Step, got 'split'"),
    ("replay(None)", "argument `steps`: expected a trace or steps, got None"),
    ("replay([3])", "argument `step`: expected a Step, got 3"),
    ("undo(1)", "argument `count`: got 1; the schedule has 0 steps"),
    ("undo(-1)", "argument `count`: got -1; the schedule has 0 steps"),
    ('undo("x")', "argument `count`: got 'x'; the schedule has 0 steps"),
    ("undo(0.0)", "argument `count`: got 0.0; the schedule has 0 steps"),
    ('loops("X")', "argument `statement`: there is no 'X'; legal here: C.init, C, P, C_2"),
    ("loops([])", "argument `statement`: there is no []; legal here: C.init, C, P, C_2"),
    ("loops({})", "argument `statement`: there is no {}; legal here: C.init, C, P, C_2"),
    ("loops(5)", "argument `statement`: there is no 5; legal here: C.init, C, P, C_2"),
    ('transform_layout("P", dict)', "argument `layout`: <class 'dict'> does not tell how many"),
]


@pytest.mark.parametrize(("call", "start"), STEPS, ids=[call for call, _ in STEPS])
def test_a_bad_step_is_refused_and_changes_nothing(call: str, start: str) -> None:
    schedule = tc.Schedule(parse(MATMUL))
    before = str(schedule)
    with pytest.raises(tc.TensorcError) as refused:
        eval(f"s.{call}", {"s": schedule})
    assert isinstance(refused.value, tc.ScheduleError | tc.ArgumentError)
    assert str(refused.value).startswith(start)
    assert_picklable(refused.value)
    assert str(schedule) == before
    assert schedule.steps == ()


# What makes programs, schedules and traces; the error's type and how it begins.
ENTRIES = [
    ("tc.Schedule(None)", "argument `func`: expected a Func, got None"),
    ("tc.Schedule('def f(): pass')", "argument `func`: expected a Func, got 'def f(): pass'"),
    ("tc.Schedule(f, target=3)", "a target is a text or a Target, not int"),
    ("tc.Schedule(f, target='gpu')", "'gpu': the kind of target cannot be 'gpu'; legal here: cpu"),
    ("tc.parse(3)", "argument `text`: expected the text of a function, got 3"),
    ("tc.parse('')", "<text>:1:1: expected a function, `def name(...):`"),
    (
        "tc.Schedule(tc.parse('def f(A: Buffer[\"f32\", -4]): pass'))",
        "numbers: parameter `A`: ",
    ),
    ("tc.placeholder((-4,), 'f32')", "argument `shape`: a size is at least 0, got -4"),
    ("tc.placeholder((4,), 'f33')", "argument `dtype`: unknown dtype 'f33'; legal here: bool, i8"),
    ("tc.func()", "argument `function`: there are no options: write @tc.func alone"),
    ("tc.reduce_axis(-1)", "argument `extent`: an extent is at least 0, got -1"),
    ("tc.reduce_axis(2.5)", "argument `extent`: expected integers, sizes such as 'N'"),
    ("tc.compute((-4,), lambda i: 1.0)", "argument `shape`: a size is at least 0, got -4"),
    ("tc.compute((4,), 3)", "argument `fn`: expected a function of the indices, got 3"),
    ("tc.compute((4,), lambda i, j: 1.0)", "argument `fn`: it takes 2 indices (i, j), the shape"),
    ("tc.func_of(3, [])", "argument `inputs`: expected a list of tensors, got an int"),
    ("tc.func_of([], [])", "argument `outputs`: expected one or more tensors"),
    ("tc.build(3)", "argument `what`: it is an int; needed a Func or a Schedule"),
    ("tc.Trace.from_json(3)", "argument `text`: expected the text of a trace, got 3"),
    ("tc.Trace.from_json('')", "<trace>:1:1: Expecting value"),
    ("tc.Trace.from_json('{')", "<trace>:1:2: Expecting property name"),
    ("tc.Trace.from_json('{\"version\": 1\\n')", "<trace>:2:1: Expecting ',' delimiter"),
    ("tc.Trace.from_json('[' * 100000)", "<trace>:1:1: no JSON that can be read: maximum rec"),
    ("tc.Trace.from_json('9' * 5000)", "<trace>:1:1: no JSON that can be read: Exceeds the"),
    ("tc.Trace.from_json('[]')", '<trace>:1:1: an object with "version": 1 was expected'),
    ("trace()", "<trace>:1:1: step 1: argument `primitive`: got 3; the primitives are annotate,"),
    ("trace(primitive='spilt')", "<trace>:1:1: step 1: argument `primitive`: got {'primitive':"),
    ("trace(primitive=['a'])", "<trace>:1:1: step 1: argument `primitive`: got {'primitive':"),
    ("trace(primitive='split', loop='i')", "<trace>:1:1: step 1: argument `factors`: split needs"),
    (
        "trace(primitive='split', loop='i', factors=8)",
        "<trace>:1:1: step 1: argument `steps`: cannot apply split: `factors` is 8, needed",
    ),
    (
        "trace(primitive='split', loop='i', factors=[8], by=8)",
        "<trace>:1:1: step 1: argument `by`: split has the fields loop, factors, tail",
    ),
    (
        "trace(primitive='transform_layout', buffer='P', layout=['d0 ** 2'])",
        "<trace>:1:1: step 1: argument `layout`: 'd0 ** 2' is no index expression",
    ),
    ("tc.Trace.from_python(3)", "argument `text`: expected the text of a trace, got 3"),
    ("tc.Trace.from_python('', schedule=3)", "argument `schedule`: expected a Schedule, got 3"),
    ("tc.Trace.from_python('s.split(')", "<trace>:1:8: '(' was never closed"),
    ("tc.Trace.from_python('import os')", "<trace>:1:1: a call such as s.split(...) was expected"),
    ("tc.Trace.from_python('s.go()')", "<trace>:1:1: go is unknown; the primitives are annotate,"),
    (
        "tc.Trace.from_python('s.splt(\"i\", 4)')",
        "<trace>:1:1: splt is unknown; did you mean split? the primitives are annotate, bind,",
    ),
    (
        "tc.Trace.from_python('s.split(\"i\", factor=4)')",
        "<trace>:1:1: argument `factor`: did you mean factors? split has the fields loop, factors",
    ),
    (
        'tc.Trace.from_python(\'s.split("i", 4, loop="j")\')',
        "<trace>:1:1: argument `loop`: it is given twice",
    ),
    (
        "tc.Trace.from_python('s.split(\"i\", **{})')",
        "<trace>:1:1: argument `split`: each argument must stand by itself",
    ),
    (
        "tc.Trace.from_python('s.split(i, 4)')",
        "<trace>:1:1: argument `argument`: 'i' is not a literal, nor assigned before",
    ),
    (
        "tc.Trace.from_python('s.unroll(\"i\", 4)')",
        "<trace>:1:1: argument `unroll`: it takes loop",
    ),
]


def trace(**entry: object) -> tc.Trace:
    """The trace of one JSON entry; of the number 3 without fields."""
    import json

    return tc.Trace.from_json(json.dumps({"version": 1, "steps": [entry or 3]}))


@pytest.mark.parametrize(("call", "start"), ENTRIES, ids=[call for call, _ in ENTRIES])
def test_a_bad_argument_is_named(call: str, start: str) -> None:
    with pytest.raises(tc.TensorcError) as refused:
        eval(call, {"tc": tc, "f": parse(MATMUL), "trace": trace})
    assert str(refused.value).startswith(start)
    assert_picklable(refused.value)


def assert_picklable(error: tc.TensorcError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def every_error(kind: type[tc.TensorcError] = tc.TensorcError) -> Iterator[type[tc.TensorcError]]:
    for child in kind.__subclasses__():
        yield child
        yield from every_error(child)


# Errors whose constructors take more than a message.
ARGUMENTS = {
    tc.ParseError: ("expected `)`", 1, 3, "f(", "a.txt"),
    tc.VerifyError: ("rank", "too few indices", ("body", 0)),
    tc.ArgumentError: ("shape", "too short"),
    tc.ScheduleError: (Violation("DEP001", Kind.ILLEGAL, "why"), "a report"),
    RuntimeCheckError: ("f", "C", "A", "out of bounds"),
}


def test_what_is_no_primitive_is_refused_with_the_nearest() -> None:
    s = tc.Schedule(parse(MATMUL))
    with pytest.raises(AttributeError, match=r"no attribute 'spilt'; did you mean split\? the"):
        s.spilt("i", 4)  # type: ignore[attr-defined]
    assert not hasattr(s, "frob")


def test_one_of_a_kind_is_not_several() -> None:
    s = tc.Schedule(parse(MATMUL))
    s.split("i", 4)
    assert repr(s) == "<Schedule of matmul: 1 step>"
    s.split("j", 4)
    assert repr(s) == "<Schedule of matmul: 2 steps>"


def test_every_error_can_be_pickled() -> None:
    package = importlib.import_module("tensorc")
    for module in pkgutil.walk_packages(package.__path__, "tensorc."):
        importlib.import_module(module.name)
    from tensorc.codegen.nvrtc import NvrtcError, NvrtcMissingError
    from tensorc.dtype import DType
    from tensorc.emulator.device import EmulationError
    from tensorc.emulator.emitter import UnsupportedInstructionError
    from tensorc.emulator.ptx_tokens import PtxError
    from tensorc.graph.graph import Value
    from tensorc.graph.onnx_calls import DependsOnDataError
    from tensorc.graph.unsupported import UnsupportedNetworkError
    from tensorc.runtime.measure.failures import RecordsError
    from tensorc.tlm.failures import DataError, LengthError, WeightsError

    network = {
        DataError: ("a/file.jsonl", "why"),
        LengthError: ("prompt", 300, 288),
        WeightsError: ("a/file.safetensors", "why"),
        NvrtcError: ("NVRTC_ERROR_COMPILATION", "what it printed", ("-arch=sm_90",)),
        NvrtcMissingError: (("/a/place",),),
        EmulationError: ("what the detectors found",),
        PtxError: ("why", 1, 2, "a line"),
        RecordsError: ("a/file.jsonl", "why"),
        UnsupportedInstructionError: ("wgmma.sync", 3, "an operation", ("add",)),
        UnsupportedNetworkError: ("a network", ("a problem",)),
        DependsOnDataError: ("a size", Value("x", (1,), DType.I64)),
    }
    found = set(every_error())
    assert found >= set(ARGUMENTS)
    for kind in found:
        if kind.__module__.startswith("tensorc"):
            assert_picklable(kind(*(ARGUMENTS | network).get(kind, ("what and why",))))
