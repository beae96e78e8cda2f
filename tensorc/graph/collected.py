"""The task set from the sources of its tasks: families of operators and networks in many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tensorc.errors import ArgumentError
from tensorc.graph.families import family_of
from tensorc.graph.graph import Graph
from tensorc.graph.network_sizes import NETWORK_SIZES, NetworkSize
from tensorc.graph.operator_sizes import OperatorGraph, operator_graphs
from tensorc.graph.passes import clean_up, fuse, move_scales
from tensorc.graph.tasks import Task, partition
from tensorc.ir.print import print_func
from tensorc.tasks import KnownTask, TaskSet, largest_extent, structure
from tensorc.tasks.split import TRAINING_FLOPS, split_of

OPERATORS = "operators"
MOST_FLOPS = 3_200_000_000
MOST_BYTES = 40_000_000
"""Larger tasks are left out, so that one runs in about 50 ms and 100 of its schedules in a minute,
unless a whole network is wanted."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task, where it comes from, and the names by which its network may be held out."""

    name: str
    family: str
    origin: str
    networks: tuple[str, ...]
    larger: bool
    task: Task


@dataclass(slots=True)
class _Group:
    """Candidates of one structure, the first of which stands for all."""

    structure: str
    members: list[Candidate] = field(default_factory=list)


def of_operator(source: OperatorGraph) -> list[Candidate]:
    """The tasks of a single operator's graph, in the layout in which it is written."""
    graph = clean_up(move_scales(clean_up(source.graph())))
    found = list(_tasks(graph))
    names = [source.name] if len(found) == 1 else [f"{source.name}.{n}" for n in range(len(found))]
    return [
        Candidate(name, family, OPERATORS, (), source.larger, task)
        for name, (family, task) in zip(names, found, strict=True)
    ]


def of_network(source: NetworkSize) -> list[Candidate]:
    """The tasks of a network, without those that are too large.

    Raises:
        ModuleNotFoundError: torch or transformers is not installed.
    """
    names = (source.recipe, source.network)
    return [
        Candidate(f"{source.name}.{number:02}", family, source.name, names, source.larger, task)
        for number, (family, task) in enumerate(_tasks(source.graph()))
        if source.whole or fits(task)
    ]


def fits(task: Task) -> bool:
    return task.flops <= MOST_FLOPS and task.bytes <= MOST_BYTES


def _tasks(graph: Graph) -> Iterator[tuple[str, Task]]:
    """The distinct tasks of a graph with their families, in order of their first calls."""
    groups = fuse(graph)
    parts = partition(graph, groups)
    calls = {call.task: group for call, group in reversed([*zip(parts.calls, groups, strict=True)])}
    for number, task in enumerate(parts.tasks):
        yield family_of(calls[number].nodes), task


def collected(say: Callable[[str], None] = lambda _: None) -> TaskSet:
    """The set made anew; it takes minutes, and a gigabyte of memory.

    Raises:
        ModuleNotFoundError: torch or transformers is not installed.
    """
    candidates: list[Candidate] = []
    for operator in operator_graphs():
        candidates += of_operator(operator)
    for network in NETWORK_SIZES:
        say(network.name)
        candidates += of_network(network)
    return assembled(candidates)


def assembled(candidates: Iterable[Candidate]) -> TaskSet:
    """The set of some candidates: one task for each structure, in its part of the split.

    What was made to be larger than all that is trained on, but is not, is left out.

    Raises:
        ArgumentError: two candidates have one name.
    """
    groups: dict[str, _Group] = {}
    names: set[str] = set()
    for one in candidates:
        if one.name in names:
            raise ArgumentError("candidates", f"two are called {one.name!r}")
        names.add(one.name)
        key = structure(one.task.func)
        groups.setdefault(key, _Group(key)).members.append(one)
    tasks = [_known(group) for group in groups.values()]
    return TaskSet(tuple(_without_small(tasks)))


def _known(group: _Group) -> KnownTask:
    first = group.members[0]
    networks = {name for one in group.members for name in one.networks}
    origins = tuple(dict.fromkeys(one.origin for one in group.members))
    flops = first.task.flops
    larger = all(one.larger for one in group.members) or flops > TRAINING_FLOPS
    split, held = split_of(group.structure, first.family, networks, larger)
    text = print_func(first.task.func)
    return KnownTask(first.name, first.family, origins, split, held, flops, first.task.bytes, text)


def _without_small(tasks: list[KnownTask]) -> Iterator[KnownTask]:
    """Without those that were to be larger than what is trained on of their family and are not."""
    work: dict[str, int] = {}
    reach: dict[str, int] = {}
    for task in tasks:
        if task.split == "training":
            work[task.family] = max(work.get(task.family, 0), task.flops)
            reach[task.family] = max(reach.get(task.family, 0), largest_extent(task.func))
    for task in tasks:
        extent = largest_extent(task.func)
        if task.held != "extents" or (
            task.flops > work.get(task.family, -1) or extent > reach.get(task.family, -1)
        ):
            yield task
