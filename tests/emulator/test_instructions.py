"""Each instruction against its meaning in the ISA, written down anew in Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.single import Array, run

U = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
S = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
Model = Callable[..., int]


def wrapped(value: int, width: int, signed: bool = False) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def signed(value: int, width: int) -> int:
    return wrapped(value, width, True)


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def quotient(a: int, b: int) -> int:
    return -1 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def permuted(a: int, b: int, selector: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    result = []
    for n in range(4):
        nibble = selector >> 4 * n & 15
        byte = data[nibble & 7]
        result.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(result), "little")


def extracted(a: int, start: int, length: int, width: int, is_signed: bool) -> int:
    """The loop of the ISA's own pseudocode for bfe."""
    start, length = start & 0xFF, length & 0xFF
    most = width - 1
    sign = 0
    if is_signed and length:
        sign = a >> min(start + length - 1, most) & 1
    return sum(
        (a >> (start + n) & 1 if n < length and start + n <= most else sign) << n
        for n in range(width)
    )


def inserted(a: int, b: int, start: int, length: int, width: int) -> int:
    start, length = start & 0xFF, length & 0xFF
    for n in range(length):
        if start + n < width:
            b = b & ~(1 << (start + n)) | (a >> n & 1) << (start + n)
    return b


def logic(table: int) -> Model:
    def model(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n
            for n in range(32)
        )

    return model


def dot(a: int, b: int, c: int) -> int:
    total = sum(signed(a >> 8 * n & 255, 8) * (b >> 8 * n & 255) for n in range(4))
    return c + total


def highest(a: int) -> int:
    value = ~a if a < 0 else a
    return value.bit_length() - 1


