"""The simplifier's rules: pattern -> result, when a condition holds.

In a pattern x and y stand for any expression, c, d and e for literals, p for a condition.
A number stands for the literal of that value in the dtype of the expression. A rule holds in its
domain: index arithmetic (on the mathematical integers), data integers of every width (which wrap),
floats of every width (bit for bit, except that every NaN equals every other) or conditions. A
letter twice is the same expression twice.

Rules that cannot hold of floats are missing on purpose: x + 0.0 is not x at -0.0, x * 0.0 and
x - x are NaN at NaN and infinity, and sums and products of floats do not reassociate.

Each rule can be checked by itself, and makes its expression smaller in one order, so that rewriting
ends. Smaller is less in the first of these that differs:

1. the weight: 0 for a literal, 1 for a variable or load, |k| * w for k times an expression of
   weight w, the sum over the terms for a sum of indices; 3 * w + 1 for a quotient and 2 * w + |m|
   for a remainder modulo m of a dividend of weight w (4 * w + 2 + |m| when rounding to zero), one
   more for a negative divisor; for a comparison 1 and the weights of its atoms, once each; for
   every other node 1 and the sum over its operands;
2. the sum of the magnitudes of all literals;
3. the number of nodes;
4. the number of literals that are left operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorc.dtype import DType
from tensorc.ir.handles import (
    Handle,
    Value,
    const,
    maximum,
    minimum,
    select,
    truncdiv,
    truncmod,
    unary,
)
from tensorc.ir.nodes import Binary, Expr, Var
from tensorc.ir.print import print_expr

Domain: TypeAlias = Literal["index", "signed", "integers", "numbers", "floats", "conditions", "any"]

INTEGERS = tuple(t for t in DType if t.is_integer)
FLOATS = tuple(t for t in DType if t.is_float)
# The dtypes that the letters of a rule, other than p, range over.
DOMAINS: Mapping[Domain, tuple[DType, ...]] = {
    "index": (DType.INDEX,),
    "signed": (DType.INDEX, *(t for t in INTEGERS if t.is_signed)),
    "integers": (DType.INDEX, *INTEGERS),
    "numbers": (DType.INDEX, *INTEGERS, *FLOATS),
    "floats": FLOATS,
    "conditions": (DType.BOOL,),
    "any": tuple(DType),
}
LITERALS = frozenset("cde")


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` may become `result` in every place where `when` is known to hold."""

    name: str
    domain: Domain
    pattern: Expr
    result: Expr
    when: Expr

    def __str__(self) -> str:
        pattern, result = (print_expr(part, DType.INDEX) for part in (self.pattern, self.result))
        condition = "" if self.when == TRUE.expr else f" if {print_expr(self.when)}"
        return f"{self.name}: {pattern} -> {result}{condition}"


def _letter(name: str, dtype: DType = DType.INDEX) -> Handle:
    return Handle(Var(name, dtype))


x, y, c, d, e = map(_letter, "xycde")
p = _letter("p", DType.BOOL)
TRUE, FALSE = const(True, "bool"), const(False, "bool")


def _rules(domain: Domain, *rows: tuple[str, Handle, Value] | tuple[str, Handle, Value, Handle]
) -> tuple[Rule, ...]:  # fmt: skip
    def rule(name: str, pattern: Handle, result: Value, when: Handle = TRUE) -> Rule:
        handle = result if isinstance(result, Handle) else const(result, pattern.dtype)
        return Rule(name, domain, pattern.expr, handle.expr, when.expr)

    return tuple(rule(*row) for row in rows)


within = (y >= 0) & (y < c)


def _quotient(a: Handle, divisor: int) -> Handle:
    """a / divisor, which `/` refuses to build of letters."""
    return Handle(Binary("div", a.expr, const(divisor, "index").expr))


