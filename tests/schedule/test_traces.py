"""Traces as texts: whatever a text holds, it is a trace or a typed error; names of results."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorc.errors import ParseError, TensorcError
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace
from tests.schedule.checking import TARGET

PRODUCT = """def mm(A: Buffer["f32", 32, 32], B: Buffer["f32", 32, 32], C: Buffer["f32", 32, 32]):
    for i in range(32):
        for j in range(32):
            C[i, j] = 0.0
            for k in range(32):
                C[i, j] += A[i, k] * B[k, j]
"""
HANDLES = """s.decompose_reduction("C")
i, j, k = s.loops("C")
i0, i1 = s.split(i, 6)
j0, j1 = s.split(j, 16)
s.reorder(i0, j0, k, i1, j1)
(acc,) = s.cache_write("C", at=j0, scope="register")
copy = s.cache_read("C", "B", at=j0, layout=[k, j1])
s.transform_layout(copy, lambda x, y: (y, x))
"""


def product() -> Schedule:
    return Schedule(parse(PRODUCT), TARGET)


def scheduled() -> Schedule:
    """A schedule with steps of many kinds."""
    s = product()
    s.decompose_reduction("C")
    s.split("i", [2, 4], tail="guard")
    s.cache_write("C", at="j", scope="register")
    s.transform_layout(s.cache_read("C", "B"), lambda x, y: (y // 8, x, y % 8))
    s.annotate("k", "chunks", 2)
    s.parallel("i0")
    return s


JSON, PYTHON = scheduled().trace.to_json(), scheduled().trace.to_python()
CHARACTERS = st.sampled_from(string.printable + "\0\x85\u2028é\ud800")


def mutated(draw: st.DrawFn, text: str) -> str:
    """A text with one character removed, replaced or added, or without its end."""
    place = draw(st.integers(0, len(text) - 1))
    end = draw(st.sampled_from([place, place + 1, len(text)]))
    return text[:place] + draw(st.just("") | CHARACTERS) + text[end:]


@st.composite
def of_json(draw: st.DrawFn) -> str:
    return mutated(draw, JSON)


@st.composite
def of_python(draw: st.DrawFn) -> str:
    return mutated(draw, draw(st.sampled_from([PYTHON, HANDLES])))


def places(error: TensorcError) -> None:
    """A parse error tells a place of the text."""
    if isinstance(error, ParseError):
        assert error.line >= 1
        assert error.column >= 1


@given(of_json())
@example('{"version":1\n')
@example(JSON.replace("d0 // 8", "0"))
def test_no_text_breaks_from_json(text: str) -> None:
    try:
        trace = Trace.from_json(text)
    except TensorcError as error:
        places(error)
    else:
        assert Trace.from_json(trace.to_json()) == trace


@given(of_python(), st.booleans())
@example('s.split("i", 4)\x00', False)
@example("s.split('i', {[]: 1})", False)
def test_no_text_breaks_from_python(text: str, followed: bool) -> None:
    try:
        trace = Trace.from_python(text, schedule=product() if followed else None)
    except TensorcError as error:
        places(error)
    else:
        assert Trace.from_python(trace.to_python()) == trace


def test_every_beginning_of_a_trace_is_refused() -> None:
    for end in range(len(JSON.rstrip()) - 1):
        with pytest.raises(ParseError):
            Trace.from_json(JSON[:end])
        with pytest.raises(ParseError):
            Trace.from_json(JSON[:end] + "\n")


def test_results_of_calls_are_arguments_of_others() -> None:
    """The style of a program: what a trace file says is what Python would have done."""
    s = product()
    exec(HANDLES, {"s": s})
    read = Trace.from_python(HANDLES, schedule=product())
    assert read == s.trace
    lines = [span.line for span in read.spans if span is not None]
    assert lines == [1, 3, 4, 5, 6, 7, 8]


def test_names_that_exist_already_are_told_apart() -> None:
    """`i0` is what the step gives, not what it looks like."""
    text = """def f(A: Buffer["f32", 8, 8, "out"]):
    for i0 in range(8):
        for i in range(8):
            A[i0, i] = 1.0
"""
    trace = Trace.from_python(
        "i0, i1 = s.split('i', 4)\ns.unroll(i0)", schedule=Schedule(parse(text))
    )
    assert trace.to_python() == 's.split("i", 4)\ns.unroll("i0_2")\n'


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("parts = s.split('i', [2, 4])\ns.unroll(parts[1])", 's.unroll("i1")'),
        ("s.reorder(*s_loops)", None),
        ("one, two = s.split('i', 4)\ns.reorder(*[one, two])", 's.reorder("i0", "i1")'),
        ("order = s.loops('C')\ns.reorder(*order)", 's.reorder("i", "j", "k")'),
        ("a, = s.split('i', 4)", None),
        ("a.b, c = s.split('i', 4)", None),
        ("a = s.loops('X')", None),
        ("a = s.split('i', 4)\ns.unroll(a[2])", None),
        ("a = s.unroll('i')\ns.unroll(a[0])", None),
        ("a = 3", None),
    ],
)
def test_forms_of_assignment(text: str, python: str | None) -> None:
    s = product()
    s.decompose_reduction("C")
    if python is None:
        with pytest.raises(ParseError):
            Trace.from_python(text, schedule=s)
    else:
        assert Trace.from_python(text, schedule=s).to_python().splitlines()[-1] == python


def test_a_name_needs_the_schedule_that_it_depends_on() -> None:
    unused = "i0, i1 = s.split('i', 4)\ns.unroll('i1')"
    assert len(Trace.from_python(unused)) == 2
    with pytest.raises(ParseError, match="read the trace with the schedule that it is for"):
        Trace.from_python(unused.replace("'i1'", "i1"))


def test_a_trace_ends_at_a_refused_step() -> None:
    text = "a, b = s.split('i', 4)\nc = s.fuse('k', 'j')\ns.parallel(c)\n"
    assert Trace.from_python(text, schedule=product()).to_python().splitlines() == [
        's.split("i", 4)',
        's.fuse("k", "j")',
    ]


def test_a_layout_may_call_its_arguments_anything() -> None:
    (step,) = Trace.from_python("s.transform_layout('P', lambda k, c: (c % 16, k))")
    assert "lambda d0, d1: (d1 % 16, d0)" in Trace((step,)).to_python()
    with pytest.raises(ParseError, match="plain arguments"):
        Trace.from_python("s.transform_layout('P', lambda *k: k)")


def test_an_entry_that_is_wrong_is_found_in_its_line() -> None:
    text = JSON.replace('"cache_write"', '"cache_rite"')
    with pytest.raises(ParseError, match=r"step 3: .*did you mean cache_write") as error:
        Trace.from_json(text)
    assert '"cache_rite"' in error.value.source
