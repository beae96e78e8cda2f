"""tilelang #2393, apache/tvm PR#8121, PR#11913 and others: mistakes looked like compiler bugs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import tensorc as tc
from tensorc.schedule.schedule import Schedule
from tests.schedule.checking import schedule

MOST_LINES = 25
OUTPUTS = """
def f(A: Buffer["i32", 8], T: Buffer["i32", 8, "out"], Y: Buffer["i32", 8, "out"]):
    for rows in range(8):
        T[rows] = A[rows] + 1
    for columns in range(8):
        Y[columns] = 2 * T[columns]
"""
IMPERFECT = """
def f(A: Buffer["f32", 4, 5], B: Buffer["f32", 4, "out"]):
    for rows in range(4):
        t = alloc("f32")
        t[()] = 0.0
        for columns in range(5):
            t[()] += A[rows, columns]
        B[rows] = t[()]
"""
SHARED = """
def f(g: Buffer["i32", 40, "out"]):
    f = alloc("i32", 60)
    for i in range(60):
        f[i] = 0
        f[i] += 1
    for x in range(40):
        g[x] = f[x] + f[x + 20]
"""
SKEWED = """
def f(A: Buffer["f32", 16, 16, "inout"]):
    for rows in range(1, 16):
        for columns in range(15):
            A[rows, columns] = A[rows - 1, columns + 1] * 2.0
"""
SCAN = """
def f(A: Buffer["f32", 33, "inout"]):
    for steps in range(32):
        A[steps + 1] = A[steps] * 2.0
"""
REVERSED = """
def f(A: Buffer["f32", 64], B: Buffer["f32", 64, "out"], C: Buffer["f32", 64, "out"]):
    for rows in range(64):
        B[rows] = A[rows]
    for columns in range(64):
        C[columns] = B[63 - columns]
"""
SHIFTED = """
def f(A: Buffer["f32", 65], B: Buffer["f32", 65, "inout"], C: Buffer["f32", 64, "out"]):
    for rows in range(64):
        B[rows] = A[rows]
        C[rows] = B[rows + 1]
"""
MATMUL = """
def f(A: Buffer["f32", 8, 8], B: Buffer["f32", 8, 8], C: Buffer["f32", 8, 8, "out"]):
    for i in range(8):
        for j in range(8):
            C[i, j] = 0.0
            for k in range(8):
                C[i, j] += A[i, k] * B[k, j]
"""
ONE_FILL_FOR_MANY = """
def f(A: Buffer["f32", 8, 16], t: Buffer["f32", "out"], C: Buffer["f32", 8, "out"]):
    for rows in range(8):
        t[()] = 0.0
        for k in range(16):
            t[()] += A[rows, k]
        C[rows] = t[()]
