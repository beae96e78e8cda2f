"""Fits the coefficients of `tensorc/codegen/vecmath/tables.py`.

Each table is a minimax fit by the second algorithm of Remez (E. Ya. Remez 1934; see J.-M. Muller,
Elementary Functions, 3rd edition, chapter 3) in 60-digit arithmetic. Its coefficients are rounded
to the format and then moved by single ulps for as long as that lowers the largest error. The
comment above a table gives the error that the rounded coefficients reach.

    python -m bench.fit_vecmath            compare with the module in the tree
    python -m bench.fit_vecmath --print    print the module
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import frexp
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 60
MODULE = Path(__file__).parent.parent / "tensorc" / "codegen" / "vecmath" / "tables.py"
GRID_POINTS_PER_COEFFICIENT = 40
MAX_EXCHANGES = 30

Real = mpf
Function = Callable[[Real], Real]


def round_f32(value: Real) -> float:
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


ROUND: dict[str, Callable[[Real], float]] = {"f32": round_f32, "f64": float}


def horner(coefficients: Sequence[Real | float], t: Real) -> Real:
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * t + coefficient
    return total


def chebyshev_grid(low: Real, high: Real, count: int) -> list[Real]:
    """The extrema of a Chebyshev polynomial on [low, high], ascending, the ends a little inside.

    The targets below are quotients that have no value at 0, where many intervals start.
    """
    low, high = mpf(low), mpf(high)
    inset = (high - low) * mpf(10) ** -9
    low, high = low + inset, high - inset
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


@dataclass
class Samples:
    """A target and its weight on a grid: what is minimised is max |weight * (target - fit)|."""

    t: list[Real]
    target: list[Real]
    weight: list[Real]

    def errors(self, coefficients: Sequence[Real | float]) -> list[Real]:
        fitted = [horner(coefficients, t) for t in self.t]
        return [w * (y - f) for w, y, f in zip(self.weight, self.target, fitted, strict=True)]

    def error(self, coefficients: Sequence[Real | float]) -> Real:
        return max(abs(e) for e in self.errors(coefficients))


def extrema(errors: Sequence[Real], count: int) -> list[int]:
    """Indices of `count` largest errors whose signs alternate."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        first, last = abs(errors[peaks[0]]), abs(errors[peaks[-1]])
        peaks.pop(0 if first < last else -1)
    return peaks


def start(samples: Samples, count: int) -> list[int]:
    """Points spread over the part of the grid where the weight is not negligible."""
    least = max(samples.weight) * mpf(10) ** -6
    usable = [i for i, weight in enumerate(samples.weight) if weight >= least]
    return [usable[round(i * (len(usable) - 1) / (count - 1))] for i in range(count)]


def fit_polynomial(samples: Samples, count: int) -> list[Real]:
    """The `count` coefficients, lowest power first, of the best polynomial on the grid."""
    chosen = start(samples, count + 1)
    coefficients: list[Real] = []
    for _ in range(MAX_EXCHANGES):
        matrix, right = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for row, i in enumerate(chosen):
            for power in range(count):
                matrix[row, power] = samples.t[i] ** power
            matrix[row, count] = (-1) ** row / samples.weight[i]
            right[row] = samples.target[i]
        solution = mp.lu_solve(matrix, right)
        coefficients = list(solution)[:count]
        errors = samples.errors(coefficients)
        peaks = extrema(errors, count + 1)
        level, worst = abs(solution[count]), max(abs(e) for e in errors)
        if len(peaks) < count + 1 or worst <= level * mpf("1.001"):
            break
        chosen = peaks
    return coefficients


def neighbour(value: float, dtype: str, direction: int) -> float:
    """The next number of the format."""
    digits = {"f32": 24, "f64": 53}[dtype]
    return value + direction * 2.0 ** (frexp(value)[1] - digits)


def round_coefficients(samples: Samples, exact: Sequence[Real], dtype: str) -> list[float]:
    """Coefficients rounded to the format, then moved by single ulps for as long as it pays."""
    best = [ROUND[dtype](coefficient) for coefficient in exact]
    error = samples.error(best)
    improved = True
    while improved:
        improved = False
        for i, direction in product(range(len(best)), (-1, 1)):
            trial = [*best[:i], neighbour(best[i], dtype, direction), *best[i + 1 :]]
            trial_error = samples.error(trial)
            if trial_error < error * mpf("0.99"):
                best, error, improved = trial, trial_error, True
    return best


