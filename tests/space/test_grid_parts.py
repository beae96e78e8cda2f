"""Few results of many steps: two kernels, of which the first has a block for each part."""

from __future__ import annotations

import pytest

from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.schedule.facts import facts
from tensorc.space.grid_space import cuda
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.testing.grids import built, difference

WHOLE = """
def whole(A: Buffer["f32", {rows}, {columns}], S: Buffer["f32", "out"]):
    S[()] = 0.0
    for i in range({rows}):
        for j in range({columns}):
            S[()] += A[i, j]
"""
ROWS = """
def rows(A: Buffer["f32", {rows}, {columns}], S: Buffer["f32", {rows}, "out"]):
    for i in range({rows}):
        S[i] = -inf
        for j in range({columns}):
            reduce("max", S[i], A[i, j])
"""


def kernels_of(func: Func) -> Space:
    """The space of which nothing but the sizes of the kernels is left to decide."""
    (stage,) = facts(func, Target.parse("cuda:A100")).stages
    return Space(func, "cuda:A100", template=cuda, keep={("kernel", stage.name): "parts"})


@pytest.mark.parametrize(("text", "sizes", "reports"), [
    (WHOLE, {"rows": 16, "columns": 64}, 3), (ROWS, {"rows": 3, "columns": 1000}, 2),
])  # fmt: skip
def test_parts_mean_the_whole(text: str, sizes: dict[str, int], reports: int) -> None:
    func = parse(text.format(**sizes))
    space = kernels_of(func)
    for sentence in (space.default(), *space.sample(0)):
        made = built(func, space.facts, sentence)
        assert difference(func, made) is None, str(sentence)
        assert len(made.reports) == reports
        assert not made.spills


def test_rules_divide_what_would_leave_a_device_idle() -> None:
    found = {}
    for rows in (4, 4096):
        func = parse(ROWS.format(rows=rows, columns=1 << 16))
        found[rows] = Space(func, "cuda:A100", template=cuda).default().record[0]
    assert found == {4: ("kernel", "S", "parts"), 4096: ("kernel", "S", "row")}