"""


def shared(s: Schedule) -> None:
    s.split("x", 16)
    s.compute_at("f", "x0")
    s.parallel("x0")


def after_a_split(s: Schedule) -> None:
    s.split("k", 4)
    s.reorder("k0", "i")


def in_parallel(s: Schedule) -> None:
    s.split("k", 4)
    s.parallel("k1")


@dataclass(frozen=True)
class Mistake:
    """A schedule whose last step is wrong, and what its report has to name and offer."""

    text: str
    steps: Callable[[Schedule], object]
    number: int
    step: str
    names: tuple[str, ...]
    reason: str
    instead: str


# An output merged away; a nest that is not perfect; scratch that parallel tiles share; then what
# no check of dependences caught elsewhere: reorder, vectorize, merge, fission, parallel; and the
# start of a reduction moved out of the loop that needs it.
MISTAKES = {
    "inline of an output": Mistake(
        OUTPUTS, lambda s: s.inline("T"), 1, 'inline("T")', ("T",),
        "is an output", "compute_at",
    ),
    "reverse_inline into an output": Mistake(
        OUTPUTS, lambda s: s.reverse_inline("Y"), 1, 'reverse_inline("Y")', ("Y", "T"),
        "is an output", "reverse_compute_at",
    ),
    "reorder of an imperfect nest": Mistake(
        IMPERFECT, lambda s: s.reorder("columns", "rows"), 1, 'reorder("columns", "rows")',
        ("rows", "columns"), "holds more than", "decompose_reduction",
    ),
    "scratch shared by parallel tiles": Mistake(
        SHARED, shared, 3, 'parallel("x0")', ("x0", "f"),
        "at the same time", "split x0",
    ),
    "reorder of a skewed dependence": Mistake(
        SKEWED, lambda s: s.reorder("columns", "rows"), 1, 'reorder("columns", "rows")',
        ("rows", "columns", "A"), "wrong order", "legal here: parallel columns",
    ),
    "vectorize of a scan": Mistake(
        SCAN, lambda s: s.vectorize("steps"), 1, 'vectorize("steps")', ("steps", "A"),
        "wrong order", "legal here: split steps",
    ),
    "merge of a reversed reader": Mistake(
        REVERSED, lambda s: s.merge("rows", "columns"), 1, 'merge("rows", "columns")',
        ("rows", "columns", "B"), "wrong order", "legal here: parallel rows",
    ),
    "fission of a shifted reader": Mistake(
        SHIFTED, lambda s: s.fission("rows", "B"), 1, 'fission("rows", "B")', ("rows", "B"),
        "wrong order", "legal here: split rows",
    ),
    "parallel reduction": Mistake(
        MATMUL, in_parallel, 2, 'parallel("k1")', ("k1", "C"),
        "at the same time", "legal here: rfactor k1",
    ),
    "reorder of a reduction around its start": Mistake(
        MATMUL, after_a_split, 2, 'reorder("k0", "i")', ("k0", "i"),
        "holds more than", "decompose_reduction",
    ),
    "one start for many sums": Mistake(
        ONE_FILL_FOR_MANY, lambda s: s.decompose_reduction("t"), 1, 'decompose_reduction("t")',
        ("t.init", "rows", "t"), "wrong order", "`rows`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_report_says_what_where_why_and_what_else(name: str) -> None:
    mistake = MISTAKES[name]
    s = schedule(mistake.text)
    with pytest.raises(tc.ScheduleError) as caught:
        mistake.steps(s)
    report = str(caught.value)
    lines = report.splitlines()
    assert len(lines) <= MOST_LINES
    # The reason, with the user's names.
    assert re.match(r"error\[[A-Z]{3}\d{3}\]: cannot ", lines[0])
    assert mistake.reason in lines[0]
    assert all(f"`{one}`" in lines[0] for one in mistake.names)
    # The user's file and line; the step by number and name.
    place = rf"  --> {re.escape(Path(__file__).name)}:\d+   step {mistake.number}: s\."
    assert re.fullmatch(place + re.escape(mistake.step), lines[1])
    # The nest as it stands, marked.
    marked = [n for n, line in enumerate(lines) if re.fullmatch(r" +[\^-][ \^-]*(  .*)?", line)]
    assert marked
    nest = [line.strip() for line in str(s).splitlines()]
    assert all(lines[n - 1].strip() in nest for n in marked)
    # What to do.
    assert lines[-1].startswith("  help: ")
    assert mistake.instead in lines[-1]
    # Nothing of the compiler's own.
    assert not re.search(r"tensorc|Traceback|0x[0-9a-f]{6}|/|File \"", report)
    assert re.findall(r"\w+\.py", report) == [Path(__file__).name]


def test_a_mistake_leaves_the_schedule_as_it_was() -> None:
    for mistake in MISTAKES.values():
        s = schedule(mistake.text)
        with pytest.raises(tc.ScheduleError):
            mistake.steps(s)
        assert len(s.steps) == mistake.number - 1


def test_what_is_offered_is_legal() -> None:
    offered = 0
    for mistake in MISTAKES.values():
        s = schedule(mistake.text)
        with pytest.raises(tc.ScheduleError) as caught:
            mistake.steps(s)
        for alternative in caught.value.violation.alternatives:
            primitive, *names = alternative.split()
            again = s.copy()
            getattr(again, primitive)(*names, *([2] if primitive == "split" else []))
            assert len(again.steps) == mistake.number
            offered += 1
    assert offered > len(MISTAKES)
