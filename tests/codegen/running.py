"""Programs compiled and run beside the interpreter, in guarded memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import compile_module
from tensorc.codegen.llvm import Kernel, emit
from tensorc.codegen.pipeline import Lowered, Options, lower
from tensorc.dtype import DType
from tensorc.ir.interp import evaluate, from_storage, run
from tensorc.ir.interp.arrays import STORAGE, bind, shape_of, to_storage
from tensorc.ir.nodes import Buffer, Func, Var
from tensorc.ir.verify import verify
from tensorc.runtime.abi import Signature
from tensorc.target import Target
from tests.codegen.guard import Guarded, guarded_copy

Array = npt.NDArray[Any]
WORKERS = 3
PLAIN = Options()


@cache
def host() -> Target:
    return Target.parse("cpu")


@cache
def _hook() -> tuple[Any, int]:
    """A hook of our own that runs backwards and changes workers, so that order shows."""
    body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)

    def hook(function: int, context: int, count: int) -> int:
        call = body(function)
        for i in reversed(range(count)):
            code = call(context, i, i % WORKERS)
            if code:
                return int(code)
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    made = kind(hook)
    return made, ctypes.cast(made, ctypes.c_void_p).value or 0


@dataclass
class Compiled:
    """Machine code that takes arrays by name."""

    kernel: Kernel
    lowered: Lowered
    module: Any

    def __call__(self, arguments: Mapping[str, Any]) -> int:
        """Run in place; "out" arrays must be given. Returns the kernel's code."""
        kernel = self.kernel
        values: list[Any] = []
        for param in kernel.params:
            given = arguments[param.name]
            if isinstance(param.value, Buffer):
                values.append(given.ctypes.data)
            else:
                values.append(_scalar(given, param.value.dtype))
        _, sizes = bind(self.lowered.original, arguments)
        values += [sizes[name] for name in kernel.sizes]
        keep = None
        scratch = self.lowered.storage.workspace
        if scratch:
            shared = int(evaluate(kernel.shared_bytes, sizes))
            worker = int(evaluate(kernel.worker_bytes, sizes))
            keep = Guarded(-(-(shared + WORKERS * worker) // 64) * 64)
            workspace = keep.array((shared + WORKERS * worker,), np.uint8)
            workspace[:] = 0xFF
            values += [workspace.ctypes.data, WORKERS]
        signature = Signature(
            kernel.symbol, kernel.params, kernel.shared_bytes, kernel.worker_bytes
        )
        code = signature.function(self.module.address(kernel.symbol))(*values)
        assert keep is None or keep.intact()
        return int(code)


def _scalar(value: Any, dtype: DType) -> Any:
    if dtype in (DType.F16, DType.BF16):
        return int(to_storage([value], dtype).view(np.uint16)[0])
    return value


def compiled(
    func: Func,
    *,
    target: Target | None = None,
    options: Options = PLAIN,
    opt: Any = "short",
) -> Compiled:
    target = target or host()
    lowered = lower(func, target, options)
    kernel = emit(lowered)
    symbols = {HOOK: _hook()[1]} if kernel.parallel else {}
    return Compiled(kernel, lowered, compile_module(kernel.text, target, opt=opt, symbols=symbols))


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small numbers, so that sums are exact enough to compare and indices stay near."""
    if dtype.is_float:
        return to_storage(rng.integers(-8, 9, shape) / 4.0, dtype)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype is DType.INDEX:
        return rng.integers(0, 10, shape)
    low = 0 if dtype.min == 0 else -100
    return rng.integers(low, 101, shape).astype(STORAGE[dtype])


def random_arguments(func: Func, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """An array for each buffer, a number for each scalar parameter."""
    rng = np.random.default_rng(seed)
    arguments: dict[str, Any] = {}
    for param in func.params:
        if isinstance(param.value, Buffer):
            shape = shape_of(param.value, sizes)
            arguments[param.name] = random_array(rng, shape, param.value.dtype)
        else:
            arguments[param.name] = random_array(rng, (), param.value.dtype).item()
    return arguments


def same(a: Array, b: Array, dtype: DType) -> bool:
    """Equal values; all NaN are one."""
    return bool(
        np.array_equal(from_storage(a, dtype), from_storage(b, dtype), equal_nan=dtype.is_float)
    )


def flat_arguments(func: Func, stage: Func, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function as one of its stages takes them, which may be flattened."""
    made = dict(arguments)
    for before, after in zip(func.params, stage.params, strict=True):
        if isinstance(before.value, Buffer) and before.value != after.value:
            memory, _ = guarded_copy(arguments[before.name], before.value.strides)
            made[before.name] = memory.all(arguments[before.name].dtype).copy()
    return made


def check_stages(func: Func, arguments: Mapping[str, Any], target: Target | None = None) -> Lowered:
    """Every stage means what the function means; the first of them may reassociate."""
    expected = run(func, arguments, bounds=True)
    lowered = lower(func, target or host())
    dtypes = {p.name: p.value.dtype for p in func.params}
    changed = lowered.stages[0][1] != func
    for _, stage in lowered.stages:
        verify(stage, lowered=True)
        result = run(stage, flat_arguments(func, stage, arguments))
        for buffer, output in expected.outputs.items():
            found = result.outputs[buffer].reshape(output.shape)
            bounds, defined = expected.bounds[buffer], expected.defined[buffer]
            # Until reductions are combined in another order, nothing may differ at all.
            bounds = bounds if changed else np.zeros_like(bounds)
            close(found, output, dtypes[buffer], bounds, defined)
            assert (result.defined[buffer].reshape(output.shape) == defined).all()
    return lowered


def check(
    func: Func,
    arguments: Mapping[str, Any],
    *,
    target: Target | None = None,
    options: Options = PLAIN,
    opt: Any = "short",
    exact: bool = False,
) -> Compiled:
    """Compiled code gives what the interpreter gives: within the bound that it computes, or, for a
    function that cannot be evaluated in two ways, exactly."""
    expected = run(func, arguments, bounds=True)
    code = compiled(func, target=target, options=options, opt=opt)
    memories: dict[str, Guarded] = {}
    placed: dict[str, Any] = dict(arguments)
    for param in func.params:
        if isinstance(param.value, Buffer):
            given, strides = arguments[param.name], param.value.strides
            memories[param.name], placed[param.name] = guarded_copy(given, strides)
    assert code(placed) == 0
    for param in func.params:
        value = param.value
        if isinstance(value, Var):
            continue
        assert memories[param.name].intact(), f"wrote before {param.name}"
        if param.mode in ("in", "const"):
            assert (placed[param.name].view(np.uint8) == arguments[param.name].view(np.uint8)).all()
            continue
        bounds = expected.bounds[param.name]
        bounds = np.zeros_like(bounds) if exact else bounds
        output, defined = expected.outputs[param.name], expected.defined[param.name]
        close(placed[param.name], output, value.dtype, bounds, defined)
    return code


def close(found: Array, expected: Array, dtype: DType, bounds: Array, defined: Array) -> None:
    """Within the bounds, where an element is defined at all."""
    a, b = from_storage(found, dtype), from_storage(expected, dtype)
    with np.errstate(invalid="ignore"):
        right = (a == b) | (np.isnan(a) & np.isnan(b) if dtype.is_float else False)
        right |= np.abs(a - b) <= bounds if dtype.is_float else False
    wrong = ~(right | ~defined | np.isinf(bounds))
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.size} differ, first at {np.argwhere(wrong)[0].tolist()}: "
        f"{a[wrong].ravel()[0]} for {b[wrong].ravel()[0]}"
    )
