"""Arguments of a wrong kind are refused by name, at the call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

import tensorc as tc
from tensorc.errors import ArgumentError
from tensorc.runtime import parallel

FUNC = tc.parse("""
def f(A: Buffer["f32", 4], B: Buffer["f32", 4, "out"]):
    for i in range(4):
        B[i] = A[i]
""")
A, B = np.ones((2, 4), "f4")


def model() -> bytes:
    x, y = (helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(whole.SerializeToString())


def network() -> tc.CompiledNetwork:
    return tc.compile(model(), scheduler="none")


X = np.ones((2, 3), "f4")
CALLS: list[tuple[str, Callable[[], object]]] = [
    ("name", lambda: tc.build(FUNC, name=3)),  # type: ignore[arg-type]
    ("name", lambda: tc.build(FUNC, name="")),
    ("repeats", lambda: tc.build(FUNC).profile(A, B, repeats="x")),  # type: ignore[arg-type]
    ("repeats", lambda: tc.build(FUNC).profile(A, B, repeats=True)),
    ("stage", lambda: tc.build(FUNC).source(["ir"])),  # type: ignore[arg-type]
    ("name", lambda: tc.build(FUNC).pack(["A"], A)),  # type: ignore[arg-type]
    ("count", lambda: parallel.prepare("3")),  # type: ignore[arg-type]
    ("count", lambda: parallel.prepare(2.5)),  # type: ignore[arg-type]
    ("backend", lambda: tc.compile(model(), backend=3)),  # type: ignore[arg-type]
    ("peak_flops", lambda: network().profile(X, runs=1, peak_flops=0.0)),
    ("bandwidth", lambda: network().profile(X, runs=1, bandwidth=float("nan"))),
    ("tolerance", lambda: network().compare(None, X, tolerance="x")),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(
    "number", range(len(CALLS)), ids=[f"{n} {c[0]}" for n, c in enumerate(CALLS)]
)
def test_it_is_named(number: int) -> None:
    name, call = CALLS[number]
    with pytest.raises(ArgumentError) as found:
        call()
    assert name in str(found.value)


@pytest.mark.parametrize(("name", "damaged"), [(b"\x01y", b"\x01\xdc"), (b"\x01x", b"\x01\xdc")])
def test_a_name_that_is_no_text(name: bytes, damaged: bytes) -> None:
    with pytest.raises(ArgumentError, match="not a whole ONNX model"):
        tc.compile(model().replace(name, damaged), scheduler="none")
