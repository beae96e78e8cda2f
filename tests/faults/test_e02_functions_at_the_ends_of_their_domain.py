"""apache/tvm #11696, operon PR#171 and others: tanh of NaN was 1, large arguments overflowed."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from tests.faults.networks import in_every_way, network
from tests.faults.running import outputs
from tests.schedule.checking import schedule

INF, NAN = math.inf, math.nan
POINTS = [NAN, INF, -INF, 1e10, -1e10, 1e16, -1e16, 50.0, 88.0, 89.0, -104.0, 0.0, 1.0, -1.0]
ERF = "A[i] * (0.5 * (1.0 + erf(A[i] * 0.70710678)))"
TANH = "0.5 * A[i] * (1.0 + tanh(0.79788456 * (A[i] + 0.044715 * A[i] * A[i] * A[i])))"
# The value at infinity is the limit; at minus infinity gelu is minus infinity times 0, as in torch.
TEXTS = {
    "tanh": "tanh(A[i])",
    "exp": "exp(A[i])",
    "sigmoid": "sigmoid(A[i])",
    "erf": ERF,
    "tanh form": TANH,
}


@cache
def right(name: str) -> list[float]:
    return [_right(name, x) for x in POINTS]


def _right(name: str, x: float) -> float:
    if math.isnan(x):
        return x
    if name == "tanh":
        return math.tanh(x)
    if name == "exp":
        return INF if x > 88.8 else math.exp(x) if x > -103.98 else 0.0
    if name == "sigmoid":
        return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    if x == -INF:
        return NAN
    if name == "erf":
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
    inside = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inside))


def check(name: str, found: object) -> None:
    values = np.asarray(found, np.float64)
    np.testing.assert_allclose(values, np.array(right(name)).astype(np.float32), 2e-6, 1e-37)
    finite = np.isfinite(POINTS)
    assert not np.isnan(values[finite]).any()
    assert np.isnan(values[0])
    if name == "tanh":
        assert values[1:8].tolist() == [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]
        assert values[8:11].tolist() == [1.0, 1.0, -1.0]
    if name == "exp":
        at = dict(zip(POINTS[1:], values[1:].tolist(), strict=True))
        assert at[88.0] == pytest.approx(1.6516362549940018e38, rel=1e-6)
        assert (at[89.0], at[INF], at[-INF], at[-104.0]) == (INF, INF, 0.0, 0.0)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("name", TEXTS)
def test_compiled_and_interpreted(name: str, lanes: int) -> None:
    """The points do not fill the last vector: it is masked."""
    s = schedule(
        f"""
def f(A: Buffer["f32", {len(POINTS)}], B: Buffer["f32", {len(POINTS)}, "out"]):
    for i in range({len(POINTS)}):
        B[i] = {TEXTS[name]}
"""
    )
    if lanes > 1:
        s.vectorize(s.split("i", lanes)[1])
    check(name, outputs(s, 2e-6, A=np.array(POINTS, np.float32))["B"])


NETWORKS = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "erf": torch.nn.functional.gelu,
    "tanh form": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


@pytest.mark.torch
@in_every_way
def test_networks(how: str) -> None:
    def all_of_them(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([function(x) for function in NETWORKS.values()])

    x = torch.tensor(POINTS)
    found = network(all_of_them, x, how)
    for name, row in zip(NETWORKS, found, strict=True):
        check(name, row)
    # torch's own gelu of infinity is NaN in some of its vectors.
    same = x.isfinite() | x.isnan()
    torch.testing.assert_close(found[:, same], all_of_them(x)[:, same], equal_nan=True)


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_the_kind_in_other_formats(dtype: str) -> None:
    """Nothing finite gives NaN, and NaN stays NaN."""
    numbers = {"f16": np.float16, "f64": np.float64}[dtype]
    largest = float(np.finfo(numbers).max)
    points = np.array([NAN, largest, -largest, 710.0, -746.0, 12.0, -18.0], numbers)
    s = schedule(
        f"""
def f(A: Buffer["{dtype}", n], B: Buffer["{dtype}", 5, n, "out"]):
    for i in range(n):
        B[0, i] = tanh(A[i])
        B[1, i] = exp(A[i])
        B[2, i] = sigmoid(A[i])
        B[3, i] = erf(A[i])
        B[4, i] = 0.5 * A[i] * (1.0 + tanh(A[i]))
"""
    )
    s.vectorize(s.split("i", 8)[1])
    found = outputs(s, 1e-3 if dtype == "f16" else 1e-14, A=points)["B"]
    assert np.isnan(found[:, 0]).all()
    assert not np.isnan(found[:, 1:]).any()
    assert found[0, 1:3].tolist() == found[3, 1:3].tolist() == [1.0, -1.0]
    assert found[1, 1:3].tolist() == [INF, 0.0]
    assert found[2, 1:3].tolist() == [1.0, 0.0]
