"""The reference interpreter on the lowered forms: vectors, masks, let."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.errors import InterpreterError
from tensorc.ir.arith import index, var
from tensorc.ir.interp import run
from tensorc.ir.nodes import (
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Func,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Param,
    Ramp,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
)


def lowered(body: Stmt, *params: Param) -> Func:
    return Func("f", params, body)


X = Buffer("X", (index(6),), DType.I32)
Y = Buffer("Y", (index(6),), DType.I32)
LANES = Ramp(index(1), index(2), 3)


def test_all_lanes_are_computed_before_one_is_stored() -> None:
    """A shift by one lane within one buffer."""
    at = Ramp(index(0), index(1), 5)
    shifted = Store("X", X, (Binary("add", at, Broadcast(index(1), 5)),), Load(X, (at,)))
    result = run(lowered(shifted, Param(X, "inout")), {"X": np.arange(6, dtype=np.int32)}, log=True)
    assert result.outputs["X"].tolist() == [0, 0, 1, 2, 3, 4]
    assert [a.kind for a in result.log] == ["read"] * 5 + ["write"] * 5


def test_lanes_are_stored_in_order() -> None:
    same_place = Store("X", X, (Broadcast(index(2), 3),), Cast(DType.I32, LANES))
    result = run(lowered(same_place, Param(X, "out")), {})
    assert result.outputs["X"].tolist() == [0, 0, 5, 0, 0, 0]
    assert result.defined["X"].tolist() == [False, False, True, False, False, False]


def test_masked_lanes_touch_no_memory() -> None:
    at = Ramp(index(4), index(1), 4)
    mask = Binary("lt", at, Broadcast(index(6), 4))
    value = MaskedLoad(X, (at,), mask)
    body = MaskedStore("Y", Y, (at,), value, mask)
    result = run(lowered(body, Param(X), Param(Y, "out")), {"X": np.arange(6, dtype=np.int32)})
    assert result.outputs["Y"].tolist() == [0, 0, 0, 0, 4, 5]
    unmasked = MaskedStore("Y", Y, (at,), Load(X, (at,)), mask)
    with pytest.raises(InterpreterError, match=r"statement `Y`: X\[6\] is out of bounds"):
        run(lowered(unmasked, Param(X), Param(Y, "out")), {"X": np.arange(6, dtype=np.int32)})


def test_a_masked_load_gives_zero_where_it_does_not_load() -> None:
    at = Ramp(index(0), index(1), 6)
    mask = Binary("eq", Binary("floormod", at, index(2)), index(0))
    body = Store("Y", Y, (at,), MaskedLoad(X, (at,), mask))
    result = run(lowered(body, Param(X), Param(Y, "out")), {"X": np.full(6, 7, np.int32)})
    assert result.outputs["Y"].tolist() == [7, 0, 7, 0, 7, 0]


def test_a_vector_select_reads_the_chosen_lanes_only() -> None:
    at = Ramp(index(4), index(1), 4)
    chosen = Select(Binary("lt", at, index(6)), Load(X, (at,)), Const(-1, DType.I32))
    body = Store("Y", Y, (Ramp(index(0), index(1), 4),), chosen)
    result = run(lowered(body, Param(X), Param(Y, "out")), {"X": np.arange(6, dtype=np.int32)})
    assert result.outputs["Y"].tolist() == [4, 5, -1, -1, 0, 0]


def test_let_and_vector_reductions() -> None:
    doubled = Let(var("v"), LANES, Binary("mul", var("v"), index(2)))
    body = Seq(
        (
            Store("Y.init", Y, (Ramp(index(0), index(1), 6),), Const(0, DType.I32)),
            Reduce("Y", "sum", (Y,), (LANES,), (Cast(DType.I32, doubled),)),
            Reduce("total", "sum", (Y,), (index(0),), (Load(Y, (LANES,)),)),
        )
    )
    result = run(lowered(body, Param(Y, "out")), {})
    assert result.outputs["Y"].tolist() == [2 + 6 + 10, 2, 0, 6, 0, 10]
