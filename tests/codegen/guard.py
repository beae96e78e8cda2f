"""Arrays in memory that tells when code leaves them.

An array ends at a page that can not be touched, so that an access past its end is a crash. The
bytes before it hold a marker, which must still be there after the call.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
MARKER = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Memory for one array: an untouchable page, markers, the array, an untouchable page."""

    def __init__(self, nbytes: int):
        pages = max(1, -(-nbytes // PAGE))
        self._memory = mmap.mmap(-1, (pages + 2) * PAGE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._size, self._pages = nbytes, pages
        inside = self.bytes()
        inside[:] = MARKER
        for page in (0, pages + 1):
            self._protect(page)

    def _protect(self, page: int) -> None:
        address = ctypes.c_void_p(self._start + page * PAGE)
        if _libc.mprotect(address, ctypes.c_size_t(PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def bytes(self) -> npt.NDArray[np.uint8]:
        """All bytes that may be touched."""
        whole = np.frombuffer(self._memory, dtype=np.uint8)
        return whole[PAGE : (self._pages + 1) * PAGE]

    def array(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """The array, whose last byte is the last that may be touched."""
        inside = self.bytes()
        return inside[len(inside) - self._size :].view(dtype).reshape(shape)

    def all(self, dtype: Any) -> npt.NDArray[Any]:
        """The array's memory as one row."""
        return self.array((-1,), dtype)

    def intact(self) -> bool:
        """Whether the bytes before the array are as they were."""
        inside = self.bytes()
        return bool((inside[: len(inside) - self._size] == MARKER).all())


def guarded_copy(
    array: npt.NDArray[Any], strides: tuple[int, ...] | None = None
) -> tuple[Guarded, npt.NDArray[Any]]:
    """A copy of an array in guarded memory: contiguous, or with these strides in elements."""
    if strides is None or not array.size:
        memory = Guarded(array.nbytes)
        copy = memory.array(array.shape, array.dtype)
    else:
        steps = zip(array.shape, strides, strict=True)
        elements = 1 + sum((extent - 1) * stride for extent, stride in steps)
        memory = Guarded(elements * array.itemsize)
        base = memory.array((elements,), array.dtype)
        inside = [stride * array.itemsize for stride in strides]
        copy = np.lib.stride_tricks.as_strided(base, array.shape, inside)
    copy[...] = array
    return memory, copy
