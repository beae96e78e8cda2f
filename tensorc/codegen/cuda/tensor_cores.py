"""Nests that are products of small matrices, as instructions for tensor cores.

The operands go into registers that are spread over a warp: register `r` of the thread in place t of
group g holds, for E elements in 32 bits, the elements e of 0 ... E - 1 of

    left operand:   row g + 8 (r % 2),  depth E t + e + 4 E (r / 2)
    right operand:  depth E t + e + 4 E r,  column g

(PTX ISA, "Matrix fragments for mma"). Where eight rows of 16 bytes lie in shared memory, ldmatrix
brings them there: thread l gives the place of row l % 8 of matrix l / 8, and the matrices are
numbered as the registers are. With `.trans` these rows run along the depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import islpy as isl

from tensorc.analysis.affine import NotAffineError, TooComplexError, operation_limit, term
from tensorc.analysis.tensor_cores import Product
from tensorc.codegen.cuda.expressions import own_access, write
from tensorc.codegen.passes.trees import names_in
from tensorc.dtype import DType
from tensorc.ir.arith import add, floordiv, floormod, index, mul
from tensorc.ir.grid import extent_of
from tensorc.ir.interval import Interval
from tensorc.ir.nodes import Expr, For, Load, Var
from tensorc.ir.simplify import simplify
from tensorc.ir.walk import substitute

if TYPE_CHECKING:
    from tensorc.codegen.cuda.statements import Writer

ROW_BYTES = 16
"""Of a row that ldmatrix loads."""
Values = Mapping[str, Expr]


def compute(w: Writer, product: Product, name: str) -> None:
    """Write a nest as instructions: tiles that both operands depend on as loops, then the operands
    of all other tiles, then their products."""
    p, tiles = product, list(product.tiles)
    with ExitStack() as around:
        while tiles and _used(p.left, tiles[0]) == _used(p.right, tiles[0]):
            around.enter_context(_loop(w, tiles.pop(0)))
        with w.braces():
            left = _Operand(w, p, p.left, "left", tiles)
            right = _Operand(w, p, p.right, "right", tiles)
            left.load()
            right.load()
            with ExitStack() as inner:
                for loop in tiles:
                    inner.enter_context(_loop(w, loop))
                sums = ", ".join(_sums(w, p))
                call = w.scope.helper(f"tc_{name}")
                w.line(f"{call}({sums}, {left.fragment()}, {right.fragment()});")


def _used(load: Load, loop: For) -> bool:
    return any(loop.var.name in names_in(i) for i in load.indices)


@contextmanager
def _loop(w: Writer, loop: For) -> Iterator[None]:
    count = extent_of(loop) or 0
    name = w.scope.names.get(loop.var.name) or w.name(loop.var.name)
    w.scope.names[loop.var.name] = name
    w.scope.ranges[loop.var.name] = (0, count - 1)
    w.line("#pragma unroll")
    with w.braces(f"for ({w.scope.index} {name} = 0; {name} < {count}; ++{name})"):
        yield


def _sums(w: Writer, p: Product) -> Iterator[str]:
    """The four elements of a thread."""
    element = p.element
    for row in range(2):
        for column in range(2):
            values = {p.rows.var.name: index(row), p.columns.var.name: index(column)}
            indices = tuple(substitute(i, values) for i in element.indices)
            place = write(w.scope, own_access(w.scope, element.buffer, indices))
            yield f"{w.scope.names[element.buffer.name]}[{place.text}]"


class _Operand:
    """An operand of all tiles in registers."""

    def __init__(self, w: Writer, p: Product, load: Load, side: str, tiles: Sequence[For]):
        self.w, self.p, self.load_, self.left = w, p, load, side == "left"
        self.tiles = [loop for loop in tiles if _used(load, loop)]
        self.packed = p.instruction.packed
        self.matrices = p.instruction.depth // (4 * self.packed)
        self.registers = self.matrices * (2 if self.left else 1)
        self.name = w.name(f"{load.buffer.name}.{side}")
        self.place = own_access(w.scope, load.buffer, load.indices)
        self.depth, self.groups = p.depth.var.name, p.groups.var.name
        self.places, self.columns, self.rows = (
            p.places.var.name, p.columns.var.name, p.rows.var.name,
        )  # fmt: skip

    def fragment(self) -> str:
        """The registers of the tile at hand."""
        names = (self.w.scope.names[loop.var.name] for loop in self.tiles)
        return self.name + "".join(f"[{name}]" for name in names)

    def load(self) -> None:
        sizes = "".join(f"[{extent_of(loop)}]" for loop in self.tiles)
        self.w.line(f"unsigned {self.name}{sizes}[{self.registers}];")
        with ExitStack() as around:
            for loop in self.tiles:
                around.enter_context(_loop(self.w, loop))
            rows = self._rows()
            if rows is None:
                self._gather()
            else:
                values, turned = rows
                call = self.w.scope.helper(f"tc_matrices_{self.registers}{'_turned' * turned}")
                self._align(ROW_BYTES)
                self.w.line(f"{call}({self.fragment()}, &{self._element(values)});")

    def _element(self, values: Values) -> str:
        place = simplify(substitute(self.place, values), self.w.scope.ranges)
        return f"{self.w.scope.names[self.load_.buffer.name]}[{write(self.w.scope, place).text}]"

    def _align(self, size: int) -> None:
        aligned, name = self.w.aligned, self.load_.buffer.name
        aligned[name] = max(aligned.get(name, 1), size)

    # By ldmatrix ----------------------------------------------------------------------------------

    def _rows(self) -> tuple[Values, bool] | None:
        """Which row a thread gives the place of, and whether rows run along the depth's columns;
        None where the elements do not lie in such rows."""
        if self.load_.buffer.scope != "shared":
            return None
        chunk, u = 4 * self.packed, Var("u")
        if self._along(chunk):
            return self._along_depth(), False
        if self.packed != 2:
            return None
        across = {self.groups: u} if self.left else {
            self.places: floordiv(u, index(2)), self.columns: floormod(u, index(2))
        }  # fmt: skip
        if self._in_rows(dict.fromkeys(across, index(0)), across, chunk):
            return self._across_depth(dict.fromkeys(across, index(0))), True
        return None

    def _lane(self) -> tuple[Expr, Expr, Expr]:
        """Of the thread's number l in the warp: l % 8, l / 8 % 2 and l / 16."""
        g, t = Var(self.groups), Var(self.places)
        row = add(mul(floormod(g, index(2)), index(4)), t)
        return row, floormod(floordiv(g, index(2)), index(2)), floordiv(g, index(4))

    def _along_depth(self) -> Values:
        row, odd, high = self._lane()
        chunk = index(4 * self.packed)
        if self.left:
            start = mul(high, chunk) if self.matrices > 1 else index(0)
            return {self.rows: odd, self.groups: row, self.depth: start}
        g, t = Var(self.groups), Var(self.places)
        place = add(mul(floormod(g, index(2)), index(2)), floordiv(t, index(2)))
        start = mul(odd, chunk) if self.matrices > 1 else index(0)
        return {self.places: place, self.columns: floormod(t, index(2)), self.depth: start}

    def _across_depth(self, start: Values) -> Values:
        row, odd, high = self._lane()
        second = high if self.left else odd
        depth = add(row, mul(second, index(8))) if self.matrices > 1 else row
        rows = {self.rows: odd} if self.left else {}
        return {**start, **rows, self.depth: depth}

    def _along(self, count: int) -> bool:
        """Whether so many elements along the depth are neighbours, at a multiple of that."""
        start = mul(Var("c"), index(count))
        return self._in_rows({self.depth: start}, {self.depth: add(start, Var("u"))}, count)

    def _in_rows(self, start: Values, moved: Values, count: int) -> bool:
        """Whether elements lie in rows of `count`, at a multiple of that: what `moved` names is
        the u-th behind what `start` does."""
        first, other = substitute(self.place, start), substitute(self.place, moved)
        known: dict[str, Interval] = dict(self.w.scope.ranges)
        p = self.p
        for loop in (p.rows, p.columns, p.depth, p.groups, p.places):
            known[loop.var.name] = (0, (extent_of(loop) or 0) - 1)
        known |= {"u": (0, count - 1), "c": (0, p.instruction.depth // count - 1)}
        used = sorted(names_in(first) | names_in(other) | {"u"})
        names = {name: f"x{n}" for n, name in enumerate(used)}
        limits = [
            f"{low} <= {names[name]} <= {high}"
            for name in used
            for low, high in [known.get(name, (None, None))]
            if low is not None and high is not None
        ]
        try:
            a, b = term(first, names), term(other, names)
            wrong = f"({b} != {a} + {names['u']} or {a} mod {count} != 0)"
            with operation_limit():
                text = f"{{ [{', '.join(names.values())}] : {' and '.join([*limits, wrong])} }}"
                return bool(isl.Set(text).is_empty())
        except (NotAffineError, TooComplexError):
            return False

    # Element by element ---------------------------------------------------------------------------

    def _gather(self) -> None:
        if self.packed > 1 and self._along(self.packed):
            self._align(4)
            for register in range(self.registers):
                first = self._element(self._held(register, 0))
                self.w.line(f"{self.fragment()}[{register}] = *(const unsigned *)&{first};")
            return
        for register in range(self.registers):
            parts = [self._bits(self._element(self._held(register, n)), n)
                     for n in range(self.packed)]  # fmt: skip
            self.w.line(f"{self.fragment()}[{register}] = {' | '.join(parts)};")

    def _held(self, register: int, element: int) -> Values:
        """Where a register's element is."""
        own = add(mul(Var(self.places), index(self.packed)), index(element))
        if self.left:
            start = index(4 * self.packed * (register // 2))
            return {self.rows: index(register % 2), self.depth: add(own, start)}
        g = Var(self.groups)
        column = {self.places: floordiv(g, index(2)), self.columns: floormod(g, index(2))}
        return {**column, self.depth: add(own, index(4 * self.packed * register))}

    def _bits(self, element: str, position: int) -> str:
        dtype = self.p.instruction.operand
        if dtype is DType.F32:
            return f"__float_as_uint({element})"
        raw = f"(unsigned){'(unsigned char)' if dtype is DType.I8 else ''}{element}"
        return f"{raw} << {position * dtype.bits}" if position else raw
