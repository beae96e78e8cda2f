"""What lies just outside of the options is illegal, or over a limit: steps that no sentence has."""

from __future__ import annotations

from functools import cache
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.analysis.effects import statements
from tensorc.ir.arith import constant, sub
from tensorc.ir.nodes import Reduce
from tensorc.ir.walk import variables
from tensorc.schedule import primitives as p
from tensorc.schedule.facts import facts
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import nearest_option
from tensorc.space.space import Space
from tensorc.space.templates.common import tile_options
from tensorc.target import Target
from tests.space.tasks import TASKS, matmul

TARGETS = ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4")
NAMES = ("matmul", "conv1x1_residual", "row_sum", "column_sum", "softmax", "depthwise")


@cache
def space_of(name: str, target: str) -> Space:
    return Space(TASKS[name](), target)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[str, Space, Sentence]:
    name = draw(st.sampled_from(NAMES))
    space = space_of(name, draw(st.sampled_from(TARGETS)))
    return name, space, space.sample(draw(st.integers(0, 10**6)))[0]


def applied(state: State, steps: tuple[Step, ...]) -> State:
    for step in steps:
        state = step.apply(state)
    return state


def forced(space: Space, wanted: dict[str, Value], kind: str, value: Value) -> tuple[Step, ...]:
    """The steps of a template in which the decisions of one kind are made to be no option."""
    template = space.start()
    answer: Value | None = None
    try:
        while True:
            choice: Choice = template.send(answer)  # type: ignore[arg-type]
            answer = nearest_option(choice, wanted.get(choice.kind, choice.default))
            if choice.kind == kind and choice.subject in ("C", "P"):
                assert value not in choice.options
                answer = value
    except StopIteration as end:
        steps: tuple[Step, ...] = end.value
        return steps


def refusals(name: str, space: Space, steps: tuple[Step, ...]) -> list[str]:
    """The code of the first step that is refused; none if all are legal."""
    state = State.start(TASKS[name](), space.target)
    for step in steps:
        violation = explain(step, state)
        if violation is not None:
            return [violation.code]
        state = step.apply(state)
    return []


@given(drawn())
@settings(max_examples=20)
def test_no_loop_that_reduces_can_run_in_parallel(sample: tuple[str, Space, Sentence]) -> None:
    """However it is cut: each loop of a reduction carries it."""
    name, space, sentence = sample
    cuts = (p.Split, p.Reorder, p.DecomposeReduction, p.TransformLayout)
    steps = takewhile(lambda step: isinstance(step, cuts), sentence.steps)
    state = applied(State.start(TASKS[name](), space.target), tuple(steps))
    for stmt in statements(state.func):
        if not isinstance(stmt.node, Reduce):
            continue
        indexed = frozenset[str]().union(*(variables(index) for index in stmt.node.indices))
        for loop in stmt.loops:
            if loop.var.name not in indexed and constant(sub(loop.end, loop.begin)) != 1:
                violation = explain(p.Parallel(loop.var.name), state)
                assert violation is not None
                assert violation.code == "DEP001"


@given(st.sampled_from(NAMES), st.integers(65, 1000))
def test_no_vector_is_wider_than_the_limit(name: str, width: int) -> None:
    space = space_of(name, TARGETS[1])
    start = State.start(TASKS[name](), space.target)
    for stage in space.facts.stages:
        axis = stage.axes[-1].name
        violation = explain(p.Vectorize(f"{axis}1"), p.Split(axis, (width,)).apply(start))
        assert violation is not None
        assert violation.code in ("TGT001", "DEP004") if stage.reduces else ("TGT001",)


@given(st.integers(0, 10**6), st.sampled_from(TARGETS))
@settings(max_examples=25)
def test_the_next_larger_tile_has_more_than_all_registers(seed: int, target: str) -> None:
    space = Space(matmul(64, 96, 128), target).keeping([("template", "matmul", "tiled")])
    (sentence,) = space.sample(seed)
    made = {choice.name: (choice, value) for choice, value in sentence.decisions}
    vector = str(made["vector", "C"][1])
    vectors = int(made["width", vector][1]) // space.target.lanes(32)
    parts = int(made["parts", vector][1]) if ("parts", vector) in made else 1
    rows = "i" if vector == "j" else "j"
    options = made["rows", rows][0].options if ("rows", rows) in made else (1,)
    extent = {"i": 64, "j": 96}[rows]
    larger = min(n for n in tile_options(extent, 512) if n > max(map(int, options)))
    # The results, a vector of the operand that moves along each part, and one of the other.
    assert larger * parts * vectors + vectors + 1 > space.target.vector_registers
    assert max(map(int, options)) * parts * vectors <= space.target.vector_registers


def test_threads_do_not_share_what_a_copy_stands_in() -> None:
    """Two loops are not one when the copy of a panel stands between them."""
    space = space_of("matmul", TARGETS[1])
    wanted: dict[str, Value] = {
        "template": "tiled", "vector": "j", "width": 8, "parts": 1, "rows": 2, "pack": "panel",
    }  # fmt: skip
    legal = forced(space, wanted, "none", 0)
    assert refusals("matmul", space, legal) == []
    steps = forced(space, wanted, "parallel", 2)
    packed = [step for step in legal if isinstance(step, p.CacheRead)]
    outer = packed[0].at
    inner = "i0"
    state = applied(
        State.start(TASKS["matmul"](), space.target),
        tuple(step for step in steps if not isinstance(step, p.Parallel | p.Fuse)),
    )
    violation = explain(p.Fuse(str(outer), inner), state)
    assert violation is not None
    assert violation.code.startswith("STR")


def test_what_is_read_is_not_computed_in_a_loop_that_threads_have_made_one_with_another() -> None:
    space = space_of("conv3x3", TARGETS[1])
    wanted: dict[str, Value] = {"template": "tiled", "vector": "x", "parallel": 2, "place": "apart"}
    assert refusals("conv3x3", space, forced(space, wanted, "none", 0)) == []
    assert refusals("conv3x3", space, forced(space, wanted, "level", 1)) == ["REF001"]


def test_a_sum_is_computed_where_it_is_read_by_no_template() -> None:
    for name in NAMES:
        target = Target.parse(TARGETS[1])
        start = State.start(TASKS[name](), target)
        for stage in facts(TASKS[name](), target).stages:
            if stage.reduces:
                assert explain(p.Inline(stage.name), start) is not None