@dataclass(frozen=True)
class Fit:
    """A table to make: `target` on [low, high], with `counts` coefficients for each format.

    What is minimised is the largest `weight * (target - polynomial)`, the relative error of the
    function that the polynomial is a part of.
    """

    name: str
    meaning: str
    target: Function
    weight: Function
    interval: Callable[[str], tuple[Real, Real]]
    counts: dict[str, int]

    def run(self, dtype: str) -> tuple[list[float], Real]:
        """The coefficients, all of them numbers of `dtype`, and the error that they reach."""
        count = self.counts[dtype]
        t = chebyshev_grid(*self.interval(dtype), count * GRID_POINTS_PER_COEFFICIENT)
        samples = Samples(t, [self.target(x) for x in t], [self.weight(x) for x in t])
        coefficients = round_coefficients(samples, fit_polynomial(samples, count), dtype)
        return coefficients, samples.error(coefficients)


def of_root(function: Function) -> Function:
    """A function of z = t^2, given as a function of t."""
    return lambda z: function(mp.sqrt(z))


def always(low: Real, high: Real) -> Callable[[str], tuple[Real, Real]]:
    return lambda dtype: (low, high)


# Arguments of the reduced functions. Each range reduction rounds a quotient that it has itself
# computed with an error, so that its result can lie a little outside the ideal interval.
LN2 = mp.log(2)
EXPONENT = LN2 * (1 + mpf(2) ** -10)
HALF_PI = mp.pi / 2 * (1 + mpf(2) ** -7)
MANTISSA = (mp.sqrt(2) / 2 - 1, mp.sqrt(2) - 1)
ATANH = MANTISSA[1] / (MANTISSA[1] + 2)
# From here on erf rounds to 1.
ERF_ONE = {"f32": 3.9375, "f64": 5.9375}

FITS = [
    Fit(
        "EXPM1",
        "(e^r - 1 - r) / r^2 for |r| <= ln 2, relative to e^r - 1",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / abs(mp.expm1(r)),
        always(-EXPONENT, EXPONENT),
        {"f32": 6, "f64": 12},
    ),
    Fit(
        "LOG1P",
        "(log(1 + f) - f + f^2 / 2) / f^3 for 1/2 <= (1 + f)^2 <= 2, relative to log(1 + f)",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: abs(f**3 / mp.log1p(f)),
        always(*MANTISSA),
        {"f32": 8, "f64": 20},
    ),
    Fit(
        "SIN",
        "(sin r - r) / r^3 in powers of r^2 for |r| <= pi / 2, relative to sin r",
        of_root(lambda r: (mp.sin(r) - r) / r**3),
        of_root(lambda r: r**3 / mp.sin(r)),
        always(mpf(0), HALF_PI**2),
        {"f32": 4, "f64": 8},
    ),
    Fit(
        "LOG_ERFC",
        "log(erfc(a)) / a + 1 for 0 <= a <= ERF_ONE, weighted to be relative to erf(a)",
        lambda a: mp.log(mp.erfc(a)) / a + 1,
        lambda a: a * mp.erfc(a) / mp.erf(a),
        lambda dtype: (mpf(0), mpf(ERF_ONE[dtype])),
        {"f32": 9, "f64": 25},
    ),
    Fit(
        "POW_LOG2",
        "log2(1 + f) / f for 1/2 <= (1 + f)^2 <= 2, relative: pow of f32, in f64 arithmetic",
        lambda f: mp.log1p(f) / LN2 / f,
        lambda f: f * LN2 / mp.log1p(f),
        always(*MANTISSA),
        {"f64": 11},
    ),
    Fit(
        "POW_EXP2",
        "2^r for |r| <= 1/2, relative: pow of f32, in f64 arithmetic",
        lambda r: mpf(2) ** r,
        lambda r: mpf(2) ** -r,
        always(mpf("-0.5"), mpf("0.5")),
        {"f64": 7},
    ),
    Fit(
        "ATANH",
        "(atanh(s) / s - 1 - s^2 / 3) / s^4 in powers of s^2 for |s| <= 0.172, relative to atanh s",
        of_root(lambda s: (mp.atanh(s) / s - 1 - s**2 / 3) / s**4),
        of_root(lambda s: s**5 / mp.atanh(s)),
        always(mpf(0), ATANH**2),
        {"f64": 7},
    ),
]


