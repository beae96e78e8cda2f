"""The conditions that every well-formed program meets, as a table.

`verify` raises at the first condition that a program breaks, `violations` lists them all. A lowered
program, as the code generator's stages make it, may also hold the lowered forms of nodes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorc.errors import VerifyError
from tensorc.ir import conditions
from tensorc.ir.conditions import Fault, Program
from tensorc.ir.nodes import Func
from tensorc.ir.places import places
from tensorc.ir.walk import span_at


@dataclass(frozen=True, slots=True)
class Condition:
    """A name, the condition in one sentence, and what finds where a program breaks it."""

    name: str
    statement: str
    faults: Callable[[Program], Iterator[Fault]]


CONDITIONS = (
    Condition(
        "parameters",
        "Parameters have different names.",
        conditions.unique_parameters,
    ),
    Condition(
        "buffer names",
        "Parameters and allocated buffers have different names.",
        conditions.unique_buffers,
    ),
    Condition(
        "statement names",
        "The statements that write have different names.",
        conditions.unique_statements,
    ),
    Condition(
        "variable names",
        "Loop variables, sizes and scalar parameters have different names, and no `let` hides one.",
        conditions.unique_variables,
    ),
    Condition(
        "words",
        "Loop kinds, modes and scopes are those of nodes.py; parameters are global.",
        conditions.words,
    ),
    Condition(
        "numbers",
        "Buffers hold data; extents are not negative, alignments are powers of two, and vectors "
        "have lanes.",
        conditions.numbers,
    ),
    Condition(
        "variables",
        "A variable is a size, a scalar parameter, or of a loop or `let` around it, and its dtype "
        "is the same everywhere.",
        conditions.variables,
    ),
    Condition(
        "buffers",
        "A buffer is a parameter or allocated around its use, and is described in the same way "
        "everywhere.",
        conditions.buffers,
    ),
    Condition(
        "sizes",
        "Every size in the shape of a parameter is a dimension of its own somewhere.",
        conditions.sizes,
    ),
    Condition(
        "pure",
        "Loop bounds, conditions and shapes read no buffer.",
        conditions.pure,
    ),
    Condition(
        "modes",
        'No parameter of mode "in" or "const" is written, and scalars have one of these modes.',
        conditions.modes,
    ),
    Condition(
        "rank",
        "A buffer has as many strides, if any, as dimensions, and an access to it as many indices.",
        conditions.rank,
    ),
    Condition(
        "operands",
        "The operands of an operator have one dtype, which the operator takes.",
        conditions.operands,
    ),
    Condition(
        "bool",
        "Conditions and masks are bool.",
        conditions.are_bool,
    ),
    Condition(
        "index",
        "Loop variables, bounds, extents and indices are index.",
        conditions.are_index,
    ),
    Condition(
        "stored",
        "A stored value has the dtype of its buffer.",
        conditions.stored,
    ),
    Condition(
        "reductions",
        "A reduction has a known operator, and as many different buffers and values as this takes, "
        "of the dtypes that it takes.",
        conditions.reductions,
    ),
    Condition(
        "sequences",
        "A sequence holds no sequence, and not exactly one statement.",
        conditions.sequences,
    ),
    Condition(
        "vectorize",
        "A vectorize loop runs a constant number of times, at most 64.",
        conditions.vectorized,
    ),
    Condition(
        "lowered",
        "Ramp, Broadcast, Let, MaskedLoad, MaskedStore, Prefetch, Barrier, AsyncCopy, Commit and "
        "Wait occur in lowered ones only; what is copied asynchronously is what a load reads.",
        conditions.lowered,
    ),
    Condition(
        "lanes",
        "Vectors that are computed together have the same number of lanes; bounds, conditions and "
        "the parts of a ramp are scalars.",
        conditions.lanes,
    ),
)


def verify(func: Func, *, lowered: bool = False) -> None:
    """Raise VerifyError for the first condition that `func` breaks, in the order of the table."""
    for error in violations(func, lowered=lowered):
        raise error


def violations(func: Func, *, lowered: bool = False) -> Iterator[VerifyError]:
    """Every place where `func` breaks a condition, condition by condition."""
    program = Program(func, tuple(places(func)), lowered)
    for condition in CONDITIONS:
        for place, reason in condition.faults(program):
            span = span_at(func, place.path)
            yield VerifyError(condition.name, f"{place.around.where}: {reason}", place.path, span)