# (instruction, types of result and operands, meaning); signed types come to the model signed.
INTEGERS: list[tuple[str, str, Model]] = [
    ("add.s32 %d, %x0, %x1;", "s32 s32 s32", lambda a, b: a + b),
    ("add.sat.s32 %d, %x0, %x1;", "s32 s32 s32", lambda a, b: clamp(a + b, -(2**31), 2**31 - 1)),
    ("sub.u16 %d, %x0, %x1;", "u16 u16 u16", lambda a, b: a - b),
    ("sub.s64 %d, %x0, %x1;", "s64 s64 s64", lambda a, b: a - b),
    ("mul.lo.s32 %d, %x0, %x1;", "s32 s32 s32", lambda a, b: a * b),
    ("mul.hi.u32 %d, %x0, %x1;", "u32 u32 u32", lambda a, b: a * b >> 32),
    ("mul.hi.s64 %d, %x0, %x1;", "s64 s64 s64", lambda a, b: a * b >> 64),
    ("mul.wide.s32 %d, %x0, %x1;", "s64 s32 s32", lambda a, b: a * b),
    ("mul.wide.u16 %d, %x0, %x1;", "u32 u16 u16", lambda a, b: a * b),
    ("mul24.lo.u32 %d, %x0, %x1;", "u32 u32 u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("mad.lo.u32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32", lambda a, b, c: a * b + c),
    ("mad.hi.s32 %d, %x0, %x1, %x2;", "s32 s32 s32 s32", lambda a, b, c: (a * b >> 32) + c),
    ("mad.wide.s32 %d, %x0, %x1, %x2;", "s64 s32 s32 s64", lambda a, b, c: a * b + c),
    ("div.u32 %d, %x0, %x1;", "u32 u32 u32", lambda a, b: a // b if b else -1),
    ("div.s32 %d, %x0, %x1;", "s32 s32 s32", quotient),
    ("rem.s64 %d, %x0, %x1;", "s64 s64 s64", lambda a, b: a - b * quotient(a, b) if b else a),
    ("rem.u64 %d, %x0, %x1;", "u64 u64 u64", lambda a, b: a % b if b else a),
    ("min.s32 %d, %x0, %x1;", "s32 s32 s32", min),
    ("max.u64 %d, %x0, %x1;", "u64 u64 u64", max),
    ("neg.s32 %d, %x0;", "s32 s32", lambda a: -a),
    ("abs.s64 %d, %x0;", "s64 s64", abs),
    ("sad.s32 %d, %x0, %x1, %x2;", "s32 s32 s32 s32", lambda a, b, c: c + abs(a - b)),
    ("dp4a.s32.u32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32", dot),
    ("and.b32 %d, %x0, %x1;", "u32 u32 u32", lambda a, b: a & b),
    ("xor.b64 %d, %x0, %x1;", "u64 u64 u64", lambda a, b: a ^ b),
    ("not.b16 %d, %x0;", "u16 u16", lambda a: ~a),
    ("cnot.b32 %d, %x0;", "u32 u32", lambda a: int(a == 0)),
    ("shl.b32 %d, %x0, %x1;", "u32 u32 u32", lambda a, b: a << b if b < 32 else 0),
    ("shr.u64 %d, %x0, %x1;", "u64 u64 u32", lambda a, b: a >> min(b, 64)),
    ("shr.s32 %d, %x0, %x1;", "s32 s32 u32", lambda a, b: a >> min(b, 31)),
    ("shr.s16 %d, %x0, %x1;", "s16 s16 u32", lambda a, b: a >> min(b, 15)),
    ("shf.l.wrap.b32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32",
     lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ("shf.r.wrap.b32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32",
     lambda a, b, c: (b << 32 | a) >> (c & 31)),
    ("shf.r.clamp.b32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32",
     lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("lop3.b32 %d, %x0, %x1, %x2, 0xCA;", "u32 u32 u32 u32", logic(0xCA)),
    ("lop3.b32 %d, %x0, %x1, %x2, 0x96;", "u32 u32 u32 u32", logic(0x96)),
    ("prmt.b32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32", permuted),
    ("bfe.u32 %d, %x0, %x1, %x2;", "u32 u32 u32 u32",
     lambda a, s, n: extracted(a, s, n, 32, False)),
    ("bfe.s32 %d, %x0, %x1, %x2;", "s32 s32 u32 u32", lambda a, s, n: extracted(a, s, n, 32, True)),
    ("bfe.u64 %d, %x0, %x1, %x2;", "u64 u64 u32 u32",
     lambda a, s, n: extracted(a, s, n, 64, False)),
    ("bfe.s64 %d, %x0, %x1, %x2;", "s64 s64 u32 u32", lambda a, s, n: extracted(a, s, n, 64, True)),
    ("bfi.b32 %d, %x0, %x1, %x2, %x3;", "u32 u32 u32 u32 u32",
     lambda a, b, s, n: inserted(a, b, s, n, 32)),
    ("bfi.b64 %d, %x0, %x1, %x2, %x3;", "u64 u64 u64 u32 u32",
     lambda a, b, s, n: inserted(a, b, s, n, 64)),
    ("popc.b64 %d, %x0;", "u32 u64", lambda a: a.bit_count()),
    ("clz.b32 %d, %x0;", "u32 u32", lambda a: 32 - a.bit_length()),
    ("brev.b32 %d, %x0;", "u32 u32", lambda a: int(f"{a:032b}"[::-1], 2)),
    ("bfind.u32 %d, %x0;", "u32 u32", lambda a: a.bit_length() - 1),
    ("bfind.s32 %d, %x0;", "u32 s32", highest),
    ("setp.lt.s32 %d, %x0, %x1;", "pred s32 s32", lambda a, b: int(a < b)),
    ("setp.hi.u32 %d, %x0, %x1;", "pred u32 u32", lambda a, b: int(a > b)),
    ("setp.ge.and.u64 %d, %x0, %x1, %x2;", "pred u64 u64 pred", lambda a, b, c: int(a >= b and c)),
    ("setp.ne.xor.s16 %d, %x0, %x1, %x2;", "pred s16 s16 pred", lambda a, b, c: int((a != b) ^ c)),
    ("set.eq.u32.s32 %d, %x0, %x1;", "u32 s32 s32", lambda a, b: -int(a == b)),
    ("selp.b64 %d, %x0, %x1, %x2;", "u64 u64 u64 pred", lambda a, b, c: a if c else b),
    ("slct.u32.s32 %d, %x0, %x1, %x2;", "u32 u32 u32 s32", lambda a, b, c: a if c >= 0 else b),
    ("cvt.u8.s32 %d, %x0;", "u8 s32", lambda a: a),
    ("cvt.sat.u8.s32 %d, %x0;", "u8 s32", lambda a: clamp(a, 0, 255)),
    ("cvt.sat.s16.u64 %d, %x0;", "s16 u64", lambda a: min(a, 32767)),
    ("cvt.s64.s32 %d, %x0;", "s64 s32", lambda a: a),
    ("cvt.u64.u16 %d, %x0;", "u64 u16", lambda a: a),
    ("mov.b64 %d, {%x0, %x1};", "u64 u32 u32", lambda a, b: b << 32 | a),
    ("mov.b32 {%d, _}, %x0;", "u16 u32", lambda a: a),
    ("mov.b64 {_, %d}, %x0;", "u32 u64", lambda a: a >> 32),
    ("{ .reg .pred q; setp.gt.u32 q, %x0, 5; @q mov.u32 %w0, 1; @!q mov.u32 %w0, 2; "
     "mov.u32 %d, %w0; }", "u32 u32", lambda a: 1 if a > 5 else 2),
    ("mov.u32 %d, %x0; { .reg .pred q; setp.gt.s32 q, %x1, 0; @q add.u32 %d, %d, %d; }",
     "u32 u32 s32", lambda a, b: 2 * a if b > 0 else a),
    ("add.cc.u32 %w0, %x0, %x1; addc.u32 %d, %x2, %x2;", "u32 u32 u32 u32",
     lambda a, b, c: 2 * c + (a + b >> 32)),
    ("sub.cc.u32 %w0, %x0, %x1; subc.u32 %d, %x2, 0;", "u32 u32 u32 u32",
     lambda a, b, c: c - (a < b)),
    ("mad.lo.cc.u32 %w0, %x0, %x1, %x2; madc.hi.u32 %d, %x0, %x1, 0;", "u32 u32 u32 u32",
     lambda a, b, c: (a * b >> 32) + ((a * b & 0xFFFFFFFF) + c >> 32)),
]  # fmt: skip


def draw_integers(data: st.DataObject, kinds: list[str], count: int) -> list[Array]:
    arrays = []
    for kind in kinds:
        if kind == "pred":
            arrays.append(np.array(data.draw(many(st.integers(0, 1), count)), np.uint8))
            continue
        width = int(kind[1:])
        edges = [0, 1, 2, 5, 8, 31, 32, 33, 2 ** (width - 1), 2 ** (width - 1) - 1, 2**width - 1]
        values = st.one_of(
            st.sampled_from([edge % 2**width for edge in edges]),
            st.integers(0, 2**width - 1),
        )
        arrays.append(np.array(data.draw(many(values, count)), U[width]))
    return arrays


def many(values: st.SearchStrategy[int], count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(values, min_size=count, max_size=count)


@pytest.mark.parametrize(("line", "types", "model"), INTEGERS, ids=[row[0] for row in INTEGERS])
@settings(max_examples=8)
@given(data=st.data())
def test_integers(line: str, types: str, model: Model, data: st.DataObject) -> None:
    result, *operands = types.split()
    arrays = draw_integers(data, operands, 32)
    width = 8 if result == "pred" else int(result[1:])
    found = run(line, types.split(), *arrays, out=U[width])
    seen = [
        a.view(S[int(kind[1:])]).tolist() if kind[0] == "s" else a.tolist()
        for kind, a in zip(operands, arrays, strict=True)
    ]
    expected = [wrapped(model(*row), width) for row in zip(*seen, strict=True)]
    assert found.tolist() == expected


# --- floats -----------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, math.inf, -math.inf, math.nan, 1e-45, -1e-40, 3.4e38, 65504.0]
floats = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32), st.floats(-100, 100, width=32))


def f32(value: float) -> float:
    return float(np.float32(value))


def exact(value: float) -> Fraction:
    return Fraction(value)


def directed(value: Fraction, direction: str) -> float:
    """A number rounded to f32 towards zero, down or up."""
    near = np.float32(float(value))
    while Fraction(float(near)) > value:
        near = np.nextafter(near, np.float32(-np.inf))
    if Fraction(float(near)) == value:
        return float(near)
    above = np.nextafter(near, np.float32(np.inf))
    down = direction == "down" or (direction == "zero" and value > 0)
    return float(near if down else above)


def least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def greatest_or_nan(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return max(a, b, key=lambda x: (x, math.copysign(1, x)))


def flushed(a: float) -> float:
    return math.copysign(0.0, a) if abs(a) < 2.0**-126 else a


def saturated(a: float) -> float:
    return 0.0 if math.isnan(a) else max(0.0, min(a, 1.0))


def integral(a: float, low: int, high: int, rounded: Callable[[float], int]) -> int:
    if math.isnan(a):
        return 0
    return clamp(low if a == -math.inf else high if a == math.inf else rounded(a), low, high)


def np_op(operation: Callable[..., object]) -> Callable[..., float]:
    def model(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(operation(*(np.float32(value) for value in values)))  # type: ignore[arg-type]

    return model


FLOATS: list[tuple[str, str, Callable[..., float]]] = [
    ("add.rn.f32 %d, %x0, %x1;", "f32 f32 f32", np_op(np.add)),
    ("sub.f32 %d, %x0, %x1;", "f32 f32 f32", np_op(np.subtract)),
    ("mul.f32 %d, %x0, %x1;", "f32 f32 f32", np_op(np.multiply)),
    ("div.rn.f32 %d, %x0, %x1;", "f32 f32 f32", np_op(np.divide)),
    ("sqrt.rn.f32 %d, %x0;", "f32 f32", np_op(np.sqrt)),
    ("rcp.rn.f32 %d, %x0;", "f32 f32", np_op(lambda a: np.float32(1) / a)),
    ("neg.f32 %d, %x0;", "f32 f32", lambda a: -a),
    ("abs.f32 %d, %x0;", "f32 f32", abs),
    ("min.f32 %d, %x0, %x1;", "f32 f32 f32", least),
    ("max.NaN.f32 %d, %x0, %x1;", "f32 f32 f32", greatest_or_nan),
    ("copysign.f32 %d, %x0, %x1;", "f32 f32 f32", lambda a, b: math.copysign(b, a)),
    ("add.sat.f32 %d, %x0, %x1;", "f32 f32 f32", lambda a, b: saturated(np_op(np.add)(a, b))),
    ("mul.ftz.f32 %d, %x0, %x1;", "f32 f32 f32",
     lambda a, b: flushed(np_op(np.multiply)(flushed(a), flushed(b)))),
    ("cvt.rni.f32.f32 %d, %x0;", "f32 f32", np_op(np.rint)),
    ("cvt.rmi.f32.f32 %d, %x0;", "f32 f32", np_op(np.floor)),
    ("cvt.rzi.f32.f32 %d, %x0;", "f32 f32", np_op(np.trunc)),
    ("cvt.sat.f32.f32 %d, %x0;", "f32 f32", saturated),
]  # fmt: skip


def same(found: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(found)
    return found == expected and math.copysign(1, found) == math.copysign(1, expected)


def draw_floats(data: st.DataObject, count: int, rows: int = 32) -> list[np.ndarray]:
    lists = st.lists(floats, min_size=rows, max_size=rows)
    return [np.array(data.draw(lists), np.float32) for _ in range(count)]


@pytest.mark.parametrize(("line", "types", "model"), FLOATS, ids=[row[0] for row in FLOATS])
@settings(max_examples=10)
@given(data=st.data())
def test_floats(line: str, types: str, model: Callable[..., float], data: st.DataObject) -> None:
    arrays = draw_floats(data, len(types.split()) - 1)
    found = run(line, types.split(), *arrays, out=np.float32)
    for got, *row in zip(found.tolist(), *(a.tolist() for a in arrays), strict=True):
        assert same(got, model(*row)), (row, got, model(*row))


@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
@settings(max_examples=20)
@given(data=st.data())
def test_fused_products_round_once_in_each_direction(direction: str, data: st.DataObject) -> None:
    finite = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    lists = st.lists(finite, min_size=16, max_size=16)
    a, b, c = (np.array(data.draw(lists), np.float32) for _ in range(3))
    types = ["f32"] * 4
    found = run(f"fma.{direction}.f32 %d, %x0, %x1, %x2;", types, a, b, c, out=np.float32)
    for got, *row in zip(found.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        x, y, z = (exact(value) for value in row)
        value = x * y + z
        if direction == "rn":
            gaps = (
                abs(exact(got) - value),
                *(
                    abs(exact(float(np.nextafter(np.float32(got), np.float32(to)))) - value)
                    for to in (-np.inf, np.inf)
                ),
            )
            assert gaps[0] == min(gaps)
        else:
            names = {"rz": "zero", "rm": "down", "rp": "up"}
            assert got == directed(value, names[direction])


COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b and a == a and b == b,
    "ltu": lambda a, b: not a >= b, "neu": lambda a, b: a != b, "ge": lambda a, b: a >= b,
    "num": lambda a, b: a == a and b == b, "nan": lambda a, b: a != a or b != b,
}  # fmt: skip


@pytest.mark.parametrize("test", COMPARISONS)
@given(data=st.data())
@settings(max_examples=5)
def test_comparisons_of_floats(test: str, data: st.DataObject) -> None:
    a, b = draw_floats(data, 2)
    found = run(f"setp.{test}.f32 %d, %x0, %x1;", ["pred", "f32", "f32"], a, b, out=np.uint8)
    expected = [COMPARISONS[test](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found.tolist() == expected


TO_INTEGERS = [
    ("cvt.rzi.s32.f32 %d, %x0;", "s32", -(2**31), 2**31 - 1, math.trunc),
    ("cvt.rni.s32.f32 %d, %x0;", "s32", -(2**31), 2**31 - 1, round),
    ("cvt.rmi.u32.f32 %d, %x0;", "u32", 0, 2**32 - 1, math.floor),
    ("cvt.rpi.u8.f32 %d, %x0;", "u8", 0, 255, math.ceil),
]


@pytest.mark.parametrize(("line", "kind", "low", "high", "rounded"), TO_INTEGERS)
@given(data=st.data())
@settings(max_examples=5)
def test_floats_to_integers(
    line: str, kind: str, low: int, high: int, rounded: Callable[[float], int], data: st.DataObject
) -> None:
    [a] = draw_floats(data, 1)
    width = int(kind[1:])
    types = (S if kind[0] == "s" else U)[width]
    found = run(line, [kind, "f32"], a, out=types)
    assert found.tolist() == [integral(value, low, high, rounded) for value in a.tolist()]


def test_not_a_number_as_64_bits_is_the_sign_bit() -> None:
    nan = np.array([math.nan], np.float64)
    found = run("cvt.rzi.s64.f64 %d, %x0;", ["s64", "f64"], nan, out=np.int64)
    assert found.tolist() == [-(2**63)]


# --- halves -----------------------------------------------------------------------------------


def test_every_f16_widens_and_narrows() -> None:
    every = np.arange(65536, dtype=np.uint16)
    for start in range(0, 65536, 1024):
        halves = every[start : start + 1024]
        wide = run("cvt.f32.f16 %d, %x0;", ["f32", "b16"], halves, out=np.float32)
        with np.errstate(all="ignore"):
            expected = halves.view(np.float16).astype(np.float32)
        np.testing.assert_array_equal(wide, expected)
    ordinary = every[np.isfinite(every.view(np.float16))]
    values = ordinary[::61].view(np.float16).astype(np.float32)
    for start in range(0, len(values), 1000):
        part = values[start : start + 1000]
        back = run("cvt.rn.f16.f32 %d, %x0;", ["b16", "f32"], part, out=np.uint16)
        np.testing.assert_array_equal(back, part.astype(np.float16).view(np.uint16))


@given(st.lists(floats, min_size=32, max_size=32))
@settings(max_examples=20)
def test_f32_to_halves_rounds_to_nearest_even(values: list[float]) -> None:
    wide = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        expected = wide.astype(np.float16)
    half = run("cvt.rn.f16.f32 %d, %x0;", ["b16", "f32"], wide, out=np.uint16).view(np.float16)
    np.testing.assert_array_equal(half, expected)
    brain = run("cvt.rn.bf16.f32 %d, %x0;", ["b16", "f32"], wide, out=np.uint16)
    for value, found in zip(wide.tolist(), brain.tolist(), strict=True):
        got = struct.unpack("<f", struct.pack("<I", found << 16))[0]
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        if math.isnan(value):
            assert math.isnan(got)
        else:
            assert found == bits + 0x7FFF + (bits >> 16 & 1) >> 16


@pytest.mark.parametrize("kind", ["f16", "f16x2"])
@given(data=st.data())
@settings(max_examples=15)
def test_fused_products_of_halves_round_once(kind: str, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 0x7BFF), min_size=16, max_size=16)
    a, b, c = (np.array(data.draw(numbers), np.uint16) for _ in range(3))
    types = ["b16" if kind == "f16" else "b32"] * 4
    inputs = (a, b, c) if kind == "f16" else tuple(x.view(np.uint32) for x in (a, b, c))
    out = np.uint16 if kind == "f16" else np.uint32
    found = run(f"fma.rn.{kind} %d, %x0, %x1, %x2;", types, *inputs, out=out).view(np.float16)
    wide = [x.view(np.float16).astype(np.float64) for x in (a, b, c)]
    for got, x, y, z in zip(found, *(w.tolist() for w in wide), strict=True):
        value = Fraction(x) * Fraction(y) + Fraction(z)
        if value >= 65520:
            assert got == np.inf
            continue
        with np.errstate(over="ignore"):
            beside = [np.nextafter(got, np.float16(to)) for to in (-np.inf, np.inf)]
        gaps = [abs(Fraction(float(each)) - value) for each in (got, *beside) if np.isfinite(each)]
        assert gaps[0] == min(gaps)


def test_pairs_of_halves_are_packed_high_first() -> None:
    a, b = np.array([1.0, -2.0], np.float32), np.array([0.5, 3.0], np.float32)
    line = "cvt.rn.f16x2.f32 %d, %x0, %x1;"
    found = run(line, ["b32", "f32", "f32"], a, b, out=np.uint32).view(np.float16).reshape(2, 2)
    assert found.tolist() == [[0.5, 1.0], [3.0, -2.0]]
    line = "cvt.rn.relu.bf16x2.f32 %d, %x0, %x1;"
    found = run(line, ["b32", "f32", "f32"], a, b, out=np.uint32)
    assert [hex(word) for word in found.tolist()] == ["0x3f803f00", "0x4040"]


def test_tf32_rounds_ties_away_from_zero() -> None:
    bits = np.array([0x3F801000, 0x3F800FFF, 0xBF801000, 0x7F800000], np.uint32)
    found = run("cvt.rna.tf32.f32 %d, %x0;", ["b32", "b32"], bits, out=np.uint32)
    assert [hex(each) for each in found.tolist()] == [
        "0x3f802000", "0x3f800000", "0xbf802000", "0x7f800000"
    ]  # fmt: skip


APPROXIMATE = {
    "ex2.approx.f32": np.exp2, "lg2.approx.f32": np.log2, "rcp.approx.f32": np.reciprocal,
    "rsqrt.approx.f32": lambda x: 1 / np.sqrt(x), "sqrt.approx.f32": np.sqrt,
    "sin.approx.f32": np.sin, "cos.approx.f32": np.cos, "tanh.approx.f32": np.tanh,
}  # fmt: skip


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_are_exact_to_a_rounding(name: str) -> None:
    x = np.linspace(0.01, 20, 200, dtype=np.float32)
    found = run(f"{name} %d, %x0;", ["f32", "f32"], x, out=np.float32)
    expected = APPROXIMATE[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_almost_equal_nulp(found, expected, nulp=1)
