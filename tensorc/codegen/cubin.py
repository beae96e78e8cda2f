"""Cubins: the kernels of one, their code, what they take, and the sizes of their parameters.

A cubin is an ELF file. The code of a kernel is in the section `.text.<kernel>`, what it declares of
shared memory in `.nv.shared.<kernel>`. The section `.nv.info` holds records of all kernels, by the
numbers of their symbols, and `.nv.info.<kernel>` those of one; one of the kind KPARAM_INFO tells a
parameter's number, place and size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorc.errors import CompileError

_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<IBBHQQ")
_RECORD = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_PAIR = struct.Struct("<2I")
_INFO, _TEXT, _SHARED = ".nv.info", ".text.", ".nv.shared."
_SIZED = 4
"""The format of records that are followed by so many bytes as their last field says."""
_KPARAM_INFO = 0x17
_REGISTERS, _STACK = 0x2F, 0x11
"""Kinds of records: EIATTR_REGCOUNT and EIATTR_FRAME_SIZE, each a symbol's number and a value."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes.

    Attributes:
        registers: of 32 bits in each thread.
        stack: bytes of local memory in each thread: spilled registers, and arrays that are indexed
            by what is not known before it runs.
        shared: bytes of the section of shared memory; from sm_90 on it has those that the driver
            reserves in it.
        code: the instructions.
    """

    registers: int
    stack: int
    shared: int
    code: bytes


def parameters(image: bytes) -> dict[str, tuple[int, ...]]:
    """The bytes of each parameter of each kernel, in their order.

    Raises:
        CompileError: the image is no cubin.
    """
    found = {}
    for name, data in _checked(image).items():
        if name.startswith(f"{_INFO}."):
            found[name.removeprefix(f"{_INFO}.")] = _of_kernel(data)
    return found


def resources(image: bytes) -> dict[str, Resources]:
    """What each kernel of a cubin takes.

    Raises:
        CompileError: the image is no cubin.
    """
    sections = _checked(image)
    try:
        names = _symbols(sections)
        totals = {(kind, names[n]): value for kind, n, value in _pairs(sections.get(_INFO, b""))}
    except (struct.error, ValueError, IndexError) as error:
        raise _damaged(error) from None
    made = {}
    for section, code in sections.items():
        if section.startswith(_TEXT):
            name = section.removeprefix(_TEXT)
            made[name] = Resources(
                totals.get((_REGISTERS, name), 0),
                totals.get((_STACK, name), 0),
                len(sections.get(_SHARED + name, b"")),
                code,
            )
    return made


def _damaged(error: Exception) -> CompileError:
    return CompileError(f"the image is a damaged cubin: {error}")


def _checked(image: bytes) -> Mapping[str, bytes]:
    if image[:6] != b"\x7fELF\x02\x01":
        raise CompileError("the image is no cubin: it is not ELF of 64 bits")
    try:
        return dict(_sections(image))
    except (struct.error, ValueError, IndexError) as error:
        raise _damaged(error) from None


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections by their names; shared memory, which the file does not hold, as zeros."""
    start = struct.unpack_from("<Q", image, 40)[0]
    size, count, names = struct.unpack_from("<3H", image, 58)
    sections = [_SECTION.unpack_from(image, start + size * index) for index in range(count)]
    base = sections[names][4]
    for name, kind, _, _, offset, length, *_ in sections:
        text = image[base + name : image.index(0, base + name)].decode()
        yield text, bytes(length) if kind == _NOBITS else image[offset : offset + length]


_NOBITS = 8


def _symbols(sections: Mapping[str, bytes]) -> list[str]:
    table, names = sections.get(".symtab", b""), sections.get(".strtab", b"")
    starts = (_SYMBOL.unpack_from(table, place)[0] for place in range(0, len(table), _SYMBOL.size))
    return [names[start : names.index(0, start)].decode() for start in starts]


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        form, kind, value = _RECORD.unpack_from(data, place)
        place += _RECORD.size
        if form == _SIZED:
            yield kind, data[place : place + value]
            place += value


def _pairs(data: bytes) -> Iterator[tuple[int, int, int]]:
    for kind, content in _records(data):
        if kind in (_REGISTERS, _STACK):
            yield (kind, *_PAIR.unpack(content))


def _of_kernel(data: bytes) -> tuple[int, ...]:
    sizes: dict[int, int] = {}
    try:
        for kind, content in _records(data):
            if kind == _KPARAM_INFO:
                _, ordinal, _, packed = _PARAMETER.unpack(content)
                sizes[ordinal] = packed >> 18 & 0x3FFF
    except struct.error as error:
        raise _damaged(error) from None
    return tuple(size for _, size in sorted(sizes.items()))