RULES: tuple[Rule, ...] = (
    # Division of all integers.
    *_rules("integers",
        ("div-by-zero", x // 0, 0),
        ("mod-by-zero", x % 0, x),
        ("truncdiv-by-zero", truncdiv(x, 0), 0),
        ("truncmod-by-zero", truncmod(x, 0), x),
        ("div-by-one", x // 1, x),
        ("mod-by-one", x % 1, 0),
        ("truncdiv-by-one", truncdiv(x, 1), x),
        ("truncmod-by-one", truncmod(x, 1), 0),
        ("div-of-zero", 0 // x, 0),
        ("mod-of-zero", 0 % x, 0),
        ("truncdiv-of-zero", truncdiv(0, x), 0),
        ("truncmod-of-zero", truncmod(0, x), 0),
        ("mod-itself", x % x, 0),
        ("truncmod-itself", truncmod(x, x), 0),
    ),
    *_rules("signed",
        ("div-by-minus-one", x // -1, -x),
        ("mod-by-minus-one", x % -1, 0),
        ("truncdiv-by-minus-one", truncdiv(x, -1), -x),
        ("truncmod-by-minus-one", truncmod(x, -1), 0),
        ("abs-neg", abs(-x), abs(x)),
    ),
    # Division of indices. A literal divisor becomes positive first.
    *_rules("index",
        ("div-negative", x // c, -x // -c, c < 0),
        ("mod-negative", x % c, -(-x % -c), c < 0),
        ("truncdiv-negative", truncdiv(x, c), -truncdiv(x, -c), c < 0),
        ("truncmod-negative", truncmod(x, c), truncmod(x, -c), c < 0),
        ("truncdiv-positive", truncdiv(x, y), x // y, (x >= 0) & (y >= 0)),
        ("truncmod-positive", truncmod(x, y), x % y, (x >= 0) & (y >= 0)),
        ("truncdiv-of-negative", truncdiv(x, y), -(-x // y), (x <= 0) & (y >= 0)),
        ("truncmod-of-negative", truncmod(x, y), -(-x % y), (x <= 0) & (y >= 0)),
        ("div-multiple", (x * c + y) // c, x + y // c, c > 1),
        ("mod-multiple", (x * c + y) % c, y % c, c > 1),
        ("div-digits", (x * c + y) // (c * d), x // d, (c > 1) & (d > 0) & within),
        ("mod-digits", (x * c + y) % (c * d), x % d * c + y, (c > 1) & (d > 0) & within),
        ("div-div", (x // c + e) // d, (x + c * e) // (c * d), (c > 0) & (d > 0)),
        ("div-mod", x % (c * d) // c, x // c % d, (c > 0) & (d > 0)),
        ("mod-mod", (x % (c * d) * e + y) % c, (x * e + y) % c),
        # A letter that only the condition has is the greatest that meets its first inequality.
        ("div-in-one-period", x // c, d, (c * d <= x) & (x < c * d + c)),
        ("mod-in-one-period", x % c, x - c * d, (c * d <= x) & (x < c * d + c)),
        ("div-small", x // y, 0, (x >= 0) & (x < y)),
        ("mod-small", x % y, x, (x >= 0) & (x < y)),
        ("div-itself", x // x, 1, x != 0),
    ),
    # Sums of indices.
    *_rules("index",
        ("recompose", x // c * c + x % c, x),
        ("remainder", x + x // c * -c, x % c),
    ),
    # Minimum, maximum and magnitude.
    *_rules("index",
        ("min-left", minimum(x, y), x, x <= y),
        ("min-right", minimum(x, y), y, x >= y),
        ("max-left", maximum(x, y), x, x >= y),
        ("max-right", maximum(x, y), y, x <= y),
        ("abs-positive", abs(x), x, x >= 0),
        ("abs-negative", abs(x), -x, x <= 0),
    ),
    *_rules("integers",
        ("literal-min", minimum(c, x), minimum(x, c)),
        ("literal-max", maximum(c, x), maximum(x, c)),
        ("min-min", minimum(minimum(x, c), d), minimum(x, minimum(c, d))),
        ("max-max", maximum(maximum(x, c), d), maximum(x, maximum(c, d))),
        ("min-of-max", minimum(maximum(x, c), d), d, c >= d),
        ("max-of-min", maximum(minimum(x, c), d), d, c <= d),
        ("min-again", minimum(minimum(x, y), y), minimum(x, y)),
        ("max-again", maximum(maximum(x, y), y), maximum(x, y)),
    ),
    *_rules("numbers",
        ("min-itself", minimum(x, x), x),
        ("max-itself", maximum(x, x), x),
        ("neg-neg", unary("neg", -x), x),
        ("abs-abs", abs(abs(x)), abs(x)),
        ("mul-one", x * 1, x),
        ("mul-minus-one", x * -1, -x),
        ("sub-zero", x - 0, x),
        ("add-neg", x + -y, x - y),
        ("sub-neg", x - -y, x + y),
    ),
    *_rules("any",
        ("select-itself", select(p, x, x), x),
        ("select-not", select(~p, x, y), select(p, y, x)),
        ("not-equal", ~(x == y), x != y),
        ("not-unequal", ~(x != y), x == y),
    ),
    # Data integers wrap, so that sums and products form a ring.
    *_rules("integers",
        ("literal-add", c + x, x + c),
        ("literal-mul", c * x, x * c),
        ("literal-and", c & x, x & c),
        ("literal-or", c | x, x | c),
        ("literal-xor", c ^ x, x ^ c),
        ("add-zero", x + 0, x),
        ("zero-sub", 0 - x, -x),
        ("sub-itself", x - x, 0),
        ("mul-zero", x * 0, 0),
        ("add-add", x + c + d, x + (c + d)),
        ("sub-add", x - c + d, x + (d - c)),
        ("add-sub", x + c - d, x + (c - d)),
        ("sub-sub", x - c - d, x - (c + d)),
        ("mul-mul", x * c * d, x * (c * d)),
        ("and-itself", x & x, x),
        ("or-itself", x | x, x),
        ("xor-itself", x ^ x, 0),
        ("and-zero", x & 0, 0),
        ("or-zero", x | 0, x),
        ("xor-zero", x ^ 0, x),
        ("not-not", ~~x, x),
        ("shl-zero", x << 0, x),
        ("shr-zero", x >> 0, x),
    ),
    *_rules("floats",
        ("one-mul", 1 * x, x),
        ("minus-one-mul", -1 * x, -x),
        ("abs-neg-float", abs(-x), abs(x)),
        ("div-one", _quotient(x, 1), x),
        ("div-minus-one", _quotient(x, -1), -x),
    ),
    # Comparisons of indices; the simplifier moves terms to one side and divides by common factors.
    *_rules("index",
        ("quotient-less", x // c < y, x < y * c, c > 0),
        ("less-quotient", x < y // c, x * c + (c - 1) < y, c > 0),
        ("digits-less", x * c + y < d, x < e + 1, (c * e <= d - 1 - y) & (d - 1 - y < c * e + c)),
    ),
    *_rules("integers",
        ("equal-itself", x == x, TRUE),
        ("unequal-itself", x != x, FALSE),
        ("less-itself", x < x, FALSE),
        ("greater-itself", x > x, FALSE),
        ("at-most-itself", x <= x, TRUE),
        ("at-least-itself", x >= x, TRUE),
        ("not-less", ~(x < y), x >= y),
        ("not-at-most", ~(x <= y), x > y),
        ("not-greater", ~(x > y), x <= y),
        ("not-at-least", ~(x >= y), x < y),
    ),
    # Conditions. The right operand is evaluated only if the left one leaves it open, so operands
    # are dropped but never exchanged.
    *_rules("conditions",
        ("true-and", TRUE & p, p),
        ("and-true", p & TRUE, p),
        ("false-and", FALSE & p, FALSE),
        ("and-false", p & FALSE, FALSE),
        ("true-or", TRUE | p, TRUE),
        ("or-true", p | TRUE, TRUE),
        ("false-or", FALSE | p, p),
        ("or-false", p | FALSE, p),
        ("not-not-condition", ~~p, p),
        ("equal-true", p == TRUE, p),
        ("equal-false", p == FALSE, ~p),
        ("unequal-false", p != FALSE, p),
        ("unequal-true", p != TRUE, ~p),
        ("select-condition", select(p, TRUE, FALSE), p),
        ("select-not-condition", select(p, FALSE, TRUE), ~p),
    ),
)  # fmt: skip
