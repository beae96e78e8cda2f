"""Legal evaluations other than the interpreter's: what its bounds must allow for."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction

from tensorc.dtype import DType
from tests.ir.direct import Direct, float_operation, function, nearest

ULPS = 4.0
ROUNDED_EXACTLY = ("floor", "ceil", "round", "trunc", "sqrt")


class Product(float):
    """A rounded product that still knows what it is without the rounding."""

    exact: Fraction


@dataclass
class Perturbed(Direct):
    """Any product that is added may stay unrounded, and functions are off by up to ULPS units."""

    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def float_binary(self, op: str, dtype: DType, x: float, y: float) -> float:
        if op in ("add", "sub"):
            exact = [self._unrounded(x), self._unrounded(y)]
            if any(isinstance(v, Fraction) for v in exact) and None not in exact:
                a, b = map(Fraction, exact)
                return nearest(a + b if op == "add" else a - b, dtype)
        if op == "pow":
            return self._inexact(dtype, float_operation(op, x, y))
        rounded = dtype.wrap(float_operation(op, x, y))
        if op == "mul" and math.isfinite(x) and math.isfinite(y):
            product = Product(rounded)
            product.exact = Fraction(float(x)) * Fraction(float(y))
            return product
        return rounded

    def _unrounded(self, x: float) -> Fraction | float | None:
        """A product without its rounding, or a finite number; None for what is not finite."""
        if isinstance(x, Product) and self.draw.random() < 0.7:
            return x.exact
        return float(x) if math.isfinite(x) else None

    def function(self, op: str, dtype: DType, x: float) -> float:
        result = function(op, x)
        return dtype.wrap(result) if op in ROUNDED_EXACTLY else self._inexact(dtype, result)

    def _inexact(self, dtype: DType, result: float) -> float:
        if not math.isfinite(result) or result == 0.0:
            return dtype.wrap(result)
        unit = max(math.ldexp(2.0 * dtype.epsilon, math.frexp(result)[1] - 1), 5e-324)
        return dtype.wrap(result + self.draw.uniform(-1.0, 1.0) * (ULPS - 0.5) * unit)


def far(value: object, other: object, bound: float) -> bool:
    """Whether `other` is further from `value` than the bound says."""
    if math.isinf(bound):
        return False
    if math.isfinite(value) and math.isfinite(other):
        return abs(Fraction(other) - Fraction(value)) > Fraction(bound)
    return not (value == other or (value != value and other != other))
