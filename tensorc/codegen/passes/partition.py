"""Loops are cut where guards become constant, so that the interior of a nest has none.

For each guard in an innermost loop, the outermost loop that it depends on is cut into the
iterations in which it always holds and the others; those are cut again further in. The pieces are
copies, so at most three loops of a nest are cut, and code does not grow beyond a limit. A
parallel loop is not cut: its body gets a version for each piece, chosen by the loop variable.
Lanes are never cut either: what is left of a guard there becomes a mask.

Where to cut is a matter of speed alone. A guard is dropped only where what is known in a piece
proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from tensorc.codegen.passes.copies import Names
from tensorc.codegen.passes.facts import Facts
from tensorc.codegen.passes.guards import (
    Guard,
    all_true,
    guards_in,
    hoisted,
    is_equality,
    is_real,
    some_true,
    spans,
    split_guard,
)
from tensorc.codegen.passes.trees import (
    find,
    has_choices,
    names_in,
    sizes_of,
    with_body,
    with_values,
)
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Expr,
    For,
    Func,
    If,
    Node,
    Select,
    Seq,
    Stmt,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import map_children, replace, rewrite, seq

MAX_CUTS = 3
"""How many loops around one statement are cut."""
MAX_STATEMENTS = 2048
"""How many statements a function may have, unrolled, for a further copy to be made."""


def partition(func: Func) -> Func:
    """`func` with its guards moved outwards, decided where possible, and its loops cut."""
    facts = Facts(frozenset(sizes_of(func)))
    body = _simplified(hoisted(func.body), facts)
    stage = _Stage(Names(func), weight(body))
    return replace(func, body=stage.visit(body, facts, MAX_CUTS))


def weight(stmt: Stmt) -> int:
    """How many statements there are once `unroll` loops are unrolled."""
    match stmt:
        case Seq(body=body):
            return sum(map(weight, body))
        case For(begin=begin, end=end, body=body):
            extent = arith.constant(arith.sub(end, begin)) if stmt.kind == "unroll" else 1
            return max(0, extent or 1) * weight(body)
        case If(body=body) | Alloc(body=body):
            return weight(body)
    return 1


# What is known ------------------------------------------------------------------------------------


def _simplified(stmt: Stmt, facts: Facts) -> Stmt:
    """The statement without what is decided where it stands: guards, choices, and loops around
    them that run once or never."""
    if not has_choices(stmt):
        return stmt
    match stmt:
        case Seq(body=body):
            return seq(*(_simplified(part, facts) for part in body))
        case Alloc(body=body):
            return _unless_empty(stmt, _simplified(body, facts))
        case If(condition=condition, body=body):
            condition = facts.simplified(condition)
            if condition == arith.FALSE:
                return Seq(())
            inner = _simplified(body, facts.given(condition))
            if condition == arith.TRUE:
                return inner
            return _unless_empty(replace(stmt, condition=condition), inner)
        case For():
            return _simplified_loop(stmt, facts)
    return _decided(stmt, facts)


def with_value(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    """The statement with an index in place of a variable, in sums that are gathered again."""

    def visit(node: Node) -> Node:
        if isinstance(node, Var):
            return value if node == var else node
        new = map_children(node, visit)
        is_sum = isinstance(new, Binary) and new.op in ("add", "sub", "mul")
        if new is not node and is_sum and dtype_of(new) is DType.INDEX:  # type: ignore[arg-type]
            return linear(new).expr()  # type: ignore[arg-type]
        return new

    if any(var.name in names_in(e) for a in find(stmt, Alloc) for e in a.buffer.shape):
        return with_values(stmt, {var.name: value})
    result = visit(stmt)
    assert isinstance(result, Stmt)
    return result


def _unless_empty(stmt: If | Alloc | For, body: Stmt) -> Stmt:
    return body if body == Seq(()) else with_body(stmt, body)


def number_between(begin: Expr, end: Expr) -> int | None:
    """The number of iterations from begin to end, if it is known."""
    a, b = arith.constant(begin), arith.constant(end)
    if a is not None and b is not None:
        return b - a
    difference = linear(end) - linear(begin)
    return None if difference.terms else difference.constant


def _simplified_loop(loop: For, facts: Facts) -> Stmt:
    extent = number_between(loop.begin, loop.end)
    if extent is not None and extent <= 0:
        return Seq(())
    if extent == 1:
        return _simplified(with_value(loop.body, loop.var, loop.begin), facts)
    return _unless_empty(loop, _simplified(loop.body, facts.inside(loop)))


def _decided(stmt: Stmt, facts: Facts) -> Stmt:
    """A leaf whose choices are decided as far as possible."""

    def change(node: Node) -> Node | None:
        if not isinstance(node, Select):
            return None
        return arith.choose(facts.simplified(node.condition), node.a, node.b)

    return rewrite(stmt, change)


# Cuts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a loop's range. In its iterations the variable is known to be at least `least` and
    below `limit`, which clamping has taken out of `begin` and `end`."""

    begin: Expr
    end: Expr
    least: Expr
    limit: Expr
    interior: bool = False

    def is_empty(self) -> bool:
        extent = number_between(self.begin, self.end)
        return extent is not None and extent <= 0

    def single(self) -> bool:
        return number_between(self.begin, self.end) == 1


