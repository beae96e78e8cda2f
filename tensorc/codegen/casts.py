"""Conversions between dtypes, as `tensorc.ir.nodes.Cast` defines them, rounding at most once."""

from __future__ import annotations

from tensorc.codegen.context import Context
from tensorc.codegen.halves import odd_f32, odd_f64, rounded
from tensorc.codegen.values import HALVES, Value, constant, suffix, type_of
from tensorc.dtype import DType


def cast(c: Context, a: Value, dtype: DType) -> Value:
    if a.dtype is dtype:
        return a
    if dtype is DType.BOOL:
        return Value(_is_not_zero(c, a), dtype, a.lanes)
    if a.dtype.is_float:
        return _float_to_float(c, a, dtype) if dtype.is_float else _float_to_integer(c, a, dtype)
    return _integer_to_float(c, a, dtype) if dtype.is_float else _integer_to_integer(c, a, dtype)


def _is_not_zero(c: Context, a: Value) -> str:
    zero = constant(0, a.dtype, a.lanes).text
    compare = "fcmp une" if a.dtype.is_float else "icmp ne"
    return c.out.pure(f"{compare} {a.type} {a.text}, {zero}")


def _integer_to_integer(c: Context, a: Value, dtype: DType) -> Value:
    result = Value(a.text, dtype, a.lanes)
    here = 1 if a.dtype is DType.BOOL else a.dtype.bits
    if here == dtype.bits:
        return result
    signed = a.dtype.is_signed and a.dtype is not DType.BOOL
    opcode = "trunc" if here > dtype.bits else "sext" if signed else "zext"
    return result._replace(text=c.out.pure(f"{opcode} {a.type} {a.text} to {result.type}"))


def _float_to_integer(c: Context, a: Value, dtype: DType) -> Value:
    """Truncated and saturated; NaN gives 0."""
    result = Value("", dtype, a.lanes)
    name = "fptosi" if dtype.is_signed else "fptoui"
    endings = f"{suffix(type_of(dtype), a.lanes)}.{suffix(type_of(a.dtype), a.lanes)}"
    text = c.out.pure(f"call {result.type} @llvm.{name}.sat.{endings}({a.type} {a.text})")
    return result._replace(text=text)


def _integer_to_float(c: Context, a: Value, dtype: DType) -> Value:
    signed = a.dtype.is_signed and a.dtype is not DType.BOOL
    opcode = "sitofp" if signed else "uitofp"
    # A half can need more of the integer than an f32 keeps: those go through a double.
    if dtype in HALVES and a.dtype.bits > 16 and a.dtype is not DType.BOOL:
        double = type_of(DType.F64, a.lanes)
        if a.dtype.bits == 64:
            wide = odd_f64(c, a)
        else:
            wide = c.out.pure(f"{opcode} {a.type} {a.text} to {double}")
        return _float_to_float(c, Value(wide, DType.F64, a.lanes), dtype)
    result = Value("", dtype, a.lanes)
    text = c.out.pure(f"{opcode} {a.type} {a.text} to {result.type}")
    return rounded(c, result._replace(text=text))


def _float_to_float(c: Context, a: Value, dtype: DType) -> Value:
    result = Value(a.text, dtype, a.lanes)
    if dtype in HALVES:
        if a.dtype is DType.F64:
            result = result._replace(text=odd_f32(c, a))
        return rounded(c, result)
    if result.type == a.type:
        return result
    opcode = "fpext" if dtype is DType.F64 else "fptrunc"
    return result._replace(text=c.out.pure(f"{opcode} {a.type} {a.text} to {result.type}"))
