"""Simplifying index arithmetic, conditions, and what is exactly equal of data arithmetic.

Sums of indices are kept in the normal form of `linear`, comparisons of indices as one sum against
another; everything else is rewritten by the table of `rules` until none applies. Each rule makes
its expression smaller in one order (see there), so this ends.

What is known: ranges of variables, and the conditions that hold at a place (a guard, the bounds of
the loops around it, the condition of a `select`). Index arithmetic is taken not to overflow its 64
bits, that of literals excepted, which wraps. Operands may disappear, loads among them, but none is
evaluated that was not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd
from types import MappingProxyType
from typing import Literal

from tensorc.dtype import DType
from tensorc.ir.arith import FALSE, TRUE, index
from tensorc.ir.facts import Facts
from tensorc.ir.fold import cast_of_cast, fold_binary, fold_cast, fold_unary
from tensorc.ir.interval import Interval, Ranges, decided
from tensorc.ir.linear import Linear, collected
from tensorc.ir.match import COMPLETIONS, Completion, Ready, candidates, form, instance
from tensorc.ir.nodes import (
    COMPARISONS,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    MaskedLoad,
    Ramp,
    Select,
    Seq,
    Stmt,
    Unary,
    Var,
)
from tensorc.ir.premises import Bindings, side
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import children, map_children, nodes, replace, seq, substitute

_SUMS = frozenset({"add", "sub", "mul"})
_UNKNOWN: Ranges = MappingProxyType({})
_VECTORS = (Ramp, Broadcast, MaskedLoad)


class Simplifier:
    """Simplifies expressions at one place, whose `facts` it knows. Results are remembered."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._done: dict[Expr, Expr] = {}
        # Expressions of several lanes. Rules are of scalars, so these are only rebuilt.
        self._vectors: set[Expr] = set()

    def __call__(self, expr: Expr) -> Expr:
        if type(expr) is Const:
            return expr
        found = self._done.get(expr)
        if found is None:
            found = self._VISIT.get(type(expr), Simplifier._leaf)(self, expr)
            if self.facts.conditions and found in self.facts.conditions:
                found = TRUE if self.facts.conditions[found] else FALSE
            self._done[expr] = self._done[found] = found
        return found

    def assuming(self, condition: Expr, holds: bool) -> Simplifier:
        """A simplifier where a condition holds or does not hold, besides what is known here."""
        facts = self.facts.copy()
        facts.learn(condition, holds)
        other = Simplifier(facts)
        other._vectors = self._vectors
        return other

    # Nodes

    def _leaf(self, expr: Expr) -> Expr:
        return expr

    def _load(self, expr: Load) -> Expr:
        indices = tuple(map(self, expr.indices))
        same = all(a is b for a, b in zip(indices, expr.indices, strict=True))
        return self._noted(expr, expr if same else Load(expr.buffer, indices))

    def _noted(self, expr: Expr, new: Expr) -> Expr:
        """`new`, which `expr` is when its operands are simplified; notes whether it is a vector."""
        if self._has_vector(new):
            self._vectors |= {expr, new}
        return new

    def _has_vector(self, expr: Expr) -> bool:
        return bool(self._vectors) and any(child in self._vectors for _, child in children(expr))

    def _vector(self, expr: Expr) -> Expr:
        new = map_children(expr, self)  # type: ignore[arg-type]
        self._vectors |= {expr, new}
        return new

    def _let(self, expr: Let) -> Expr:
        value, inner = self(expr.value), self
        if value in self._vectors:
            inner = Simplifier(self.facts)
            inner._vectors = self._vectors | {expr.var}
        body = inner(expr.body)
        if body in inner._vectors:
            self._vectors |= {expr, body}
        same = value is expr.value and body is expr.body
        return self._noted(expr, expr if same else Let(expr.var, value, body))

    def _unary(self, expr: Unary) -> Expr:
        dtype = dtype_of(expr.a)
        if expr.op == "neg" and dtype is DType.INDEX:
            return self._sum(expr)
        a = self(expr.a)
        if isinstance(a, Const):
            folded = fold_unary(expr.op, a)
            if folded is not None:
                return folded
        return self._by_rules(expr.op, dtype, expr if a is expr.a else Unary(expr.op, a))

    def _binary(self, expr: Binary) -> Expr:
        op, dtype = expr.op, dtype_of(expr.a)
        if dtype is DType.INDEX:
            if op in _SUMS:
                return self._sum(expr)
            if op in COMPARISONS:
                return self._comparison(expr)
        a = self(expr.a)
        right = self
        if op in ("and", "or") and not isinstance(a, Const):
            right = self.assuming(a, op == "and")
        b = right(expr.b)
        if isinstance(a, Const) and isinstance(b, Const):
            folded = fold_binary(op, a, b)
            if folded is not None:
                return folded
        same = a is expr.a and b is expr.b
        return self._by_rules(op, dtype, expr if same else Binary(op, a, b))

    def _select(self, expr: Select) -> Expr:
        condition = self(expr.condition)
        if isinstance(condition, Const):
            return self(expr.a if condition.value else expr.b)
        a = self.assuming(condition, True)(expr.a)
        b = self.assuming(condition, False)(expr.b)
        if condition is not expr.condition or a is not expr.a or b is not expr.b:
            expr = Select(condition, a, b)
        return self._by_rules("select", dtype_of(a), expr)

    def _cast(self, expr: Cast) -> Expr:
        a = self(expr.a)
        if a in self._vectors:
            return self._vector(expr)
        if dtype_of(a) is expr.dtype:
            return a
        if isinstance(a, Const):
            return fold_cast(expr.dtype, a) or Cast(expr.dtype, a)
        if isinstance(a, Cast):
            shorter = cast_of_cast(expr.dtype, a.dtype, a.a)
            if shorter != expr:
                return self(shorter)
        return expr if a is expr.a else Cast(expr.dtype, a)

    # Rules

    def _by_rules(self, op: str, dtype: DType, expr: Unary | Binary | Select) -> Expr:
        if self._has_vector(expr):
            self._vectors.add(expr)
            return expr
        right = form(expr.b) if isinstance(expr, Binary) else None
        for ready in candidates(op, dtype, form(expr.a), right):
            result = self._attempt(ready, expr, dtype)
            if result is not None:
                return self(result)
        return expr

    def _attempt(self, ready: Ready, expr: Expr, dtype: DType) -> Expr | None:
        if ready.ways is not None:
            assert isinstance(expr, Binary)
            for bound in ready.ways(expr, self.facts.linear):
                if ready.holds(bound, self.facts):
                    return instance(ready.rule.result, bound, dtype)
            return None
        bound = {}
        assert ready.tree is not None
        if not ready.tree(expr, bound) or not ready.holds(bound, self.facts):
            return None
        if ready.dtypes is not None and dtype_of(bound["x"]) not in ready.dtypes:
            return None
        return instance(ready.rule.result, bound, dtype)

    # Sums and comparisons of indices

    def _sum(self, expr: Expr) -> Expr:
        combination = self._gathered(expr)
        if self._vectors and any(node in self._vectors for node in nodes(expr, Expr)):
            return self._vector(expr)
        result = combination.expr()
        result = expr if result == expr else result
        self.facts.remember(result, combination)
        return result

    def _gathered(self, expr: Expr) -> Linear:
        return self._completed(self._collect(expr))

    def _collect(self, expr: Expr) -> Linear:
        """The combination of an expression that is not simplified yet."""
        return collected(expr, self._atom)

    def _atom(self, expr: Expr) -> Linear:
        return self.facts.linear(self(expr))

    def _completed(self, combination: Linear) -> Linear:
        """A combination after the rules for two of its terms."""
        if len(combination.terms) < 2:
            return combination
        for atom, coefficient in combination.terms.items():
            if type(atom) is not Binary or atom.op not in ("floormod", "floordiv"):
                continue
            for completion in COMPLETIONS:
                changed = self._complete(completion, combination, atom, coefficient)
                if changed is not None:
                    return self._completed(changed)
        return combination

    def _complete(
        self, completion: Completion, combination: Linear, atom: Expr, coefficient: int
    ) -> Linear | None:
        """The combination with `atom` and the term that it completes replaced by their sum."""
        bound: Bindings = {}
        if not completion.second(atom, bound) or not completion.holds(bound, self.facts):
            return None
        scale = 1
        if completion.scale is not None:
            scale = side(completion.scale, bound, self.facts).constant
        if scale == 0 or coefficient % scale:
            return None
        factor = coefficient // scale
        first = self._gathered(instance(completion.first, bound, DType.INDEX)).scaled(factor)
        if any(combination.terms.get(t) != k for t, k in first.terms.items()):
            return None
        whole = self._gathered(instance(completion.rule.result, bound, DType.INDEX)).scaled(factor)
        return combination - first - Linear({atom: coefficient}, 0) + whole

    def _comparison(self, expr: Binary) -> Expr:
        difference = self._completed(self._side(expr.a) - self._side(expr.b))
        if self._vectors and any(node in self._vectors for node in nodes(expr, Expr)):
            return self._vector(expr)
        known = decided(expr.op, self.facts.interval_of(difference))
        if known is not None:
            return TRUE if known else FALSE
        if expr.op in ("eq", "ne"):
            result: Expr = _equality(expr.op, difference)
        else:
            if expr.op in ("gt", "ge"):
                difference = difference.scaled(-1)
            if expr.op in ("le", "ge"):
                difference = Linear(difference.terms, difference.constant - 1)
            result = self._less(difference)
        return expr if result == expr else result

    def _side(self, expr: Expr) -> Linear:
        side = self._collect(expr)
        return side if side.terms else Linear(side.terms, int(index(side.constant).value))

    def _less(self, difference: Linear) -> Expr:
        """difference < 0, as a < b with the literal on the right, or as a >= literal."""
        terms, limit = difference.terms, -difference.constant
        left = {atom: k for atom, k in terms.items() if k > 0}
        right = {atom: -k for atom, k in terms.items() if k < 0}
        against_literal = Binary("lt", Linear(terms, 0).expr(), index(limit))
        if left:
            split = Binary("lt", Linear(left, 0).expr(), Linear(right, limit).expr())
        else:
            split = Binary("lt", index(-limit), Linear(right, 0).expr())
        for shape in (against_literal, split) if left and right else (split,):
            for ready in candidates("lt", DType.INDEX, form(shape.a), form(shape.b)):
                result = self._attempt(ready, shape, DType.INDEX)
                if result is not None:
                    return self(result)
        return split if left else Binary("ge", split.b, index(1 - limit))

    _VISIT: Mapping[type[Expr], Callable[..., Expr]] = {
        Unary: _unary,
        Binary: _binary,
        Cast: _cast,
        Select: _select,
        Load: _load,
        Let: _let,
        **dict.fromkeys(_VECTORS, _vector),
    }


