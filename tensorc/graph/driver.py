"""The driver: a native function that makes all calls of a network, one after the other.

    int64_t tensorc_network(void **places, void **kernels, void *workspace, int32_t workers)

`places` holds the address of every value and `kernels` that of every task's entry, so that the code
is the same wherever they lie, and is kept in the compile cache. The result is 0, or the number of
the first call that failed, counted from 1, in the upper half and its kernel's result in the lower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tensorc.codegen.jit import LoadedObject, load_object
from tensorc.runtime.code import compiled_text
from tensorc.target import Target

SYMBOL = "tensorc_network"


@dataclass(frozen=True, slots=True)
class Step:
    """One call: the number of its kernel, and those of the places that are its arguments.

    One with `scratch` takes the workspace and the number of workers too.
    """

    kernel: int
    places: tuple[int, ...]
    scratch: bool


class Driver:
    """A driver in memory; its code lives as long as it is referenced."""

    def __init__(self, steps: Sequence[Step], target: Target):
        self.text = driver_text(steps)
        self._loaded: LoadedObject = load_object(compiled_text(self.text, target))
        arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)
        self.run: Callable[..., int] = prototype(self._loaded.address(SYMBOL))


def driver_text(steps: Sequence[Step]) -> str:
    """The driver in LLVM's text form."""
    blocks = [line for number, step in enumerate(steps) for line in _call(number, step)]
    return "\n".join(
        (
            f"define i64 @{SYMBOL}(ptr %places, ptr %kernels, ptr %workspace, i32 %workers) {{",
            "  br label %call0",
            *blocks,
            f"call{len(steps)}:",
            "  ret i64 0",
            *(_failure(len(steps)) if steps else ()),
            "}\n",
        )
    )


def _call(number: int, step: Step) -> Iterator[str]:
    name = f"%c{number}"
    yield f"call{number}:"
    yield from _load(f"{name}.f", "%kernels", step.kernel)
    for position, place in enumerate(step.places):
        yield from _load(f"{name}.{position}", "%places", place)
    arguments = [f"ptr {name}.{position}" for position in range(len(step.places))]
    arguments += ["ptr %workspace", "i32 %workers"] if step.scratch else []
    yield f"  {name}.r = call i32 {name}.f({', '.join(arguments)})"
    yield f"  {name}.ok = icmp eq i32 {name}.r, 0"
    yield f"  br i1 {name}.ok, label %call{number + 1}, label %failed"


def _load(name: str, table: str, index: int) -> tuple[str, str]:
    return (
        f"  {name}.at = getelementptr ptr, ptr {table}, i64 {index}",
        f"  {name} = load ptr, ptr {name}.at",
    )


def _failure(calls: int) -> Iterator[str]:
    wheres = ", ".join(f"[{n + 1}, %call{n}]" for n in range(calls))
    codes = ", ".join(f"[%c{n}.r, %call{n}]" for n in range(calls))
    yield "failed:"
    yield f"  %where = phi i64 {wheres}"
    yield f"  %code = phi i32 {codes}"
    yield "  %upper = shl i64 %where, 32"
    yield "  %lower = zext i32 %code to i64"
    yield "  %result = or i64 %upper, %lower"
    yield "  ret i64 %result"
