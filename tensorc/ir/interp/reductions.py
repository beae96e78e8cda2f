"""Bounds for reductions of floats: what holds for every order and every tree of combinations.

An element that is reduced keeps, after its value and error, the operator and what the bound needs
to know of all the terms. An element that something else has written starts as the first term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tensorc.ir.interp.errors import UP, Errors, Pair
from tensorc.ir.interp.scalars import INF

Pairs: TypeAlias = tuple[Pair, ...]
Values: TypeAlias = tuple[float, ...]


class _Sum(NamedTuple):
    combined: int  # the depth of the deepest tree over the terms
    size: float  # sum of |term|, infinite terms apart
    error: float  # sum of the errors of the terms


class _Product(NamedTuple):
    combined: int
    largest: float  # the product of max(1, |term|): no partial product is larger
    smallest: float  # the product of min(1, |term|), zeros apart: none is smaller


class _Exponentials(NamedTuple):
    combined: int
    weight: float  # the sum of all s
    relative: float  # the largest relative error of an s
    error: float  # the largest error of an m


class _Moments(NamedTuple):
    combined: int
    reach: float  # the largest |mean|
    error: float  # the largest error of a mean
    total: float  # the sum of the counts
    least: float  # the smallest count
    spread_error: float  # the sum of the errors of the squared deviations


def _sum(errors: Errors, old: Pairs, terms: Pairs, values: Values) -> Pairs:
    """|value' - value| <= E + gamma(n) (2 S + E) (Higham 2002, section 4.2, for both sides)."""
    (held,), (term,), (value,) = old, terms, values
    state = held[2] if len(held) > 2 and isinstance(held[2], _Sum) else None
    if state is None:
        # An exact zero is the identity: adding to it rounds nothing.
        empty = held[0] == 0.0 and held[1] == 0.0
        state = _Sum(-1 if empty else 0, _finite(held), held[1])
    state = _Sum(state.combined + 1, state.size + _finite(term), state.error + term[1])
    growth = _gamma(state.combined, errors)
    error = state.error + growth * (2.0 * state.size + state.error)
    if not state.size + error <= errors.largest:
        error = INF
    elif not math.isfinite(value):
        # No order overflows, so it is an infinite term, or NaN, that decides.
        error = 0.0 if state.error < INF else INF
    return ((value, error * UP, state),)


def _finite(pair: Pair) -> float:
    return abs(pair[0]) if math.isfinite(pair[0]) else 0.0


def _gamma(count: int, errors: Errors) -> float:
    """n u / (1 - n u), which bounds the relative effect of n roundings."""
    total = count * errors.epsilon
    return total / (1.0 - total) if total < 0.5 else INF


def _prod(errors: Errors, old: Pairs, terms: Pairs, values: Values) -> Pairs:
    """Roundings multiply, in whatever order; underflow and overflow depend on the order."""
    (held,), (term,), (value,) = old, terms, values
    state = held[2] if len(held) > 2 and isinstance(held[2], _Product) else None
    state = _with_factor(state or _with_factor(_Product(-1, 1.0, 1.0), held), term)
    error = errors.mul(held, term)[1]
    if state.smallest < errors.tiny / errors.epsilon:
        error += 2.0 * state.combined * errors.tiny * state.largest
    if not state.largest <= errors.largest and math.isfinite(value):
        error = INF
    return ((value, error * UP, state),)


def _with_factor(state: _Product, term: Pair) -> _Product:
    size, error = abs(term[0]), term[1]
    return _Product(
        state.combined + 1,
        state.largest * max(1.0, size + error),
        state.smallest * (min(1.0, max(size - error, 0.0)) if size or error else 1.0),
    )


