"""tilelang #2408: work was repeated on the workers to spare, and all of them added."""

import numpy as np
import pytest

import tensorc as tc
from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

TEXT = """
def f(s: Buffer["i32", "out"]):
    s[()] = 0
    for j in range(48):
        s[()] += 1
"""


def workers(count: int) -> tc.Schedule:
    """A worker for each element and some to spare, up to a multiple of `count`."""
    s = schedule(TEXT)
    s.pad("j", count)
    s.rfactor("j")
    s.parallel("j.rf")
    return s


def blocks(count: int) -> tc.Schedule:
    """Blocks of `count` in parallel; the last is not full."""
    s = schedule(TEXT)
    outer, _ = s.split("j", count)
    s.rfactor(outer)
    s.parallel(f"{outer}.rf")
    return s


def lanes(count: int) -> tc.Schedule:
    """As many sums as lanes, which run over blocks of `count`."""
    s = schedule(TEXT)
    _, inner = s.split("j", count)
    s.rfactor(inner)
    s.parallel(f"{inner}.rf")
    return s


@pytest.mark.parametrize("shape", [workers, blocks, lanes])
def test_every_worker_adds_its_own(shape, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (5, 7, 32, 64, 128):
        s = shape(count)
        for threads in range(1, 9):
            monkeypatch.setenv("TENSORC_NUM_THREADS", str(threads))
            assert outputs(s)["s"] == 48
        check(s)


def test_the_kind_bound_without_parts_it_is_refused() -> None:
    s = schedule(TEXT)
    with pytest.raises(tc.ScheduleError) as found:
        s.parallel("j")
    assert found.value.violation.code == "DEP001"
    assert "rfactor j" in found.value.violation.alternatives


def test_the_kind_each_of_many_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORC_NUM_THREADS", "8")
    s = schedule(
        """
def f(A: Buffer["i32", 3, 48], s: Buffer["i32", 3, "out"]):
    for i in range(3):
        s[i] = 0
        for j in range(48):
            s[i] += A[i, j]
"""
    )
    s.rfactor(s.split("j", 7)[0])
    s.parallel("j0.rf")
    a = np.arange(144, dtype=np.int32).reshape(3, 48)
    np.testing.assert_array_equal(outputs(s, A=a)["s"], a.sum(1))
    s = schedule(s.source)
    i0, _ = s.split("i", 2)
    s.parallel(i0)
    np.testing.assert_array_equal(outputs(s, A=a)["s"], a.sum(1))
