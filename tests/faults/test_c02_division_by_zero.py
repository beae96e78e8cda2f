"""pytorch #327, #8102; apache/tvm #15410: an integer division by zero killed the process."""

import numpy as np
import pytest

import tensorc as tc
from tensorc.dtype import DType
from tensorc.ir.nodes import Const
from tensorc.ir.simplify import simplify
from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

LEAST = -(2**31)
TEXT = """
def f(A: Buffer["i32", 8], B: Buffer["i32", 8], O: Buffer["i32", 6, 8, "out"]):
    for i in range(8):
        O[0, i] = A[i] // B[i]
        O[1, i] = A[i] % B[i]
        O[2, i] = truncdiv(A[i], B[i])
        O[3, i] = truncmod(A[i], B[i])
        O[4, i] = i32(1) // i32(0)
        O[5, i] = i32(-2147483648) // i32(-1)
"""
A = np.array([1, -7, 0, LEAST, LEAST, 7, -7, 5], np.int32)
B = np.array([0, 0, 0, -1, 0, -2, 2, 1], np.int32)


@pytest.mark.parametrize("how", ["serial", "vectorize", "parallel", "unroll", "split"])
def test_the_value_is_the_documented_one(how: str) -> None:
    """x // 0 is 0, its rest is x; MIN // -1 wraps to MIN, its rest is 0."""
    s = schedule(TEXT)
    if how == "split":
        s.vectorize(s.split("i", 5)[1])
    elif how != "serial":
        getattr(s, how)("i")
    found = outputs(s, A=A, B=B)["O"].tolist()
    assert found[0] == [0, 0, 0, LEAST, 0, -4, -4, 5]
    assert found[1] == [1, -7, 0, 0, LEAST, -1, 1, 0]
    assert found[2] == [0, 0, 0, LEAST, 0, -3, -3, 5]
    assert found[3] == [1, -7, 0, 0, LEAST, 1, -1, 0]
    assert found[4] == [0] * 8
    assert found[5] == [LEAST] * 8
    check(s)


def test_it_is_documented() -> None:
    for function in (tc.floordiv, tc.truncdiv):
        assert "0 is 0 and MIN /" in (function.__doc__ or "")
        assert "-1 wraps" in (function.__doc__ or "")


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "u32", "i64", "index"])
@pytest.mark.parametrize("function", [tc.floordiv, tc.truncdiv])
def test_constants_are_folded_to_it(function, dtype: str) -> None:
    kind = DType(dtype)
    one, zero = tc.const(1, dtype), tc.const(0, dtype)
    assert simplify(function(one, zero).expr) == Const(0, kind)
    if kind.is_signed:
        least, minus_one = tc.const(kind.min, dtype), tc.const(-1, dtype)
        assert simplify(function(least, minus_one).expr) == Const(kind.min, kind)


NUMPY = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u32": np.uint32, "i64": np.int64}


@pytest.mark.parametrize("dtype", NUMPY)
def test_the_kind_in_every_width(dtype: str) -> None:
    kind = DType(dtype)
    s = schedule(TEXT.split("        O[4")[0].replace("i32", dtype).replace("6, 8", "4, 8"))
    s.vectorize("i")
    wrap = NUMPY[dtype]
    a = np.array([1, kind.max, 0, kind.min, kind.min, 7, 9, 5]).astype(wrap)
    b = np.array([0, 0, 0, kind.max if kind.min == 0 else -1, 0, 2, 3, 1]).astype(wrap)
    found = outputs(s, A=a, B=b)["O"].tolist()
    quotient = [0, 0, 0, kind.min, 0, 3, 3, 5]
    rest = [1, kind.max, 0, 0, kind.min, 1, 0, 0]
    assert found == [quotient, rest, quotient, rest]
