"""Static libraries of one object file.

An archive is a list of members behind 60-byte headers; its first member is the symbol index that a
linker searches. GNU's form (`/`, big-endian offsets) serves ELF, COFF and WebAssembly; Apple's
linker wants BSD's (`__.SYMDEF`, little-endian pairs of a name's and a member's offset).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"!<arch>\n"
_HEADER = 60


def archive(name: str, data: bytes, symbols: Sequence[str], *, bsd: bool) -> bytes:
    """The archive of one object file, `data`, that defines `symbols`."""
    index = _bsd_index if bsd else _gnu_index
    # The index holds the place of the object, which depends on the length of the index alone.
    length = len(_member("/", index(symbols, 0)))
    place = len(_MAGIC) + length
    title = "__.SYMDEF" if bsd else "/"
    return _MAGIC + _member(title, index(symbols, place)) + _member(_title(name, bsd), data)


def _title(name: str, bsd: bool) -> str:
    # 16 characters are for the name; GNU marks its end, so that it may contain spaces.
    return name[:15].ljust(1, "o") + ("" if bsd else "/")


def _member(title: str, data: bytes) -> bytes:
    # Date, owner and group are 0: equal inputs give equal archives.
    head = f"{title:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode("ascii")
    assert len(head) == _HEADER
    return head + data + b"\n" * (len(data) % 2)


def _gnu_index(symbols: Sequence[str], place: int) -> bytes:
    names = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    return struct.pack(f">{len(symbols) + 1}I", len(symbols), *[place] * len(symbols)) + names


def _bsd_index(symbols: Sequence[str], place: int) -> bytes:
    names, pairs = b"", b""
    for symbol in symbols:
        pairs += struct.pack("<2I", len(names), place)
        names += symbol.encode() + b"\0"
    names += b"\0" * (-len(names) % 4)
    return struct.pack("<I", len(pairs)) + pairs + struct.pack("<I", len(names)) + names
