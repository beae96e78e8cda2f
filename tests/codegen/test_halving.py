"""Partial results are combined by halves."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.codegen.passes.halving import FEWEST, halving
from tensorc.codegen.passes.trees import find
from tensorc.codegen.pipeline import Options, lower
from tensorc.ir.nodes import For, Func
from tensorc.ir.parse import parse
from tests.codegen.running import check, check_stages, host, random_arguments

OPS = ["sum", "prod", "min", "max"]


def rows(op: str, count: int, dtype: str, start: str) -> Func:
    return parse(f"""
def f(A: Buffer["{dtype}", 3, {count}], O: Buffer["{dtype}", 3, "out"]):
    for i in range(3):
        t = alloc("{dtype}", {count}, scope="register")
        for v in vectorize({count}):
            t[v] = A[i, v]
        O[i] = {start}
        for w in range({count}):
            reduce("{op}", O[i], t[w])
""")


def kinds(func: Func) -> list[str]:
    return [loop.kind for loop in find(func, For)]


@pytest.mark.parametrize("count", [2, 4, 5, 7, 8, 13, 16, 33, 64])
@pytest.mark.parametrize("op", OPS)
def test_trees(op: str, count: int) -> None:
    for dtype, start in (("f32", "1.0"), ("i8", "1")):
        func = rows(op, count, dtype, start)
        arguments = random_arguments(func, {})
        check_stages(func, arguments)
        check(func, arguments)
        loops = kinds(halving(func, strict_float=False))
        assert loops.count("serial") == 1 + (count < FEWEST)
        depth = 0 if count < FEWEST else (count - 1).bit_length()
        assert loops.count("vectorize") == 1 + (depth + 1 if depth else 0)


@pytest.mark.parametrize("op", OPS)
def test_strict_floats_keep_their_order(op: str) -> None:
    func = rows(op, 16, "f32", "1.0")
    rounds = op in ("sum", "prod")
    assert (halving(func, strict_float=True) == func) == rounds
    arguments = random_arguments(func, {})
    check(func, arguments, options=Options(strict_float=True), exact=True)


@pytest.mark.parametrize("count", [4, 7, 16])
def test_ties_go_to_the_lower_index(count: int) -> None:
    func = parse(f"""
def f(A: Buffer["f32", {count}], V: Buffer["f32", "out"], X: Buffer["i32", "out"]):
    p = alloc("f32", {count})
    q = alloc("i32", {count})
    for v in vectorize({count}):
        p[v] = A[v]
        q[v] = i32(v)
    V[()] = -inf
    X[()] = 2147483647
    for w in range({count}):
        reduce("argmax", (V[()], X[()]), (p[w], q[w]))
""")
    for data in (np.ones(count), np.arange(count) % 3, np.full(count, np.nan)):
        arguments = random_arguments(func, {}) | {"A": data.astype(np.float32)}
        check_stages(func, arguments)
        check(func, arguments, exact=True)
    assert "serial" not in kinds(lower(func, host()).func)


@pytest.mark.parametrize(
    "loop",
    [
        "for w in range(1, 16):\n            O[i] += t[w]",
        "for w in range(16):\n            O[i] += t[15 - w]",
        "for w in range(16):\n            O[i] += A[i, w]",
        "for w in range(15):\n            O[w % 3] += t[w]",
        "for w in parallel(16):\n            O[i] += t[w]",
        "for w in range(16):\n            O[i] += t[w] * 2.0",
        "for w in range(16):\n            if w < n:\n                O[i] += t[w]",
    ],
)
def test_anything_else_stays(loop: str) -> None:
    func = parse(f"""
def f(A: Buffer["f32", 3, 16], O: Buffer["f32", 3, "inout"], n: index):
    for i in range(3):
        t = alloc("f32", 16)
        for v in vectorize(16):
            t[v] = A[i, v]
        {loop}
""")
    assert halving(func, strict_float=False) == func
