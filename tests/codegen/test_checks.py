"""Code with run-time checks, and code that measures itself."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tensorc.codegen.context import Check
from tensorc.codegen.pipeline import Options
from tensorc.ir.parse import parse
from tests.codegen.programs import PROGRAMS
from tests.codegen.running import check, compiled, random_arguments

CHECKS = Options(checks=True)
BOUNDS = "an index is out of bounds"
UNDEFINED = "an element is read before it is written"
OVERFLOW = "an index does not fit 64 bits"

WRONG = {
    "past_the_end": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for i in parallel(N):
        O[i] = A[i + 1]
""",
        Check("O", "A", BOUNDS),
    ),
    "before_the_start": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for i in vectorize(7):
        O[i - 1] = A[i]
""",
        Check("O", "O", BOUNDS),
    ),
    "in_one_dimension": (
        """
def f(A: Buffer["f32", N, 3], O: Buffer["f32", N, "out"]):
    for i in range(N):
        O[i] = A[i - 1 + 1, 3]
""",
        Check("O", "A", BOUNDS),
    ),
    "in_a_reduction": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", "out"]):
    O[()] = 0.0
    for i in range(N + 1):
        O[()] += A[i]
""",
        Check("O", "A", BOUNDS),
    ),
    "undefined_temporary": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    T = alloc("f32", N)
    for i in range(1, N):
        T[i] = A[i]
    for j in range(N):
        O[j] = T[j]
""",
        Check("O", "T", UNDEFINED),
    ),
    "undefined_in_the_next_iteration": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for i in range(N):
        t = alloc("f32")
        if i < 1:
            t[()] = A[i]
        O[i] = t[()]
""",
        Check("O", "t", UNDEFINED),
    ),
    "undefined_output": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for j in range(N):
        O[j] = A[j] + select(j > 3, O[j - 2] + O[j + 1], 0.0)
""",
        Check("O", "O", UNDEFINED),
    ),
    "overflow": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for j in range(N):
        O[j] = A[(j * 4611686018427387904 * 3) % 3]
""",
        Check("O", "A", OVERFLOW),
    ),
    "overflow_of_a_bound": (
        """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    for j in range(N * 4611686018427387904):
        O[j % N] = 1.0
""",
        Check("j", "", OVERFLOW),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    text, expected = WRONG[name]
    func = parse(text)
    code = compiled(func, options=CHECKS)
    result = code(random_arguments(func, {"N": 7}))
    assert result > 0
    assert code.kernel.checks[result - 1] == expected


def test_a_choice_that_is_not_taken_is_not_checked() -> None:
    func = parse("""
def f(A: Buffer["f32", 7], O: Buffer["f32", 7, "out"]):
    for i in range(7):
        O[i] = select(i < 6, A[i + 1], 0.0)
""")
    check(func, random_arguments(func, {}), options=CHECKS)


def test_unchecked_code_has_no_checks() -> None:
    kernel = compiled(parse(WRONG["past_the_end"][0])).kernel
    assert kernel.checks == ()


# Profile ------------------------------------------------------------------------------------------


def profiled(text: str, arguments: dict[str, Any], calls: int) -> tuple[tuple[str, ...], Any]:
    code = compiled(parse(text), options=Options(profile=True))
    kernel = code.kernel
    counters = np.zeros((len(kernel.profile), 2), np.int64)
    values: list[Any] = [arguments[p.name].ctypes.data for p in kernel.params]
    kinds: list[Any] = [ctypes.c_void_p] * len(values)
    kinds += [ctypes.c_int64] * len(kernel.sizes) + [ctypes.c_void_p]
    values += [7] * len(kernel.sizes) + [counters.ctypes.data]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(code.module.address(kernel.symbol))
    for _ in range(calls):
        assert function(*values) == 0
    return kernel.profile, counters


def test_profile_counts_each_nest() -> None:
    text = """
def f(A: Buffer["f32", N], O: Buffer["f32", N, "out"]):
    T = alloc("f32", 100)
    for i in range(100):
        T[i] = 1.0
    for j in parallel(N):
        O[j] = A[j] + T[j]
    O[0] = 2.0
"""
    arguments = random_arguments(parse(text), {"N": 7})
    names, counters = profiled(text, arguments, calls=3)
    assert names == ("i", "j", "O_2")
    assert counters[:, 1].tolist() == [3, 3, 3]
    assert (counters[:, 0] >= 0).all()
    assert counters[:, 0].sum() > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_profiled_text_is_valid(name: str) -> None:
    kernel = compiled(parse(PROGRAMS[name][0]), options=Options(profile=True)).kernel
    assert kernel.profile
    assert len(set(kernel.profile)) == len(kernel.profile)
