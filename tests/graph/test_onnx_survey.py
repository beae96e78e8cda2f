"""The survey of ONNX's operator tests says passed only of what agrees, and names the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.backend.test.case.test_case import TestCase

from bench import onnx_nodes
from tests.graph.onnx_models import ints, one_node

X = np.array([[1, -2, 3]], np.float32)


def case(model: Any, inputs: list[np.ndarray], expected: np.ndarray) -> TestCase:
    return TestCase("t", "t", None, None, model, [(inputs, [expected])], "node", 1e-3, 1e-7)


@pytest.mark.parametrize(
    ("op", "inputs", "expected", "verdict"),
    [
        ("Neg", [X], -X, "passed"),
        ("Neg", [X], -X * np.float32(1 + 1e-3), "passed"),
        ("Neg", [X], -X * np.float32(1 + 2e-3), "wrong"),
        ("Neg", [X], -X.astype("f8"), "wrong"),
        ("Neg", [X], -X[0], "wrong"),
        ("Neg", [X.astype("f2")], (-X * (1 + 2.0**-9.5)).astype("f2"), "rounding"),
        ("Neg", [X.astype("f2")], (-X * (1 + 2.0**-7)).astype("f2"), "wrong"),
        ("Reshape", [X, ints(3, 1)], X.reshape(3, 1), "by value"),
        ("NonZero", [X], X, "refused"),
    ],
    ids=range(9),
)
def test_verdicts(op: str, inputs: list[Any], expected: np.ndarray, verdict: str) -> None:
    outcome = onnx_nodes.outcome_of(case(one_node(op, inputs)[0], inputs, expected), "none")
    assert outcome.verdict == verdict, outcome
    assert bool(outcome.reason) == (verdict not in ("passed", "by value"))


def test_every_listed_test_is_listed_once() -> None:
    names = onnx_nodes.listed()
    assert len(names) == len(set(names)) > 1800
    assert all(name.startswith("test_") for name in names)
