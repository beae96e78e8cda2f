"""The tokens of a program text: Python's, with dotted names as one token and names in backticks.

Python's own tokenizer is not used because its treatment of what is not Python (a backtick, a
keyword in a dotted name) changes with the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tensorc.errors import ParseError
from tensorc.ir.grammar import NAME, unquoted

Kind: TypeAlias = Literal[
    "name", "number", "string", "operator", "newline", "indent", "dedent", "end"
]
DIGITS = r"[0-9](?:_?[0-9])*"
_TOKEN = re.compile(
    rf"""
      (?P<space>[ \t\f]+|\\\n)
    | (?P<comment>\#[^\n]*)
    | (?P<newline>\n)
    | (?P<string>[rR]?(?:\"""(?:[^\\]|\\.)*?\"""|'''(?:[^\\]|\\.)*?'''
                       |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    | (?P<quoted>`(?:[^`\\\n]|\\.)*`)
    | (?P<name>{NAME})
    | (?P<number>0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+
                 |(?:{DIGITS}\.?(?:{DIGITS})?|\.{DIGITS})(?:[eE][-+]?{DIGITS})?)
    | (?P<operator>\*\*=|//=|<<=|>>=|\*\*|//|<<|>>
                   |[-+*/%&|^@<>=!]=|:=|->|[-+*/%&|^@<>=~()\[\]{{}},:;])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"


class Token(NamedTuple):
    """`text` is as written and `value` what it stands for; a line from 1 and columns from 0."""

    kind: Kind
    text: str
    value: str
    line: int
    column: int
    end_column: int


@dataclass(slots=True)
class Source:
    """A text that is being read; `first_line` is the number of its first line in its file."""

    text: str
    file: str
    first_line: int = 1

    def __post_init__(self) -> None:
        self.text = self.text.replace("\r\n", "\n").replace("\r", "\n")

    def error(self, reason: str, line: int, column: int) -> ParseError:
        """The ParseError for this place (a column from 0)."""
        lines = self.text.split("\n")
        text = lines[line - self.first_line] if line - self.first_line < len(lines) else ""
        return ParseError(reason, line, column + 1, text, self.file)


def tokens(source: Source) -> Iterator[Token]:
    """The tokens of a text, with indentation as tokens; blank lines and comments give none.

    Raises ParseError for a character that no token starts with and for unequal indentation.
    """
    text, position, line, line_start = source.text, 0, source.first_line, 0
    indents: list[int] = []
    brackets: list[Token] = []
    fresh = True  # no token of this logical line has been seen yet
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise source.error(_unreadable(text, position), line, position - line_start)
        kind, word = str(match.lastgroup), match[0]
        column, position = position - line_start, match.end()
        if kind == "newline" and not fresh and not brackets:
            yield Token("newline", word, word, line, column, column)
            fresh = True
        elif kind not in ("space", "comment", "newline"):
            if fresh:
                yield from _indentation(source, indents, text[line_start:][:column], line)
                fresh = False
            token = _token(source, kind, word, line, column)
            _match_brackets(source, brackets, token)
            yield token
        if "\n" in word:
            line += word.count("\n")
            line_start = match.start() + word.rindex("\n") + 1
    column = len(text) - line_start
    if brackets:
        raise source.error(
            f"`{brackets[-1].text}` is never closed", brackets[-1].line, brackets[-1].column
        )
    if not fresh:
        yield Token("newline", "", "", line, column, column)
    for _ in indents[1:]:
        yield Token("dedent", "", "", line, column, column)
    yield Token("end", "", "", line, column, column)


def _indentation(source: Source, indents: list[int], margin: str, line: int) -> Iterator[Token]:
    """The tokens for a line that starts after `margin`. The first line sets the outermost level."""
    width = len(margin.expandtabs(8))
    if not indents:
        indents.append(width)
    elif width > indents[-1]:
        indents.append(width)
        yield Token("indent", "", "", line, len(margin), len(margin))
    while width < indents[-1]:
        indents.pop()
        if not indents or width > indents[-1]:
            raise source.error("the indentation matches no enclosing block", line, len(margin))
        yield Token("dedent", "", "", line, len(margin), len(margin))


def _token(source: Source, kind: str, word: str, line: int, column: int) -> Token:
    end = column + len(word)
    if kind in ("name", "number", "operator"):
        return Token(kind, word, word, line, column, end)  # type: ignore[arg-type]
    value = word.lstrip("rR")
    size = 3 if value[:3] in ('"""', "'''") else 1
    value = value[size:-size]
    if word[0] not in "rR":
        try:
            value = unquoted(value)
        except (ValueError, OverflowError) as error:
            raise source.error(str(error), line, column) from None
    if kind == "quoted":
        if not value:
            raise source.error("a name is not empty", line, column)
        return Token("name", word, value, line, column, end)
    return Token("string", word, value, line, column, end)


def _match_brackets(source: Source, brackets: list[Token], token: Token) -> None:
    if token.kind != "operator":
        return
    if token.text in _OPEN:
        brackets.append(token)
    elif token.text in _CLOSE and (
        not brackets or _OPEN.index(brackets.pop().text) != _CLOSE.index(token.text)
    ):
        raise source.error(f"`{token.text}` closes nothing", token.line, token.column)


def _unreadable(text: str, position: int) -> str:
    character = text[position]
    if character in "\"'`":
        return "a string or name is never closed" if character != "`" else "a name is never closed"
    return f"{character!r} starts no token"
