"""Static libraries of one object file.

An archive is a list of members behind 60-byte headers; its first member is the symbol index that a
linker searches. GNU's form (`/`, big-endian offsets) serves ELF, COFF and WebAssembly. Apple's
linker wants BSD's: an index `__.SYMDEF` of little-endian pairs, a name's place and a member's, and
names that stand in front of the data, padded so that the data is aligned to 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"!<arch>\n"
_HEADER = 60
_ALIGNMENT = 8


def archive(name: str, data: bytes, symbols: Sequence[str], *, bsd: bool) -> bytes:
    """The archive of one object file, `data`, that defines `symbols`."""
    member, index = (_bsd_member, _bsd_index) if bsd else (_gnu_member, _gnu_index)
    title = "__.SYMDEF" if bsd else ""
    # The index tells where the object is, which depends on the length of the index alone.
    place = len(_MAGIC) + len(member(title, index(symbols, 0), len(_MAGIC)))
    head = _MAGIC + member(title, index(symbols, place), len(_MAGIC))
    return head + member(name, data, place)


def _member(title: str, data: bytes) -> bytes:
    # Date, owner and group are 0: equal inputs give equal archives.
    head = f"{title:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode("ascii")
    assert len(head) == _HEADER
    return head + data + b"\n" * (len(data) % 2)


def _gnu_member(name: str, data: bytes, _: int) -> bytes:
    # A slash ends the name, so that it may contain spaces; 16 characters are for both.
    return _member(f"{name[:15]}/", data)


def _bsd_member(name: str, data: bytes, place: int) -> bytes:
    text = name.encode()
    text += b"\0" * (-(place + _HEADER + len(text)) % _ALIGNMENT)
    return _member(f"#1/{len(text)}", text + data)


def _gnu_index(symbols: Sequence[str], place: int) -> bytes:
    names = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    return struct.pack(f">{len(symbols) + 1}I", len(symbols), *[place] * len(symbols)) + names


def _bsd_index(symbols: Sequence[str], place: int) -> bytes:
    names, pairs = b"", b""
    for symbol in symbols:
        pairs += struct.pack("<2I", len(names), place)
        names += symbol.encode() + b"\0"
    names += b"\0" * (-len(names) % _ALIGNMENT)
    return struct.pack("<I", len(pairs)) + pairs + struct.pack("<I", len(names)) + names
