"""Where the time of a kernel goes, and how much work that is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import index, var
from tensorc.ir.nodes import Buffer
from tensorc.ir.parse import parse
from tensorc.runtime import work
from tensorc.runtime.module import build
from tensorc.runtime.work import Work, work_of
from tests.runtime import programs

TWO = parse(
    """
def two(A: Buffer["f32", N], B: Buffer["f32", N, "out"], C: Buffer["f32", N, "out"]):
    for i in range(N):
        B[i] = exp(A[i]) * 2.0 + 1.0
    for j in range(200):
        for k in range(N):
            C[k] = B[k] * A[k] + 1.0
"""
)


def test_a_profile_tells_each_nest():
    a = np.linspace(0, 1, 5000, dtype=np.float32)
    b, c = np.zeros_like(a), np.zeros_like(a)
    profile = build(TWO).profile(a, b, c, repeats=5)
    np.testing.assert_allclose(b, np.exp(a) * 2 + 1, rtol=1e-5)
    np.testing.assert_allclose(c, b * a + 1, rtol=1e-5)
    assert (profile.function, profile.repeats) == ("two", 5)
    first, second = profile.regions
    assert (first.name, second.name) == ("i", "j")
    assert first.work == Work(3 * 5000, 2 * 4 * 5000)
    assert second.work == Work(2 * 200 * 5000, 3 * 4 * 5000)
    assert first.share + second.share == pytest.approx(1)
    assert second.share > first.share > 0
    # The nests are nearly all of the call, and never more than it.
    assert 0.5 * profile.seconds < first.seconds + second.seconds < 1.1 * profile.seconds


def test_a_profile_prints_as_a_table_and_goes_to_json():
    a = np.ones(7, np.float32)
    profile = build(TWO).profile(a, a.copy(), a.copy(), repeats=2)
    lines = str(profile).splitlines()
    assert lines[0].startswith("two: ")
    assert lines[0].endswith(" us a call, mean of 2")
    assert lines[1].split() == ["nest", "us", "share", "MFLOP", "GFLOP/s", "KB", "GB/s"]
    assert [line.split()[0] for line in lines[2:]] == ["i", "j"]
    assert len({len(line) for line in lines[1:]}) == 1
    data = json.loads(json.dumps(profile.as_dict()))
    assert data["function"] == "two"
    assert data["regions"][0]["work"] == {"flops": 21, "bytes": 56}


def test_a_profile_of_a_parallel_kernel_with_a_workspace():
    a = np.ones((9, 700), np.float32)
    profile = build(programs.ROWS).profile(a, np.zeros_like(a), repeats=1)
    (region,) = profile.regions
    assert region.work == Work(2 * 9 * 700, 2 * 4 * 9 * 700)


def test_a_profile_of_nothing():
    module = build(parse('def nothing(A: Buffer["f32", N]):\n    pass\n'))
    profile = module.profile(np.zeros(3, np.float32))
    assert profile.regions == ()
    assert len(str(profile).splitlines()) == 2


def test_a_profile_refuses_what_a_call_refuses():
    module = build(TWO)
    a = np.ones(7, np.float32)
    with pytest.raises(ArgumentError) as caught:
        module.profile(a, a, a)
    assert caught.value.argument == "B"
    with pytest.raises(ArgumentError) as caught:
        module.profile(a, a.copy(), a.copy(), repeats=0)
    assert caught.value.argument == "repeats"


GUARDED = """
def f(A: Buffer["f32", N], C: Buffer["f32", N, "out"]):
    for i0 in range((N + {f} - 1) // {f}):
        for i1 in range({f}):
            if i0 * {f} + i1 < N and i0 != {hole}:
                for k in range({inner}, 5):
                    C[i0 * {f} + i1] = A[i0 * {f} + i1] + 1.0 * 2.0
"""


@given(st.integers(0, 40), st.integers(1, 9), st.integers(-1, 3), st.integers(0, 7))
def test_guards_are_counted_exactly(n, factor, hole, inner):
    func = parse(GUARDED.format(f=factor, hole=hole, inner=inner))
    a = Buffer("A", (var("N"),), DType.F32)
    got = work_of(func.body, {"A": a}, {"N": n})
    points = sum(i // factor != hole for i in range(n)) * max(0, 5 - inner)
    assert got == Work(2 * points, 4 * min(points, n))


def test_masked_lanes_are_counted_exactly():
    module = build(programs.VECTOR)
    a = np.zeros(19, np.float32)
    profile = module.profile(a, np.zeros_like(a), repeats=1)
    assert sum(region.work.flops for region in profile.regions) == 19
    assert sum(region.work.bytes for region in profile.regions) == 2 * 4 * 19


def test_work_that_would_take_too_long_to_count_is_unknown(monkeypatch):
    func = parse(GUARDED.format(f=4, hole=-1, inner=0))
    monkeypatch.setattr(work, "LIMIT", 100)
    assert work_of(func.body, {}, {"N": 20}) == Work(200, 0)
    assert work_of(func.body, {}, {"N": 40}) is None
    assert work_of(func.body, {"T": Buffer("T", (var("M"), index(2)), DType.F32)}, {"N": 1}) is None
