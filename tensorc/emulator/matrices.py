"""mma.sync: D = A * B + C of a 16 x K by K x 8 tile, for a whole warp.

The layouts of section 9.7.14.5 of the ISA are one rule. Lane l is in group g = l / 4 with place
t = l % 4. A register holds E elements of the inputs (2 of 16 bits, 4 of 8, 1 of 32):

    A, register r, element e:   row g + 8 (r % 2),  column E t + e + 4 E (r / 2)
    B, register r, element e:   row E t + e + 4 E r,  column g
    C and D, element n:         row g + 8 (n / 2),  column 2 t + n % 2

Products are exact and summed in f64 (i32 for integers), and the sum is rounded once; the hardware
sums in an order, and with a precision, that nobody has published.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from tensorc.emulator.layout import RESULT, SLOT_WORDS, WARP
from tensorc.emulator.ptx import Instruction
from tensorc.emulator.text import Function

__all__ = ["MMA_SHAPES", "matrix_text", "mma_name"]

M, N = 16, 8
_ELEMENTS = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4}
# The shapes of each input type, and what it accumulates in.
MMA_SHAPES = {
    "m16n8k16.f16": ("f32", "f16"),
    "m16n8k8.f16": ("f32", "f16"),
    "m16n8k16.bf16": ("f32",),
    "m16n8k8.bf16": ("f32",),
    "m16n8k8.tf32": ("f32",),
    "m16n8k4.tf32": ("f32",),
    "m16n8k32.s8": ("s32",),
    "m16n8k16.s8": ("s32",),
    "m16n8k32.u8": ("s32",),
    "m16n8k16.u8": ("s32",),
}


def mma_name(i: Instruction) -> str | None:
    """The operation of an mma instruction, such as mma.16.bf16.bf16.f32; None if it is none here.

    Its parts: K, the types of A and B, that of C and D.
    """
    shape = next((part for part in i.modifiers if part.startswith("m16n8k")), "")
    types = i.types
    if len(types) != 4 or i.modifiers.count("row") != 1 or i.modifiers.count("col") != 1:
        return None
    d, a, b, c = types
    legal = MMA_SHAPES.get(f"{shape}.{a}", ())
    mixed = a != b and {a, b} != {"s8", "u8"}
    if d not in legal or c != d or mixed or i.has("satfinite") or i.has("sp"):
        return None
    return f"mma.{shape.removeprefix('m16n8k')}.{a}.{b}.{d}"


class _Product:
    def __init__(self, f: Function, name: str, helpers: MutableMapping[str, None]):
        self.f, self.helpers = f, helpers
        _, k, self.a_type, self.b_type, self.d_type = name.split(".")
        self.k = int(k)
        self.elements = _ELEMENTS[self.a_type]
        self.integer = self.d_type == "s32"
        self.scalar = "i32" if self.integer else "double"
        self.row = f"<{N} x {self.scalar}>"
        self.matrices = {"a": M * self.k, "b": self.k * N, "c": M * N}
        for matrix, size in self.matrices.items():
            f.out.allocas.append(f"  %{matrix} = alloca [{size} x {self.scalar}], align 64")

    def text(self) -> str:
        groups = self.k // (4 * self.elements)
        a_words, b_words = 2 * groups, groups
        f = self.f
        with f.below(WARP) as lane:
            g, t = f.op("lshr", "i64", lane, 2), f.op("and", "i64", lane, 3)
            slot = f.at("%slots", f.mul(lane, SLOT_WORDS), "i32")
            first = f.mul(t, self.elements)
            for r in range(a_words):
                row = f.add(g, 8 * (r % 2))
                for n, text in enumerate(self.unpacked(slot, r, self.a_type)):
                    column = f.add(first, n + 4 * self.elements * (r // 2))
                    self.put("a", f.add(f.mul(row, self.k), column), text)
            for r in range(b_words):
                for n, text in enumerate(self.unpacked(slot, a_words + r, self.b_type)):
                    row = f.add(first, n + 4 * self.elements * r)
                    self.put("b", f.add(f.mul(row, N), g), text)
            for n, place in enumerate(self.places(g, t)):
                self.put("c", place, self.accumulator(slot, a_words + b_words, n))
        self.multiply()
        with f.below(WARP) as lane:
            g, t = f.op("lshr", "i64", lane, 2), f.op("and", "i64", lane, 3)
            slot = f.at("%slots", f.mul(lane, SLOT_WORDS), "i32")
            self.scatter(slot, self.places(g, t))
        return f.finish()

    def places(self, g: str, t: str) -> list[str]:
        f = self.f
        column = f.mul(t, 2)
        return [f.add(f.mul(f.add(g, 8 * (n // 2)), N), f.add(column, n % 2)) for n in range(4)]

    def put(self, matrix: str, index: str, text: str) -> None:
        self.f.store(self.scalar, text, self.f.at(f"%{matrix}", index, self.scalar))

    def helper(self, name: str) -> str:
        self.helpers[name] = None
        return f'@"{name}"'

    def word(self, slot: str, number: int) -> str:
        return self.f.load("i32", self.f.at(slot, number, "i32"))

    def unpacked(self, slot: str, number: int, type_name: str) -> list[str]:
        """The elements of one register of A or B."""
        f, word = self.f, self.word(slot, number)
        if type_name == "tf32":
            # The hardware reads 19 bits of it.
            cut = f.op("and", "i32", word, -8192)
            return [f.cast("fpext", "float", f.cast("bitcast", "i32", cut, "float"), "double")]
        if self.integer:
            extend = "sext" if type_name == "s8" else "zext"
            return [
                f.cast(extend, "i8", f.cast("trunc", "i32", f.op("lshr", "i32", word, 8 * n), "i8"),
                       "i32")
                for n in range(4)
            ]  # fmt: skip
        return [self.half(word, n, type_name) for n in range(2)]

    def half(self, word: str, n: int, type_name: str) -> str:
        f = self.f
        half = f.cast("trunc", "i32", f.op("lshr", "i32", word, 16 * n), "i16")
        widen = self.helper(f"tc.widen.{type_name}")
        return f.cast("fpext", "float", f.out.pure(f"call float {widen}(i16 {half})"), "double")

    def accumulator(self, slot: str, first: int, n: int) -> str:
        f = self.f
        match self.d_type:
            case "s32":
                return self.word(slot, first + n)
            case "f16":
                return self.half(self.word(slot, first + n // 2), n % 2, "f16")
            case _:
                text = f.cast("bitcast", "i32", self.word(slot, first + n), "float")
                return f.cast("fpext", "float", text, "double")

    def multiply(self) -> None:
        """Rows of D: what C has there plus the sum over k of A[m, k] times row k of B."""
        f = self.f
        times, plus = ("mul", "add") if self.integer else ("fmul", "fadd")
        with f.below(M) as m:
            total = f.variable(self.row, "zeroinitializer")
            with f.below(self.k) as k:
                a = f.load(self.scalar, f.at("%a", f.add(f.mul(m, self.k), k), self.scalar))
                one = f.out.pure(f"insertelement {self.row} poison, {self.scalar} {a}, i32 0")
                lanes = f.out.pure(
                    f"shufflevector {self.row} {one}, {self.row} poison, <{N} x i32> "
                    "zeroinitializer"
                )
                b = f.load(self.row, f.at("%b", f.mul(k, N), self.scalar))
                total.set(f.op(plus, self.row, total.get(), f.op(times, self.row, lanes, b)))
            place = f.at("%c", f.mul(m, N), self.scalar)
            f.store(self.row, f.op(plus, self.row, total.get(), f.load(self.row, place)), place)

    def scatter(self, slot: str, places: list[str]) -> None:
        f = self.f
        values = [f.load(self.scalar, f.at("%c", place, self.scalar)) for place in places]
        words = values
        if self.d_type == "f32":
            words = [
                f.cast("bitcast", "float", f.cast("fptrunc", "double", v, "float"), "i32")
                for v in values
            ]
        elif self.d_type == "f16":
            odd, narrow = self.helper("tc.round.odd"), self.helper("tc.narrow.f16")
            halves = []
            for value in values:
                text = f.out.pure(f"call float {odd}(double {value})")
                half = f.out.pure(f"call i16 {narrow}(float {text})")
                halves.append(f.cast("zext", "i16", half, "i32"))
            words = [
                f.op("or", "i32", halves[n], f.op("shl", "i32", halves[n + 1], 16)) for n in (0, 2)
            ]
        for n, word in enumerate(words):
            f.store("i32", word, f.at(slot, RESULT + n, "i32"))


def matrix_text(f: Function, name: str, helpers: MutableMapping[str, None]) -> str:
    """The text of one mma operation."""
    return _Product(f, name, helpers).text()
