"""A small writer of LLVM IR text, in which a function of a vector reads like its formula."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary interchange format of IEEE 754 and the LLVM types that go with it."""

    name: str
    element: str
    integer: str
    fraction_bits: int
    bias: int

    @property
    def sign_bit(self) -> int:
        return 1 << (8 * self.bytes - 1)

    @property
    def bytes(self) -> int:
        return int(self.integer[1:]) // 8

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.fraction_bits

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def bits(self, value: float) -> int:
        code = {"f32": "<f", "f64": "<d"}[self.name]
        return int.from_bytes(struct.pack(code, value), "little")


F32 = FloatFormat("f32", "float", "i32", 23, 127)
F64 = FloatFormat("f64", "double", "i64", 52, 1023)
FORMATS = {one.name: one for one in (F32, F64)}
_FORMAT_OF_ELEMENT = {one.element: one for one in (F32, F64)}


class Vector:
    """An SSA value with `lanes` elements (a plain scalar for one lane).

    Arithmetic between values of one element type writes the instruction. A Python number stands
    for the vector of that number. Integers are unsigned; comparisons of floats are ordered: false
    where either side is NaN.
    """

    __slots__ = ("builder", "element", "text")

    def __init__(self, builder: Builder, element: str, text: str):
        self.builder, self.element, self.text = builder, element, text

    @property
    def format(self) -> FloatFormat:
        return _FORMAT_OF_ELEMENT[self.element]

    @property
    def is_float(self) -> bool:
        return self.element in _FORMAT_OF_ELEMENT

    def _binary(self, operation: str, other: Operand, result: str = "") -> Vector:
        return self.builder.binary(operation, self, self.builder.value(other, self.element), result)

    def _compare(self, float_kind: str, integer_kind: str, other: Operand) -> Vector:
        operation = f"fcmp {float_kind}" if self.is_float else f"icmp {integer_kind}"
        return self._binary(operation, other, "i1")

    def __add__(self, other: Operand) -> Vector:
        return self._binary("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Operand) -> Vector:
        return self._binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: Operand) -> Vector:
        return self.builder.value(other, self.element) - self

    def __mul__(self, other: Operand) -> Vector:
        return self._binary("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Operand) -> Vector:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: Operand) -> Vector:
        return self.builder.value(other, self.element) / self

    def __neg__(self) -> Vector:
        return self.builder.unary("fneg", self)

    def __and__(self, other: Operand) -> Vector:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Vector:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Vector:
        return self._binary("xor", other)

    def __invert__(self) -> Vector:
        return self._binary("xor", True if self.element == "i1" else -1)

    def __lshift__(self, count: Operand) -> Vector:
        return self._binary("shl", count)

    def __rshift__(self, count: Operand) -> Vector:
        return self._binary("lshr", count)

    def __lt__(self, other: Operand) -> Vector:
        return self._compare("olt", "ult", other)

    def __le__(self, other: Operand) -> Vector:
        return self._compare("ole", "ule", other)

    def __gt__(self, other: Operand) -> Vector:
        return self._compare("ogt", "ugt", other)

    def __ge__(self, other: Operand) -> Vector:
        return self._compare("oge", "uge", other)

    def equals(self, other: Operand) -> Vector:
        return self._compare("oeq", "eq", other)

    def is_nan(self) -> Vector:
        return self.builder.binary("fcmp uno", self, self, "i1")


Operand = Vector | float | int


class Builder:
    """Collects the instructions of the function `name`, of `lanes` lanes.

    With `fma` every multiply_add is one rounding (`llvm.fma`); without, it is two, and nothing
    here relies on there being one: where the error of a product matters, `two_product` gives it.
    """

    def __init__(self, name: str, lanes: int, fma: bool):
        self.name = name
        self.lanes = lanes
        self.fma = fma
        self.lines: list[str] = []
        self._names = 0
        self._block = "entry"
        self._tables: dict[tuple[int, ...], str] = {}

    def definition(self, parameters: Sequence[Vector], result: Vector) -> str:
        """The text of the function that has computed `result`, and of the tables that it loads."""
        tables = [
            f"{name} = private unnamed_addr constant [{len(table)} x i64] "
            f"[{', '.join(f'i64 {entry}' for entry in table)}]"
            for table, name in self._tables.items()
        ]
        typed = ", ".join(f"{self.type(p.element)} {p.text}" for p in parameters)
        wide = self.type(result.element)
        attributes = "alwaysinline nounwind memory(none)"
        return "\n".join(
            [
                *tables,
                f"define internal {wide} @{self.name}({typed}) {attributes} {{",
                "entry:",
                *self.lines,
                f"  ret {wide} {result.text}",
                "}",
                "",
            ]
        )

    # Types and operands.

    def type(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def suffix(self, element: str) -> str:
        """How an overloaded intrinsic spells the type."""
        scalar = _FORMAT_OF_ELEMENT[element].name if element in _FORMAT_OF_ELEMENT else element
        return scalar if self.lanes == 1 else f"v{self.lanes}{scalar}"

    def value(self, operand: Operand, element: str) -> Vector:
        """The operand itself, or the constant in all lanes."""
        if isinstance(operand, Vector):
            if operand.element != element:
                raise TypeError(f"{operand.text} is of {operand.element}, not of {element}")
            return operand
        if element not in _FORMAT_OF_ELEMENT:
            text = str(operand).lower()
        else:
            exact = struct.pack(">d", operand)
            if element == "float" and math.isfinite(operand):
                narrow = struct.unpack("f", struct.pack("f", operand))[0]
                if narrow != operand:
                    raise ValueError(f"{operand!r} is not a value of f32")
            text = f"0x{exact.hex().upper()}"
        return Vector(self, element, text if self.lanes == 1 else f"splat ({element} {text})")

    # Instructions.

    def emit(self, element: str, instruction: str) -> Vector:
        name = f"%{self._names}"
        self._names += 1
        self.lines.append(f"  {name} = {instruction}")
        return Vector(self, element, name)

    def unary(self, operation: str, x: Vector) -> Vector:
        return self.emit(x.element, f"{operation} {self.type(x.element)} {x.text}")

    def binary(self, operation: str, a: Vector, b: Vector, result: str = "") -> Vector:
        typed = f"{operation} {self.type(a.element)} {a.text}, {b.text}"
        return self.emit(result or a.element, typed)

    def convert(self, operation: str, x: Vector, element: str) -> Vector:
        source, target = self.type(x.element), self.type(element)
        return self.emit(element, f"{operation} {source} {x.text} to {target}")

    def call(self, intrinsic: str, *arguments: Vector) -> Vector:
        element = arguments[0].element
        typed = ", ".join(f"{self.type(a.element)} {a.text}" for a in arguments)
        name = f"@llvm.{intrinsic}.{self.suffix(element)}"
        return self.emit(element, f"call {self.type(element)} {name}({typed})")

    def select(self, mask: Vector, yes: Operand, no: Operand) -> Vector:
        """`yes` where the mask is set, else `no`; at least one of them is a Vector."""
        element = next(v.element for v in (yes, no) if isinstance(v, Vector))
        a, b = self.value(yes, element), self.value(no, element)
        wide = self.type(element)
        condition = f"{self.type('i1')} {mask.text}"
        return self.emit(element, f"select {condition}, {wide} {a.text}, {wide} {b.text}")

    def bits(self, x: Vector) -> Vector:
        return self.convert("bitcast", x, x.format.integer)

    def from_bits(self, x: Vector) -> Vector:
        return self.convert("bitcast", x, "float" if x.element == "i32" else "double")

    # Arithmetic.

    def absolute(self, x: Vector) -> Vector:
        return self.call("fabs", x)

    def with_sign(self, magnitude: Vector, sign: Vector) -> Vector:
        return self.call("copysign", magnitude, sign)

    def square_root(self, x: Vector) -> Vector:
        return self.call("sqrt", x)

    def at_least(self, x: Vector, low: float) -> Vector:
        """max(x, low), and NaN where x is NaN."""
        return self.select(x < low, low, x)

    def at_most(self, x: Vector, high: float) -> Vector:
        return self.select(x > high, high, x)

    def multiply_add(self, a: Vector, b: Operand, c: Operand) -> Vector:
        """a * b + c."""
        factor, addend = self.value(b, a.element), self.value(c, a.element)
        return self.call("fma", a, factor, addend) if self.fma else a * factor + addend

    def polynomial(self, x: Vector, coefficients: Sequence[float]) -> Vector:
        """c[0] + c[1] x + c[2] x^2 + ... by the scheme of Estrin: a tree, not a chain."""
        terms: list[Operand] = list(coefficients)
        while len(terms) > 1:
            pairs = zip(terms[0::2], terms[1::2], strict=False)
            unpaired = terms[len(terms) // 2 * 2 :]
            terms = [*(self.multiply_add(x, high, low) for low, high in pairs), *unpaired]
            x = x * x if len(terms) > 1 else x
        return self.value(terms[0], x.element)

    def nearest(self, x: Vector, scale: float = 1.0) -> tuple[Vector, Vector]:
        """(n, bits): the integer nearest to x * scale, and a word that has n in its low bits.

        |n| < 2^(fraction_bits - 2). Adding 1.5 * 2^fraction_bits leaves no room for a fraction: the
        sum is rounded to an integer, which stands in its low bits in two's complement (Warren,
        Hacker's Delight, 2nd edition, chapter 17).
        """
        magic = 1.5 * 2.0**x.format.fraction_bits
        shifted = x + magic if scale == 1.0 else self.multiply_add(x, scale, magic)
        return shifted - magic, self.bits(shifted)

    def power_of_two(self, n: Vector) -> Vector:
        """2^n, in the normal range, as a float; n in the low bits of an integer as wide."""
        float_format = F32 if n.element == "i32" else F64
        return self.from_bits((n << float_format.fraction_bits) + float_format.one)

    def two_sum(self, a: Vector, b: Vector) -> tuple[Vector, Vector]:
        """The rounded sum and its error, exactly (Knuth, TAOCP 2, 4.2.2, theorem B)."""
        total = a + b
        part = total - a
        return total, (a - (total - part)) + (b - part)

    def fast_two_sum(self, a: Vector, b: Vector) -> tuple[Vector, Vector]:
        """The same for |a| >= |b| or a = 0 (Dekker 1971)."""
        total = a + b
        return total, b - (total - a)

    def two_product(self, a: Vector, b: Vector) -> tuple[Vector, Vector]:
        """The rounded product and its error.

        Without fma each factor is cut in two by clearing the low half of its fraction. The partial
        products are then exact (after Dekker 1971), except the least one in f64, whose
        last bit may be lost.
        """
        product = a * b
        if self.fma:
            return product, self.call("fma", a, b, -product)
        (a_high, a_low), (b_high, b_low) = self._halves(a), self._halves(b)
        error = ((a_high * b_high - product) + a_high * b_low) + a_low * b_high
        return product, error + a_low * b_low

    def _halves(self, x: Vector) -> tuple[Vector, Vector]:
        float_format = x.format
        low_bits = (float_format.fraction_bits + 2) // 2
        high = self.from_bits(self.bits(x) & -(1 << low_bits))
        return high, x - high

    # Control flow and memory.

    def freeze(self, x: Vector) -> Vector:
        """x, with any value in place of poison: neither a branch nor an address may be poison."""
        return self.unary("freeze", x)

    def patch(
        self,
        mask: Vector,
        usual: Sequence[Vector],
        rare: Callable[[], Sequence[Vector]],
    ) -> list[Vector]:
        """`rare()` in the lanes of the mask, `usual` in the others.

        `rare` is computed, for all lanes, only if some lane needs it. The mask must not come from
        an operand that may be poison in a lane, as one that a masked load has left out: see
        `freeze`.
        """
        any_lane = mask.text
        if self.lanes > 1:
            kind = f"v{self.lanes}i1"
            arguments = f"{self.type('i1')} {mask.text}"
            any_lane = self.emit("i1", f"call i1 @llvm.vector.reduce.or.{kind}({arguments})").text
        before, label = self._block, f"rare{self._names}"
        weights = '!prof !{!"branch_weights", i32 1, i32 1000}'
        self.lines.append(f"  br i1 {any_lane}, label %{label}, label %{label}.end, {weights}")
        self.lines.append(f"{label}:")
        self._block = label
        patched = [self.select(mask, a, b) for a, b in zip(rare(), usual, strict=True)]
        self.lines.append(f"  br label %{label}.end")
        self.lines.append(f"{label}.end:")
        rare_block, self._block = self._block, f"{label}.end"
        return [
            self.emit(
                a.element,
                f"phi {self.type(a.element)} [{a.text}, %{before}], [{b.text}, %{rare_block}]",
            )
            for a, b in zip(usual, patched, strict=True)
        ]

    def load(self, table: tuple[int, ...], index: Vector) -> Vector:
        """Element `index` of a constant table of i64 in each lane."""
        name = self._tables.setdefault(table, f"@{self.name}.table{len(self._tables)}")
        address = f"getelementptr i64, ptr {name}, {self.type(index.element)} {index.text}"
        pointers = self.emit("ptr", address)
        if self.lanes == 1:
            return self.emit("i64", f"load i64, ptr {pointers.text}, align 8")
        n = self.lanes
        return self.emit(
            "i64",
            f"call <{n} x i64> @llvm.masked.gather.v{n}i64.v{n}p0(<{n} x ptr> align 8 "
            f"{pointers.text}, <{n} x i1> splat (i1 true), <{n} x i64> poison)",
        )
