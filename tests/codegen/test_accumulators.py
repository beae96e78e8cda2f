"""Elements that a loop accumulates into are kept in registers."""

from __future__ import annotations

import pytest

from tensorc.codegen.passes.accumulators import accumulators
from tensorc.codegen.passes.reductions import reductions
from tensorc.codegen.passes.trees import find, leaves
from tensorc.codegen.passes.vectors import vectors
from tensorc.codegen.pipeline import lower
from tensorc.ir.nodes import Alloc, For, Func, Load, MaskedStore
from tensorc.ir.parse import parse
from tensorc.ir.walk import nodes
from tests.codegen.running import check, check_stages, host, random_arguments


def checked(text: str, sizes: dict[str, int] | None = None) -> Func:
    """The function after the stage; every stage and the code are right."""
    func = parse(text)
    arguments = random_arguments(func, sizes or {"N": 5})
    check_stages(func, arguments)
    check(func, arguments)
    return accumulators(vectors(reductions(func)))


def innermost(func: Func) -> set[str]:
    """The buffers that innermost loops write."""
    loops = [loop for loop in find(func, For) if next(find(loop.body, For), None) is None]
    return {leaf.buffer.name for loop in loops for leaf in leaves(loop)}  # type: ignore[union-attr]


def test_a_sum_is_kept() -> None:
    func = checked("""
def f(A: Buffer["f32", 4, 9], O: Buffer["f32", 4, "out"]):
    for i in range(4):
        O[i] = 0.0
        for k in range(9):
            O[i] += A[i, k]
""")
    assert innermost(func) == {"O.sum"}


def test_a_vector_is_kept_around_several_loops() -> None:
    func = checked("""
def f(A: Buffer["f32", 4, 9, 8], O: Buffer["f32", 8, "out"]):
    for v in vectorize(8):
        O[v] = 0.0
        for i in range(4):
            for k in range(9):
                O[v] += A[i, k, v]
""")
    assert innermost(func) == {"O.sum"}
    # Around the outer loop too: only one statement reads O, in front of both loops.
    reads = [leaf for leaf in leaves(func) for x in nodes(leaf, Load) if x.buffer.name == "O"]
    assert len(reads) == 1
    assert all(reads[0] not in list(leaves(loop)) for loop in find(func, For))


def test_a_masked_vector_is_kept() -> None:
    func = checked("""
def f(A: Buffer["f32", 9, 8], O: Buffer["f32", 8, "inout"], n: index):
    for v in vectorize(8):
        for k in range(9):
            if v < n:
                O[v] += A[k, v]
""")
    assert innermost(func) == {"O.sum"}
    masked = [leaf.buffer.name for leaf in leaves(func) if isinstance(leaf, MaskedStore)]
    assert masked == ["O.sum", "O"]


def test_several_are_kept() -> None:
    func = checked("""
def f(A: Buffer["f32", N], V: Buffer["f32", "out"], X: Buffer["i32", "out"]):
    V[()] = -inf
    X[()] = 2147483647
    for i in range(N + 1):
        if i < N:
            reduce("argmax", (V[()], X[()]), (A[i], i32(i)))
    for j in range(3):
        reduce("argmax", (V[()], X[()]), (f32(j), i32(j)))
""")
    kept = {alloc.buffer.name for alloc in find(func, Alloc)}
    assert {"V.sum", "X.sum"} <= kept


@pytest.mark.parametrize(
    "loop",
    [
        # Nothing is touched when the loop does not run.
        "for k in range(N):\n        O[2] += A[k]",
        # Another element of the buffer is read, or written.
        "for k in range(4):\n        O[2] += O[k]",
        "for k in range(4):\n        O[2] += A[k]\n        O[k] = 1.0",
        # The element is another one in each iteration, or only sometimes touched.
        "for k in range(4):\n        O[k] += A[k]",
        "for k in range(4):\n        if k < n:\n            O[2] += A[k]",
        "for k in range(4):\n        O[index(I[0])] += A[k]",
        # It is not read.
        "for k in range(4):\n        O[2] = A[k]",
        "for k in parallel(4):\n        O[2] += A[k]",
    ],
)
def test_anything_else_stays(loop: str) -> None:
    func = checked(f"""
def f(A: Buffer["f32", N], I: Buffer["bool", 1], O: Buffer["f32", 6, "inout"], n: index):
    {loop}
""")
    assert next(find(func, Alloc), None) is None


def test_the_last_stage_has_no_stack() -> None:
    """What the stage makes are values, not memory."""
    func = parse("""
def f(A: Buffer["f32", 4, 9, 8], O: Buffer["f32", 4, 8, "out"]):
    for i in range(4):
        for v in vectorize(8):
            O[i, v] = 0.0
            for k in range(9):
                O[i, v] += A[i, k, v]
""")
    assert [slot.unit for slot in lower(func, host()).storage.slots] == [8]
