"""Every rule of the simplifier is a theorem, which z3 proves.

Index arithmetic is that of the mathematical integers, with x // 0 = 0 and x % 0 = x; data integers
are bit vectors of their width; floats are IEEE 754, where all NaN are one value and 0.0 differs
from -0.0.
"""

from __future__ import annotations

import pytest
import z3

from tensorc.dtype import DType
from tensorc.ir.handles import Handle, const
from tensorc.ir.nodes import Binary, Const, Expr, Select, Unary, Var
from tensorc.ir.rules import DOMAINS, RULES, Rule, c, d, e, x, y
from tensorc.ir.walk import nodes, substitute

pytestmark = pytest.mark.z3

FLOAT_SORTS = {
    DType.F16: z3.FPSort(5, 11),
    DType.BF16: z3.FPSort(8, 8),
    DType.F32: z3.FPSort(8, 24),
    DType.F64: z3.FPSort(11, 53),
}
COMMON = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b}
BOOL = {
    "and": lambda a, b: z3.And(a, b),
    "or": lambda a, b: z3.Or(a, b),
    "bitand": lambda a, b: z3.And(a, b),
    "bitor": lambda a, b: z3.Or(a, b),
    "bitxor": lambda a, b: z3.Xor(a, b),
    **COMMON,
}


class Integers:
    """Index arithmetic. Each division introduces its quotient, by definition."""

    def __init__(self):
        self.axioms = []
        self.quotients = {}

    def letter(self, name):
        return z3.Int(name)

    def number(self, value):
        return z3.IntVal(value)

    def _quotient(self, a, b):
        """q with 0 <= a - b * q < b, or b < a - b * q <= 0; and 0 where b is 0."""
        key = (z3.simplify(a, som=True).get_id(), z3.simplify(b, som=True).get_id())
        if key not in self.quotients:
            q = self.quotients[key] = z3.Int(f"q{len(self.quotients)}")
            rest = a - b * q
            self.axioms += [
                z3.Implies(b > 0, z3.And(rest >= 0, rest < b)),
                z3.Implies(b < 0, z3.And(rest <= 0, rest > b)),
                z3.Implies(b == 0, q == 0),
            ]
        return self.quotients[key]

    def binary(self, op, a, b):
        if op in ("floordiv", "floormod"):
            q = self._quotient(a, b)
            return q if op == "floordiv" else a - b * q
        if op in ("truncdiv", "truncmod"):
            q = self._quotient(z3.If(a < 0, -a, a), z3.If(b < 0, -b, b))
            q = z3.If((a < 0) == (b < 0), q, -q)
            return q if op == "truncdiv" else a - b * q
        return {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "min": lambda: z3.If(a < b, a, b),
            "max": lambda: z3.If(a > b, a, b),
            "lt": lambda: a < b,
            "le": lambda: a <= b,
            "gt": lambda: a > b,
            "ge": lambda: a >= b,
            "eq": lambda: a == b,
            "ne": lambda: a != b,
        }[op]()

    def unary(self, op, a):
        return {"neg": lambda: -a, "abs": lambda: z3.If(a < 0, -a, a)}[op]()


class Words:
    """Data integers: bit vectors."""

    def __init__(self, dtype):
        self.axioms = []
        self.bits, self.signed = dtype.bits, dtype.is_signed

    def letter(self, name):
        return z3.BitVec(name, self.bits)

    def number(self, value):
        return z3.BitVecVal(value, self.bits)

    def _truncdiv(self, a, b):
        quotient = a / b if self.signed else z3.UDiv(a, b)
        return z3.If(b == 0, self.number(0), quotient)

    def _floordiv(self, a, b):
        quotient = self._truncdiv(a, b)
        if not self.signed:
            return quotient
        inexact = z3.And(b != 0, quotient * b != a, (a < 0) != (b < 0))
        return z3.If(inexact, quotient - 1, quotient)

    def binary(self, op, a, b):
        less = a < b if self.signed else z3.ULT(a, b)
        distance = b & (self.bits - 1)
        return {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "truncdiv": lambda: self._truncdiv(a, b),
            "truncmod": lambda: a - b * self._truncdiv(a, b),
            "floordiv": lambda: self._floordiv(a, b),
            "floormod": lambda: a - b * self._floordiv(a, b),
            "min": lambda: z3.If(less, a, b),
            "max": lambda: z3.If(less, b, a),
            "lt": lambda: less,
            "ge": lambda: z3.Not(less),
            "le": lambda: z3.Or(less, a == b),
            "gt": lambda: z3.Not(z3.Or(less, a == b)),
            "eq": lambda: a == b,
            "ne": lambda: a != b,
            "bitand": lambda: a & b,
            "bitor": lambda: a | b,
            "bitxor": lambda: a ^ b,
            "shl": lambda: a << distance,
            "shr": lambda: a >> distance if self.signed else z3.LShR(a, distance),
        }[op]()

    def unary(self, op, a):
        negative = a < 0 if self.signed else z3.BoolVal(False)
        return {
            "neg": lambda: -a,
            "not": lambda: ~a,
            "abs": lambda: z3.If(negative, -a, a),
        }[op]()


