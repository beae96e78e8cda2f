"""The tokens of a PTX text, and the position of a reader in them."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator

from tensorc.emulator.ptx import Float
from tensorc.errors import ParseError

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)
    |(?P<string>"[^"\n]*")
    |(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})
    |(?P<version>\d+\.\d+)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?)
    |(?P<word>[%$_A-Za-z][\w$]*(?:(?:\.|::)[\w$]+)*)
    |(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<mark>[{}\[\]()<>,;:|!+\-=@])""",
    re.VERBOSE | re.DOTALL,
)
END = "the end of the text"


class PtxError(ParseError):
    """A text that is not PTX, or PTX of a form that the emulator has no meaning for."""


class Tokens:
    """The position in the tokens of a text, and the refusals that name it."""

    def __init__(self, text: str, file: str):
        self.file = file
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._tokens = list(self._split(text.rstrip("\0")))
        self.at = 0

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._error(f"unexpected character {text[position]!r}", position)
            if found.lastgroup != "space":
                yield str(found.lastgroup), found[0], position
            position = found.end()
        yield END, END, len(text)

    @property
    def text(self) -> str:
        return self._tokens[self.at][1]

    @property
    def kind(self) -> str:
        return self._tokens[self.at][0]

    @property
    def line(self) -> int:
        return bisect_right(self._starts, self._tokens[self.at][2])

    def error(self, reason: str) -> PtxError:
        """A refusal at the next token."""
        return self._error(reason, self._tokens[self.at][2])

    def _error(self, reason: str, position: int) -> PtxError:
        line = min(bisect_right(self._starts, position), len(self._lines))
        column = position - self._starts[line - 1] + 1
        return PtxError(reason, line, column, self._lines[line - 1], self.file)

    def take(self) -> str:
        if self.kind == END:
            raise self.error(f"unexpected {END}")
        text = self.text
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.text != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text}, not {self.text}")

    def word(self, what: str) -> str:
        if self.kind != "word":
            raise self.error(f"expected {what}, not {self.text}")
        return self.take()

    def integer(self) -> int:
        """A literal of at most 64 bits; a leading zero makes it octal (section 4.5.1)."""
        sign = -1 if self.accept("-") else 1
        if self.kind != "number":
            raise self.error(f"expected a number, not {self.text}")
        digits = self.text.rstrip("U")
        octal = digits.isdigit() and digits.startswith("0")
        if octal and not set(digits) <= set("01234567"):
            raise self.error(f"{digits} begins with 0 and is no octal number")
        value = int(digits, 8 if octal else 0)
        if value >> 64:
            raise self.error(f"{digits} has more than 64 bits")
        self.take()
        return sign * value

    def count(self, what: str, most: int) -> int:
        """A number from 0 to `most`."""
        number = self.integer()
        if not 0 <= number <= most:
            self.at -= 1
            raise self.error(f"{what} cannot be {number}; legal here: 0 to {most}")
        return number

    def skip_past(self, mark: str) -> None:
        while not self.accept(mark):
            self.take()

    def skip_braces(self) -> None:
        self.expect("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take(), 0)


def float_literal(text: str) -> Float:
    """`0f` or `0d` and the bits in hexadecimal."""
    return Float(int(text[2:], 16), 32 if text[1] in "fF" else 64)


def literal_bits(literal: Float, width: int) -> int:
    """The bits of a literal as a float of this width."""
    if literal.width == width:
        return literal.bits
    value = _unpacked(literal)
    return int.from_bytes(struct.pack("<f" if width == 32 else "<d", value), "little")


def _unpacked(literal: Float) -> float:
    code = "<f" if literal.width == 32 else "<d"
    value: float = struct.unpack(code, literal.bits.to_bytes(literal.width // 8, "little"))[0]
    return value
