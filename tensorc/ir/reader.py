"""Reading tokens one after another, with errors that say what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorc.errors import ParseError
from tensorc.ir import grammar
from tensorc.ir.lexer import Kind, Source, Token, tokens

_BASES = ("x", "o", "b")


class Reader:
    """A position in a list of tokens."""

    def __init__(self, source: Source):
        self.source = source
        self.tokens: Sequence[Token] = list(tokens(source))
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def error(self, token: Token, reason: str) -> ParseError:
        return self.source.error(reason, token.line, token.column)

    def next(self) -> Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these operators or unquoted words."""
        token = self.token
        return token.text in texts and token.kind in ("operator", "name")

    def ahead(self, text: str, distance: int = 1) -> bool:
        """Whether the token after the next is this operator."""
        position = min(self.position + distance, len(self.tokens) - 1)
        token = self.tokens[position]
        return token.kind == "operator" and token.text == text

    def sees(self, kind: Kind) -> bool:
        return self.token.kind == kind

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.next()
            return True
        return False

    def expect(self, text: str, where: str = "") -> Token:
        if not self.at(text):
            raise self.expected(f"`{text}`{where}")
        return self.next()

    def expected(self, what: str) -> ParseError:
        token = self.token
        found = {"newline": "the end of the line", "end": "the end of the text"}.get(
            token.kind, f"`{token.text}`" if token.text else f"an {token.kind}"
        )
        return self.error(token, f"expected {what}, found {found}")

    def name(self, what: str) -> Token:
        token = self.token
        if token.kind != "name":
            raise self.expected(what)
        if token.text in grammar.RESERVED:
            reason = f"found the reserved word {token.text}; as a name it is written `{token.text}`"
            raise self.error(token, f"expected {what}, {reason}")
        return self.next()

    def number(self, token: Token) -> int | float:
        text = token.text.replace("_", "").lower()
        try:
            value = int(text, 0) if text.isdigit() or text[1:2] in _BASES else float(text)
        except ValueError:
            raise self.error(
                token, "this is no integer literal: too long, or with a leading zero"
            ) from None
        if value == math.inf:
            raise self.error(token, "this literal is out of range for a float; write inf")
        return value
