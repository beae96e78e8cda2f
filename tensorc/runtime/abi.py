"""The C interface of a kernel, as data: its arguments in order, and how ctypes passes them.

    int32_t f(T *A, ..., T alpha, ..., int64_t N, ... [, void *workspace, int32_t workers])

Arrays and scalars come in the order of the parameters, then the symbolic sizes in order of first
appearance, then, for a kernel with scratch, the workspace. The result is 0, or the number of a
failed run-time check.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import TRUE
from tensorc.ir.grammar import name_text
from tensorc.ir.interp.scalars import floordiv, floormod, truncdiv, truncmod
from tensorc.ir.nodes import Binary, Buffer, Const, Expr, Param, Select, Unary, Var
from tensorc.ir.print import print_expr
from tensorc.ir.walk import nodes
from tensorc.ir.words import kind_of

# f16 and bf16 scalars travel as their bits: C has no portable type for either.
CTYPES: Mapping[DType, type] = {
    DType.BOOL: ctypes.c_uint8,
    DType.I8: ctypes.c_int8,
    DType.U8: ctypes.c_uint8,
    DType.I16: ctypes.c_int16,
    DType.I32: ctypes.c_int32,
    DType.I64: ctypes.c_int64,
    DType.U32: ctypes.c_uint32,
    DType.F16: ctypes.c_uint16,
    DType.BF16: ctypes.c_uint16,
    DType.F32: ctypes.c_float,
    DType.F64: ctypes.c_double,
    DType.INDEX: ctypes.c_int64,
}

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
_CALLS = frozenset({"min", "max", "floordiv", "floormod", "truncdiv", "truncmod"})


_NOTHING = Const(0, DType.INDEX)


@dataclass(frozen=True)
class Signature:
    """What a caller of a kernel needs to know.

    A kernel with scratch takes a workspace of shared_bytes + workers * worker_bytes, which are
    expressions over the sizes; both are 0 for one without. `legal` is the condition on sizes, and
    on scalars of index type, under which no access leaves its array.
    """

    name: str
    params: tuple[Param, ...]
    shared_bytes: Expr = _NOTHING
    worker_bytes: Expr = _NOTHING
    legal: Expr = TRUE

    @property
    def scratch(self) -> bool:
        """Whether the kernel takes a workspace."""
        return (self.shared_bytes, self.worker_bytes) != (_NOTHING, _NOTHING)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The symbolic sizes, in order of first appearance."""
        found: dict[str, None] = {}
        for _, buffer in self.buffers:
            for extent in buffer.shape:
                found.update(dict.fromkeys(symbols(extent)))
        return tuple(found)

    @cached_property
    def buffers(self) -> tuple[tuple[int, Buffer], ...]:
        """The parameters that are arrays, each with its position."""
        return tuple(
            (position, param.value)
            for position, param in enumerate(self.params)
            if isinstance(param.value, Buffer)
        )

    @cached_property
    def argument_types(self) -> tuple[type, ...]:
        """The ctypes of the C parameters."""
        own = (
            ctypes.c_void_p if isinstance(p.value, Buffer) else CTYPES[p.value.dtype]
            for p in self.params
        )
        sizes = (ctypes.c_int64 for _ in self.sizes)
        return (*own, *sizes, *((ctypes.c_void_p, ctypes.c_int32) if self.scratch else ()))

    def function(self, address: int, *more: type) -> Callable[..., int]:
        """The kernel at an address, as a callable that releases the GIL; `more` is for arguments
        that a variant of it takes at the end."""
        return ctypes.CFUNCTYPE(ctypes.c_int32, *self.argument_types, *more)(address)

    def __str__(self) -> str:
        return f"{name_text(self.name)}({', '.join(described(param) for param in self.params)})"


def writes(param: Param) -> bool:
    return param.mode in ("out", "inout")


def described(param: Param) -> str:
    """A parameter for people: `A: f32[1024, N]`, with its mode unless it is only read."""
    value, name = param.value, name_text(param.name)
    if isinstance(value, Var):
        return f"{name}: {value.dtype}"
    mode = f"{param.mode} " if writes(param) else ""
    return f"{name}: {mode}{value.dtype}[{shape_text(value)}]"


