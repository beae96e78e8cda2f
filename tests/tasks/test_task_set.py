"""The committed task set is whole, its split leaks nothing, and its tasks are programs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.task_set import compared
from tensorc.codegen.pipeline import lower
from tensorc.errors import ArgumentError
from tensorc.graph.collected import OPERATORS, assembled, fits, of_network, of_operator
from tensorc.graph.network_sizes import NETWORK_SIZES
from tensorc.graph.operator_sizes import operator_graphs
from tensorc.graph.tasks import flops
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Buffer, Const, For, Func, Node, Var
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes, replace, rewrite, substitute
from tensorc.space.default import default_schedule
from tensorc.tasks import (
    HELD_FAMILIES,
    HELD_NETWORKS,
    SPLITS,
    KnownTask,
    largest_extent,
    structure,
    task_set,
)
from tensorc.tasks.split import TRAINING_FLOPS, split_of
from tensorc.tasks.task_set import PLACE, TaskSet, digest_of, load

TASKS = task_set().tasks


@cache
def structures() -> dict[str, str]:
    return {task.name: structure(task.func) for task in TASKS}


def networks_of(task: KnownTask) -> set[str]:
    """The names by which the networks that have a task may be held out."""
    found = {origin.partition("@")[0] for origin in task.origins if origin != OPERATORS}
    recipes = {size.network: size.recipe for size in NETWORK_SIZES}
    return found | {recipes[name] for name in found}


def test_the_set_is_the_one_of_its_digest() -> None:
    assert load() == task_set()
    assert task_set().digest == digest_of(PLACE).read_text().strip()
    assert PLACE.stat().st_size < 200_000


def test_there_are_enough_tasks_of_every_kind() -> None:
    assert len(TASKS) >= 400
    assert len({task.name for task in TASKS}) == len(TASKS)
    families = Counter(task.family for task in TASKS)
    assert min(families.values()) >= 4
    assert {
        "1d convolution", "2d convolution", "3d convolution", "grouped convolution",
        "dilated convolution", "depthwise convolution", "transposed convolution", "matrix product",
        "batched product", "attention", "reduction", "softmax", "layer norm", "rms norm",
        "group norm", "elementwise", "movement", "pooling", "gather",
    } <= families.keys()  # fmt: skip
    origins = {origin for task in TASKS for origin in task.origins}
    # A size whose tasks are all those of others, or not larger than they, has none of its own.
    assert origins <= {OPERATORS, *(size.name for size in NETWORK_SIZES)}
    assert {size.recipe for size in NETWORK_SIZES} == {
        size.recipe for size in NETWORK_SIZES if size.name in origins
    }


def test_every_task_is_a_program_as_it_says() -> None:
    for task in TASKS:
        func = task.func
        assert print_func(func) == task.text
        verify(func)
        assert flops(func) == task.flops, task.name
        assert sum(map(bytes_of, func.params)) == task.bytes, task.name


def bytes_of(param: Node) -> int:
    buffer = param.value
    assert isinstance(buffer, Buffer)
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= constant(extent)
    return size


# The split ---------------------------------------------------------------------------------------


def test_no_program_is_in_the_set_twice() -> None:
    assert len(set(structures().values())) == len(TASKS)


def test_every_task_is_where_the_rule_puts_it() -> None:
    for task in TASKS:
        larger = task.held == "extents"
        expected = split_of(structures()[task.name], task.family, networks_of(task), larger)
        assert (task.split, task.held) == expected, task.name


def test_nothing_that_is_held_out_is_trained_on() -> None:
    for task in task_set().of_split("training"):
        assert task.family not in HELD_FAMILIES
        assert not networks_of(task) & HELD_NETWORKS.keys()


def test_larger_tasks_are_larger_than_all_that_is_trained_on() -> None:
    larger = [task for task in TASKS if task.held == "extents"]
    assert len({task.family for task in larger}) >= 8
    reach: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for task in task_set().of_split("training"):
        reach[task.family] = max(reach[task.family], largest_extent(task.func))
        work[task.family] = max(work[task.family], task.flops)
    for task in larger:
        further = largest_extent(task.func) > reach[task.family]
        assert further or task.flops > work[task.family], task.name


def test_the_test_has_networks_families_and_work() -> None:
    test = task_set().of_split("test")
    assert sum(task.compute_bound for task in test) >= 48
    assert {"network", "family", "extents"} == {task.held for task in test}
    for name in ("efficientnet-b0@1x224", "gpt2@1x128"):
        (size,) = (one for one in NETWORK_SIZES if one.name == name)
        assert size.whole
        assert len(task_set().of_origin(name)) >= 5
        assert all(task.split == "test" for task in task_set().of_origin(name))
    shares = [len(task_set().of_split(split)) / len(TASKS) for split in SPLITS]
    assert shares[0] > 0.4
    assert min(shares) > 0.08


def test_tasks_are_small_enough_to_measure_many_schedules_of() -> None:
    whole = {size.name for size in NETWORK_SIZES if size.whole}
    for task in TASKS:
        assert fits(task) or whole & set(task.origins), task.name


# Made anew ----------------------------------------------------------------------------------------


def test_operators_give_tasks_of_the_families_that_are_stored() -> None:
    """A sample. The set stays as it is committed when what makes it is improved."""
    families = {task.family for task in TASKS}
    for source in list(operator_graphs())[::8]:
        made = of_operator(source)
        assert made, source.name
        for one in made:
            assert one.family in families
            assert fits(one.task)
            assert one.task.flops <= TRAINING_FLOPS or source.larger


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_network_is_made_without_its_weights() -> None:
    (size,) = (one for one in NETWORK_SIZES if one.name == "bert-base-256@2x128")
    graph = size.graph()
    assert all(not any(array.strides) for array in graph.constants.values())
    made = of_network(size)
    assert {"attention", "matrix product", "layer norm"} <= {one.family for one in made}
    assert all(fits(one.task) and one.origin == size.name for one in made)


def test_the_order_of_candidates_moves_none_to_another_part() -> None:
    made = [one for source in list(operator_graphs())[::5] for one in of_operator(source)]
    parts = [
        {structure(task.func): (task.split, task.held) for task in assembled(order)}
        for order in (made, made[::-1])
    ]
    assert parts[0] == parts[1]
    with pytest.raises(ArgumentError, match="two are called"):
        assembled([*made, made[0]])


def test_a_comparison_names_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(task_set(), task_set()) == 0
    assert capsys.readouterr().out == ""
    assert compared(TaskSet(TASKS[1:]), task_set()) == 1
    assert capsys.readouterr().out == f"differs: {TASKS[0].name}\n"


# Structure ----------------------------------------------------------------------------------------

SMALL = [task for task in TASKS if len(task.text) < 700]


def renamed(func: Func, names: dict[str, str]) -> Func:
    """Other names for loops; parameters the other way round, weights no longer promised."""
    loops = {old: Var(new) for old, new in names.items()}

    def change(node: Node) -> Node | None:
        if isinstance(node, For) and node.var.name in loops:
            return replace(node, var=loops[node.var.name])
        return None

    params = [p if p.mode != "const" else replace(p, mode="in") for p in func.params[::-1]]
    body = substitute(rewrite(func.body, change), loops)
    return Func("another", tuple(params), body)


@given(st.data())
def test_structure_is_what_does_not_depend_on_names(data: st.DataObject) -> None:
    func = data.draw(st.sampled_from(SMALL)).func
    old = [loop.var.name for loop in nodes(func, For)]
    new = data.draw(st.permutations([f"q{n}" for n in range(len(old))]))
    assert structure(renamed(func, dict(zip(old, new, strict=True)))) == structure(func)


@given(st.data())
def test_structure_is_what_is_computed(data: st.DataObject) -> None:
    func = data.draw(st.sampled_from(SMALL)).func
    loops = [loop for loop in nodes(func, For) if isinstance(loop.end, Const)]
    name = data.draw(st.sampled_from(loops)).var.name

    def change(node: Node) -> Node | None:
        if isinstance(node, For) and node.var.name == name and isinstance(node.end, Const):
            return replace(node, end=replace(node.end, value=node.end.value + 1))
        return None

    changed = rewrite(func, change)
    assert structure(changed) != structure(func)


# Use ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS[3::61], ids=lambda task: task.name)
def test_a_sample_gets_a_schedule_and_lowers(task: KnownTask) -> None:
    schedule = default_schedule(task.func, "cpu:x86-64-v3")
    verify(lower(schedule.func, schedule.target).func, lowered=True)


def test_what_there_is_not() -> None:
    with pytest.raises(ArgumentError, match="the task set has no 'nothing'"):
        task_set()["nothing"]
    with pytest.raises(ArgumentError, match="legal here: training, development, test"):
        task_set().of_split("validation")  # type: ignore[arg-type]
    assert task_set().of_origin("nothing") == ()


@pytest.mark.parametrize("damage", ["missing", "cut", "plain", "another", "field", "digest"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl.gz"
    TaskSet(TASKS[:3]).save(path)
    assert load(path).tasks == TASKS[:3]
    data = path.read_bytes()
    record = json.loads(gzip.decompress(data).splitlines()[0])
    match damage:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "plain":
            path.write_bytes(gzip.decompress(data))
        case "another":
            TaskSet(TASKS[:2]).save(tmp_path / "other.gz")
            path.write_bytes(data)
        case "field":
            path.write_bytes(gzip.compress(json.dumps({**record, "more": 1}).encode()))
        case "digest":
            digest_of(path).write_text("nothing")
    with pytest.raises(ArgumentError) as caught:
        load(path)
    assert caught.value.argument == "path"


def test_the_text_is_all_that_loading_needs() -> None:
    """No import of torch, or of the graph layer, is behind a task."""
    script = (
        "import sys; from tensorc.tasks import task_set; task_set().tasks[0].func;"
        "print([m for m in ('torch', 'numpy', 'tensorc.graph', 'islpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_parse_is_the_inverse() -> None:
    assert all(parse(task.text) == task.func for task in TASKS[::20])
