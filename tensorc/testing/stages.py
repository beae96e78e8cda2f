"""The stages of random programs: one method for each form of loop nest."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.dtype import DType
from tensorc.ir.arith import TRUE, add, all_of, constant, index, sub
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.naming import named
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Load,
    Reduce,
    Select,
    Stmt,
    Store,
)
from tensorc.ir.operands import REDUCTIONS
from tensorc.ir.walk import seq, substitute, variables
from tensorc.testing.parts import Parts, nested
from tensorc.testing.values import Readable, limits, whole

STAGES = (
    "pointwise", "reduce", "update", "pair", "accumulate", "local", "partial", "several", "again",
    "between", "scan",
)  # fmt: skip
CHANGES = ("update", "accumulate", "partial", "between")
"""Stages that make no buffer of their own."""


class Maker(Parts):
    """Makes one program."""

    __slots__ = ()

    def func(self) -> Func:
        """The program."""
        self._signature()
        parts = []
        count = min(self.source.pick((1, 2, 3, 2)), self.options.stages)
        for number in range(count):
            parts.append(self._stage(last=number == count - 1))
        body: Stmt = seq(*parts)
        for buffer in reversed(self.temporaries):
            body = Alloc(buffer, body)
        used = self._used(body)
        return Func("f", tuple(p for p in self.params if p.name in used), named(body))

    # Forms of stages

    def _stage(self, *, last: bool) -> Stmt:
        form = self._form(last=last)
        match form:
            case "reduce":
                return self._reduce(last=last)
            case "update" | "partial":
                return self._update(partial=form == "partial")
            case "pair":
                return self._pair(last=last)
            case "accumulate":
                return self._accumulate()
            case "local":
                return self._local(last=last)
            case "several":
                return self._several(last=last)
            case "again":
                return self._again(last=last)
            case "between":
                return self._between(last=last)
            case "scan":
                return self._scan(last=last)
        return self._pointwise(last=last)

    def _form(self, *, last: bool) -> str:
        form = self.source.pick(STAGES)
        if form == "again" and self.outer:
            return "pointwise"
        if form in CHANGES and not self.writable:
            return "reduce"
        silent = not any(p.mode in ("out", "inout") for p in self.params)
        return "reduce" if last and silent and form in (*CHANGES, "again") else form

    def _pointwise(self, *, last: bool) -> Stmt:
        """A whole new buffer, or a part of one, each element from earlier ones."""
        shape, dtype = self._dims(1, 2), self._dtype()
        region = whole(Buffer("", shape, dtype)).region
        loops = self._loops(region, plain=85)
        value = self._values(loops).value(dtype)
        buffer = self._new(shape, dtype, last=last)
        store = Store("", buffer, tuple(x.var for x in loops), value)
        self._filled(buffer, loops)
        return nested(self._shuffled(loops), store)

    def _reduce(self, *, last: bool) -> Stmt:
        """A reduction with its fill: beside the loop, or in a nest of its own."""
        loops = self._loops(whole(Buffer("", self._dims(0, 2), DType.I8)).region, plain=100)
        inner = self._loops([(index(0), e) for e in self._dims(1, 1)], plain=75)
        group, fills, partial = self._combination(loops, inner, last=last)
        for buffer in group:
            self._open(buffer)
        if not self.source.chance(40):
            return nested(loops, seq(*fills, nested(inner, self._maybe(partial, loops, inner))))
        own = [self._loop(x.begin, x.end) for x in loops]
        names = {a.var.name: b.var for a, b in zip(loops, own, strict=True)}
        first = substitute(seq(*fills), names)
        every = self._shuffled([*loops, *inner])
        return seq(nested(own, first), nested(every, partial))

    def _maybe(self, stmt: Stmt, loops: Sequence[For], inner: Sequence[For]) -> Stmt:
        if self.source.chance(12):
            return self._guarded(stmt, self._values([*loops, *inner]))
        return stmt

    def _combination(
        self, loops: Sequence[For], inner: Sequence[For], *, last: bool
    ) -> tuple[tuple[Buffer, ...], list[Stmt], Reduce]:
        """The buffers of a reduction over `inner`, their fills, and the reduction."""
        op = self.source.pick(
            ("sum", "max", "min", "prod", "argmax", "argmin", "bitxor", "any", "welford",
             "logsumexp", "all", "bitand", "bitor")
        )  # fmt: skip
        dtypes = self._dtypes_of(op)
        values = self._values([*loops, *inner])
        parts: list[Expr] = [values.value(dtypes[0], depth=1)]
        if op in ("argmax", "argmin"):
            parts.append(Cast(dtypes[1], inner[-1].var if inner else index(0)))
        else:
            parts += [Const(n, t) for n, t in zip((0, 1), dtypes[1:], strict=False)]
        if op == "logsumexp":
            parts[1] = Const(1, dtypes[1])
        shape = tuple(x.end for x in loops)
        group = tuple(self._new(shape, t, last=last) for t in dtypes)
        where = tuple(x.var for x in loops)
        start = COMBINERS[op].identity(dtypes)
        if op == "sum" and self.source.chance(15):
            start = tuple(Const(3, t) for t in dtypes)
        fills: list[Stmt] = [Store("", b, where, v) for b, v in zip(group, start, strict=True)]
        return group, fills, Reduce("", op, group, where, tuple(parts))

    def _dtypes_of(self, op: str) -> tuple[DType, ...]:
        first = REDUCTIONS[op][0]
        fitting = [t for t in self.options.dtypes if t in first]
        main = self.source.pick(fitting) if fitting else sorted(first, key=str)[0]
        if op in ("argmax", "argmin"):
            return main, DType.I32
        return (main,) * len(REDUCTIONS[op])

    def _accumulate(self) -> Stmt:
        """A reduction into a buffer that holds values already."""
        found = self.source.pick(self.writable)
        dtype = found.buffer.dtype
        op = self.source.pick(("sum", "max", "prod") if dtype is not DType.BOOL else ("any", "all"))
        loops = self._loops([(index(0), e) for e in self._dims(1, 2)], plain=70)
        values = self._values(loops)
        place, condition = self._place(found, values)
        reduce = Reduce("", op, (found.buffer,), place, (values.value(dtype, depth=1),))
        return nested(loops, reduce if condition == TRUE else If(condition, reduce))

    def _update(self, *, partial: bool) -> Stmt:
        """An in-place update: a recurrence when it reads elements beside the one it writes."""
        found = self.source.pick(self.writable)
        loops = self._loops(found.region, plain=45)
        values = self._values(loops, extra=(found, found, found))
        dtype = found.buffer.dtype
        if partial:
            place, condition = self._place(found, values)
        else:
            place = tuple(x.var for x in loops)
            bounds = (limits(v, *r, values.loops) for v, r in zip(place, found.region, strict=True))
            condition = all_of(*bounds)
        store: Stmt = Store("", found.buffer, place, values.value(dtype))
        if condition != TRUE:
            store = If(condition, store)
        elif self.source.chance(20):
            store = self._guarded(store, values)
        return nested(self._shuffled(loops), store)

    def _pair(self, *, last: bool) -> Stmt:
        """Two statements in one nest, the second with the first one's results so far."""
        shape = self._dims(1, 2)
        loops = self._loops(whole(Buffer("", shape, DType.I8)).region, plain=90)
        where = tuple(x.var for x in loops)
        first_type, second_type = self._dtype(), self._dtype()
        first_value = self._values(loops).value(first_type)
        first = self._new(shape, first_type, last=False)
        # The second statement may read what earlier iterations of the outermost loop stored.
        before = [Readable(first, tuple((v, add(v, index(1))) for v in where))]
        second_value = self._values(loops, extra=before * 2).value(second_type)
        second = self._new(shape, second_type, last=last)
        self._filled(first, loops)
        self._filled(second, loops)
        return nested(
            loops,
            seq(Store("", first, where, first_value), Store("", second, where, second_value)),
        )

    def _local(self, *, last: bool) -> Stmt:
        """A temporary inside of a loop: filled, reduced into, and used there."""
        shape = self._dims(1, 1)
        loops = self._loops(whole(Buffer("", shape, DType.I8)).region, plain=90)
        inner = self._loops([(index(0), e) for e in self._dims(0, 1)], plain=85)
        dtype = self._dtype()
        op = "any" if dtype is DType.BOOL else self.source.pick(("sum", "max"))
        letter = f"t{self.buffer_count}"
        own = tuple(x.var for x in inner) if self.source.chance(30) else ()
        extents = tuple(x.end for x in inner) if own else ()
        hidden = {x.var.name for x in (*loops, *inner)}
        if any(variables(e) & hidden or (constant(e) or 0) < 0 for e in extents):
            own, extents = (), ()
        local = Buffer(letter, extents, dtype)
        value = self._values([*loops, *inner]).value(dtype, depth=1)
        fill = self._loops([(index(0), e) for e in extents], plain=100)
        start = Store("", local, tuple(x.var for x in fill), Const(0, dtype))
        reduce = Reduce("", op, (local,), own, (value,))
        result = self._values(loops, extra=[whole(local)] * 3).value(dtype, depth=1)
        buffer = self._new(shape, dtype, last=last)
        where = tuple(x.var for x in loops)
        self._filled(buffer, loops)
        body = seq(nested(fill, start), nested(inner, reduce), Store("", buffer, where, result))
        return nested(loops, Alloc(local, body))

    def _several(self, *, last: bool) -> Stmt:
        """A producer and consumers of it side by side, each in loops of its own."""
        first = self._pointwise(last=False)
        made = self.readable[-1]
        loops = self._loops(made.region, plain=70)
        dtype = self._dtype()
        value = self._values(loops, extra=[made] * 3).value(dtype)
        buffer = self._new(made.buffer.shape, dtype, last=last)
        self._filled(buffer, loops)
        store = Store("", buffer, tuple(x.var for x in loops), value)
        return seq(first, nested(loops, store))

    def _between(self, *, last: bool) -> Stmt:
        """A value is computed, then its operand changes, then the value is used."""
        found = self.source.pick(self.writable)
        loops = self._loops(found.region, plain=80)
        dtype = self._dtype()
        load, condition = self._values(loops).read(found, shift=20)
        value = load if found.buffer.dtype is dtype else Cast(dtype, load)
        if condition != TRUE:
            value = Select(condition, value, Const(1, dtype))
        first = self._new(found.buffer.shape, dtype, last=False)
        store = Store("", first, tuple(x.var for x in loops), value)
        self._filled(first, loops)
        parts = [nested(loops, store), self._update(partial=self.source.chance(40))]
        readers = self._loops([(x.begin, x.end) for x in loops], plain=85)
        made = Readable(first, tuple((x.begin, x.end) for x in loops))
        if any(variables(e) & {x.var.name for x in loops} for r in made.region for e in r):
            return seq(*parts)
        kind = self._dtype()
        use = self._values(readers, extra=[made] * 4).value(kind, depth=1)
        second = self._new(found.buffer.shape, kind, last=last)
        self._filled(second, readers)
        parts.append(nested(readers, Store("", second, tuple(x.var for x in readers), use)))
        return seq(*parts)

    def _scan(self, *, last: bool) -> Stmt:
        """A buffer whose elements are computed from those before, and a consumer of it."""
        shape = self._dims(1, 2)
        loops = self._loops(whole(Buffer("", shape, DType.I8)).region, plain=100)
        dtype = self._dtype()
        where = tuple(x.var for x in loops)
        value = self._values(loops).value(dtype, depth=1)
        scanned = self._new(shape, dtype, last=False)
        axis = self.source.integer(0, len(loops) - 1) if loops else 0
        if loops:
            before = sub(where[axis], index(1))
            earlier = Load(scanned, (*where[:axis], before, *where[axis + 1 :]))
            known = Binary("le", index(0), before)
            op: BinaryOp = "bitxor" if dtype is DType.BOOL else "add"
            value = Binary(op, Select(known, earlier, Const(0, dtype)), value)
        self._filled(scanned, loops)
        first = nested(loops, Store("", scanned, where, value))
        readers = self._loops(whole(scanned).region, plain=80)
        kind = self._dtype()
        use = self._values(readers, extra=[whole(scanned)] * 4).value(kind, depth=1)
        second = self._new(shape, kind, last=last)
        self._filled(second, readers)
        return seq(first, nested(readers, Store("", second, tuple(x.var for x in readers), use)))

    def _again(self, *, last: bool) -> Stmt:
        """A loop around one or two stages: they overwrite what they made before."""
        around = self._loop(index(0), index(self.source.integer(2, 3)))
        self.outer = (around,)
        parts = [self._stage(last=False)]
        if self.source.chance(70):
            parts.append(self._stage(last=last))
        self.outer = ()
        return nested([around], seq(*parts))
