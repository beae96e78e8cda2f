"""Branches and loops of ONNX that do not depend on data: a branch is taken, a loop unrolled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_calls import DependsOnDataError, dimension
from tensorc.graph.onnx_scope import Entry, NotedError, Scope, Site
from tensorc.graph.onnx_tensors import attribute_of

if TYPE_CHECKING:
    from tensorc.graph.onnx_import import Importer

MOST_ITERATIONS = 256
"""The iterations up to which a loop is unrolled."""


def _known(entry: Entry, what: str) -> Array:
    if isinstance(entry, Value):
        raise DependsOnDataError(what, entry)
    if not isinstance(entry, np.ndarray):
        raise NotedError(what)
    return entry


def _single(entry: Entry, what: str) -> Any:
    """The only element of a known value."""
    array = _known(entry, what)
    if array.size != 1:
        raise RefusedError(f"{what} is given by {array.size} elements")
    return array.item()


def _attribute(site: Site, name: str, default: Any) -> Any:
    given = site.attributes.get(name)
    return default if given is None else attribute_of(given, None)


def _branch(importer: Importer, site: Site) -> Sequence[Entry]:
    chosen = _single(site.entry(0), "the branch that is taken")
    graph = _attribute(site, "then_branch" if chosen else "else_branch", None)
    scope = site.scope.inner(f"{site.where}/")
    importer.run(graph, scope)
    return importer.results([info.name for info in graph.output], scope)


def _loop(importer: Importer, site: Site) -> Sequence[Entry]:
    body = _attribute(site, "body", None)
    trips = site.entry(0)
    most = None if trips is None else int(_single(trips, "how often the loop runs"))
    state: list[Entry] = list(site.entries[2:])
    scanned: list[list[Entry]] = [[] for _ in body.output[1 + len(state) :]]
    going = site.entry(1)
    count = 0
    while most is None or count < most:
        if going is not None and not _single(going, "how often the loop runs"):
            break
        if count == MOST_ITERATIONS:
            raise RefusedError(f"more than {MOST_ITERATIONS} iterations, which are not unrolled")
        given = [np.array(count, np.int64), np.array(True), *state]
        going, *results = _iteration(importer, site, body, given, count, 1 + len(state))
        state = results[: len(state)]
        for rows, row in zip(scanned, results[len(state) :], strict=True):
            rows.append(row)
        count += 1
    return [*state, *(_stacked(importer, site, rows, 0) for rows in scanned)]


def _iteration(
    importer: Importer, site: Site, body: Any, given: Sequence[Entry], count: int, least: int
) -> list[Entry]:
    """What the body, which has at least so many outputs, gives."""
    scope: Scope = site.scope.inner(f"{site.where}/{count}/")
    if len(given) != len(body.input) or len(body.output) < least:
        have = f"a body of {len(body.input)} inputs and {len(body.output)} outputs"
        raise RefusedError(f"{have} for {len(given)} values")
    scope.names.update(zip((info.name for info in body.input), given, strict=True))
    importer.run(body, scope)
    return importer.results([info.name for info in body.output], scope)


def _scan(importer: Importer, site: Site) -> Sequence[Entry]:
    if site.scope.opsets[""] < 9:
        raise RefusedError("its meaning before opset 9, with a batch")
    body, count = _attribute(site, "body", None), _attribute(site, "num_scan_inputs", None)
    if not 0 < count <= len(site.entries):
        raise RefusedError(f"{count} scanned inputs of {len(site.entries)}")
    state: list[Entry] = list(site.entries[: len(site.entries) - count])
    outputs = len(body.output) - len(state)
    axes = _attribute(site, "scan_input_axes", (0,) * count)
    backwards = _attribute(site, "scan_input_directions", (0,) * count)
    columns = [
        _slices(importer, site, entry, axis, bool(back))
        for entry, axis, back in zip(site.entries[len(state) :], axes, backwards, strict=True)
    ]
    scanned: list[list[Entry]] = [[] for _ in range(outputs)]
    for number, row in enumerate(zip(*columns, strict=True)):
        results = _iteration(importer, site, body, [*state, *row], number, len(state))
        state = results[: len(state)]
        for rows, one in zip(scanned, results[len(state) :], strict=True):
            rows.append(one)
    axes = _attribute(site, "scan_output_axes", (0,) * outputs)
    turned = _attribute(site, "scan_output_directions", (0,) * outputs)
    return [
        *state,
        *(
            _stacked(importer, site, rows[::-1] if back else rows, axis)
            for rows, axis, back in zip(scanned, axes, turned, strict=True)
        ),
    ]


def _slices(
    importer: Importer, site: Site, entry: Entry, axis: int, backwards: bool
) -> list[Entry]:
    """The slices of a value along one dimension, in the order in which they are scanned."""
    if not isinstance(entry, Value | np.ndarray):
        raise NotedError("a scanned value")
    along = dimension(axis, len(entry.shape))
    extent = entry.shape[along]
    if extent > MOST_ITERATIONS:
        raise RefusedError(f"{extent} iterations; up to {MOST_ITERATIONS} are unrolled")
    places = range(extent)[::-1] if backwards else range(extent)
    if isinstance(entry, np.ndarray):
        return [np.take(entry, place, along) for place in places]
    emit = importer.emit(site)
    found = [emit("select", self=entry, dim=along, index=place) for place in places]
    return importer.accept(_nameless(site), emit, found)


def _stacked(importer: Importer, site: Site, rows: Sequence[Entry], axis: int) -> Entry:
    """The rows that the iterations gave, as one tensor."""
    if not rows:
        raise RefusedError("a result of no iteration, whose shape nothing tells")
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    if len(arrays) == len(rows):
        return np.stack(arrays, axis)
    emit = Emit(f"{site.where}/stacked", site.where, rename=importer.unique)
    values = []
    for row in rows:
        if not isinstance(row, Value | np.ndarray):
            raise NotedError("a result of an iteration")
        value = row if isinstance(row, Value) else importer.constant(row)
        values.append(emit("unsqueeze", self=value, dim=axis))
    result = emit("cat", tensors=tuple(values), dim=axis)
    return importer.accept(_nameless(site, values), emit, [result])[0]


def _nameless(site: Site, entries: Sequence[Entry] = ()) -> Site:
    """The site, for values that are none of its results."""
    node = type(site.node)()
    return Site(node, site.scope, site.where, site.domain, (*site.entries, *entries), {})


CONTROL: Mapping[str, Callable[[Importer, Site], Sequence[Entry]]] = MappingProxyType(
    {"If": _branch, "Loop": _loop, "Scan": _scan}
)