def parts(value: Real, widths: Sequence[int]) -> list[float]:
    """`value` as an unevaluated sum; part i has at most widths[i] significant bits."""
    result: list[float] = []
    for width in widths:
        exponent = int(mp.floor(mp.log(abs(value), 2))) + 1 - width
        result.append(float(mp.nint(value / mpf(2) ** exponent) * mpf(2) ** exponent))
        value -= mpf(result[-1])
    return result


# (name, comment, value, widths of the parts for each format)
CONSTANTS = [
    (
        "LN2",
        "ln 2; a product of the first part with an exponent of the format is exact",
        LN2,
        {"f32": (15, 24), "f64": (41, 53)},
    ),
    ("INVERSE_PI", "1 / pi", 1 / mp.pi, {"f32": (24,), "f64": (53,)}),
    ("LOG2_E", "1 / ln 2", 1 / LN2, {"f32": (24, 24), "f64": (53, 53)}),
    (
        "PI",
        "pi, in f64 arithmetic for f32 too; a product of a multiple of 1/2 below 2^19 with a part"
        "\n# other than the last is exact",
        mp.pi,
        {"f32": (33, 53), "f64": (33, 33, 33, 53)},
    ),
    ("LN2_PAIR", "ln 2, to twice the precision", LN2, {"f64": (53, 53)}),
    ("TWO_LOG2_E_PAIR", "2 / ln 2, to twice the precision", 2 / LN2, {"f64": (53, 53)}),
    ("THIRD_PAIR", "1 / 3, to twice the precision", 1 / mpf(3), {"f64": (53, 53)}),
]
INVERSE_TWO_PI_BITS = 1184


def literal(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"({values[0]!r},),"
    return "(" + "".join(f"\n        {value!r}," for value in values) + "\n    ),"


def module_text() -> str:
    lines = [
        '"""Coefficients of the vector functions, printed by bench/fit_vecmath.py.',
        "",
        "All polynomials are minimax fits, lowest power first. The errors are those of the rounded",
        'coefficients in exact arithmetic."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
    ]
    for fit in FITS:
        fitted = {dtype: fit.run(dtype) for dtype in fit.counts}
        errors = ", ".join(f"{d}: 2^{float(mp.log(e, 2)):.1f}" for d, (_, e) in fitted.items())
        lines += ["", f"# {fit.meaning}.", f"# Largest error: {errors}."]
        lines += [f"{fit.name}: Final = {{"]
        lines += [f'    "{d}": {literal(c)}' for d, (c, _) in fitted.items()] + ["}"]
    lines += [
        "",
        "# From here on erf rounds to 1.",
        f"ERF_ONE: Final = {ERF_ONE!r}".replace("'", '"'),
    ]
    for name, comment, value, widths in CONSTANTS:
        lines += ["", f"# {comment}.", f"{name}: Final = {{"]
        lines += [f'    "{d}": {literal(parts(value, w))}' for d, w in widths.items()] + ["}"]
    with mp.workprec(INVERSE_TWO_PI_BITS + 64):
        digits = f"{int(mp.floor(mpf(2) ** INVERSE_TWO_PI_BITS / (2 * mp.pi))):0296x}"
    lines += ["", "# The first bits after the point of 1 / (2 pi)."]
    lines += [f"INVERSE_TWO_PI_BITS: Final = {INVERSE_TWO_PI_BITS}", "INVERSE_TWO_PI: Final = int("]
    lines += [f'    "{digits[i : i + 74]}"' for i in range(0, len(digits), 74)]
    return "\n".join([*lines, "    ,", "    16,", ")", ""]).replace('"\n    ,', '",')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the module")
    options = parser.parse_args()
    text = module_text()
    if options.print:
        print(text, end="")
        return 0
    same = text == MODULE.read_text()
    print("the tables are those fitted" if same else f"{MODULE} differs from what is fitted")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