@dataclass(slots=True)
class _Stage:
    names: Names
    statements: int

    def visit(self, stmt: Stmt, facts: Facts, cuts: int) -> Stmt:
        """A statement that is already simplified."""
        if not has_choices(stmt):
            return stmt
        match stmt:
            case Seq(body=body):
                return seq(*(self.visit(part, facts, cuts) for part in body))
            case If(condition=condition, body=body):
                return _unless_empty(stmt, self.visit(body, facts.given(condition), cuts))
            case Alloc(body=body):
                return _unless_empty(stmt, self.visit(body, facts, cuts))
            case For():
                return self._loop(stmt, facts, cuts)
        return stmt

    def _loop(self, loop: For, facts: Facts, cuts: int) -> Stmt:
        trimmed = _trimmed(loop, facts)
        if trimmed is not loop:
            simple = _simplified(trimmed, facts)
            if not isinstance(simple, For) or simple.var != loop.var:
                return self.visit(simple, facts, cuts)
            loop = simple
        if is_real(loop):
            pieces = self._pieces(loop, facts) if cuts else []
            if pieces:
                made = self._versions if loop.kind == "parallel" else self._cut
                return made(loop, pieces, facts, cuts)
        return _unless_empty(loop, self.visit(loop.body, facts.inside(loop), cuts))

    def _body(self, loop: For, piece: _Piece, facts: Facts, cuts: int) -> Stmt:
        """The body of a loop as it is in one piece. Less is cut in the pieces at the ends, whose
        iterations are few."""
        cuts = max(0, cuts - (1 if piece.interior else 2))
        inside = facts.ranging(loop.var.name, piece.least, piece.limit)
        body = loop.body
        if piece.single():
            body = with_value(body, loop.var, piece.begin)
        return self.visit(_simplified(body, inside), inside, cuts)

    def _cut(self, loop: For, pieces: list[_Piece], facts: Facts, cuts: int) -> Stmt:
        """Loops one after the other. The interior keeps the names."""
        made: list[Stmt] = []
        for piece in pieces:
            own = loop if piece.interior else self.names.copy(loop)
            assert isinstance(own, For)
            body = self._body(own, piece, facts, cuts)
            if piece.single() or body == Seq(()):
                made.append(body)
            else:
                made.append(replace(own, begin=piece.begin, end=piece.end, body=body))
        return seq(*made)

    def _versions(self, loop: For, pieces: list[_Piece], facts: Facts, cuts: int) -> Stmt:
        """One loop, whose body chooses among versions for its pieces."""
        made: list[Stmt] = []
        for position, piece in enumerate(pieces):
            own = loop if piece.interior else replace(loop, body=self.names.copy(loop.body))
            body = self._body(own, piece, facts, cuts)
            above = arith.at_most(piece.begin, loop.var) if position else arith.TRUE
            below = arith.less(loop.var, piece.end) if piece is not pieces[-1] else arith.TRUE
            if body != Seq(()):
                made.append(If(arith.both(above, below), body))
        return replace(loop, body=seq(*made)) if made else Seq(())

    def _pieces(self, loop: For, facts: Facts) -> list[_Piece]:
        """The ranges into which a loop is cut, in order; none for a loop that stays whole."""
        size = weight(loop.body)
        if self.statements + size > MAX_STATEMENTS:
            return []
        low, high = _interior(loop, facts)
        if low is None and high is None:
            return []
        begin, end = loop.begin, loop.end
        first = begin if low is None else _clamped(low, begin, end, facts)
        last = end if high is None else _clamped(high, first, end, facts)
        least = begin if low is None else arith.maximum(begin, low)
        limit = end if high is None else arith.minimum(end, high)
        pieces = [
            _Piece(begin, first, begin, end if low is None else arith.minimum(end, low)),
            _Piece(first, last, least, limit, interior=True),
            _Piece(last, end, begin if high is None else arith.maximum(begin, high), end),
        ]
        pieces = [piece for piece in pieces if not piece.is_empty()]
        self.statements += (len(pieces) - 1) * size
        return pieces if len(pieces) > 1 else []


