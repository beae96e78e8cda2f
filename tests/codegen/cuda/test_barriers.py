"""Barriers: each is needed, none is missing, and none stands where control differs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tensorc.codegen.cuda.barriers import barriers
from tensorc.codegen.cuda.memory import place
from tensorc.errors import CompileError
from tensorc.ir.interp import run
from tensorc.ir.nodes import Alloc, Barrier, For, Func, If, Seq, Stmt
from tensorc.ir.parse import parse
from tensorc.ir.walk import replace, seq
from tensorc.schedule.schedule import Schedule
from tensorc.testing.oracle import log_of
from tensorc.testing.threads import unordered
from tests.codegen.cuda.checking import lowered, schedule
from tests.codegen.cuda.test_kernels import TURNED, tiled

# Two buffers that change places, in a loop around their phases.
PING_PONG = """
def ping_pong(A: Buffer["i32", 16, "inout"]):
    for b in parallel(1, bind="blockIdx.x"):
        S = alloc("i32", 16, scope="shared")
        T = alloc("i32", 16, scope="shared")
        for i in parallel(16, bind="threadIdx.x"):
            S[i] = A[i]
        for t in range(3):
            for j in parallel(16, bind="threadIdx.x"):
                T[j] = S[15 - j] + 1
            for k in parallel(16, bind="threadIdx.x"):
                S[k] = T[15 - k] * 2
        for l in parallel(16, bind="threadIdx.x"):
            A[l] = S[15 - l]
"""
# What one loop stores, two others read; a condition of the block is around one of them.
GUARDED = """
def guarded(A: Buffer["i32", 4, 8], B: Buffer["i32", 4, 8, "out"]):
    for b in parallel(4, bind="blockIdx.x"):
        S = alloc("i32", 8, scope="shared")
        for i in parallel(8, bind="threadIdx.x"):
            S[i] = A[b, i]
        for j in parallel(8, bind="threadIdx.x"):
            B[b, j] = S[7 - j]
        if b < 2:
            for k in parallel(8, bind="threadIdx.x"):
                S[k] = S[k] + 1
            for l in parallel(8, bind="threadIdx.x"):
                B[b, l] = B[b, l] + S[7 - l]
"""
# Each thread reads only what it has stored.
OWN = """
def own(A: Buffer["i32", 16], B: Buffer["i32", 16, "out"]):
    for b in parallel(1, bind="blockIdx.x"):
        S = alloc("i32", 16, scope="shared")
        for t in range(2):
            for i in parallel(16, bind="threadIdx.x"):
                S[i] = A[i] + i32(t)
            for j in parallel(16, bind="threadIdx.x"):
                B[j] = S[j]
