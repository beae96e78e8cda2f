"""Cubins: the kernels of one, and the sizes of their parameters.

A cubin is an ELF file; each kernel has a section `.nv.info.<kernel>` of records. One of the kind
KPARAM_INFO tells a parameter's number, place and size.
"""

from __future__ import annotations

import struct

from tensorc.errors import CompileError

_SECTION = struct.Struct("<2I4Q2I2Q")
_RECORD = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_INFO = ".nv.info."
_SIZED = 4
"""The format of records that are followed by so many bytes as their last field says."""
_KPARAM_INFO = 0x17


def parameters(image: bytes) -> dict[str, tuple[int, ...]]:
    """The bytes of each parameter of each kernel, in their order.

    Raises:
        CompileError: the image is no cubin.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise CompileError("the image is no cubin: it is not ELF of 64 bits")
    try:
        return _parameters(image)
    except (struct.error, ValueError, IndexError) as error:
        raise CompileError(f"the image is a damaged cubin: {error}") from None


def _parameters(image: bytes) -> dict[str, tuple[int, ...]]:
    start = struct.unpack_from("<Q", image, 40)[0]
    size, count, names = struct.unpack_from("<3H", image, 58)
    sections = [_SECTION.unpack_from(image, start + size * index) for index in range(count)]
    base, found = sections[names][4], {}
    for name, _, _, _, offset, length, *_ in sections:
        text = image[base + name : image.index(0, base + name)].decode()
        if text.startswith(_INFO):
            found[text.removeprefix(_INFO)] = _of_kernel(image[offset : offset + length])
    return found


def _of_kernel(data: bytes) -> tuple[int, ...]:
    sizes: dict[int, int] = {}
    place = 0
    while place < len(data):
        form, kind, value = _RECORD.unpack_from(data, place)
        place += _RECORD.size
        if form != _SIZED:
            continue
        if kind == _KPARAM_INFO:
            _, ordinal, _, packed = _PARAMETER.unpack_from(data, place)
            sizes[ordinal] = packed >> 18 & 0x3FFF
        place += value
    return tuple(size for _, size in sorted(sizes.items()))
