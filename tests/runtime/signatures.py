"""A kernel that only notes its calls, and short ways to write a signature."""

from __future__ import annotations

from tensorc.dtype import DType
from tensorc.ir.arith import index, var
from tensorc.ir.nodes import Buffer, Param
from tensorc.runtime.abi import Signature
from tensorc.runtime.entry import make_entry


class Calls(list):
    """A kernel that notes its arguments and gives the result that it is told to."""

    result = 0

    def __call__(self, *arguments):
        self.append(arguments)
        return self.result


def bound(*params, name="kernel"):
    """A noting kernel, and the entry check in front of it."""
    calls = Calls()
    return calls, make_entry(Signature(name, params)).bind(calls, RuntimeError, None, None)


def buffer(name, *shape, dtype=DType.F32, mode="in", **more):
    """A parameter; extents may be numbers, names of sizes, or expressions."""
    extents = tuple(index(e) if isinstance(e, int) else var(e) if isinstance(e, str) else e
                    for e in shape)  # fmt: skip
    return Param(Buffer(name, extents, dtype, **more), mode)
