"""Schedules and code of tasks: cached, made by helper processes, and packed weights."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import config
from tensorc.errors import ArgumentError, CacheWarning, LimitError
from tensorc.graph import kernels
from tensorc.graph.backend import interpreted
from tensorc.graph.evaluate import empty
from tensorc.graph.executor import CompiledTask, Executor, PlainTask
from tensorc.graph.kernels import UnscheduledWarning, build_kernels
from tensorc.graph.passes import clean_up, fuse
from tensorc.graph.tasks import partition
from tensorc.ir.nodes import Func
from tensorc.runtime.cache import cache_in
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target
from tests.graph.networks import Builder, arrays_for

HOST = Target.parse("cpu")


@pytest.fixture
def cache(tmp_path):
    """A compile cache of the test's own."""
    with config.scope(cache_dir=tmp_path):
        yield tmp_path


def perceptron(layers: int = 3, width: int = 40):
    net = Builder()
    x = net.input(6, width)
    for layer in range(layers):
        weight = net.add("permute", self=net.constant(width + layer, x.shape[1]), dims=(1, 0))
        x = net.add("relu", self=net.add("mm", self=x, mat2=weight))
    graph = clean_up(net.graph(x))
    return graph, partition(graph, fuse(graph))


def funcs_of(parts) -> list[Func]:
    return [task.func for task in parts.tasks]


def outputs(graph, parts, tasks) -> np.ndarray:
    result = empty(graph.outputs[0])
    Executor(graph, parts, tasks).run(arrays_for(graph), [result])
    return result


def assert_right(graph, parts, made) -> None:
    reference = outputs(graph, parts, [PlainTask(t.func, interpreted) for t in parts.tasks])
    result = outputs(graph, parts, [CompiledTask(kernel) for kernel in made])
    np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)


def test_a_second_compilation_schedules_nothing(cache, monkeypatch):
    graph, parts = perceptron()
    asked = []

    def counting(func, target):
        asked.append(func.name)
        return original(func, target)

    original = kernels._NAMED["rules"]
    monkeypatch.setitem(kernels._NAMED, "rules", counting)
    with config.scope(num_threads=1):
        assert_right(graph, parts, build_kernels(funcs_of(parts), HOST))
        assert len(asked) == 3
        assert_right(graph, parts, build_kernels(funcs_of(parts), HOST))
    assert len(asked) == 3


def test_helpers_compile_what_this_process_then_finds(cache):
    graph, parts = perceptron(layers=4)
    store = cache_in(cache / "schedules")
    with config.scope(num_threads=2):
        kernels._compile_aside(funcs_of(parts), HOST, "rules")
    for func in funcs_of(parts):
        assert store.get(kernels._key(func, HOST, "rules")) is not None
    assert_right(graph, parts, build_kernels(funcs_of(parts), HOST))


def test_a_helper_that_dies_costs_only_time(cache, monkeypatch):
    graph, parts = perceptron(layers=4)
    monkeypatch.setattr(kernels.sys, "executable", "/bin/true")
    with config.scope(num_threads=2):
        assert_right(graph, parts, build_kernels(funcs_of(parts), HOST))


def test_a_damaged_schedule_is_made_anew(cache):
    graph, parts = perceptron(layers=1)
    func = parts.tasks[0].func
    cache_in(cache / "schedules").put(kernels._key(func, HOST, "rules"), b'["def nonsense"]')
    with pytest.warns(CacheWarning, match="damaged"):
        made = build_kernels([func], HOST)
    assert_right(graph, parts, made)


def test_a_scheduler_of_ones_own(cache):
    graph, parts = perceptron()
    seen = []

    def scheduler(func: Func) -> Schedule:
        seen.append(func)
        schedule = Schedule(func)
        schedule.parallel(schedule.loops()[0])
        return schedule

    made = build_kernels(funcs_of(parts), HOST, scheduler)
    assert seen == funcs_of(parts)
    assert all("parallel" in kernel.module.source() for kernel in made)
    assert_right(graph, parts, made)


def test_weights_are_packed_once_for_equal_calls(cache):
    net = Builder()
    x = net.input(16, 64)
    weight = net.constant(64, 64)
    turned = net.add("permute", self=weight, dims=(1, 0))
    for _ in range(2):
        x = net.add("mm", self=x, mat2=turned)
    graph = clean_up(net.graph(x))
    parts = partition(graph, fuse(graph))
    assert [task.count for task in parts.tasks] == [2]
    (kernel,) = build_kernels(funcs_of(parts), HOST)
    packed = []

    class Counting(CompiledTask):
        def packed(self, parameter, constant):
            packed.append(parameter)
            return super().packed(parameter, constant)

    outputs(graph, parts, [Counting(kernel)])
    assert packed == ["W0"]
    assert_right(graph, parts, [kernel])


def test_a_task_that_the_scheduler_fails_at_runs_plainly(cache, monkeypatch):
    from tensorc.space import default

    def failing(func, target):
        raise LimitError("too much")

    monkeypatch.setattr(default, "default_schedule", failing)
    graph, parts = perceptron(layers=1)
    with pytest.warns(UnscheduledWarning, match="mm_relu runs unscheduled: too much"):
        made = build_kernels(funcs_of(parts), HOST)
    assert_right(graph, parts, made)


def test_what_is_no_scheduler_is_refused(cache):
    _, parts = perceptron(layers=1)
    with pytest.raises(ArgumentError, match="no scheduler 'fast'"):
        build_kernels(funcs_of(parts), HOST, "fast")
    with pytest.raises(ArgumentError, match="it gave an int"):
        build_kernels(funcs_of(parts), HOST, lambda func: 3)
    with pytest.raises(ArgumentError, match="legal: default, rules, tlm, none, or a function"):
        build_kernels((), HOST, "best")


def test_the_default_is_a_setting(cache, monkeypatch):
    """Without one, it is one constant."""
    _, parts = perceptron(layers=1)
    (func,) = funcs_of(parts)
    (ruled,) = build_kernels([func], HOST, "rules")
    assert ruled.module.func != func
    for name, wanted in (("rules", ruled.module.func), ("none", func)):
        with config.scope(scheduler=name):
            (kernel,) = build_kernels([func], HOST)
        assert kernel.module.func == wanted
    assert config.DEFAULT_SCHEDULER in config.SCHEDULERS
    monkeypatch.delenv("TENSORC_SCHEDULER")
    monkeypatch.setattr(config, "DEFAULT_SCHEDULER", "none")
    (kernel,) = build_kernels([func], HOST)
    assert kernel.module.func == func