def _clamped(value: Expr, low: Expr, high: Expr, facts: Facts) -> Expr:
    """`value` brought into low..high, where it is not known to be there."""
    if not facts.decide(Binary("le", value, high)):
        value = arith.minimum(value, high)
    return value if facts.decide(Binary("ge", value, low)) else arith.maximum(value, low)


def _interior(loop: For, facts: Facts) -> tuple[Expr | None, Expr | None]:
    """From where and to where the hot guards of a loop hold, or, for an equality that holds in the
    first or the last iteration alone, do not hold."""
    low: Expr | None = None
    high: Expr | None = None
    for guard in guards_in(loop):
        found = all_true(guard, loop.var) if guard.hot else None
        if found is None:
            continue
        if is_equality(guard.condition):
            found = _outside(loop, guard, found, facts)
        lower, upper = found
        lower = low if lower is None else lower if low is None else arith.maximum(low, lower)
        upper = high if upper is None else upper if high is None else arith.minimum(high, upper)
        if not _surely_empty(loop, lower, upper, facts):
            low, high = lower, upper
    return low, high


def _outside(
    loop: For, guard: Guard, found: tuple[Expr | None, Expr | None], facts: Facts
) -> tuple[Expr | None, Expr | None]:
    """The iterations before, or after, the one in which an equality holds."""
    point, after = found
    if point is None or after is None or spans(guard):
        return None, None
    if facts.decide(Binary("le", point, loop.begin)):
        return after, None
    return None, point


def _surely_empty(loop: For, low: Expr | None, high: Expr | None, facts: Facts) -> bool:
    first = loop.begin if low is None else low
    last = loop.end if high is None else high
    return facts.decide(Binary("ge", first, last)) is True


# Trimming -----------------------------------------------------------------------------------------


def _trimmed(loop: For, facts: Facts) -> For:
    """The loop without iterations at its ends in which no guard lets anything happen. Unrolled
    loops keep bounds that are numbers, and lanes stay as they are."""
    if loop.kind == "vectorize":
        return loop
    ranges = list(_possible(loop.body, (), loop.var))
    begin, end = loop.begin, loop.end
    lows = {low for low, _ in ranges}
    highs = {high for _, high in ranges}
    low, high = _hull(lows, arith.minimum), _hull(highs, arith.maximum)
    if low is not None and not facts.decide(Binary("le", low, begin)):
        begin = arith.maximum(begin, low)
    if high is not None and not facts.decide(Binary("ge", high, end)):
        end = arith.minimum(end, high)
    if begin is loop.begin and end is loop.end:
        return loop
    if not is_real(loop) and None in (arith.constant(begin), arith.constant(end)):
        return loop
    return replace(loop, begin=begin, end=end)


def _hull(limits: set[Expr | None], widest: Callable[[Expr, Expr], Expr]) -> Expr | None:
    """The widest of some limits, if all are limits and it is clear which it is."""
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return None
    if len(known) > 1 and any(arith.constant(limit) is None for limit in known):
        return None
    return reduce(widest, known)


def _possible(
    stmt: Stmt, between: tuple[For, ...], var: Var
) -> Iterator[tuple[Expr | None, Expr | None]]:
    """For each part of a loop's body, the range outside of which it does nothing."""
    match stmt:
        case Seq(body=body):
            for part in body:
                yield from _possible(part, between, var)
        case Alloc(body=body):
            yield from _possible(body, between, var)
        case For(body=body):
            yield from _possible(body, (*between, stmt), var)
        case If():
            conditions, inner = split_guard(stmt)
            low: Expr | None = None
            high: Expr | None = None
            for condition in conditions:
                found = some_true(Guard(condition, between, hot=True), var)
                lower, upper = found or (None, None)
                low = lower if low is None else low
                high = upper if high is None else high
            if low is None and high is None:
                yield from _possible(inner, between, var)
            else:
                yield low, high
        case _:
            yield None, None