"""


def kernel(text: str) -> Func:
    """The only kernel of a program, after the stage that places barriers."""
    stages = dict(lowered(Schedule(parse(text), "cuda:sm_90")).kernels[0].stages)
    return stages["barriers"]


def without_one(stmt: Stmt) -> Iterator[Stmt]:
    """The statement with one of its barriers left out, for each of them."""
    match stmt:
        case Seq(body=parts):
            for n, part in enumerate(parts):
                if isinstance(part, Barrier):
                    yield seq(*parts[:n], *parts[n + 1 :])
                for other in without_one(part):
                    yield seq(*parts[:n], other, *parts[n + 1 :])
        case For(body=body) | If(body=body) | Alloc(body=body):
            for other in without_one(body):
                yield replace(stmt, body=other)


def arguments(func: Func) -> dict[str, np.ndarray]:
    shapes = {p.name: [int(e.value) for e in p.value.shape] for p in func.params}
    return {
        name: np.arange(np.prod(shape), dtype="i4" if "i32" in str(func) else "f4").reshape(shape)
        for name, shape in shapes.items()
    }


CASES = {
    "ping_pong": (kernel(PING_PONG), 3),
    "guarded": (kernel(GUARDED), 3),
    "own": (kernel(OWN), 0),
    "tiled": (dict(lowered(tiled()).kernels[0].stages)["barriers"], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_every_barrier_is_needed(name: str) -> None:
    func, count = CASES[name]
    given = arguments(func)
    func = replace(func, params=tuple(replace(p, mode="inout") for p in func.params))
    assert unordered(func, log_of(func, given), {}) is None
    fewer = [replace(func, body=body) for body in without_one(func.body)]
    assert len(fewer) == count
    for other in fewer:
        assert unordered(other, log_of(other, given), {}) is not None, str(other)


@pytest.mark.parametrize("name", CASES)
def test_threads_may_run_ahead_to_the_next_barrier(name: str) -> None:
    func, _ = CASES[name]
    given = arguments(func)
    func = replace(func, params=tuple(replace(p, mode="inout") for p in func.params))
    expected = run(func, given).outputs
    for seed in range(3):
        found = run(func, given, threads=seed).outputs
        for output, values in expected.items():
            np.testing.assert_array_equal(found[output], values)


def test_shared_memory_is_one_array_for_all_iterations() -> None:
    """An `Alloc` in a loop is a fresh buffer in each iteration; its memory is the old one."""
    s = schedule(
        """
def rows(A: Buffer["i32", 3, 8], B: Buffer["i32", 3, 8, "out"]):
    for b in range(1):
        for t in range(3):
            S = alloc("i32", 8, scope="shared")
            for i in range(8):
                S[i] = A[t, i]
            for j in range(8):
                B[t, j] = S[7 - j]
"""
    )
    s.bind("b", "blockIdx.x")
    s.bind("i", "threadIdx.x")
    s.bind("j", "threadIdx.x")
    (found,) = lowered(s).kernels
    assert str(dict(found.stages)["barriers"]).count("barrier()") == 2


def test_no_barrier_where_control_differs() -> None:
    """Barriers stand in no loop bound to threads, and under no condition on one."""

    def outside(stmt: Stmt, around: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
        match stmt:
            case Barrier():
                yield around
            case Seq(body=parts):
                for part in parts:
                    yield from outside(part, around)
            case For(body=body) | If(body=body) | Alloc(body=body):
                yield from outside(body, (*around, stmt))

    for func, _ in CASES.values():
        for around in outside(func.body, ()):
            loops = [x for x in around if isinstance(x, For)]
            assert not any("threadIdx" in str(loop.annotations) for loop in loops)


def test_a_value_that_passes_inside_a_phase_is_an_error() -> None:
    """A schedule refuses it; a program in text may have it all the same."""
    func = parse(
        """
def wrong(A: Buffer["i32", 4, 8], B: Buffer["i32", 4, 8, "out"]):
    for y in parallel(4, bind="threadIdx.y"):
        S = alloc("i32", 8)
        for i in parallel(8, bind="threadIdx.x"):
            S[i] = A[y, i]
        for j in parallel(8, bind="threadIdx.x"):
            B[y, j] = S[7 - j]
"""
    )
    from tensorc.codegen.cuda.host import Part

    with pytest.raises(CompileError, match="`S` passes from `S` to `B` in one phase"):
        barriers(func)
    assert place(Part(func, ())).func


@pytest.mark.parametrize("extent", [40, 48])
def test_writes_at_shifted_places(extent: int) -> None:
    """tilelang #1822: 48 of 64 threads copy in, then some fill, then all read."""
    text = TURNED.replace(
        "    for k",
        f"    for f in range({extent - 38}):\n            T[f + 10] = 0\n        for k",
        1,
    )
    s = schedule(text.replace("        for f", "        for f"))
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "shared")
    for loop in ("j", "f", "k"):
        s.bind(loop, "threadIdx.x")
    func = dict(lowered(s).kernels[0].stages)["barriers"]
    assert str(func).count("barrier()") == 2
