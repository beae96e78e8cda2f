"""Concrete evidence out of isl relations: the smallest point, in the program's own names."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tensorc.analysis.affine import Model
from tensorc.analysis.deps import Dependence
from tensorc.analysis.effects import Access, Statement
from tensorc.analysis.evaluate import evaluate
from tensorc.analysis.violation import Witness


def smallest_point(relation: isl.Map) -> tuple[list[int], list[int], list[int]]:
    """(sizes, source vector, sink vector) of the lexicographically least pair of a relation, where
    isl can tell which it is.

    The sizes count first, so that the witness is a small program.
    """
    parameters = relation.dim(isl.dim_type.param)
    inputs = relation.dim(isl.dim_type.in_)
    open_map = relation.move_dims(isl.dim_type.in_, 0, isl.dim_type.param, 0, parameters)
    points = open_map.wrap().flatten()
    try:
        points = points.lexmin()
    except isl.Error as error:
        # isl fails at some sets with quotients ("affine expression involves some of the domain
        # dimensions", isl_domain_factor_templ.c). Any point is evidence, too.
        if "involves some of the domain dimensions" not in str(error):
            raise
    point = points.sample_point()
    values = [
        point.get_coordinate_val(isl.dim_type.set, n).get_num_si()
        for n in range(points.dim(isl.dim_type.set))
    ]
    return (
        values[:parameters],
        values[parameters : parameters + inputs],
        values[parameters + inputs :],
    )


def vector_text(vector: tuple[tuple[str, int], ...]) -> str:
    return "(" + ",".join(f"{name}={value}" for name, value in vector) + ")"


def element_text(access: Access, values: Mapping[str, int]) -> tuple[str, tuple[int, ...]]:
    """The element that an access touches, e.g. ("A[1,1]", (1, 1)); `?` for what is not affine."""
    found = [evaluate(i, values) for i in access.indices]
    inside = ",".join("?" if v is None else str(v) for v in found) or "()"
    return f"{access.buffer.name}[{inside}]", tuple(-1 if v is None else v for v in found)


_VERBS = {"read": "reads", "write": "writes", "reduce": "reduces into"}


def dependence_witness(
    program: Model, dependence: Dependence, bad: isl.Map, consequence: str
) -> Witness:
    """A witness out of `bad`, a non-empty part of the dependence's relation."""
    order = {bad.get_dim_name(isl.dim_type.param, n): n for n in range(len(program.symbols))}
    found, first, second = smallest_point(bad)
    sizes = tuple((name, found[order[p]]) for name, p in program.symbols.items())
    source = _vector(dependence.source, first)
    sink = _vector(dependence.sink, second)
    known = dict(sizes)
    element, indices = element_text(dependence.source_access, known | dict(source))
    other, _ = element_text(dependence.sink_access, known | dict(sink))
    given = f" ({', '.join(f'{n}={v}' for n, v in sizes)})" if sizes else ""
    text = (
        f"witness{given}: {_instance(dependence, dependence.source, source)} "
        f"{_VERBS[dependence.source_access.kind]} {element}; "
        f"{_instance(dependence, dependence.sink, sink)} "
        f"{_VERBS[dependence.sink_access.kind]} {other}; {consequence}"
    )
    return Witness(
        sizes,
        (dependence.source.name, source),
        (dependence.sink.name, sink),
        (dependence.buffer, indices),
        text,
    )


def _instance(dependence: Dependence, stmt: Statement, vector: tuple[tuple[str, int], ...]) -> str:
    """An instance in words; the statement is named where the two ends are different ones."""
    name = f"`{stmt.name}`" if dependence.source.name != dependence.sink.name else ""
    return " ".join(filter(None, (name, vector_text(vector) if vector else "")))


def _vector(stmt: Statement, values: list[int]) -> tuple[tuple[str, int], ...]:
    return tuple(zip(stmt.loop_names, values, strict=True))