def _logsumexp(errors: Errors, old: Pairs, terms: Pairs, values: Values) -> Pairs:
    """The sum of s exp(x - m) over the terms, m their maximum.

    The scalings of one term on its way up a tree multiply to exp(x - m): at most one for each
    combination, each with the error of exp and of a product; the roundings of their exponents add
    up to at most epsilon (m - x), and t exp(-t) is below 0.4.
    """
    top = errors.max(old[0], terms[0])
    state = old[1][2] if len(old[1]) > 2 and isinstance(old[1][2], _Exponentials) else None
    if state is None:
        state = _with_exponential(_Exponentials(-1, 0.0, 0.0, 0.0), old)
    state = _with_exponential(state, terms)
    value = values[1]
    steps = max(state.combined, 0) * (2.0 * errors.ulps + 6.0) * errors.epsilon
    exponent = 2.0 * state.error + steps + math.log1p(state.relative)
    growth = math.expm1(exponent) if exponent < 0.5 else INF
    error = 2.0 * growth * value + 0.9 * errors.epsilon * state.weight * (1.0 + state.relative)
    error += 2.0 * max(state.combined, 0) * errors.tiny
    total: Pair = (value, error * UP) if error < INF and value >= 0.0 else (value, INF)
    return (values[0], top[1]), (*total, state)


def _with_exponential(state: _Exponentials, term: Pairs) -> _Exponentials:
    (_, top_error), (weight, weight_error) = term[0][:2], term[1][:2]
    if weight == 0.0 and weight_error == 0.0:
        return state
    relative = weight_error / weight if weight > weight_error else INF
    return _Exponentials(
        state.combined + 1,
        state.weight + weight,
        max(state.relative, relative),
        max(state.error, top_error),
    )


def _welford(errors: Errors, old: Pairs, terms: Pairs, values: Values) -> Pairs:
    """Mean, sum of squared deviations and count (Chan, Golub and LeVeque 1983, section 3).

    Each combination is a convex one of the means, off by at most 16 epsilon of the largest; what it
    adds to the deviations is weighted by the smaller count, which over a tree comes to at most
    count log2(total / least).
    """
    state = old[0][2] if len(old[0]) > 2 and isinstance(old[0][2], _Moments) else None
    if state is None:
        state = _with_moment(_Moments(-1, 0.0, 0.0, 0.0, INF, 0.0), old)
    state = _with_moment(state, terms)
    mean, spread, count = values
    safe = 8.0 * state.reach * state.reach * max(1.0, state.total) <= errors.largest
    if state.total == 0.0 or not safe or not all(map(math.isfinite, values)):
        undecided = 0.0 if state.total == 0.0 else INF
        return (mean, undecided, state), (spread, undecided), (count, undecided)
    n, epsilon, reach = max(state.combined, 0), errors.epsilon, state.reach
    one_side = 16.0 * n * epsilon * reach
    delta = 2.0 * (one_side + state.error) + 2.0 * epsilon * reach
    weight = state.total * min(n, math.log2(state.total / state.least) + 1.0)
    added = weight * (4.0 * reach * delta + delta * delta + 24.0 * epsilon * reach * reach)
    spread_error = 2.0 * (added + 2.0 * n * epsilon * (spread + added)) + state.spread_error
    exact = state.total == count and count <= 1.0 / errors.epsilon
    count_error = 0.0 if exact and count.is_integer() else 2.0 * n * epsilon * count
    tiny = 2.0 * n * errors.tiny
    return (
        (*errors.within_range(mean, (2.0 * one_side + state.error + tiny) * UP), state),
        errors.within_range(spread, (spread_error + tiny) * UP),
        errors.within_range(count, count_error * UP),
    )


def _with_moment(state: _Moments, term: Pairs) -> _Moments:
    (mean, mean_error), (_, spread_error), (count, count_error) = (pair[:2] for pair in term)
    if count == 0.0 and count_error == 0.0:
        return state
    if not count > 0.0 or count_error:
        mean_error = INF
    return _Moments(
        state.combined + 1,
        max(state.reach, abs(mean) + mean_error),
        max(state.error, mean_error),
        state.total + count,
        min(state.least, count),
        state.spread_error + spread_error,
    )


BOUNDS: Mapping[str, Callable[[Errors, Pairs, Pairs, Values], Pairs]] = {
    "sum": _sum,
    "prod": _prod,
    "logsumexp": _logsumexp,
    "welford": _welford,
}