def _equality(op: Literal["eq", "ne"], difference: Linear) -> Expr:
    """difference == 0 (or != 0): divided by the common divisor, the first term positive."""
    divisor = gcd(*difference.terms.values())
    if difference.constant % divisor:
        return FALSE if op == "eq" else TRUE
    if max(difference.terms.items(), key=lambda term: abs(term[1]))[1] < 0:
        divisor = -divisor
    terms = {atom: k // divisor for atom, k in difference.terms.items()}
    left = {atom: k for atom, k in terms.items() if k > 0}
    right = {atom: -k for atom, k in terms.items() if k < 0}
    a, b = Linear(left, 0), Linear(right, -difference.constant // divisor)
    return Binary(op, a.expr(), b.expr())


def simplify(expr: Expr, ranges: Ranges = _UNKNOWN) -> Expr:
    """An expression of the same value, in normal form.

    Args:
        expr: an index expression, a condition or data; lowered (vector) nodes stay as they are.
        ranges: inclusive bounds of variables, None for unbounded: {"i": (0, 63), "N": (0, None)}.
    """
    return _simplified(expr, frozenset(ranges.items()))


@lru_cache(maxsize=16384)
def _simplified(expr: Expr, ranges: frozenset[tuple[str, Interval]]) -> Expr:
    return Simplifier(Facts(dict(ranges)))(expr)


def simplify_func(func: Func, *, unit_loops: bool = False) -> Func:
    """A function with its expressions simplified; see `simplify_stmt`. Sizes are at least 0."""
    shapes = (p.value.shape for p in func.params if isinstance(p.value, Buffer))
    sizes = {v.name for shape in shapes for extent in shape for v in nodes(extent, Var)}
    ranges: Ranges = dict.fromkeys(sizes, (0, None))
    return replace(func, body=simplify_stmt(func.body, ranges, unit_loops=unit_loops))


def simplify_stmt(stmt: Stmt, ranges: Ranges = _UNKNOWN, *, unit_loops: bool = False) -> Stmt:
    """A statement with its expressions simplified where they stand.

    Loop bounds and guards are known inside them. A guard that always holds disappears, and so do a
    statement that never runs, a loop without iterations and what is left without a body. With
    `unit_loops`, a loop that runs exactly once becomes its body.
    """
    return _statement(stmt, Simplifier(Facts(ranges)), unit_loops)


def _statement(stmt: Stmt, here: Simplifier, unit_loops: bool) -> Stmt:
    match stmt:
        case For():
            return _loop(stmt, here, unit_loops)
        case If(condition=condition, body=body):
            condition = here(condition)
            if isinstance(condition, Const):
                return _statement(body, here, unit_loops) if condition.value else Seq(())
            inner = _statement(body, here.assuming(condition, True), unit_loops)
            return _unless_empty(stmt, condition=condition, body=inner)
        case Seq(body=parts):
            new = [_statement(part, here, unit_loops) for part in parts]
            same = all(a is b for a, b in zip(new, parts, strict=True))
            return stmt if same else seq(*new)
        case Alloc(body=body):
            return _unless_empty(stmt, body=_statement(body, here, unit_loops))
    return map_children(stmt, here)  # type: ignore[arg-type]


def _unless_empty(stmt: For | If | Alloc, **changes: object) -> Stmt:
    if changes["body"] == Seq(()):
        return Seq(())
    changed = any(getattr(stmt, name) is not value for name, value in changes.items())
    return replace(stmt, **changes) if changed else stmt


def _loop(loop: For, here: Simplifier, unit_loops: bool) -> Stmt:
    begin, end, variable = here(loop.begin), here(loop.end), loop.var
    facts = here.facts
    fewest, most = facts.interval_of(facts.linear(end) - facts.linear(begin))
    if most is not None and most <= 0:
        return Seq(())
    if unit_loops and fewest == most == 1:
        return _statement(substitute(loop.body, {variable.name: begin}), here, unit_loops)
    low, high = facts.interval(begin)[0], facts.interval(end)[1]
    if variable.name in facts.ranges:
        # Not yet unique names: what is known of the other loop does not hold of this one.
        others = {name: known for name, known in facts.ranges.items() if name != variable.name}
        here = Simplifier(Facts(others))
        facts = here.facts
    facts.ranges[variable.name] = (low, None if high is None else high - 1)
    for inside in (Binary("lt", variable, end), Binary("ge", variable, begin)):
        if not isinstance(inside.b, Const):
            facts.learn(inside, True)
    body = _statement(loop.body, here, unit_loops)
    return _unless_empty(loop, begin=begin, end=end, body=body)