def shape_text(buffer: Buffer) -> str:
    return ", ".join(print_expr(extent, DType.INDEX) for extent in buffer.shape)


def symbols(extent: Expr) -> tuple[str, ...]:
    """The sizes that occur in a dimension, in order, possibly repeated."""
    return tuple(variable.name for variable in nodes(extent, Var))


def alignment_of(buffer: Buffer) -> int:
    """The bytes to which the first element must be aligned."""
    return max(buffer.alignment or 1, buffer.dtype.bytes)


def python_of(extent: Expr, names: Mapping[str, str]) -> str:
    """A dimension as Python source, with its variables called by `names`.

    Raises:
        TypeError: an expression that no dimension can be.
    """
    match extent:
        case Const(value=value):
            return repr(value)
        case Var(name=name):
            return names[name]
        case Binary(op=op, a=a, b=b) if op in _CALLS:
            return f"{op}({python_of(a, names)}, {python_of(b, names)})"
        case Binary(op=op, a=a, b=b) if op in _INFIX:
            return f"({python_of(a, names)} {_INFIX[op]} {python_of(b, names)})"
        case Unary(op="neg", a=a):
            return f"(-{python_of(a, names)})"
        case Select(condition=condition, a=a, b=b):
            test = python_of(condition, names)
            return f"({python_of(a, names)} if {test} else {python_of(b, names)})"
    raise TypeError(f"not the extent of a dimension: {extent!r}")


# What the text of a dimension may call.
DIVISIONS: Mapping[str, Callable[[int, int], int]] = {
    f.__name__: f for f in (floordiv, floormod, truncdiv, truncmod)
}


def extents(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a buffer for given symbolic sizes."""
    return tuple(_extent(extent, sizes) for extent in buffer.shape)


def _extent(extent: Expr, sizes: Mapping[str, int]) -> int:
    match extent:
        case Const(value=value):
            return int(value)
        case Var(name=name):
            return sizes[name]
    names = {name: f"sizes[{name!r}]" for name in symbols(extent)}
    return int(eval(python_of(extent, names), {**DIVISIONS, "sizes": sizes}))


def scalar(param: Var, value: object) -> int | float:
    """A scalar argument as ctypes passes it.

    Numbers of Python and NumPy are taken: an integer for an integer type if it is in range, any
    real number for a float type if it does not round to infinity, a bool for bool alone.

    Raises:
        ArgumentError: the value is of another kind or out of range.
    """
    got = f"it is {value!r}" if isinstance(value, _NUMBERS) else f"it is {kind_of(value)}"
    number = value.item() if isinstance(value, np.generic) else value
    dtype = param.dtype
    if dtype is DType.BOOL:
        if isinstance(number, bool):
            return int(number)
        raise ArgumentError(param.name, f"{got}; needed a bool")
    if dtype.is_float:
        if isinstance(number, int | float) and not isinstance(number, bool):
            return _float_argument(param, number)
        raise ArgumentError(param.name, f"{got}; needed a number for {dtype}")
    if isinstance(number, int) and not isinstance(number, bool) and _fits(number, dtype):
        return number
    raise ArgumentError(param.name, f"{got}; needed {dtype}: {dtype.min} to {dtype.max}")


def _fits(number: int, dtype: DType) -> bool:
    return dtype.min <= number <= dtype.max


_NUMBERS = (bool, int, float, np.generic)


def _float_argument(param: Var, number: float) -> int | float:
    dtype = param.dtype
    try:
        rounded = float(dtype.wrap(float(number)))
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded) and abs(number) != math.inf:
        raise ArgumentError(param.name, f"{number!r} is too large for {dtype}")
    if dtype is DType.F16:
        return int.from_bytes(struct.pack("<e", rounded), "little")
    if dtype is DType.BF16:
        return int.from_bytes(struct.pack("<f", rounded), "little") >> 16
    return rounded
