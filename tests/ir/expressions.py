"""Random expressions of indices, conditions and data, with ranges and values for their variables.

They read no buffer, so that the interpreter gives their value from that of the variables. Each is
decoded from a text of bytes, which Hypothesis draws (and shrinks) in one go: thousands of them cost
little. Zeros decode to the simplest choice.
"""

from __future__ import annotations

import math
import struct

from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.nodes import COMPARISONS, Binary, Cast, Const, Expr, Select, Unary, Var

INDEX = DType.INDEX
NAMES = ("i", "j", "k", "N")
DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
BITS = ("bitand", "bitor", "bitxor", "shl", "shr")
COMPARE = tuple(sorted(COMPARISONS))
LITERALS = (2, 4, 0, 1, 3, 6, 8, 12, 16, -1, -2, -3, -4)
SPECIAL_FLOATS = (0.0, 1.0, -1.0, -0.0, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e300, 5e-324)


def bits(value: bool | float) -> object:
    """What tells two values apart: 0.0 from -0.0, but no NaN from another."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


class Decoder:
    """Makes choices from bytes; the first choice for ever once they are used up."""

    def __init__(self, text: bytes):
        self.text, self.at = text, 0

    def number(self, size: int = 1) -> int:
        self.at += size
        return int.from_bytes(self.text[self.at - size : self.at], "little")

    def pick(self, *choices):
        return choices[self.number() % len(choices)]

    def index(self, depth: int) -> Expr:
        match self.number() % 12 if depth else self.number() % 3:
            case 0 | 1:
                return Var(self.pick(*NAMES))
            case 2:
                return self.literal()
            case 3 | 4 | 5:
                op = self.pick("add", "sub", "mul")
                return Binary(op, self.index(depth - 1), self.index(depth - 1))
            case 6 | 7 | 8:
                return Binary(self.pick("mul", *DIVISIONS), self.index(depth - 1), self.literal())
            case 9:
                op = self.pick(*DIVISIONS, "min", "max", *BITS[:3])
                return Binary(op, self.index(depth - 1), self.index(depth - 1))
            case 10:
                return Unary(self.pick("neg", "abs"), self.index(depth - 1))
        return Select(self.condition(depth - 1), self.index(depth - 1), self.index(depth - 1))

    def literal(self) -> Const:
        return Const(self.pick(*LITERALS, self.number() % 81 - 40), INDEX)

    def comparison(self, depth: int) -> Expr:
        return Binary(self.pick(*COMPARE), self.index(depth), self.index(depth))

    def condition(self, depth: int) -> Expr:
        match self.number() % 7 if depth > 1 else 0:
            case 0 | 1 | 2:
                return self.comparison(max(depth - 1, 0))
            case 3 | 4 | 5:
                op = self.pick("and", "or", "eq", "ne", "bitand", "bitor", "bitxor")
                return Binary(op, self.condition(depth - 1), self.condition(depth - 1))
        if self.number() % 2:
            return Select(*(self.condition(depth - 1) for _ in range(3)))
        return Unary("not", self.condition(depth - 1))

    def constant(self, dtype: DType) -> Const:
        if dtype is DType.BOOL:
            return Const(self.pick(False, True), dtype)
        if dtype.is_float:
            double = struct.unpack("<d", struct.pack("<Q", self.number(8)))[0]
            return Const(self.pick(*SPECIAL_FLOATS, double), dtype)
        limits = (0, 1, 2, -1, -2, 7, dtype.min, dtype.max, dtype.min + 1)
        return Const(self.pick(*limits, self.number(8)), dtype)

    def data(self, dtype: DType, depth: int) -> Expr:
        match self.number() % 10 if depth else self.number() % 3:
            case 0 | 1:
                return Var(self.pick("x", "y"), dtype)
            case 2:
                return self.constant(dtype)
            case 3:
                middle = self.pick(*(t for t in DType if t is not dtype))
                return Cast(dtype, Cast(middle, self.data(dtype, depth - 1)))
            case 4:
                test = Binary(self.pick("eq", "ne"), *(self.data(dtype, depth - 1) for _ in "ab"))
                return Select(test, self.data(dtype, depth - 1), self.data(dtype, depth - 1))
            case 5:
                unary = ("not",) if dtype is DType.BOOL else ("neg", "abs")
                return Unary(self.pick(*unary), self.data(dtype, depth - 1))
        right = self.constant(dtype) if self.number() % 2 else self.data(dtype, depth - 1)
        return Binary(self.pick(*self.operators(dtype)), self.data(dtype, depth - 1), right)

    @staticmethod
    def operators(dtype: DType) -> tuple[str, ...]:
        if dtype is DType.BOOL:
            return "and", "or", "eq", "ne", "bitand", "bitor", "bitxor"
        if dtype.is_float:
            return "add", "sub", "mul", "div", "min", "max"
        return "add", "sub", "mul", "min", "max", *DIVISIONS, *BITS

    def comparison_of(self, dtype: DType, depth: int) -> Expr:
        test = Binary(self.pick(*COMPARE), self.data(dtype, depth), self.data(dtype, depth))
        return Unary("not", test) if self.number() % 2 else test


TEXT = st.binary(max_size=64)
INDICES = TEXT.map(lambda text: Decoder(text).index(4))
CONDITIONS = TEXT.map(lambda text: Decoder(text).condition(4))


def data(dtype: DType) -> st.SearchStrategy[Expr]:
    """Expressions of variables x and y of `dtype`."""
    return TEXT.map(lambda text: Decoder(text).data(dtype, 4))


def comparisons(dtype: DType) -> st.SearchStrategy[Expr]:
    return TEXT.map(lambda text: Decoder(text).comparison_of(dtype, 2))


def values(dtype: DType) -> st.SearchStrategy[dict[str, bool | int | float]]:
    """Values for x and y."""
    return st.binary(min_size=20, max_size=20).map(
        lambda text: {name: Decoder(part).constant(dtype).value
                      for name, part in (("x", text[:10]), ("y", text[10:]))}
    )  # fmt: skip


@st.composite
def places(draw, count: int = 4) -> tuple[dict, list[dict]]:
    """Ranges of the index variables, and some assignments of values within them."""
    decoder = Decoder(draw(st.binary(min_size=80, max_size=80)))
    ranges = {}
    for name in NAMES:
        low = decoder.pick(0, 0, 0, decoder.number() % 41 - 20)
        high = low + decoder.pick(15, 0, 1, 3, 7, decoder.number() % 41)
        ranges[name] = decoder.pick(
            (low, high), (low, high), (low, high), (low, None), (None, high)
        )

    def value(name):
        low, high = ranges[name]
        low = high - 60 if low is None else low
        high = low + 60 if high is None else high
        return decoder.pick(low, high, low + decoder.number() % (high - low + 1))

    return ranges, [{name: value(name) for name in NAMES} for _ in range(count)]
