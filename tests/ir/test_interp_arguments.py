"""What the reference interpreter takes, refuses and gives back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.interp import run, run_in_place, to_storage
from tensorc.ir.parse import parse

TYPED = """
def f(
    A: Buffer["f32", N, 4],
    H: Buffer["bf16", N],
    alpha: f32,
    n: i8,
    flag: bool,
    C: Buffer["f32", N, "out"],
):
    for i in range(N):
        C[i] = select(flag, A[i, 0] * alpha, f32(H[i])) + f32(n)
"""
GOOD: dict[str, Any] = {
    "A": np.ones((2, 4), np.float32),
    "H": to_storage([1.5, 2.0], DType.BF16),
    "alpha": 0.1,
    "n": 3,
    "flag": False,
}


def test_arguments_of_every_kind() -> None:
    func = parse(TYPED)
    assert run(func, GOOD).outputs["C"].tolist() == [4.5, 5.0]
    scaled = run(func, GOOD | {"flag": np.bool_(True), "n": np.int8(0)}).outputs["C"]
    assert scaled.tolist() == [np.float32(0.1)] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": None}, 'argument `A`: missing; it is an "in" parameter'),
        ({"Z": 1}, "argument `Z`: `f` has no such parameter; it has A, H, alpha, n, flag, C"),
        ({"A": [[1.0]]}, "argument `A`: expected a NumPy array, got a list"),
        (
            {"A": np.ones((2, 4))},
            "argument `A`: expected an array of float32 for f32, got float64",
        ),
        ({"A": np.ones(4, np.float32)}, "argument `A`: expected rank 2, got 1"),
        (
            {"A": np.ones((2, 5), np.float32)},
            "argument `A`: expected shape (2, 4), got (2, 5)",
        ),
        (
            {"H": np.ones(3, np.uint16)},
            "argument `H`: dimension 0 is 3, but N = 2 elsewhere",
        ),
        ({"alpha": "x"}, "argument `alpha`: expected a number of dtype f32, got 'x'"),
        ({"n": 128}, "argument `n`: 128 is out of the range -128 to 127 of i8"),
        ({"n": 1.0}, "argument `n`: expected a number of dtype i8, got 1.0"),
        ({"flag": 1}, "argument `flag`: expected a number of dtype bool, got 1"),
    ],
)
def test_arguments_are_checked(change: dict[str, Any], message: str) -> None:
    given_arguments = {k: v for k, v in (GOOD | change).items() if v is not None}
    with pytest.raises(ArgumentError) as error:
        run(parse(TYPED), given_arguments)
    assert str(error.value) == message


def test_the_shape_of_an_output_must_follow_or_be_given() -> None:
    func = parse(
        """
        def f(C: Buffer["i32", N, N + 1, "out"], D: Buffer["i32", N, "out"]):
            for i in range(N):
                C[i, i + 1] = i32(i)
        """
    )
    with pytest.raises(ArgumentError, match="argument `C`: missing, and no other argument gives N"):
        run(func, {})
    result = run(func, {"D": np.zeros(3, np.int32)})
    assert result.outputs["C"].tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2]]
    assert result.defined["C"].sum() == 3
    with pytest.raises(ArgumentError, match=r"argument `C`: expected shape \(3, 4\), got \(3, 3\)"):
        run(func, {"C": np.zeros((3, 3), np.int32), "D": np.zeros(3, np.int32)})


def test_running_in_place() -> None:
    func = parse(
        """
        def f(A: Buffer["f32", 4], C: Buffer["f32", 4, "inout"], D: Buffer["f32", 4, "out"]):
            for i in range(2):
                C[i] += A[i]
                D[i] = A[i]
        """
    )
    a = np.arange(4, dtype=np.float32)
    c, d = np.ones((4, 2), np.float32)[:, 0], np.full(4, 9, np.float32)
    run_in_place(func, {"A": a, "C": c, "D": d})
    assert c.tolist() == [1, 2, 1, 1]
    assert d.tolist() == [0, 1, 9, 9]
