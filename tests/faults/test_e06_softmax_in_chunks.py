"""flashinfer PR#1178, onnxruntime PR#26055 and others: a chunk of minus infinities gave NaN."""

import numpy as np
import pytest
import torch

import tensorc as tc
from tests.faults.networks import in_every_way, network
from tests.faults.running import outputs

INF = np.inf
CHUNK = 8
FIRST_CHUNK_EMPTY = [-INF] * CHUNK + [1.0, 2.0]
LAST_CHUNK_EMPTY = [1.0, 2.0] + [-INF] * CHUNK
ROWS = np.array([FIRST_CHUNK_EMPTY, LAST_CHUNK_EMPTY, [-INF] * 10], np.float32)
SHARES = [0.2689414, 0.7310586]
# A row of nothing but minus infinities has no softmax: NaN, as in torch.
RIGHT = np.array([[0.0] * CHUNK + SHARES, SHARES + [0.0] * CHUNK, [np.nan] * 10], np.float32)


def online(width: int) -> tc.Schedule:
    """Softmax by one pass that keeps the greatest and the sum, and one that divides."""
    X, k = tc.placeholder((3, width), "f32", name="X"), tc.reduce_axis(width, name="k")
    greatest, total = tc.compute((3,), lambda i: tc.logsumexp(X[i, k], axis=k), name="S")
    P = tc.compute((3, width), lambda i, j: tc.exp(X[i, j] - greatest[i]) / total[i], name="P")
    return tc.Schedule(tc.func_of([X], [P], name="softmax"))


def chunks(s: tc.Schedule) -> None:
    """A greatest and a sum of every chunk, then of all."""
    s.rfactor(s.split("k", CHUNK)[0])


def lanes(s: tc.Schedule) -> None:
    """A greatest and a sum of every lane of a chunk, then of all."""
    lane = s.split("k", CHUNK)[1]
    s.rfactor(lane)
    s.vectorize(f"{lane}.rf")


def chunks_in_parallel(s: tc.Schedule) -> None:
    chunks(s)
    s.parallel("k0.rf")
    s.vectorize(s.split("j", CHUNK)[1])


STEPS = {"none": lambda s: None, "chunks": chunks, "lanes": lanes, "parallel": chunks_in_parallel}


@pytest.mark.parametrize("steps", STEPS)
def test_a_chunk_of_minus_infinities(steps: str) -> None:
    s = online(10)
    STEPS[steps](s)
    np.testing.assert_allclose(outputs(s, 1e-6, X=ROWS)["P"], RIGHT, 1e-6)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("width", [1, 2, 5, 7])
def test_rows_narrower_than_a_chunk(width: int, steps: str) -> None:
    rows = np.array([np.arange(width), [-INF] * (width - 1) + [3.0], [-INF] * width], np.float32)
    s = online(width)
    STEPS[steps](s)
    found = outputs(s, 1e-6, X=rows)["P"]
    powers = np.exp(np.arange(width) - (width - 1.0))
    np.testing.assert_allclose(found[0], powers / powers.sum(), 1e-6)
    assert found[1].tolist() == [0.0] * (width - 1) + [1.0]
    assert np.isnan(found[2]).all()


@pytest.mark.torch
@in_every_way
@pytest.mark.parametrize("width", [10, 5])
def test_softmax_of_torch(width: int, how: str) -> None:
    x = torch.from_numpy(ROWS[:, -width:].copy())
    found = network(lambda x: torch.softmax(x, -1), x, how)
    if width == 10:
        np.testing.assert_allclose(found, RIGHT, 1e-6)
    torch.testing.assert_close(found, torch.softmax(x, -1), equal_nan=True)


def test_the_kind_chunks_of_every_size() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 21)).astype(np.float32) * 30
    x[rng.random(x.shape) < 0.6] = -INF
    x[:, 20] = 0.0
    shifted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    right = shifted / shifted.sum(1, keepdims=True)
    for size in (1, 2, 3, 7, 8, 20, 21, 32):
        s = online(21)
        s.rfactor(s.split("k", size)[0])
        np.testing.assert_allclose(outputs(s, 1e-5, X=x)["P"], right, 1e-5, 1e-38)
