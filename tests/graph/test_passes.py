"""Every pass keeps the meaning of any graph; what each is there for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tensorc.dtype import DType
from tensorc.graph.backend import interpreted
from tensorc.graph.emit import Emit
from tensorc.graph.evaluate import empty, evaluate
from tensorc.graph.executor import Executor, PlainTask
from tensorc.graph.graph import Graph, Value
from tensorc.graph.passes import (
    clean_up,
    fold_batch_norm,
    fold_constants,
    fuse,
    move_scales,
    optimised,
)
from tensorc.graph.tasks import partition
from tests.graph.networks import arrays_for, graphs


def values(graph: Graph) -> list[np.ndarray]:
    known = evaluate(graph, arrays_for(graph))
    return [known[value] for value in graph.outputs]


def folded(graph: Graph) -> Graph:
    return fold_constants(graph, lambda part: evaluate(part, []))


def assert_same(before: list[np.ndarray], after: list[np.ndarray]) -> None:
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(b.reshape(a.shape), a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("a_pass", [clean_up, fold_batch_norm, move_scales, folded])
@given(graph=graphs())
def test_a_pass_keeps_the_meaning(a_pass, graph):
    changed = a_pass(graph)
    changed.verify()
    assert changed.inputs == graph.inputs
    assert [v.shape for v in changed.outputs] == [v.shape for v in graph.outputs]
    assert_same(values(graph), values(changed))


def run_fused(graph: Graph) -> list[np.ndarray]:
    parts = partition(graph, fuse(graph))
    executor = Executor(graph, parts, [PlainTask(t.func, interpreted) for t in parts.tasks])
    results = [empty(value) for value in graph.outputs]
    executor.run(arrays_for(graph), results)
    return results


@settings(max_examples=300)
@given(graph=graphs(steps=12))
def test_fused_planned_and_collapsed_it_still_means_the_same(graph):
    *_, (_, final) = optimised(graph, lambda part: evaluate(part, []), lanes=2)
    assert_same(values(graph), run_fused(final))


@given(graph=graphs())
def test_fusion_alone_keeps_the_meaning(graph):
    assert_same(values(graph), run_fused(clean_up(graph)))


def test_a_long_chain_of_maps_is_several_groups():
    emit = Emit("t", "")
    value = given = Value("x", (2,), DType.F32)
    for _ in range(450):
        value = emit("relu", self=value)
    groups = fuse(Graph((given,), (value,), tuple(emit.nodes)))
    assert [len(group.nodes) for group in groups] == [50, 100, 100, 100, 100]
