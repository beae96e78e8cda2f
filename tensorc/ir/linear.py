"""Index expressions as linear combinations: sum of coefficient * atom, plus a constant.

An atom is an index expression that is no sum, difference, negation or multiple: a variable, a
quotient, a remainder, a minimum, a product of atoms, and so on. Two expressions that are equal by
the laws of addition and of multiplication by numbers have equal combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, Cast, Const, Expr, Load, Select, Unary, Var

# A product of two sums is multiplied out when it has at most so many terms, else it is an atom.
MOST_TERMS = 16


@dataclass(frozen=True, slots=True)
class Linear:
    """constant + the sum of coefficient * atom over `terms`. No coefficient is 0."""

    terms: Mapping[Expr, int]
    constant: int

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def plus(self, other: Linear, factor: int) -> Linear:
        """self + factor * other, for a factor other than 0."""
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Linear(self.terms, constant)
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, constant)

    def scaled(self, factor: int) -> Linear:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        terms = {atom: factor * coefficient for atom, coefficient in self.terms.items()}
        return Linear(terms, factor * self.constant)

    def ordered(self) -> list[tuple[Expr, int]]:
        """The terms: positive before negative, then by size of coefficient, then by name."""
        if len(self.terms) < 2:
            return list(self.terms.items())
        return sorted(self.terms.items(), key=_place)

    def expr(self) -> Expr:
        """The expression in its normal form, e.g. i * 60 + j * 6 + k - 1."""
        constant = self.constant
        result: Expr | None = None
        for atom, coefficient in self.ordered():
            size = abs(coefficient)
            term = atom if size == 1 else Binary("mul", atom, _index(size))
            if result is None and coefficient < 0:
                if constant:
                    result, constant = Binary("sub", _index(constant), term), 0
                elif size == 1:
                    result = Unary("neg", atom)
                else:
                    result = Binary("mul", atom, _index(coefficient))
            elif result is None:
                result = term
            else:
                result = Binary("sub" if coefficient < 0 else "add", result, term)
        if result is None:
            return _index(constant)
        if constant:
            result = Binary("sub" if constant < 0 else "add", result, _index(abs(constant)))
        return result


ZERO = Linear({}, 0)


def linear(expr: Expr) -> Linear:
    """An index expression as a linear combination. Its atoms are left as they stand.

    `i * 4 + (j + i) - 3` is {i: 5, j: 1} and -3. A product of expressions with variables is
    multiplied out, e.g. (i + 1) * N is {i * N: 1, N: 1}.
    """
    return collected(expr, _atom)


def _atom(expr: Expr) -> Linear:
    return Linear({expr: 1}, 0)


def collected(expr: Expr, atom: Callable[[Expr], Linear]) -> Linear:
    """`linear`, where `atom` says what an operand of another form is."""
    terms: dict[Expr, int] = {}
    constant = _add(terms, expr, 1, atom)
    if not all(terms.values()):
        terms = {atom: coefficient for atom, coefficient in terms.items() if coefficient}
    return Linear(terms, constant)


def _add(terms: dict[Expr, int], expr: Expr, factor: int, atom: Callable[[Expr], Linear]) -> int:
    """Adds factor * expr to `terms`, where zeros may stay, and returns its constant part."""
    if type(expr) is Var:
        terms[expr] = terms.get(expr, 0) + factor
        return 0
    if type(expr) is Const and expr.dtype is DType.INDEX:
        return factor * int(expr.value)
    if type(expr) is Binary and expr.op in ("add", "sub"):
        second = factor if expr.op == "add" else -factor
        return _add(terms, expr.a, factor, atom) + _add(terms, expr.b, second, atom)
    if type(expr) is Unary and expr.op == "neg":
        return _add(terms, expr.a, -factor, atom)
    if type(expr) is Binary and expr.op == "mul":
        if type(expr.b) is Const:
            return _add(terms, expr.a, factor * int(expr.b.value), atom)
        part = _product(collected(expr.a, atom), collected(expr.b, atom))
    else:
        part = atom(expr)
    for term, coefficient in part.terms.items():
        terms[term] = terms.get(term, 0) + factor * coefficient
    return factor * part.constant


def _product(a: Linear, b: Linear) -> Linear:
    if not b.terms:
        return a.scaled(b.constant)
    if not a.terms:
        return b.scaled(a.constant)
    if (len(a.terms) + 1) * (len(b.terms) + 1) > MOST_TERMS:
        return Linear({Binary("mul", a.expr(), b.expr()): 1}, 0)
    product = b.scaled(a.constant).plus(Linear(a.terms, 0).scaled(b.constant), 1)
    for left, m in a.terms.items():
        for right, n in b.terms.items():
            product = product.plus(Linear({_of_atoms(left, right): m * n}, 0), 1)
    return product


def _of_atoms(a: Expr, b: Expr) -> Expr:
    """The product of two atoms, its factors in order of name."""
    first, *rest = sorted((*_factors(a), *_factors(b)), key=_name)
    result = first
    for factor in rest:
        result = Binary("mul", result, factor)
    return result


def _factors(atom: Expr) -> tuple[Expr, ...]:
    if isinstance(atom, Binary) and atom.op == "mul":
        return *_factors(atom.a), *_factors(atom.b)
    return (atom,)


@lru_cache(maxsize=4096)
def _index(value: int) -> Const:
    return Const(value, DType.INDEX)


def _place(term: tuple[Expr, int]) -> tuple[bool, int, str]:
    atom, coefficient = term
    return coefficient < 0, -abs(coefficient), _name(atom)


def _name(expr: Expr) -> str:
    """A text to sort atoms by. Variables come first, in the order of their names."""
    return expr.name if isinstance(expr, Var) else _text(expr)


@lru_cache(maxsize=8192)
def _text(expr: Expr) -> str:
    # "~" sorts behind every letter. Equal texts of different atoms would only cost the uniqueness
    # of the normal form, never its meaning.
    match expr:
        case Binary(op=op, a=a, b=b):
            return f"~{op}({_name(a)},{_name(b)})"
        case Const(value=value):
            return f"~{value}"
        case Load(buffer=buffer, indices=indices):
            return f"~{buffer.name}[{','.join(map(_name, indices))}]"
        case Unary(op=op, a=a):
            return f"~{op}({_name(a)})"
        case Cast(dtype=dtype, a=a):
            return f"~{dtype}({_name(a)})"
        case Select(condition=condition, a=a, b=b):
            return f"~select({_name(condition)},{_name(a)},{_name(b)})"
    return f"~{expr!r}"
