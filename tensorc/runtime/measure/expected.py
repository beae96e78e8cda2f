"""What a candidate must compute, and how far from it the rounding of another order may lead.

The reference is the task's own nest, compiled without a schedule. Beside it runs the same nest with
every float widened to f64. How far the two are apart tells what rounding does to this task on these
inputs; the bound that follows from counting operations (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 4.2) is far larger than what a missing term would change, and would let
wrong results pass.

* Where the two agree everywhere, the inputs are such that nothing was rounded, and a candidate must
  agree as well, up to `FLOOR` roundings of the largest result.
* Elsewhere a float may be off the wide result by `FACTOR` times the largest error of the reference,
  plus `FLOOR` times the error that summing a random walk of so many terms makes.
* Integers must be equal. Of what lies behind a jump (a comparison, a rounding to an integer) of
  floats that were rounded, one element in `RARE` may be on its other side; on whole numbers none.
* What only one of the two can represent (an overflow) must be as in the reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorc.codegen.pipeline import Options
from tensorc.dtype import DType
from tensorc.errors import CompileError
from tensorc.ir.arith import constant, sub
from tensorc.ir.interp.arrays import STORAGE, from_storage
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Node,
    Param,
    Reduce,
    Unary,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import enclosing, leaves, nodes, replace, rewrite, variables, with_buffers
from tensorc.runtime.abi import writes
from tensorc.runtime.code import compiled
from tensorc.runtime.measure.inputs import Kind
from tensorc.runtime.measure.memory import Arguments, Bound, Bytes, Sizes
from tensorc.target import Target

FACTOR = 16.0
FLOOR = 4.0
RARE = 10_000


@dataclass(frozen=True, slots=True)
class Expected:
    """The results of a task on one set of inputs.

    Attributes:
        plain: by the name of an output, its memory as the reference leaves it.
        centre: for float outputs, the results of the wide nest, as f64.
        bound: for these, how far a candidate's may be off.
        misfits: for each output, how many elements may be wrong: of those behind a jump.
    """

    plain: Mapping[str, Bytes]
    centre: Mapping[str, npt.NDArray[np.float64]]
    bound: Mapping[str, float]
    misfits: Mapping[str, int]

    @property
    def size(self) -> int:
        """Its memory, in bytes."""
        plain = sum(memory.nbytes for memory in self.plain.values())
        return plain + sum(values.nbytes for values in self.centre.values())


def wrong(expected: Expected, buffer: Buffer, memory: Bytes) -> str:
    """What is wrong with an output, in words; "" if nothing is."""
    name, dtype = buffer.name, buffer.dtype
    plain = expected.plain[name]
    if np.array_equal(plain, memory):
        return ""
    element = STORAGE[dtype]
    if dtype.is_float:
        given, reference = (from_storage(x.view(element), dtype) for x in (memory, plain))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(given - expected.centre[name]) <= expected.bound[name]
        near |= (given == reference) | (np.isnan(given) & np.isnan(reference))
    else:
        given, reference = memory.view(element), plain.view(element)
        near = given == reference
    bad = ~near
    count = int(bad.sum())
    # What was not written reads as NaN: no jump leads there.
    missing = dtype.is_float and not np.isfinite(given[bad]).all()
    if count <= expected.misfits[name] and not missing:
        return ""
    first = int(np.argmax(bad))
    allowed = f" (allowed {expected.bound[name]:.3g})" if dtype.is_float else ""
    return (
        f"{count} of {len(bad)} elements of {name} are wrong; element {first} in memory is "
        f"{given[first].item()!r}, expected {reference[first].item()!r}{allowed}"
    )


def expected(
    func: Func, target: Target, sizes: Sizes, arguments: Arguments, kind: Kind
) -> Expected:
    """Run the reference of a task on one set of inputs, of this kind.

    Raises:
        CompileError, LimitError, TargetError, VerifyError: as `build`.
    """
    plain = results(func, target, sizes, arguments)
    wide = results(widened(func), target, sizes, _widened_arguments(func, arguments))
    centre: dict[str, npt.NDArray[np.float64]] = {}
    bound: dict[str, float] = {}
    exact = True
    outputs = [p.value for p in func.params if writes(p) and isinstance(p.value, Buffer)]
    for buffer in outputs:
        name, dtype = buffer.name, buffer.dtype
        stored = plain[name].view(STORAGE[dtype])
        if dtype.is_float:
            centre[name] = wide[name].view(np.float64)
            error, scale = _error(from_storage(stored, dtype), centre[name])
            exact = exact and error == 0.0 and dtype is not DType.F64
            bound[name] = FACTOR * error + FLOOR * _walk(func, dtype) * scale
        else:
            exact = exact and np.array_equal(plain[name], wide[name])
    if exact:
        for buffer in outputs:
            if buffer.dtype.is_float:
                finite = np.abs(centre[buffer.name][np.isfinite(centre[buffer.name])])
                bound[buffer.name] = FLOOR * buffer.dtype.epsilon * float(finite.max(initial=0.0))
    jumps = has_jumps(func) and not (exact and kind == "whole")
    misfits = {name: max(1, len(memory) // RARE) if jumps else 0 for name, memory in plain.items()}
    return Expected(plain, centre, bound, misfits)


def _error(plain: npt.NDArray[np.float64], wide: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The largest error, and the largest value, of what both can represent."""
    finite = np.isfinite(plain) & np.isfinite(wide)
    error = np.abs(plain[finite] - wide[finite]).max(initial=0.0)
    return float(error), float(np.abs(wide[finite]).max(initial=0.0))