class Floats:
    def __init__(self, dtype):
        self.axioms = []
        self.sort = FLOAT_SORTS[dtype]

    def letter(self, name):
        return z3.FP(name, self.sort)

    def number(self, value):
        return z3.FPVal(value, self.sort)

    def _least(self, a, b):
        lower = z3.If(z3.fpEQ(a, b), z3.fpIsNegative(a), z3.fpLT(a, b))
        return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.If(lower, a, b)))

    def binary(self, op, a, b):
        nearest = z3.RNE()
        return {
            "add": lambda: z3.fpAdd(nearest, a, b),
            "sub": lambda: z3.fpSub(nearest, a, b),
            "mul": lambda: z3.fpMul(nearest, a, b),
            "div": lambda: z3.fpDiv(nearest, a, b),
            "min": lambda: self._least(a, b),
            "max": lambda: z3.fpNeg(self._least(z3.fpNeg(a), z3.fpNeg(b))),
            "eq": lambda: z3.fpEQ(a, b),
            "ne": lambda: z3.Not(z3.fpEQ(a, b)),
        }[op]()

    def unary(self, op, a):
        return {"neg": lambda: z3.fpNeg(a), "abs": lambda: z3.fpAbs(a)}[op]()


class Conditions:
    def __init__(self):
        self.axioms = []

    def letter(self, name):
        return z3.Bool(name)

    def number(self, value):
        return z3.BoolVal(bool(value))


BITWISE = ("not", "bitand", "bitor", "bitxor", "shl", "shr")


def theory_of(rule, dtype):
    bitwise = any(getattr(node, "op", "") in BITWISE for node in nodes(rule.pattern, Expr))
    if dtype is DType.INDEX and not (bitwise and DType.I8 in DOMAINS[rule.domain]):
        return Integers()
    if dtype is DType.BOOL:
        return Conditions()
    return Floats(dtype) if dtype.is_float else Words(dtype)


def formula(expr: Expr, theory):
    match expr:
        case Var(name="p"):
            return z3.Bool(expr.name)
        case Var(name=name):
            return theory.letter(name)
        case Const(value=value):
            return z3.BoolVal(value) if expr.dtype is DType.BOOL else theory.number(value)
        case Select(condition=condition, a=a, b=b):
            return z3.If(*(formula(part, theory) for part in (condition, a, b)))
        case Unary(op=op, a=a):
            inner = formula(a, theory)
            return z3.Not(inner) if z3.is_bool(inner) else theory.unary(op, inner)
        case Binary(op=op, a=a, b=b):
            left, right = formula(a, theory), formula(b, theory)
            return BOOL[op](left, right) if z3.is_bool(left) else theory.binary(op, left, right)
    raise TypeError(expr)


# What z3 needs to be told where divisors are letters: rules (that have no such entry themselves),
# with expressions for their letters.
LEMMAS: dict[str, list[tuple[str, dict[str, Handle]]]] = {
    "mod-negative": [("div-negative", {})],
    "truncmod-positive": [("truncdiv-positive", {})],
    "mod-multiple": [("div-multiple", {})],
    "mod-digits": [("div-digits", {})],
    "div-mod": [
        ("div-multiple", {"x": -d * (x // (c * d)), "y": x}),
        ("div-div", {"e": const(0, "index")}),
    ],
    "mod-mod": [("div-multiple", {"x": -d * e * (x // (c * d)), "y": x * e + y})],
}
RULE = {rule.name: rule for rule in RULES}


def claim(rule: Rule, theory, letters=None):
    """That the rule holds, as a formula."""
    parts = (rule.when, rule.pattern, rule.result)
    if letters:
        parts = tuple(substitute(part, {k: v.expr for k, v in letters.items()}) for part in parts)
    when, pattern, result = (formula(part, theory) for part in parts)
    return z3.Implies(when, pattern == result)


def counterexample(rule: Rule, dtype: DType):
    """A model in which the rule does not hold; None when there is none."""
    theory = theory_of(rule, dtype)
    lemmas = [claim(RULE[name], theory, letters) for name, letters in LEMMAS.get(rule.name, ())]
    wrong = z3.Not(claim(rule, theory))
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*theory.axioms, *lemmas, wrong)
    verdict = solver.check()
    assert verdict != z3.unknown, f"z3 does not know: {solver.reason_unknown()}"
    return solver.model() if verdict == z3.sat else None


CASES = [(rule, dtype) for rule in RULES for dtype in DOMAINS[rule.domain]]


@pytest.mark.parametrize(
    ("rule", "dtype"), CASES, ids=[f"{rule.name}-{dtype}" for rule, dtype in CASES]
)
def test_rule_holds(rule: Rule, dtype: DType):
    model = counterexample(rule, dtype)
    assert model is None, f"{rule} is wrong of {dtype} at {model}"


def test_lemmas_are_proved_without_lemmas():
    assert not {name for used in LEMMAS.values() for name, _ in used} & set(LEMMAS)


def test_rules_have_one_name_each():
    assert len(RULE) == len(RULES)
