"""LLVM stored the element before it was narrowed where a masked store has one lane left."""

import pytest

from tensorc.ir.interp import run
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.testing import machine
from tensorc.testing.arrays import make_inputs
from tensorc.testing.differential import compare
from tensorc.testing.draw import Seeded

PAIRS = [("i32", "i8"), ("i32", "i16"), ("i64", "i32"), ("i16", "u8"), ("f32", "bf16"),
         ("f64", "bf16"), ("f32", "f16"), ("i64", "bool")]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow"), PAIRS)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_bytes_behind_stay(wide: str, narrow: str, lanes: int) -> None:
    text = f"""
def f(A: Buffer["{wide}", {lanes + 1}], B: Buffer["{narrow}", {lanes + 1}, "out"]):
    for i in range({lanes + 1}):
        B[i] = {narrow}(A[i])
"""
    s = Schedule(parse(text))
    s.split("i", lanes)
    s.vectorize("i1")
    module = machine.build(s.state)
    arguments = make_inputs(Seeded(0), s.func, {})
    found = machine.outputs(module, s.func, arguments)
    assert compare(run(s.func, arguments, bounds=True), found, s.func) is None