def _walk(func: Func, dtype: DType) -> float:
    """The error, relative to the result, of the longest reduction when each rounding goes either
    way, and of storing it."""
    error = 0.0
    for path, leaf in leaves(func):
        if isinstance(leaf, Reduce):
            kept = frozenset[str]().union(*map(variables, leaf.indices))
            loops = [s for _, s in enclosing(func, path) if isinstance(s, For)]
            counts = (constant(sub(x.end, x.begin)) or 1 for x in loops if x.var.name not in kept)
            terms = math.prod(max(count, 1) for count in counts)
            error = max(error, leaf.buffers[0].dtype.epsilon * math.sqrt(terms))
    return dtype.epsilon + error


def results(func: Func, target: Target, sizes: Sizes, arguments: Arguments) -> dict[str, Bytes]:
    """The memory of all arrays that a function writes, after a run. Raises as `build`."""
    kernel = Bound(compiled(func, target, Options()), sizes)
    kernel.fill(arguments)
    (call,) = kernel.calls(arguments)
    call()
    for name in kernel.damaged():
        raise CompileError(f"the plain nest of {func.name} writes outside of {name}")
    return {param.name: kernel.output(param.name) for param in func.params if writes(param)}


# The wide nest ------------------------------------------------------------------------------------


def widened(func: Func) -> Func:
    """The function with every float an f64."""

    def buffer(found: Buffer) -> Buffer:
        return replace(found, dtype=DType.F64) if found.dtype.is_float else found

    def change(node: Node) -> Node | None:
        match node:
            case Const(value=value, dtype=dtype) if dtype.is_float:
                return Const(value, DType.F64)
            case Var(dtype=dtype) if dtype.is_float:
                return replace(node, dtype=DType.F64)
            case Cast(dtype=dtype, a=a) if dtype.is_float:
                return a if dtype_of(a) is DType.F64 else Cast(DType.F64, a)
        return with_buffers(node, buffer)

    wide = rewrite(func, change)
    return replace(wide, params=tuple(_widened(param, buffer) for param in func.params))


def _widened(param: Param, buffer: Any) -> Param:
    value = param.value
    if isinstance(value, Buffer):
        return replace(param, value=buffer(value))
    return replace(param, value=replace(value, dtype=DType.F64)) if value.dtype.is_float else param


def _widened_arguments(func: Func, arguments: Arguments) -> dict[str, Any]:
    dtypes = {p.name: p.value.dtype for p in func.params if isinstance(p.value, Buffer)}
    return {
        name: from_storage(value, dtypes[name]) if name in dtypes else value
        for name, value in arguments.items()
    }


_ROUNDING = frozenset({"floor", "ceil", "round", "trunc"})
_STEPS = COMPARISONS | {"floordiv", "floormod", "truncdiv", "truncmod"}


def has_jumps(func: Func) -> bool:
    """Whether a rounding error of a float can become a step of the result."""
    return any(_jumps(expr) for expr in nodes(func, Expr)) or any(
        reduce.op in ("argmax", "argmin") and reduce.buffers[0].dtype.is_float
        for reduce in nodes(func, Reduce)
    )


def _jumps(expr: Expr) -> bool:
    match expr:
        case Unary(op=op, a=a):
            return op in _ROUNDING and dtype_of(a).is_float
        case Binary(op=op, a=a):
            return op in _STEPS and dtype_of(a).is_float
        case Cast(dtype=dtype, a=a):
            return dtype_of(a).is_float and not dtype.is_float
    return False
