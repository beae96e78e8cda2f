"""What all tests share: Hypothesis profiles, golden texts and the rule for GPU tests."""

from __future__ import annotations

import ctypes
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.golden import Golden

# Integer-set queries vary a hundredfold in time, and so does a busy machine: no deadlines, and no
# complaint about slow generation. `ci` draws the same examples in every run.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("dev", settings(max_examples=50, **_COMMON))
settings.register_profile("ci", settings(max_examples=100, derandomize=True, **_COMMON))
settings.register_profile("nightly", settings(max_examples=10_000, **_COMMON))
settings.load_profile("dev")
# Whatever the default is: what a test of the language model is not about, that model costs time.
os.environ["TENSORC_SCHEDULER"] = "rules"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")
    parser.addoption("--require-gpu", action="store_true", help="fail gpu tests if there is no GPU")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden.check(text)` compares a text with the one stored beside the test module."""
    return Golden(request.path, request.node.name, request.config.getoption("--update-golden"))


def gpu_missing() -> str | None:
    """Why no CUDA device can be used, or None if one can. Asks the driver alone."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return "the CUDA driver does not start"
    return None if count.value else "no CUDA device"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    reason = gpu_missing()
    if reason is None:
        return
    if item.config.getoption("--require-gpu"):
        pytest.fail(f"--require-gpu: {reason}")
    pytest.skip(f"needs a GPU: {reason}")
