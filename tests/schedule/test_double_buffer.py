"""double_buffer: a copy runs ahead of what reads it; every refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc.schedule.primitives as p
from tensorc.errors import Kind
from tensorc.ir.interp import run
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain
from tensorc.target import Target
from tensorc.testing.arrays import make_inputs, make_sizes
from tensorc.testing.confirm import confirmed
from tensorc.testing.differential import compare
from tensorc.testing.draw import Drawn, Source
from tensorc.testing.programs import ProgramOptions, make_program
from tests.schedule.checking import CUDA, body, check, refused, schedule

ROWS = """
def rows(A: Buffer["f32", {n}, 4], B: Buffer["f32", {n}, 4, "out"]):
    for k in range({begin}, {n}):
        T = alloc("f32", 4)
        for x in range(4):
            T[x] = A[k, x]
        for y in range(4):
            B[k, y] = T[3 - y] * 2.0
"""
CARRIED = """
def carried(A: Buffer["f32", 9, 4, "inout"], B: Buffer["f32", 9, 4, "out"]):
    for k in range(3, 9):
        T = alloc("f32", 4)
        for x in range(4):
            T[x] = A[{read}, x]
        for y in range(4):
            B[k, y] = T[3 - y] * 2.0
            A[k, y] = B[k, y] + 1.0
"""


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("extent", ["0", "1", "2", "7", "N"])
def test_rows_ahead(extent: str, stages: int) -> None:
    s = schedule(ROWS.format(n=extent, begin=0), CUDA)
    loops = s.double_buffer("T", "k", stages)
    several = extent not in ("0", "1") and stages > 2
    assert loops == (("k.first", "x.first") if several else ("x.first",))
    check(s)


@pytest.mark.parametrize("stages", [2, 3])
def test_a_loop_that_begins_elsewhere(stages: int) -> None:
    s = schedule(ROWS.format(n=9, begin=4), CUDA)
    s.double_buffer("T", "k", stages)
    check(s)
    assert body(s.func).startswith(f'T = alloc("f32", {stages}, 4)')


def test_two_buffers_of_one_loop() -> None:
    s = schedule(
        """
def products(A: Buffer["f32", 6, 4], B: Buffer["f32", 6, 4], C: Buffer["f32", 4, "out"]):
    for y in range(4):
        C[y] = 0.0
    for k in range(6):
        for z in range(4):
            C[z] += A[k, z] * B[k, 3 - z]
""",
        CUDA,
    )
    for buffer in ("A", "B"):
        s.cache_read("C", buffer, at="k", layout=["z"], scope="shared")
        s.double_buffer(f"{buffer}.pack", "k")
    check(s)
    assert s.statements()[1:3] == ("A.pack.first", "B.pack.first")


@pytest.mark.parametrize(("back", "stages"), [(1, 2), (2, 3), (1, 3)])
def test_what_is_written_too_late(back: int, stages: int) -> None:
    """The copy may run before an iteration that writes what it reads."""
    s = schedule(CARRIED.format(read=f"k - {back}"), CUDA)
    with refused(s, "DEP006") as found:
        s.double_buffer("T", "k", stages)
    assert found.violation.kind is Kind.ILLEGAL
    assert confirmed(p.DoubleBuffer("T", "k", stages), s.state) is not None


@pytest.mark.parametrize(("back", "stages"), [(2, 2), (3, 3), (3, 2)])
def test_what_is_written_in_time(back: int, stages: int) -> None:
    s = schedule(CARRIED.format(read=f"k - {back}"), CUDA)
    s.double_buffer("T", "k", stages)
    check(s)


def test_refused() -> None:
    s = schedule(ROWS.format(n=9, begin=0), CUDA)
    with refused(s, "REF004"):
        s.double_buffer("U", "k")
    with refused(s, "REF001"):
        s.double_buffer("T", "z")
    for stages in (1, 9, 2.0):
        with refused(s, "ARG001"):
            s.double_buffer("T", "k", stages)  # type: ignore[arg-type]
    with refused(s, "RGN004"):
        s.double_buffer("A", "k")
    with refused(s, "STR002"):
        s.double_buffer("T", "x")
    on_a_cpu = schedule(ROWS.format(n=9, begin=0))
    with refused(on_a_cpu, "ARG001"):
        on_a_cpu.double_buffer("T", "k")
    s.bind("k", "blockIdx.x")
    with refused(s, "STR003"):
        s.double_buffer("T", "k")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("T[x] = A[k, x]", "T[x] = A[k, x]\n        T[0] = 1.0"), "STR007"),
        (("T[x] = A[k, x]", "T[x] = A[k, x]\n            T[x] = T[x] + 1.0"), "STR007"),
        (("T[x] = A[k, x]", "T[x] = A[k, x]\n            B[k, x] = 1.0"), "STR007"),
        (('alloc("f32", 4)', 'alloc("f32", 4 + k)'), "STR006"),
    ],
)
def test_forms_that_are_refused(change: tuple[str, str], code: str) -> None:
    s = schedule(ROWS.format(n=9, begin=0).replace(*change), CUDA)
    with refused(s, code):
        s.double_buffer("T", "k")


def test_too_much_shared_memory() -> None:
    """One slot fits a block, two do not."""
    text = """
def large(A: Buffer["f32", 1, 8, 30000], B: Buffer["f32", 1, 8, "out"]):
    for b in range(1):
        for k in range(8):
            for x in range(30000):
                B[b, k] = A[b, k, x]
"""
    s = schedule(text, CUDA)
    s.cache_read("B", "A", at="k", layout=["x"], scope="shared")
    s.bind("b", "blockIdx.x")
    with refused(s, "TGT001"):
        s.double_buffer("A.pack", "k")


def with_a_copy(source: Source) -> tuple[State, list[Step]]:
    """A random program that reads something through a copy, and what may run ahead in it."""
    func = make_program(source, ProgramOptions())
    state = State.start(func, Target.parse(CUDA))
    reads = [x for x in p.CacheRead.choices(state) if isinstance(x, p.CacheRead) and x.at]
    if reads:
        step = source.pick(reads)
        if explain(step, state) is None:
            state = step.apply(state)
    steps = list(p.DoubleBuffer.choices(state))
    if steps:
        found = source.pick(steps)
        assert isinstance(found, p.DoubleBuffer)
        return state, [p.DoubleBuffer(found.buffer, found.loop, source.integer(2, 3))]
    return state, []


@given(st.data())
def test_random_copies_ahead(data: st.DataObject) -> None:
    """What is allowed keeps the meaning; what is called illegal does harm."""
    source = Drawn(data.draw)
    state, steps = with_a_copy(source)
    for step in steps:
        violation = explain(step, state)
        if violation is not None:
            assert violation.kind is not Kind.ILLEGAL or confirmed(step, state) is not None
            continue
        after = step.apply(state).func
        verify(after)
        arguments = make_inputs(source, state.func, make_sizes(source, state.func))
        expected = run(state.func, arguments, bounds=True)
        wrong = compare(expected, run(after, arguments).outputs, state.func)
        assert wrong is None, f"{wrong}\n{print_func(state.func)}\n{step}"
