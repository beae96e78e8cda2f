"""`@tc.func`: a Python function whose source is read as a program; it is never run.

    @tc.func
    def skew(A: tc.Buffer["f32", 64, "N"]):
        for i in range(1, 64):
            for k in range(N - 1):
                A[i, k] = A[i - 1, k + 1] * 2.0

The grammar is that of `parse`, with what Python adds:

* A name that the function does not declare is looked up where Python would find it. Integers and
  floats become literals, `tc.` may stand before any name of the language, and arithmetic of
  literals is done at once.
* A string in a shape is an expression of sizes that are known only at the call: "N", "2 * N + 1".
* Scopes end as in Python: a loop variable or buffer used again in a later loop becomes i_2, i_3.
* A docstring is skipped.

The types of scalar parameters are the dtypes, f32 or index, of this module.
"""

from __future__ import annotations

import inspect
import numbers
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.lexer import Source
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse_source
from tensorc.ir.parse_expr import Outside

__all__ = [
    "Buffer",
    "bf16",
    "bool",
    "f16",
    "f32",
    "f64",
    "func",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "u8",
    "u32",
]

bool, index = DType.BOOL, DType.INDEX
i8, u8, i16, i32, i64, u32 = DType.I8, DType.U8, DType.I16, DType.I32, DType.I64, DType.U32
f16, bf16, f32, f64 = DType.F16, DType.BF16, DType.F32, DType.F64


class Buffer:
    """The type of a buffer parameter, Buffer[dtype, extent, ..., mode], as `func` reads it."""

    def __class_getitem__(cls, item: object) -> type[Buffer]:
        return cls


if TYPE_CHECKING:
    # A type checker must not look into the function: its annotations are no types, and its names
    # are those of the program.
    from typing import no_type_check as func
else:

    def func(function: Callable[..., Any] | None = None, **options: object) -> Func:
        """The program that a Python function's source stands for, with spans into the user's file.

        Raises ParseError, with the place in the file, for what is no part of the language; and
        ArgumentError when `function` is no function with a source file.
        """
        if function is None or options:
            raise ArgumentError(
                "function", "there are no options: write @tc.func alone, without ()"
            )
        return _program(function, sys._getframe(1))


def _program(function: Callable[..., Any], caller: FrameType) -> Func:
    if not isinstance(function, FunctionType):
        raise ArgumentError("function", f"{function!r} is no function written with `def`")
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        raise ArgumentError(
            "function",
            f"the source of {function.__qualname__} cannot be found (it was made by exec or typed "
            "at a prompt); give the text to tc.parse",
        ) from None
    names = _PythonNames(tuple(_scopes(function, caller)))
    source = Source("".join(lines), function.__code__.co_filename, max(first, 1))
    return parse_source(source, Outside(True, names.value, names.plain))


def _scopes(function: FunctionType, caller: FrameType) -> Iterator[Mapping[str, Any]]:
    """The names that a function can see, innermost scope first; `caller` is where it is decorated.

    A name that stands in annotations alone is in no closure cell, but it is in the frame of the
    enclosing function, which runs the decorator.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield {name: _contents(cell) for name, cell in cells}
    enclosing = f"{caller.f_code.co_qualname}.<locals>.{function.__name__}"
    if function.__qualname__ == enclosing:
        yield caller.f_locals
    yield function.__globals__


def _contents(cell: CellType) -> object:
    """What a closure's cell holds; None for a variable that has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _PythonNames:
    """What the names of a Python function stand for, from its scopes, innermost first."""

    scopes: tuple[Mapping[str, Any], ...]

    def value(self, name: str) -> object:
        """What a (dotted) name stands for, numbers as Python's own; None when it is not known."""
        head, *attributes = name.split(".")
        value: object = next((scope[head] for scope in self.scopes if head in scope), None)
        for attribute in attributes:
            value = getattr(value, attribute, None)
        if isinstance(value, int | float):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        return float(value) if isinstance(value, numbers.Real) else value

    def plain(self, name: str) -> str:
        """A name without the package's before it."""
        head, dot, rest = name.partition(".")
        module = self.value(head) if dot else None
        ours = isinstance(module, ModuleType) and module.__name__.partition(".")[0] == "tensorc"
        return rest if ours else name
