"""`vectorize` loops become vector statements.

The iterations of such a loop are the lanes of vectors, and run in lockstep: every statement of the
body for all lanes before the next one. Loops in the body therefore move outside of the lanes, as
long as their bounds are the same in all of them. Conditions that differ between lanes become masks.
A statement that fits none of this runs lane by lane, which is right and slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc.codegen.passes.facts import Facts, not_negative
from tensorc.codegen.passes.lanes import Lanes
from tensorc.codegen.passes.trees import find, names_in, sizes_of, with_body, with_values
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedStore,
    Node,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import replace, rewrite, seq, substitute

MAX_LANES = 64


def vectors(func: Func) -> Func:
    """`func` without `vectorize` loops."""
    taken = {loop.var.name for loop in find(func, For)}
    readable = frozenset(p.name for p in func.params if p.mode != "out")
    sizes = frozenset(sizes_of(func))

    def fresh(base: str) -> str:
        name = first_free(base, taken)
        taken.add(name)
        return name

    stage = _Stage(fresh, readable)
    return replace(func, body=stage.visit(func.body, Facts(sizes)))


@dataclass(frozen=True, slots=True)
class _Stage:
    fresh: Callable[[str], str]
    readable: frozenset[str]

    def visit(self, stmt: Stmt, facts: Facts) -> Stmt:
        """Outside of vectorised loops."""
        match stmt:
            case For(kind="vectorize"):
                return self._vectorised(stmt, facts)
            case For(body=body):
                return with_body(stmt, self.visit(body, facts.inside(stmt)))
            case If(condition=condition, body=body):
                return with_body(stmt, self.visit(body, facts.given(condition)))
            case Seq(body=body):
                return seq(*(self.visit(part, facts) for part in body))
            case Alloc(body=body):
                return with_body(stmt, self.visit(body, facts))
        return stmt

    def _vectorised(self, loop: For, facts: Facts) -> Stmt:
        extent = linear(arith.sub(loop.end, loop.begin))
        count = extent.constant
        if not extent.terms and count <= 1:
            one = with_values(loop.body, {loop.var.name: loop.begin})
            return self.visit(one, facts) if count == 1 else Seq(())
        nested = any(inner.kind == "vectorize" for inner in find(loop.body, For))
        sized = any(
            loop.var.name in names_in(extent)
            for alloc in find(loop.body, Alloc)
            for extent in alloc.buffer.shape
        )
        if extent.terms or count > MAX_LANES or nested or sized:
            serial = replace(loop, kind="serial")
            return replace(serial, body=self.visit(loop.body, facts.inside(serial)))
        lanes = Lanes(loop.var, loop.begin, count, self.readable)
        return _Body(self, lanes).visit(loop.body, _Guard(facts))


@dataclass(frozen=True, slots=True)
class _Guard:
    """What holds at a statement in the lanes: facts without the loop variable, the mask of the
    lanes that are active, and the conditions that it stands for. `some_lane` says that at least
    one lane is active whenever control comes here."""

    facts: Facts
    mask: Expr | None = None
    conditions: tuple[Expr, ...] = ()
    some_lane: bool = True


@dataclass(frozen=True, slots=True)
class _Body:
    stage: _Stage
    lanes: Lanes

    def visit(self, stmt: Stmt, guard: _Guard) -> Stmt:
        match stmt:
            case Seq(body=body):
                return seq(*(self.visit(part, guard) for part in body))
            case Alloc(buffer=buffer, body=body):
                new = self.lanes.expand(buffer)
                return replace(stmt, buffer=new, body=self.visit(body, guard))
            case For(begin=begin, end=end, body=body):
                if self.lanes.varies(begin) or self.lanes.varies(end):
                    return self._lane_by_lane(stmt, guard)
                kind = "serial" if stmt.kind == "parallel" else stmt.kind
                inner = self.visit(body, _in(guard, guard.facts.inside(stmt)))
                return replace(stmt, kind=kind, body=inner)
            case If():
                return self._if(stmt, guard)
            case Store():
                return self._store(stmt, guard)
        raise TypeError(f"not a statement of a loop: {stmt!r}")

    def _if(self, stmt: If, guard: _Guard) -> Stmt:
        """The parts that all lanes agree on stay a condition, the others narrow the mask."""
        agreed: list[Expr] = []
        own: list[Expr] = []
        for part in arith.conjuncts(stmt.condition):
            (own if self.lanes.varies(part) else agreed).append(part)
        together = arith.all_of(*agreed)
        inner = _in(guard, guard.facts.given(together))
        if own:
            some_lane, necessary = self._some_lane(own)
            mask = arith.all_of(*(self.lanes.spread(self.lanes.vector(part, None)) for part in own))
            mask = mask if guard.mask is None else Binary("and", guard.mask, mask)
            necessary = inner.facts.simplified(necessary)
            together = arith.both(together, necessary)
            inner = _Guard(
                inner.facts.given(necessary),
                mask,
                (*guard.conditions, *own),
                guard.mask is None and some_lane,
            )
        body = self.visit(stmt.body, inner)
        return body if together == arith.TRUE else replace(stmt, condition=together, body=body)

    def _some_lane(self, conditions: list[Expr]) -> tuple[bool, Expr]:
        """A condition without which no lane is active, and whether it makes sure that one is.

        Each inequality holds for the first lanes or for the last ones. If all are of one kind,
        then some lane is active exactly when the first, or the last, is.
        """
        ends: set[int] = set()
        at_end: list[Expr] = []
        for condition in conditions:
            forms = list(not_negative(condition))
            if len(forms) != 1:
                return False, arith.TRUE
            step = forms[0].terms.get(self.lanes.var, 0)
            ends.add(0 if step < 0 else self.lanes.count - 1)
            lane = arith.add(self.lanes.begin, arith.index(max(ends)))
            rest = (atom for atom in forms[0].terms if atom != self.lanes.var)
            if step == 0 or any(map(self.lanes.varies, rest)):
                return False, arith.TRUE
            at_end.append(substitute(condition, {self.lanes.var.name: lane}))
        if len(ends) > 1:
            return False, arith.TRUE
        return True, arith.all_of(*at_end)

    def _store(self, stmt: Store, guard: _Guard) -> Stmt:
        lanes = self.lanes
        lanes.begin_statement(stmt.value, guard.mask, guard.facts, some_lane=guard.some_lane)
        buffer, indices = lanes.access(stmt.buffer, stmt.indices, guard.mask)
        if not any(map(lanes.is_vector, indices)):
            return self._lane_by_lane(stmt, guard)
        value = lanes.spread(lanes.vector(stmt.value, guard.mask))
        if guard.mask is None:
            return Store(stmt.name, buffer, indices, value, stmt.span)
        return MaskedStore(stmt.name, buffer, indices, value, guard.mask, stmt.span)

    def _lane_by_lane(self, stmt: Stmt, guard: _Guard) -> Stmt:
        """The lanes one after the other, each with its own copy of the temporaries."""
        lanes = self.lanes
        lane = Var(self.stage.fresh(f"{lanes.var.name}.lane"))

        def own_copy(node: Node) -> Node | None:
            match node:
                case Load(buffer=buffer) | Store(buffer=buffer) if buffer.name in lanes.expanded:
                    indices = (*node.indices, lane)
                    return replace(node, buffer=lanes.expanded[buffer.name], indices=indices)
            return None

        body: Stmt = stmt
        if guard.conditions:
            body = If(arith.all_of(*guard.conditions), body)
        body = with_values(body, {lanes.var.name: arith.add(lanes.begin, lane)})
        return For(lane, arith.index(0), arith.index(lanes.count), rewrite(body, own_copy))


def _in(guard: _Guard, facts: Facts) -> _Guard:
    return replace_guard(guard, facts)


def replace_guard(guard: _Guard, facts: Facts) -> _Guard:
    return _Guard(facts, guard.mask, guard.conditions, guard.some_lane)
