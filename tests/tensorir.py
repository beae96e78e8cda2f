"""A reader of TensorIR texts that runs them: TVM's words as far as `bench.tvm_script` writes them.

A text is Python, so it is Python that runs it, on arrays, with a `T` of ours. Before that, what
Python evaluates at once and TVM does not is made lazy: `T.init()` and `T.if_then_else`. `T.Select`
stays eager, as in TVM, and an index outside of an array is an error, also a negative one. Numbers
are NumPy scalars of their type.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class Buffer:
    """An array with strict indices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def _place(self, indices: Any) -> tuple[int, ...]:
        place = indices if isinstance(indices, tuple) else (indices,)
        shape = self.array.shape
        if not all(0 <= index < extent for index, extent in zip(place, shape, strict=True)):
            raise IndexError(f"{place} in {shape}")
        return tuple(map(int, place))

    def __getitem__(self, indices: Any) -> Any:
        return self.array[self._place(indices)]

    def __setitem__(self, indices: Any, value: Any) -> None:
        assert np.result_type(value) == self.array.dtype, (value, self.array.dtype)
        self.array[self._place(indices)] = value


class Axes:
    """The axes of blocks: `first` says whether all reduction axes are at their beginning."""

    def __init__(self) -> None:
        self.first = True

    def remap(self, kinds: str, loops: Sequence[int]) -> Any:
        assert len(kinds) == len(loops)
        assert set(kinds) <= {"S", "R"}
        self.first = all(k == "S" or loop == 0 for k, loop in zip(kinds, loops, strict=True))
        return loops[0] if len(loops) == 1 else tuple(loops)


class T:
    """The words."""

    float32, int64, bool = np.float32, np.int64, np.bool_
    exp, tanh, sqrt, abs = np.exp, np.tanh, np.sqrt, np.abs
    max, min, isnan = np.maximum, np.minimum, np.isnan

    def __init__(self) -> None:
        self.axis = Axes()

    def grid(self, *extents: int) -> Iterator[Any]:
        places = itertools.product(*map(range, extents))
        return (place[0] for place in places) if len(extents) == 1 else places

    @contextmanager
    def sblock(self, name: str) -> Iterator[None]:
        assert name
        self.axis.first = True
        yield

    def sblock_alloc_buffer(self, shape: tuple[int, ...], dtype: str) -> Buffer:
        return Buffer(np.full(shape, np.nan if dtype == "float32" else 77, dtype))

    def func_attr(self, attributes: dict[str, Any]) -> None:
        assert attributes["global_symbol"] == "main"

    def Cast(self, dtype: str, value: Any) -> Any:
        return np.dtype(dtype).type(value)

    def Select(self, condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    def erf(self, value: np.float32) -> np.float32:
        return np.float32(math.erf(value))

    def sigmoid(self, value: np.float32) -> np.float32:
        return np.float32(1.0) / (np.float32(1.0) + np.exp(-value))

    def rsqrt(self, value: np.float32) -> np.float32:
        return np.float32(1.0) / np.sqrt(value)

    def min_value(self, dtype: str) -> Any:
        return np.finfo(dtype).min

    def max_value(self, dtype: str) -> Any:
        return np.finfo(dtype).max


class _Lazy(ast.NodeTransformer):
    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.items[0].context_expr) == "T.init()":
            return ast.If(ast.parse("T.axis.first", mode="eval").body, node.body, [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.IfExp(*node.args) if ast.unparse(node.func) == "T.if_then_else" else node


def run(text: str, arrays: Sequence[np.ndarray]) -> None:
    """Run the function of a text on arrays, in the order of its parameters.

    Raises:
        IndexError: an element is read or written that an array does not have.
    """
    module = ast.parse(text)
    (function,) = module.body
    assert isinstance(function, ast.FunctionDef)
    assert [ast.unparse(one) for one in function.decorator_list] == ["T.prim_func(s_tir=True)"]
    function.decorator_list.clear()
    for parameter, array in zip(function.args.args, arrays, strict=True):
        declared = parameter.annotation
        assert declared is not None
        assert ast.unparse(declared) == f"T.Buffer({array.shape}, '{array.dtype}')"
        parameter.annotation = None
    names: dict[str, Any] = {"T": T()}
    tree = ast.fix_missing_locations(_Lazy().visit(module))
    exec(compile(tree, "<TensorIR>", "exec"), names)
    with np.errstate(all="ignore"):
        names["main"](*map(Buffer, arrays))
