"""Kernels that check themselves: what a failed check says."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tensorc.ir.parse import parse
from tensorc.runtime.module import RuntimeCheckError, build
from tests.runtime import programs

SHIFTED = """
def shifted(A: Buffer["f32", N], C: Buffer["f32", N, "out"]):
    for i in range(N):
        C[i] = A[i + {by}]
"""


@pytest.mark.parametrize("by", [1, -1, 1000])
def test_an_index_out_of_bounds_is_told(by):
    module = build(parse(SHIFTED.format(by=by)), checks=True)
    with pytest.raises(RuntimeCheckError) as caught:
        module.run(np.zeros(5, np.float32))
    error = caught.value
    assert (error.function, error.statement, error.buffer) == ("shifted", "C", "A")
    assert "out of bounds" in error.what
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.what, str(again)) == (RuntimeCheckError, error.what, str(error))
    assert build(parse(SHIFTED.format(by=0)), checks=True).run(np.ones(5, "f4")).tolist() == [1] * 5


def test_an_element_that_is_read_before_it_is_written_is_told():
    text = """
def early(A: Buffer["f32", N], C: Buffer["f32", N, "out"]):
    T = alloc("f32", N)
    for i in range(N - 1):
        T[i] = A[i]
    for j in range(N):
        C[j] = T[j]
"""
    with pytest.raises(RuntimeCheckError) as caught:
        build(parse(text), checks=True).run(np.zeros(5, np.float32))
    assert (caught.value.statement, caught.value.buffer) == ("C", "T")


def test_a_right_program_passes_its_checks_and_gives_the_same():
    a = np.linspace(-1, 1, 40, dtype=np.float32).reshape(4, 10)
    checked, plain = build(programs.ROWS, checks=True), build(programs.ROWS)
    np.testing.assert_allclose(checked.run(a), plain.run(a), rtol=1e-6)
    assert "checked" in repr(checked)
    assert "checked" not in repr(plain)


def test_the_failures_of_a_cached_kernel_are_told_too():
    func = parse(SHIFTED.format(by=2))
    for _ in range(2):
        with pytest.raises(RuntimeCheckError, match=r"statement `C`, buffer `A`"):
            build(func, checks=True).run(np.zeros(5, np.float32))


def test_the_header_of_a_checked_kernel_lists_the_failures():
    header = build(parse(SHIFTED.format(by=1)), checks=True).source("header")
    assert "Returns 0, or the number of a failed check:" in header
    assert "statement `C`, buffer `A`: an index is out of bounds" in header


LOOKUP = """
def lookup(L: Buffer["i32", M], A: Buffer["f32", N, 4], C: Buffer["f32", M, "out"]):
    for i in range(M):
        C[i] = A[index(L[i]), 1] + A[index(L[i]) + 1, 2]
        for k in range(2):
            D: C[i + k] += 1.0
"""


@pytest.mark.parametrize(
    ("rows", "statement", "text"),
    [
        (
            [7],
            "C",
            "an index is out of bounds (A[index(L[i]), 1], A[index(L[i]) + 1, 2]; "
            "A has the shape (N, 4))",
        ),
        ([0], "D", "an index is out of bounds (C[i + k]; C has the shape (M))"),
    ],
)
def test_the_message_names_the_accesses(rows, statement, text):
    with pytest.raises(RuntimeCheckError) as caught:
        build(parse(LOOKUP), checks=True).run(np.array(rows, np.int32), np.ones((3, 4), np.float32))
    assert caught.value.statement == statement
    assert str(caught.value).endswith(text)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.accesses, str(again)) == (caught.value.accesses, str(caught.value))
