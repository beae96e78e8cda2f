"""Whole CUDA kernels: right results, silent detectors, and each barrier missed when it is gone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc.emulator import EmulatedDevice
from tests.emulator.kernels import CASES, Case, launched, report_of

BARRIER = re.compile(r"bar(?:rier)?\.sync(?:\.aligned)?\s+0;")
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
@pytest.mark.parametrize("order", ["sequential", "reverse", "random"])
def test_results_are_right_and_nothing_is_found(case: Case, order: str) -> None:
    device = EmulatedDevice(order=order, seed=3)  # type: ignore[arg-type]
    found, expected = launched(case, device)
    np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)
    assert device.reports[-1].findings == ()


@each_case
def test_results_without_detectors_are_the_same(case: Case) -> None:
    checked, _ = launched(case, EmulatedDevice())
    plain, _ = launched(case, EmulatedDevice(detect=False))
    np.testing.assert_array_equal(plain, checked)


@each_case
def test_each_barrier_is_missed(case: Case) -> None:
    ptx = case.ptx()
    places = [found.span() for found in BARRIER.finditer(ptx)]
    assert len(places) == case.barriers
    for start, end in places:
        report = report_of(case, ptx[:start] + ptx[end:])
        kinds = {finding.kind for finding in report.findings}
        assert kinds & {"Race", "Uninitialised", "CopyInFlight"}, (start, report)
        assert all(finding.access.place.file == "kernel.cu" for finding in report.findings)


def test_a_copy_that_is_not_waited_for_is_named() -> None:
    case = CASES["tensor_cores of bf16"]
    ptx, count = re.subn(r"cp\.async\.wait_group\s+\d;", "", case.ptx())
    assert count == 2
    report = report_of(case, ptx)
    assert {finding.kind for finding in report.findings} == {"CopyInFlight"}
    assert "ldmatrix" in str(report)
    weaker = case.ptx().replace("wait_group 0", "wait_group 1")
    assert {finding.kind for finding in report_of(case, weaker).findings} == {"CopyInFlight"}
