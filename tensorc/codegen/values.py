"""LLVM's names for our types and literals, and what an emitted value is."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import NamedTuple

from tensorc.dtype import DType

# f16 and bf16 live in registers as the f32 that they equal, since they are computed in f32.
_SCALARS = {
    DType.BOOL: "i1",
    DType.I8: "i8",
    DType.U8: "i8",
    DType.I16: "i16",
    DType.I32: "i32",
    DType.U32: "i32",
    DType.I64: "i64",
    DType.INDEX: "i64",
    DType.F16: "float",
    DType.BF16: "float",
    DType.F32: "float",
    DType.F64: "double",
}
_IN_MEMORY = {**_SCALARS, DType.BOOL: "i8", DType.F16: "i16", DType.BF16: "i16"}
_SUFFIXES = {"float": "f32", "double": "f64"}
HALVES = frozenset({DType.F16, DType.BF16})


class Value(NamedTuple):
    """An operand of LLVM instructions: a local name or a literal, with its type."""

    text: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return type_of(self.dtype, self.lanes)


@cache
def vector(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


@cache
def type_of(dtype: DType, lanes: int = 1) -> str:
    """The type of a value in a register."""
    return vector(_SCALARS[dtype], lanes)


@cache
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value in memory, where a bool takes a byte and a half its own two."""
    return vector(_IN_MEMORY[dtype], lanes)


@cache
def suffix(scalar: str, lanes: int) -> str:
    """The end of the name of an overloaded intrinsic, e.g. "v8f32"."""
    name = _SUFFIXES.get(scalar, scalar)
    return name if lanes == 1 else f"v{lanes}{name}"


@lru_cache(maxsize=4096)
def _literal(bits: int, value: bool | float, dtype: DType) -> str:
    if dtype.is_float:
        return f"0x{bits:016X}"
    if dtype is DType.BOOL:
        return "true" if value else "false"
    number = int(value)
    # LLVM's integers have no sign; a literal past the signed range is refused.
    return str(number - (1 << dtype.bits) if number >> (dtype.bits - 1) > 0 else number)


def literal(value: bool | float, dtype: DType) -> str:
    """A scalar literal: floats by the bits of the double that they equal, so that none is lost."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] if dtype.is_float else int(value)
    return _literal(bits, value, dtype)


def splat(scalar: str, text: str, lanes: int) -> str:
    """A literal in all lanes."""
    return text if lanes == 1 else f"splat ({scalar} {text})"


def constant(value: bool | float, dtype: DType, lanes: int = 1) -> Value:
    return Value(splat(_SCALARS[dtype], literal(value, dtype), lanes), dtype, lanes)


def is_literal(text: str) -> bool:
    return not text.startswith("%")
