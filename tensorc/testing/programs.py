"""Random programs: small nests of every kind of dependence that the legality rules know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.nodes import Func
from tensorc.testing.draw import Drawn, Source
from tensorc.testing.stages import Maker

EXTENTS = (4, 3, 2, 5, 8, 1, 7, 9, 0, 15, 16, 17, 31, 33)
DTYPES = tuple(DType.of(n) for n in ("i32", "f32", "i8", "u8", "i64", "f16", "bool", "f64", "bf16"))


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What a random program may hold.

    Attributes:
        stages: the most nests that follow one another.
        extents: extents of dimensions, the simplest first.
        dtypes: dtypes of data, the simplest first.
        symbolic: percentage of programs with symbolic sizes.
        gathers: whether an index may be read from a buffer.
        data_guards: whether a load may stand under a condition on data.
        iterations: about how often the innermost statement of a stage runs at most.
    """

    stages: int = 3
    extents: Sequence[int] = EXTENTS
    dtypes: Sequence[DType] = DTYPES
    symbolic: int = 20
    gathers: bool = False
    data_guards: bool = True
    iterations: int = 160


def make_program(source: Source, options: ProgramOptions | None = None) -> Func:
    """A random program, from decisions of `source`; `programs` describes it."""
    return Maker(source, options or ProgramOptions()).func()


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    stages: int = 3,
    extents: Sequence[int] = EXTENTS,
    dtypes: Sequence[DType | str] = DTYPES,
    symbolic: int = 20,
    gathers: bool = False,
    data_guards: bool = True,
    iterations: int = 160,
) -> Func:
    """Programs of one to three stages that are well formed and run without error.

    Among them: pointwise stages with shifted and padded reads, reductions with and without a fill
    (argmax, Welford and log-sum-exp too), in-place recurrences, scans, stencils, guarded and
    scattered updates, triangular loops, temporaries inside and outside of loops, operands that
    change before their value is used, several statements in one loop, loops around several stages.
    Most have two accesses that conflict. They shrink towards one short stage.

    Args:
        draw: given by Hypothesis.
        stages: the most nests that follow one another.
        extents: extents of dimensions, the simplest first; 0 and 1 are ordinary.
        dtypes: dtypes of data, the simplest first.
        symbolic: percentage of programs with symbolic sizes.
        gathers: whether an index may be read from a buffer.
        data_guards: whether a load may stand under a condition on data.
        iterations: about how often the innermost statement of a stage runs at most.
    """
    options = ProgramOptions(
        stages,
        tuple(extents),
        tuple(map(DType.of, dtypes)),
        symbolic,
        gathers,
        data_guards,
        iterations,
    )
    return make_program(Drawn(draw), options)
