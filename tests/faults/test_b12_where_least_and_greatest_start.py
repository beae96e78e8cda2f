"""pytorch #191499: vector accumulators of min and max started at 0."""

from functools import cache

import numpy as np
import pytest

import tensorc as tc
from tests.schedule.checking import check

VALUES = [5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80]
LENGTHS = range(1, 34)


def vectorized(op: str, dtype: str) -> tc.Schedule:
    """The reduction of a row of any length, in 16 lanes that are reduced at the end."""
    n = tc.var("n")
    A, k = tc.placeholder((n,), dtype, name="A"), tc.reduce_axis(n, name="k")
    results = tc.compute((), lambda: getattr(tc, op)(A[k], axis=k), name="R")
    s = tc.Schedule(tc.func_of([A], results if isinstance(results, tuple) else [results]))
    _, lane = s.split("k", 16)
    s.rfactor(lane)
    s.vectorize(f"{lane}.rf")
    s.vectorize(s.loops(s.statements()[2 if op.startswith("arg") else 1])[-1])
    return s


built = cache(lambda op, dtype: tc.build(vectorized(op, dtype)))


def test_the_eighteen_values() -> None:
    least, greatest = np.array(VALUES, np.int8), -np.array(VALUES, np.int8)
    assert built("min", "i8").run(least) == 1
    assert [int(x) for x in built("argmin", "i8").run(least)] == [1, 1]
    assert built("max", "i8").run(greatest) == -1
    assert [int(x) for x in built("argmax", "i8").run(greatest)] == [-1, 1]


@pytest.mark.parametrize("op", ["min", "max", "argmin", "argmax"])
def test_every_length(op: str) -> None:
    for length in LENGTHS:
        a = np.resize(np.array(VALUES, np.int8), length) * (1 if "min" in op else -1)
        value, place = (1, 1) if length > 1 else (5, 0)
        found = built(op, "i8").run(a.astype(np.int8))
        expected = (value if "min" in op else -value, place)
        assert np.atleast_1d(found).tolist() == list(expected[: np.size(found)]), length


DTYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i64": np.int64, "f32": np.float32}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_kind_all_values_are_on_one_side_of_zero(op: str, dtype: str) -> None:
    signs = (1,) if dtype == "u8" else (1, -1)
    for length in LENGTHS:
        for sign in signs:
            a = (np.resize(VALUES, length) * sign).astype(DTYPES[dtype])
            assert built(op, dtype).run(a) == getattr(a, op)(), (length, sign)


def test_the_kind_by_the_interpreter() -> None:
    for op in ("min", "argmax"):
        check(vectorized(op, "i8"), sizes=(0, 1, 15, 16, 17, 33))
