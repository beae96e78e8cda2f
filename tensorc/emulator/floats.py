"""Arithmetic of f64, f32, f16, bf16 and pairs of halves.

Halves are computed in f32 and rounded once: 24 bits are enough for sums, products and quotients of
11 bits to be rounded twice without harm (Figueroa, "When is double rounding innocuous?", 1995); a
fused multiply-add goes through rounding to odd. The approximate functions of the hardware
are computed in f64 and rounded: they are more exact here than there.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorc.emulator.emitter import Emitter, Translation, llvm_type
from tensorc.emulator.ptx import Instruction, bits_of

__all__ = ["TRANSLATIONS", "combined", "componentwise", "is_float", "narrow", "widen"]

_HALVES = {"f16": "f16", "bf16": "bf16", "f16x2": "f16", "bf16x2": "bf16"}
_DIRECTED = {"rm": "down", "rp": "up", "rz": "zero"}
# One element: operands as LLVM values of type "float" or "double", to the result.
Operation = Callable[[Emitter, Instruction, str, list[str]], str]


def is_float(type_name: str) -> bool:
    return type_name in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")


def widen(e: Emitter, half: str, text: str) -> str:
    """The f32 of an f16 or bf16, which is an i16."""
    return e.out.pure(f"call float {e.helper(f'tc.widen.{half}')}(i16 {text})")


def narrow(e: Emitter, half: str, text: str) -> str:
    """The f16 or bf16 nearest to an f32, as an i16."""
    return e.out.pure(f"call i16 {e.helper(f'tc.narrow.{half}')}(float {text})")


def componentwise(
    e: Emitter, i: Instruction, type_name: str, values: list[str], operation: Operation
) -> str:
    """Applies an operation to each element of operands that are given as `llvm_type` has them."""
    half = _HALVES.get(type_name)
    if half is None:
        return _rounded(e, i, type_name, operation, values)
    pure = e.out.pure
    if bits_of(type_name) == 16:
        wide = [widen(e, half, value) for value in values]
        return narrow(e, half, _clamped(e, i, "float", operation(e, i, "float", wide)))
    parts = []
    for shift in (0, 16):
        halves = [pure(f"trunc i32 {pure(f'lshr i32 {v}, {shift}')} to i16") for v in values]
        wide = [widen(e, half, text) for text in halves]
        text = narrow(e, half, _clamped(e, i, "float", operation(e, i, "float", wide)))
        parts.append(pure(f"zext i16 {text} to i32"))
    return pure(f"or i32 {parts[0]}, {pure(f'shl i32 {parts[1]}, 16')}")


def _rounded(
    e: Emitter, i: Instruction, type_name: str, operation: Operation, values: list[str]
) -> str:
    kind = llvm_type(type_name)
    flush = i.has("ftz") and kind == "float"
    if flush:
        values = [_flushed(e, value) for value in values]
    text = _clamped(e, i, kind, operation(e, i, kind, values))
    return _flushed(e, text) if flush else text


def _flushed(e: Emitter, text: str) -> str:
    return e.out.pure(f"call float {e.helper('tc.flush')}(float {text})")


def _clamped(e: Emitter, i: Instruction, kind: str, text: str) -> str:
    """`.sat`: to [0, 1], NaN to 0. `.relu`: negative to 0."""
    pure = e.out.pure
    if i.has("sat"):
        positive = pure(f"fcmp ogt {kind} {text}, 0.0")
        text = pure(f"select i1 {positive}, {kind} {text}, {kind} 0.0")
        below = pure(f"fcmp olt {kind} {text}, 1.0")
        return pure(f"select i1 {below}, {kind} {text}, {kind} 1.0")
    if i.has("relu"):
        negative = pure(f"fcmp olt {kind} {text}, 0.0")
        return pure(f"select i1 {negative}, {kind} 0.0, {kind} {text}")
    return text


# --- sums and products ------------------------------------------------------------------------


def _direction(i: Instruction) -> str | None:
    return next((_DIRECTED[part] for part in i.modifiers if part in _DIRECTED), None)


def _directed(e: Emitter, i: Instruction, kind: str, direction: str, terms: list[str]) -> str:
    """a * b + c of f32, rounded in a direction: exact but for a last odd bit, then cut to f32."""
    if kind != "float":
        raise e.refuse(i, "f64 rounded otherwise than to nearest is not emulated")
    wide = [e.out.pure(f"fpext float {term} to double") for term in terms]
    a, b, c = wide
    odd = e.out.pure(f"call double {e.helper('tc.fma.odd')}(double {a}, double {b}, double {c})")
    return e.out.pure(f"call float {e.helper(f'tc.round.{direction}')}(double {odd})")


def _add(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    direction = _direction(i)
    if direction is not None:
        return _directed(e, i, kind, direction, [v[0], "1.0", v[1]])
    return e.out.pure(f"fadd {kind} {v[0]}, {v[1]}")


def _subtract(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    direction = _direction(i)
    if direction is not None:
        negative = e.out.pure(f"fneg {kind} {v[1]}")
        return _directed(e, i, kind, direction, [v[0], "1.0", negative])
    return e.out.pure(f"fsub {kind} {v[0]}, {v[1]}")


def _multiply(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    direction = _direction(i)
    if direction is not None:
        return _directed(e, i, kind, direction, [v[0], v[1], "-0.0"])
    return e.out.pure(f"fmul {kind} {v[0]}, {v[1]}")


def _fused(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    direction = _direction(i)
    if direction is not None:
        return _directed(e, i, kind, direction, v)
    if i.types[-1] in _HALVES:
        wide = ", ".join(f"double {e.out.pure(f'fpext float {text} to double')}" for text in v)
        odd = e.out.pure(f"call double {e.helper('tc.fma.odd')}({wide})")
        return e.out.pure(f"call float {e.helper('tc.round.odd')}(double {odd})")
    arguments = ", ".join(f"{kind} {text}" for text in v)
    return e.out.pure(f"call {kind} {e.helper(f'llvm.fma.{_suffix(kind)}')}({arguments})")


def _suffix(kind: str) -> str:
    return "f32" if kind == "float" else "f64"


def _extreme(name: str) -> Operation:
    """min and max: the number beside a NaN, or with .NaN the NaN; -0 is less than +0."""

    def operation(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
        if i.has("xorsign"):
            raise e.refuse(i, "xorsign is not emulated")
        function = f"llvm.{name}imum" + ("" if i.has("NaN") else "num") + f".{_suffix(kind)}"
        text = v[0]
        for other in v[1:]:
            text = e.out.pure(f"call {kind} {e.helper(function)}({kind} {text}, {kind} {other})")
        return text

    return operation


def _negate(e: Emitter, _i: Instruction, kind: str, v: list[str]) -> str:
    return e.out.pure(f"fneg {kind} {v[0]}")


def _absolute(e: Emitter, _i: Instruction, kind: str, v: list[str]) -> str:
    return e.out.pure(f"call {kind} {e.helper(f'llvm.fabs.{_suffix(kind)}')}({kind} {v[0]})")


def _copy_sign(e: Emitter, _i: Instruction, kind: str, v: list[str]) -> str:
    name = e.helper(f"llvm.copysign.{_suffix(kind)}")
    return e.out.pure(f"call {kind} {name}({kind} {v[1]}, {kind} {v[0]})")


# --- functions --------------------------------------------------------------------------------


def _to_nearest(e: Emitter, i: Instruction) -> None:
    if _direction(i) is not None:
        raise e.refuse(i, "only rounding to nearest is emulated here")


def _divide(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    _to_nearest(e, i)
    return e.out.pure(f"fdiv {kind} {v[0]}, {v[1]}")


def _reciprocal(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    _to_nearest(e, i)
    return e.out.pure(f"fdiv {kind} 1.0, {v[0]}")


def _square_root(e: Emitter, i: Instruction, kind: str, v: list[str]) -> str:
    _to_nearest(e, i)
    return e.out.pure(f"call {kind} {e.helper(f'llvm.sqrt.{_suffix(kind)}')}({kind} {v[0]})")


def _reciprocal_root(e: Emitter, _i: Instruction, kind: str, v: list[str]) -> str:
    def exact(text: str) -> str:
        root = e.out.pure(f"call double {e.helper('llvm.sqrt.f64')}(double {text})")
        return e.out.pure(f"fdiv double 1.0, {root}")

    return _in_double(e, kind, v[0], exact)


def _library(function: str) -> Operation:
    def operation(e: Emitter, _i: Instruction, kind: str, v: list[str]) -> str:
        return _in_double(
            e, kind, v[0],
            lambda text: e.out.pure(f"call double {e.helper(function)}(double {text})"),
        )  # fmt: skip

    return operation


def _in_double(e: Emitter, kind: str, text: str, function: Callable[[str], str]) -> str:
    if kind == "double":
        return function(text)
    wide = e.out.pure(f"fpext float {text} to double")
    return e.out.pure(f"fptrunc double {function(wide)} to float")


_OPERATIONS: dict[str, Operation] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "fma": _fused,
    "mad": _fused,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "neg": _negate,
    "abs": _absolute,
    "copysign": _copy_sign,
    "div": _divide,
    "rcp": _reciprocal,
    "sqrt": _square_root,
    "rsqrt": _reciprocal_root,
    "ex2": _library("exp2"),
    "lg2": _library("log2"),
    "sin": _library("sin"),
    "cos": _library("cos"),
    "tanh": _library("tanh"),
}


def float_arithmetic(e: Emitter, i: Instruction) -> None:
    """An instruction whose result is computed element by element."""
    type_name = i.types[-1]
    if not is_float(type_name):
        raise e.refuse(i, f"no such operation on {type_name}")
    values = [e.read(operand, type_name) for operand in i.operands[1:]]
    text = componentwise(e, i, type_name, values, _OPERATIONS[i.opcode])
    e.write(i.operands[0], text, type_name)


def combined(e: Emitter, i: Instruction, operation: str, type_name: str, a: str, b: str) -> str:
    """add, min, max, and, or, xor of two values of any type, as atomics and `redux` need it."""
    kind = llvm_type(type_name)
    if is_float(type_name):
        return componentwise(e, i, type_name, [a, b], _OPERATIONS[operation])
    if operation in ("min", "max"):
        signed = "s" if type_name[0] == "s" else "u"
        order = "lt" if operation == "min" else "gt"
        first = e.out.pure(f"icmp {signed}{order} {kind} {a}, {b}")
        return e.out.pure(f"select i1 {first}, {kind} {a}, {kind} {b}")
    return e.out.pure(f"{operation} {kind} {a}, {b}")


# Those that exist for floats alone; the others are reached through `integers`.
TRANSLATIONS: dict[str, Translation] = dict.fromkeys(
    ("fma", "copysign", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"),
    float_arithmetic,
)
