"""The race detector against brute force, and the reports that it writes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.emulator import EmulatedDevice
from tests.emulator.kernels import ptx_of
from tests.emulator.race_programs import (
    BARRIER,
    MEET,
    READ,
    WRITE,
    Program,
    Step,
    detected,
    races,
    random_program,
)

orders = st.sampled_from(["sequential", "reverse", "random"])


@st.composite
def programs(draw: st.DrawFn, masks: bool = False) -> Program:
    return random_program(lambda options: draw(st.sampled_from(list(options))), masks)


@given(programs(), orders, st.integers(0, 100))
def test_the_detector_agrees_with_brute_force(program: Program, order: str, seed: int) -> None:
    assert detected(program, order, seed) == races(program)


@given(programs(masks=True), orders, st.integers(0, 100))
def test_barriers_of_parts_of_a_warp_raise_no_false_alarm(
    program: Program, order: str, seed: int
) -> None:
    assert detected(program, order, seed) <= races(program)


@pytest.mark.parametrize(
    ("between", "expected"), [((), True), ((BARRIER,), False), ((MEET,), True)]
)
def test_neighbours_exchange_values(between: tuple[int, ...], expected: bool) -> None:
    """Each thread writes its cell and reads the next one, over the edge of a warp too."""
    program = (Step(WRITE, a=1), *(Step(op) for op in between), Step(READ, a=1, b=1))
    assert races(program) is detected(program, "sequential", 0) is expected


BLOCKS = """
extern "C" __global__ void last(int* cell) {
  if (threadIdx.x == 3) *cell = blockIdx.x;
}
"""


def test_a_race_between_blocks_names_both() -> None:
    device = EmulatedDevice(strict=False)
    cell = device.wrap(np.zeros(1, np.int32), "the cell")
    device.launch(device.load(ptx_of(BLOCKS)).function("last"), 3, 32, [cell])
    [finding] = device.reports[-1].findings
    assert finding.as_dict()["finding"] == "Race"
    assert str(finding) == (
        "Race: a write and a write of byte 0 of the cell that nothing orders, block (1, 0, 0) and "
        "block (0, 0, 0):\n"
        "  thread (3, 0, 0) at kernel.cu:3 (PTX line 33), `st.global.u32`\n"
        "  thread (3, 0, 0) at kernel.cu:3 (PTX line 33), `st.global.u32`"
    )
