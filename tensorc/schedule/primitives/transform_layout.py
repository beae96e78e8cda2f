"""transform_layout: a buffer's elements change places in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import islpy as isl

from tensorc.analysis.affine import NotAffineError, term
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.analysis.witness import smallest_point
from tensorc.dtype import DType
from tensorc.errors import Kind
from tensorc.ir.arith import constant, floordiv, floormod, index
from tensorc.ir.interval import Interval, interval
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Load,
    Node,
    Param,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import nodes, replace, rewrite, seq, substitute, variables
from tensorc.schedule.rewrite import nest
from tensorc.schedule.state import State, allocations, buffers
from tensorc.schedule.step import Step, check_buffers
from tensorc.schedule.tidy import tidied


@dataclass(frozen=True, slots=True)
class TransformLayout(Step):
    """Store element (d0, d1, ...) of a buffer at the position that `layout` gives.

    `layout` has one index expression over the variables d0, d1, ... for each new dimension. A
    constant parameter then wants its contents in the new layout: the state gains a pack function,
    which `build` runs once.

    rewrite:
        T = alloc("f32", 8)
        for i in range(8):
            T[i] = A[i]
      transform_layout("T", lambda d0: (d0 // 4, d0 % 4))
        T = alloc("f32", 2, 4)
        for i in range(8):
            T[i // 4, i % 4] = A[i]

    legal when:
        the buffer exists (REF002, REF004); it is a temporary or a "const" parameter (RGN004), and
        no reduction over several buffers shares its indices (STR007)
        its extents are constants (STR004); `layout` reads nothing but d0, d1, ... (ARG001), is
        affine (UNS001) and starts at 0 or above (ARG001)
        different elements get different positions (RGN003)
    """

    primitive: ClassVar[str] = "transform_layout"
    buffer: str
    layout: tuple[Expr, ...]

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, buffer in buffers(state.func).items():
            dims: list[Expr] = [Var(f"d{n}") for n in range(len(buffer.shape))]
            if len(dims) > 1:
                yield cls(name, tuple(reversed(dims)))
            for n in range(len(dims)):
                block = index(4)
                outer = [*dims[:n], floordiv(dims[n], block), *dims[n + 1 :]]
                yield cls(name, (*outer, floormod(dims[n], block)))

    def keeps_promises(self, state: State) -> bool:
        return True

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_buffers(state, self.buffer))
        yield from missing
        if missing:
            return
        buffer = buffers(state.func)[self.buffer]
        found = allocations(state.func).get(self.buffer)
        place = [found[0]] if found is not None else []
        mode = _modes(state.func).get(self.buffer)
        if mode not in (None, "const"):
            reason = f'it is a parameter of mode "{mode}", which the caller lays out'
            refused = f"{self._refused()}: {reason}"
            yield malformed("RGN004", refused, advice='declare a constant weight with mode "const"')
            return
        if any(constant(e) is None for e in buffer.shape):
            yield malformed("STR004", f"{self._refused()}: its shape is not constant", *place)
            return
        for reduce in nodes(state.func, Reduce):
            if len(reduce.buffers) > 1 and any(b.name == self.buffer for b in reduce.buffers):
                reason = f"`{reduce.name}` reduces it together with other buffers"
                yield malformed("STR007", f"{self._refused()}: {reason}", *place)
        broken = list(self._expressions(buffer))
        if not broken:
            broken = list(self._injective(buffer))
        for violation in broken:
            yield dataclasses.replace(violation, marks=tuple(Mark(p) for p in place))

    def _refused(self) -> str:
        return f"cannot change the layout of `{self.buffer}`"

    def _expressions(self, buffer: Buffer) -> Iterator[Violation]:
        dims = {f"d{n}" for n in range(len(buffer.shape))}
        for expr in self.layout:
            stray = sorted(variables(expr) - dims)
            if stray:
                reason = f"the position reads `{stray[0]}`"
                known = ", ".join(sorted(dims)) or "none"
                advice = f"the dimensions of `{buffer.name}`: {known}"
                yield malformed("ARG001", f"{self._refused()}: {reason}", advice=advice)
                return
            if dtype_of(expr) is not DType.INDEX:
                reason = f"a position is {dtype_of(expr)}, not an index"
                yield malformed("ARG001", f"{self._refused()}: {reason}")
                return
            low, high = interval(expr, _ranges(buffer))
            if low is None or high is None or (low < 0 and high >= low):
                reason = "a position may be negative"
                yield malformed("ARG001", f"{self._refused()}: {reason}")
                return

    def _injective(self, buffer: Buffer) -> Iterator[Violation]:
        names = {f"d{n}": f"d{n}" for n in range(len(buffer.shape))}
        try:
            places = ", ".join(term(e, names) for e in self.layout)
        except NotAffineError:
            yield unsupported("UNS001", f"{self._refused()}: a position is not affine")
            return
        limits = [f"0 <= d{n} < {constant(e)}" for n, e in enumerate(buffer.shape)]
        where = " and ".join(limits) or "true"
        relation = isl.Map(f"{{ [{', '.join(names)}] -> [{places}] : {where} }}")
        if not relation.is_injective():
            reason = f"{' and '.join(_colliding(relation))} would be stored in one place"
            yield Violation("RGN003", Kind.ILLEGAL, f"{self._refused()}: {reason}")

    def apply(self, state: State) -> State:
        old = buffers(state.func)[self.buffer]
        new = self._buffer(old)

        def change(found: Node) -> Node | None:
            match found:
                case Load(buffer=buffer, indices=i) if buffer.name == self.buffer:
                    return Load(new, self._moved(i))
                case Store(buffer=buffer, indices=i) if buffer.name == self.buffer:
                    return replace(found, buffer=new, indices=self._moved(i))
                case Reduce(buffers=(buffer,), indices=i) if buffer.name == self.buffer:
                    return replace(found, buffers=(new,), indices=self._moved(i))
                case Alloc(buffer=buffer) if buffer.name == self.buffer:
                    return replace(found, buffer=new)
            return None

        func = rewrite(state.func, change)
        params = tuple(replace(p, value=new) if p.name == self.buffer else p for p in func.params)
        func = tidied(replace(func, params=params))
        after = state.with_func(func)
        if self.buffer in _modes(func):
            after = dataclasses.replace(after, packs=self._packs(state, old, new))
        return after

    def _buffer(self, old: Buffer) -> Buffer:
        tops = [interval(e, _ranges(old))[1] for e in self.layout]
        shape = tuple(index(0 if top is None or top < 0 else top + 1) for top in tops)
        return replace(old, shape=shape, strides=None)

    def _moved(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        values = {f"d{n}": i for n, i in enumerate(indices)}
        return tuple(substitute(e, values) for e in self.layout)

    def _packs(self, state: State, old: Buffer, new: Buffer) -> tuple[tuple[str, Func], ...]:
        """The state's pack functions with this one added, behind an earlier one of the buffer."""
        source = replace(old, name="source")
        target = replace(new, name="packed")
        zero = _nest("z", new.shape, Store("packed.init", target, _vars("z", new), _zero(new)))
        copy = Store("packed", target, self._moved(_vars("d", old)), Load(source, _vars("d", old)))
        body = seq(zero, _nest("d", old.shape, copy))
        params = (Param(source, "in"), Param(target, "out"))
        return (*state.packs, (self.buffer, Func(f"{self.buffer}.pack", params, body)))


def _colliding(relation: isl.Map) -> tuple[str, str]:
    """Two elements of one position, as index tuples."""
    pairs = relation.apply_range(relation.reverse())
    pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
    _, one, other = smallest_point(pairs)
    first, second = (", ".join(map(str, element)) for element in (one, other))
    return f"[{first}]", f"[{second}]"


def _modes(func: Func) -> dict[str, str]:
    return {p.name: p.mode for p in func.params}


def _ranges(buffer: Buffer) -> Mapping[str, Interval]:
    return {f"d{n}": (0, (constant(e) or 0) - 1) for n, e in enumerate(buffer.shape)}


def _vars(prefix: str, buffer: Buffer) -> tuple[Expr, ...]:
    return tuple(Var(f"{prefix}{n}") for n in range(len(buffer.shape)))


def _zero(buffer: Buffer) -> Const:
    return Const(0, buffer.dtype)


def _nest(prefix: str, shape: tuple[Expr, ...], body: Stmt) -> Stmt:
    loops = [For(Var(f"{prefix}{n}"), index(0), e, Seq(())) for n, e in enumerate(shape)]
    return nest(loops, body)


def blocked(dims: int, axis: int, block: int) -> tuple[Expr, ...]:
    """The layout that cuts one axis into blocks and puts the place within a block last."""
    plain: list[Expr] = [Var(f"d{n}") for n in range(dims)]
    outer = [*plain[:axis], floordiv(plain[axis], index(block)), *plain[axis + 1 :]]
    return (*outer, floormod(plain[axis], index(block)))
