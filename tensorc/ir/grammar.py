"""The tables that the printer and the parser share: operators, functions, names and literals."""

from __future__ import annotations

import keyword
import math
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import get_args

from tensorc.dtype import DType
from tensorc.ir.nodes import BinaryOp, LoopKind, Mode, UnaryOp

# Binding strength, from the loosest; a conditional expression is looser than all.
ANY, OR, AND, NOT, COMPARE = 0, 1, 2, 3, 4
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, ATOM = 5, 6, 7, 8, 9, 10, 11, 12

INFIX: Mapping[BinaryOp, tuple[str, int]] = {
    "or": ("or", OR),
    "and": ("and", AND),
    "eq": ("==", COMPARE),
    "ne": ("!=", COMPARE),
    "lt": ("<", COMPARE),
    "le": ("<=", COMPARE),
    "gt": (">", COMPARE),
    "ge": (">=", COMPARE),
    "bitor": ("|", BIT_OR),
    "bitxor": ("^", BIT_XOR),
    "bitand": ("&", BIT_AND),
    "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "floormod": ("%", PRODUCT),
}
INFIX_OF: Mapping[str, tuple[BinaryOp, int]] = {s: (op, p) for op, (s, p) in INFIX.items()}

UNARY_CALLS: Mapping[str, UnaryOp] = {
    "abs": "abs", "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc",
    "isnan": "isnan", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh",
    "erf": "erf", "sigmoid": "sigmoid", "sin": "sin", "cos": "cos",
}  # fmt: skip
BINARY_CALLS: Mapping[str, BinaryOp] = {
    "min": "min", "max": "max", "minimum": "min", "maximum": "max", "pow": "pow",
    "floordiv": "floordiv", "floormod": "floormod", "truncdiv": "truncdiv", "truncmod": "truncmod",
}  # fmt: skip
CASTS: Mapping[str, DType] = {dtype.value: dtype for dtype in DType}

LOOPS: Mapping[LoopKind, str] = {
    "serial": "range",
    "parallel": "parallel",
    "vectorize": "vectorize",
    "unroll": "unroll",
}
LOOP_OF: Mapping[str, LoopKind] = {word: kind for kind, word in LOOPS.items()}

# Reductions into one buffer that have an operator of their own.
ASSIGNMENTS: Mapping[str, str] = {
    "sum": "+=",
    "prod": "*=",
    "bitor": "|=",
    "bitand": "&=",
    "bitxor": "^=",
}
REDUCTION_OF: Mapping[str, str] = {symbol: op for op, symbol in ASSIGNMENTS.items()}

MODES: tuple[Mode, ...] = get_args(Mode)
# What one would write for a mode. As the whole of an extent such a word is a slip: it would add a
# dimension to the buffer and leave its mode as it was.
MODE_MEANT: Mapping[str, Mode] = {mode: mode for mode in MODES} | {
    "input": "in", "inputs": "in", "inp": "in", "read": "in", "readonly": "in", "read_only": "in",
    "output": "out", "outputs": "out", "outp": "out", "result": "out", "write": "out",
    "writeonly": "out", "write_only": "out",
    "in_out": "inout", "inoutput": "inout", "input_output": "inout", "inputoutput": "inout",
    "readwrite": "inout", "read_write": "inout", "rw": "inout", "io": "inout",
    "constant": "const", "constants": "const", "weight": "const", "weights": "const",
}  # fmt: skip

# What a name may not be unless it stands in backticks.
RESERVED = frozenset({*keyword.kwlist, "inf", "nan"})
NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"

_PLAIN = re.compile(NAME)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "`": "`", "n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\n|.)", re.DOTALL)


@lru_cache(maxsize=65536)
def name_text(name: str) -> str:
    """A name as it is printed: in backticks when it is not a (dotted) identifier."""
    if _PLAIN.fullmatch(name) and name not in RESERVED:
        return name
    return quoted(name, "`")


def mode_slip(name: str) -> str | None:
    """Why a word is no extent although it could name a size; None if it is no word for a mode."""
    if name not in MODE_MEANT:
        return None
    meant = f'did you mean "{MODE_MEANT[name]}"? ' if name not in MODES else ""
    return f"{name} is a word for a mode, not a size; {meant}the modes are {', '.join(MODES)}"


def quoted(value: str, quote: str = '"') -> str:
    """`value` between two `quote` characters, with all that could end the line escaped."""
    return quote + "".join(_escaped(c, quote) for c in value) + quote


def _escaped(character: str, quote: str) -> str:
    if character == quote:
        return "\\" + quote
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    code = ord(character)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def unquoted(text: str) -> str:
    """The value of what `quoted` wrote. Raises ValueError for an escape that means nothing."""

    def value(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        if escape == "\n":
            return ""
        if escape not in _ESCAPES:
            raise ValueError(f"unknown escape \\{escape}")
        return _ESCAPES[escape]

    return _ESCAPE.sub(value, text)


def number_text(value: bool | float, dtype: DType) -> str:
    """A literal without its dtype: the shortest decimal with this value in `dtype`."""
    if not isinstance(value, float):
        return str(value)
    return "-0.0" if value == 0 and math.copysign(1.0, value) < 0 else _float_text(value, dtype)


@lru_cache(maxsize=65536)
def _float_text(value: float, dtype: DType) -> str:
    if math.isnan(value):
        return _nan_text(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dtype is DType.F64 or value == 0:
        return repr(float(value))
    for digits in range(9):
        nearest = f"{value:.{digits}e}"
        for text in (nearest, _next_away(nearest)):
            if dtype.wrap(float(text)) == value:
                return repr(float(text))
    raise AssertionError(f"nine digits did not tell {value!r} from its neighbours")


def _next_away(text: str) -> str:
    """The decimal of as many digits one further from zero: just above a power of two it may still
    round to the value when the nearest decimal, on the narrow side, does not."""
    mantissa, exponent = text.split("e")
    digits = len(mantissa.partition(".")[2])
    units = int(mantissa.replace(".", ""))
    units += 1 if units > 0 else -1
    return f"{units}e{int(exponent) - digits}"


_NAN = struct.unpack("<Q", struct.pack("<d", math.nan))[0]
_SIGN = 1 << 63


def _nan_text(value: float) -> str:
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    if bits == _NAN:
        return "nan"
    return "-nan" if bits == _NAN ^ _SIGN else f"nan({bits:#x})"


def negated(value: float) -> float:
    """-value, of which the bits are certain also for NaN."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return float(struct.unpack("<d", struct.pack("<Q", bits ^ _SIGN))[0])


def nan_of(bits: int) -> float:
    """The NaN with these 64 bits. Raises ValueError when they are not those of a NaN."""
    if not 0 <= bits < 1 << 64 or not math.isnan(
        value := struct.unpack("<d", struct.pack("<Q", bits))[0]
    ):
        raise ValueError(f"{bits:#x} is not the bit pattern of a NaN")
    return float(value)
