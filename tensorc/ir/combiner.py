"""The reduction operators: identity, combination and tie rule, each as data.

A combiner over n buffers is a commutative monoid on n-tuples, up to rounding for floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, BinaryOp, Const, Expr, Select, Unary
from tensorc.ir.types import dtype_of

Values: TypeAlias = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Combiner:
    """`identity` takes the buffers' dtypes; `combine` takes two tuples of values to one.

    `exact` says whether the order of combination can not change the result for integers; over
    floats only those combiners that `rounds` is False for are insensitive to it.
    """

    name: str
    arity: int
    identity: Callable[[tuple[DType, ...]], Values]
    combine: Callable[[Values, Values], Values]
    rounds: bool


def _binary(op: BinaryOp) -> Callable[[Values, Values], Values]:
    return lambda a, b: (Binary(op, a[0], b[0]),)


def _constant(value: Callable[[DType], bool | int | float]) -> Callable[..., Values]:
    return lambda dtypes: (Const(value(dtypes[0]), dtypes[0]),)


def _arg(better: BinaryOp) -> Callable[[Values, Values], Values]:
    """The better value and its index; NaN beats every number, and the lower index wins a tie."""

    def combine(a: Values, b: Values) -> Values:
        wins = Binary(better, b[0], a[0])
        ties = Binary("eq", b[0], a[0])
        if dtype_of(a[0]).is_float:
            nan_a, nan_b = Unary("isnan", a[0]), Unary("isnan", b[0])
            wins = Binary("or", wins, Binary("and", nan_b, Unary("not", nan_a)))
            wins = Binary("and", wins, Unary("not", nan_a))
            ties = Binary("or", ties, Binary("and", nan_a, nan_b))
        take = Binary("or", wins, Binary("and", ties, Binary("lt", b[1], a[1])))
        return Select(take, b[0], a[0]), Select(take, b[1], a[1])

    return combine


def _welford(a: Values, b: Values) -> Values:
    """Chan, Golub and LeVeque (1979): (mean, sum of squared deviations, count) of a union."""
    count = Binary("add", a[2], b[2])
    zero = Const(0, dtype_of(count))
    safe = Select(Binary("eq", count, zero), Const(1, dtype_of(count)), count)
    delta = Binary("sub", b[0], a[0])
    share = Binary("div", b[2], safe)
    mean = Binary("add", a[0], Binary("mul", delta, share))
    cross = Binary("mul", Binary("mul", delta, delta), Binary("mul", a[2], share))
    return mean, Binary("add", Binary("add", a[1], b[1]), cross), count


def _logsumexp(a: Values, b: Values) -> Values:
    """(maximum m, sum of exp(x - m)): the state of an online softmax (Milakov, Gimelshein 2018).

    A partner whose maximum equals the common one keeps its sum unscaled, so that minus infinity
    never meets minus infinity in the exponent.
    """
    top = Binary("max", a[0], b[0])

    def scaled(x: Values) -> Expr:
        factor = Unary("exp", Binary("sub", x[0], top))
        return Select(Binary("eq", x[0], top), x[1], Binary("mul", x[1], factor))

    return top, Binary("add", scaled(a), scaled(b))


def neutral(op: str, dtypes: tuple[DType, ...]) -> Values | None:
    """Operands whose combination leaves every value as it is, bit for bit; None if there are none.

    The identity of a sum of floats turns -0.0 into 0.0, and that of "welford" an infinite mean into
    NaN.
    """
    if op == "welford":
        return None
    if op == "sum" and dtypes[0].is_float:
        return (Const(-0.0, dtypes[0]),)
    return COMBINERS[op].identity(dtypes)


def _least_and_far(dtypes: tuple[DType, ...]) -> Values:
    return Const(dtypes[0].min, dtypes[0]), Const(dtypes[1].max, dtypes[1])


def _greatest_and_far(dtypes: tuple[DType, ...]) -> Values:
    return Const(dtypes[0].max, dtypes[0]), Const(dtypes[1].max, dtypes[1])


def _zeros(dtypes: tuple[DType, ...]) -> Values:
    return tuple(Const(0, dtype) for dtype in dtypes)


def _empty_logsumexp(dtypes: tuple[DType, ...]) -> Values:
    return Const(dtypes[0].min, dtypes[0]), Const(0, dtypes[1])


COMBINERS: Mapping[str, Combiner] = {
    c.name: c
    for c in (
        Combiner("sum", 1, _zeros, _binary("add"), rounds=True),
        Combiner("prod", 1, _constant(lambda t: 1), _binary("mul"), rounds=True),
        Combiner("min", 1, _constant(lambda t: t.max), _binary("min"), rounds=False),
        Combiner("max", 1, _constant(lambda t: t.min), _binary("max"), rounds=False),
        Combiner("any", 1, _constant(lambda t: False), _binary("or"), rounds=False),
        Combiner("all", 1, _constant(lambda t: True), _binary("and"), rounds=False),
        Combiner("bitand", 1, _constant(lambda t: -1), _binary("bitand"), rounds=False),
        Combiner("bitor", 1, _constant(lambda t: 0), _binary("bitor"), rounds=False),
        Combiner("bitxor", 1, _constant(lambda t: 0), _binary("bitxor"), rounds=False),
        Combiner("argmax", 2, _least_and_far, _arg("gt"), rounds=False),
        Combiner("argmin", 2, _greatest_and_far, _arg("lt"), rounds=False),
        Combiner("welford", 3, _zeros, _welford, rounds=True),
        Combiner("logsumexp", 2, _empty_logsumexp, _logsumexp, rounds=True),
    )
}
