"""Object files: the symbols, to tell a user which one is missing, and the size of the code.

The format is the System V ABI's, chapter 4 ("Object Files"), in its 64-bit little-endian form.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_LOCAL = 0
_EXECUTABLE = 4
_WEAK = 2


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that other objects can use, and those that others must provide, each sorted."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def symbols_of(data: bytes) -> Symbols | None:
    """The global symbols of an object file; None if it is not ELF of 64 bits, little-endian.

    An undefined weak symbol need not be provided and is left out.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _symbols(data)
    except (struct.error, IndexError):
        # A damaged table: the linker, which reads all of the file, says what is wrong with it.
        return None


def code_bytes(data: bytes) -> int:
    """The bytes of machine code in an object file; all of a file that is not as above."""
    if data[:6] != b"\x7fELF\x02\x01":
        return len(data)
    return sum(length for _, _, flags, _, _, length, *_ in _sections(data) if flags & _EXECUTABLE)


def _sections(data: bytes) -> list[tuple[int, ...]]:
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<2H", data, 58)
    return [_SECTION.unpack_from(data, start + size * index) for index in range(count)]


def _symbols(data: bytes) -> Symbols:
    sections = _sections(data)
    defined, undefined = set(), set()
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        # The first entry of every table is the empty symbol.
        for place in range(offset + _SYMBOL.size, offset + length, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, place)
            text = data[names + name : data.index(0, names + name)].decode(errors="replace")
            if section and info >> 4 != _LOCAL:
                defined.add(text)
            elif not section and info >> 4 not in (_LOCAL, _WEAK):
                undefined.add(text)
    return Symbols(tuple(sorted(defined)), tuple(sorted(undefined)))
