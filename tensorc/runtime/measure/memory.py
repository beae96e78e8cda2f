"""The arrays that a candidate runs on: flat memory between guards, and calls on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import LoadedObject, load_object
from tensorc.dtype import DType
from tensorc.ir.nodes import Buffer, Param
from tensorc.runtime import parallel
from tensorc.runtime.abi import Signature, alignment_of, extents, scalar
from tensorc.runtime.array import aligned_bytes
from tensorc.runtime.code import Code
from tensorc.runtime.entry import span

Bytes: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = Mapping[str, int]
Arguments: TypeAlias = Mapping[str, Any]
"""By name: the elements of an array as flat storage, or a number for a scalar."""

GUARD = 256
ALIGNMENT = 64
_GUARD_BYTE = 0xA5
UNDEFINED = 0xFF
"""What memory holds that is not yet written: each float type reads it as NaN."""


class Block:
    """Memory of one array, aligned, between two guards that no kernel may touch."""

    __slots__ = ("_whole", "bytes")

    def __init__(self, size: int, alignment: int = ALIGNMENT):
        # Guards of a multiple of the alignment keep the middle aligned.
        guard = max(GUARD, alignment)
        self._whole = aligned_bytes(size + 2 * guard, alignment)
        self._whole[:guard] = _GUARD_BYTE
        self._whole[guard + size :] = _GUARD_BYTE
        self.bytes: Bytes = self._whole[guard : guard + size]

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def intact(self) -> bool:
        """Whether nothing wrote before or behind the array."""
        guard = (len(self._whole) - len(self.bytes)) // 2
        front, back = self._whole[:guard], self._whole[guard + len(self.bytes) :]
        return bool((front == _GUARD_BYTE).all() and (back == _GUARD_BYTE).all())


def bytes_of(buffer: Buffer, sizes: Sizes) -> int:
    """The memory of a buffer, from its first element to its last."""
    shape = extents(buffer, sizes)
    elements = math.prod(shape) if buffer.strides is None else span(shape, buffer.strides)
    return max(elements, 0) * buffer.dtype.bytes


def task_bytes(params: Sequence[Param], sizes: Sizes) -> int:
    """The memory of all arrays of a task."""
    return sum(bytes_of(p.value, sizes) for p in params if isinstance(p.value, Buffer))


class Bound:
    """A kernel that is loaded, with memory for its arguments.

    Args:
        code: the kernel.
        sizes: the values of its symbolic sizes.
        copies: for constants, how many copies there are; call k reads copy k modulo their number.
    """

    def __init__(self, code: Code, sizes: Sizes, copies: Mapping[str, int] | None = None):
        signature = code.signature
        self.signature, self.sizes = signature, sizes
        # The object must outlive the function.
        self._loaded: LoadedObject = load_object(
            code.object, {HOOK: parallel.address()} if code.parallel else {}
        )
        self._function = signature.function(self._loaded.address(code.symbol))
        counts = copies or {}
        self.blocks: dict[str, list[Block]] = {
            buffer.name: [
                Block(bytes_of(buffer, sizes), max(alignment_of(buffer), ALIGNMENT))
                for _ in range(counts.get(buffer.name, 1))
            ]
            for _, buffer in signature.buffers
        }
        self._workspace = _workspace(signature, sizes, parallel.prepare())
        self.variants = max(map(len, self.blocks.values()), default=1)

    def fill(self, arguments: Arguments, copies: int | None = None) -> None:
        """Set all arrays that arguments are given for, and mark all others as undefined; of copies
        the first so many, all by default."""
        for name in self.blocks:
            self.set(name, arguments, copies)

    def set(self, name: str, arguments: Arguments, copies: int | None = None) -> None:
        """The same for one array."""
        for block in self.blocks[name][:copies]:
            if name in arguments:
                block.bytes[:] = arguments[name].view(np.uint8).reshape(-1)
            else:
                block.bytes[:] = UNDEFINED

    def calls(self, arguments: Arguments) -> list[Callable[[], int]]:
        """The kernel on its memory: one call for each set of copies. Results other than 0 are
        those of failed checks."""
        scalars = {
            p.name: scalar(p.value, arguments[p.name])
            for p in self.signature.params
            if not isinstance(p.value, Buffer)
        }
        return [self._call(variant, scalars) for variant in range(self.variants)]

    def _call(self, variant: int, scalars: Mapping[str, int | float]) -> Callable[[], int]:
        function = self._function
        own = (
            self.blocks[p.name][variant % len(self.blocks[p.name])].address
            if isinstance(p.value, Buffer)
            else scalars[p.name]
            for p in self.signature.params
        )
        passed = (*own, *(self.sizes[n] for n in self.signature.sizes), *self._workspace_arguments)
        return lambda: function(*passed)

    @property
    def _workspace_arguments(self) -> tuple[int, ...]:
        if self._workspace is None:
            return ()
        block, workers = self._workspace
        return block.address, workers

    def output(self, name: str) -> Bytes:
        return self.blocks[name][0].bytes

    def damaged(self) -> Iterator[str]:
        """The arrays before or behind which something was written."""
        for name, blocks in self.blocks.items():
            if not all(block.intact() for block in blocks):
                yield name
        if self._workspace is not None and not self._workspace[0].intact():
            yield "the workspace"


def _workspace(signature: Signature, sizes: Sizes, workers: int) -> tuple[Block, int] | None:
    if not signature.scratch:
        return None
    parts = Buffer("workspace", (signature.shared_bytes, signature.worker_bytes), DType.U8)
    shared, worker = extents(parts, sizes)
    block = Block(shared + workers * worker)
    block.bytes[:] = UNDEFINED
    return block, workers
