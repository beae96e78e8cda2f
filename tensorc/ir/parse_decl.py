"""Declarations in the text form: parameters, sizes, allocated buffers and what they look like."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

from tensorc.dtype import DType, meant
from tensorc.errors import ParseError
from tensorc.ir import grammar
from tensorc.ir.lexer import Source, Token, tokens
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import Buffer, Expr, Mode, Scope, Span, Var
from tensorc.ir.parse_expr import ExpressionParser
from tensorc.ir.terms import Term
from tensorc.ir.words import counted

SCOPES: tuple[Scope, ...] = typing.get_args(Scope)


@dataclass(slots=True)
class Storage:
    """What a buffer's declaration says after dtype and shape."""

    scope: Scope = "global"
    strides: tuple[int, ...] | None = None
    alignment: int | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter as it is written; without a mode when none is."""

    value: Buffer | Var
    mode: Mode | None


class DeclarationParser(ExpressionParser):
    """The rules for what declares a name, and the names declared so far."""

    # Whether this is the shape of a parameter, in which a name that is not known declares a size.
    declares = False

    # Names ----------------------------------------------------------------------------------------

    def declare_variable(self, token: Token, dtype: DType) -> Var:
        names = self.names
        if token.value in names.variables:
            raise self.error(token, f"{token.text} is already a variable here; name it otherwise")
        name = self.fresh(token, names.taken_variables)
        names.variables[token.value] = Var(name, dtype)
        return names.variables[token.value]

    def declare_buffer(
        self, token: Token, dtype: DType, shape: tuple[Expr, ...], storage: Storage
    ) -> Buffer:
        names = self.names
        if token.value in names.buffers:
            raise self.error(token, f"{token.text} is already a buffer here; name it otherwise")
        if dtype is DType.INDEX:
            raise self.error(
                token, "an index is never stored: use i32 or i64 and cast, e.g. i64(x)"
            )
        if storage.strides is not None and len(storage.strides) != len(shape):
            raise self.error(
                token, f"{token.text} needs {counted(len(shape), 'stride')}, one per dimension"
            )
        name = self.fresh(token, names.taken_buffers)
        buffer = Buffer(name, shape, dtype, storage.scope, storage.strides, storage.alignment)
        names.buffers[token.value] = buffer
        return buffer

    def fresh(self, token: Token, taken: set[str]) -> str:
        """The name to give: as written, made free in Python source, where scopes end."""
        name = token.value
        if name in taken:
            if not self.outside.python:
                raise self.error(
                    token, f"the name {token.text} is used twice; names are unique in a function"
                )
            name = first_free(name, taken)
        taken.add(name)
        return name

    def variable(self, token: Token) -> Term:
        if not self.declares:
            return super().variable(token)
        known = token.value in self.names.variables
        if known and token.value not in self.names.sizes:
            raise self.error(token, f"{token.text} is a parameter, not a size")
        if not known and not self.outside.python:
            self.declare_size(token)
        elif not known and self.outside.value(token.value) is None:
            raise self.error(
                token,
                f'{token.text} is not known; write "{token.text}" for a size that '
                "is known only when the function is called",
            )
        return super().variable(token)

    def declare_size(self, token: Token) -> None:
        self.declare_variable(token, DType.INDEX)
        self.names.sizes.add(token.value)

    def span(self, first: Token, last: Token | None = None) -> Span:
        end = last.end_column if last is not None and last.line == first.line else first.end_column
        return Span(self.source.file, first.line, first.column, end)

    # Pieces ---------------------------------------------------------------------------------------

    def string(self, what: str) -> str:
        """A string literal, or a Python name of a string or a dtype."""
        token = self.token
        if token.kind == "string":
            return self.next().value
        if token.kind == "name" and token.text not in grammar.RESERVED:
            value = self.outside.value(token.value)
            if isinstance(value, str | DType):
                self.next()
                return str(value)
        raise self.expected(f"{what}, a string")

    def dtype(self) -> DType:
        token = self.token
        value = self.outside.value(token.value) if token.kind == "name" else None
        if value is not None and not isinstance(value, str | DType):
            return self.dtype_of(token, value)
        return self.dtype_of(token, self.string("a dtype"))

    def dtype_of(self, token: Token, name: Any) -> DType:
        try:
            return DType.of(name)
        except ValueError as error:
            raise self.error(token, str(error)) from None

    def extent(self) -> Expr:
        token = self.token
        self.refuse_mode(token)
        if token.kind != "string":
            return self.unread("a shape", DType.INDEX)
        if not self.declares:
            raise self.error(token, "an extent here is an expression, not a string")
        self.next()
        inner = self.tokens_inside(token)
        outer, self.tokens, self.position = (self.tokens, self.position), inner, 0
        for name in inner:
            known = name.value in self.names.variables or name.value in grammar.BINARY_CALLS
            if name.kind == "name" and not known and name.text not in grammar.RESERVED:
                self.declare_size(name)
        expr = self.unread("a shape", DType.INDEX)
        if not self.sees("newline"):
            raise self.expected("an operator or the end of the string")
        self.tokens, self.position = outer
        return expr

    def refuse_mode(self, token: Token) -> None:
        """Refuse a word for a mode as an extent that would declare a size of that name."""
        if not self.declares or token.value in self.names.sizes:
            return
        bare = token.kind == "name" and (self.ahead(",") or self.ahead("]"))
        if token.kind == "string" or (bare and self.outside.value(token.value) is None):
            # In backticks, which the text of such a name includes, it is a size after all.
            reason = grammar.mode_slip(token.text if bare else token.value)
            if reason is not None:
                raise self.error(token, reason)

    def tokens_inside(self, token: Token) -> list[Token]:
        """The tokens of a string's value, at the places that they have in the source."""
        if "\n" in token.value:
            raise self.error(token, "an extent stands on one line")
        first = token.column + max(token.text.find(token.value), 0)
        try:
            inner = list(tokens(Source(token.value, self.source.file, token.line)))
        except ParseError as error:
            raise self.error(token, error.reason) from None
        return [t._replace(column=t.column + first, end_column=t.end_column + first) for t in inner]

    def storage_item(self, key: Token, storage: Storage) -> None:
        """The value of one of scope, strides, alignment."""
        match key.value:
            case "scope":
                storage.scope = self.scope()
            case "strides":
                storage.strides = self.strides()
            case "alignment":
                storage.alignment = self.integer("an alignment in bytes,")
            case _:
                raise self.error(key, f"a buffer has scope, strides and alignment, no {key.value}")

    def scope(self) -> Scope:
        token = self.token
        name = self.string("a scope")
        for scope in SCOPES:
            if scope == name:
                return scope
        raise self.error(token, f"{name!r} is no scope; there are {', '.join(SCOPES)}")

    def strides(self) -> tuple[int, ...]:
        self.expect("(", " of the strides")
        strides = []
        while not self.at(")"):
            strides.append(self.integer("a stride,"))
            if not self.accept(","):
                break
        self.expect(")")
        return tuple(strides)

    # Parameters and allocations -------------------------------------------------------------------

    def parameters(self) -> list[Declared]:
        self.expect("(")
        declared: list[Declared] = []
        taken: set[str] = set()
        while not self.at(")"):
            token = self.name("a parameter")
            if token.value in taken:
                raise self.error(token, f"two parameters are called {token.text}")
            taken.add(token.value)
            self.expect(":", ' and a type, e.g. A: Buffer["f32", 4, 4] or x: f32')
            declared.append(self.parameter(token))
            if self.at("="):
                raise self.error(self.token, "a parameter has no default value")
            if not self.accept(","):
                break
        self.expect(")")
        return declared

    def parameter(self, token: Token) -> Declared:
        if self.sees("string"):
            return Declared(self.declare_variable(token, self.dtype()), None)
        kind = self.name("a type")
        name = self.outside.plain(kind.value)
        if name == "Buffer":
            return self.buffer_parameter(token)
        value = self.outside.value(kind.value)
        dtype = value if isinstance(value, DType) else grammar.CASTS.get(name)
        if dtype is None and meant(name if value is None else value):
            return Declared(self.declare_variable(token, self.dtype_of(kind, value or name)), None)
        if dtype is None:
            raise self.error(
                kind,
                f"{kind.text} is no type; write Buffer[dtype, extent, ...] or a dtype: "
                + ", ".join(grammar.CASTS),
            )
        return Declared(self.declare_variable(token, dtype), None)

    def buffer_parameter(self, token: Token) -> Declared:
        self.expect("[")
        dtype, shape, mode, storage = self.dtype(), [], None, Storage()
        self.declares = True
        while self.accept(",") and not self.at("]"):
            item = self.token
            if item.kind == "string" and self.ahead(":"):
                self.position += 2
                self.storage_item(item, storage)
            elif item.kind == "string" and item.value in grammar.MODES:
                mode = _mode(self.next().value)
            elif mode is not None:
                raise self.expected("no extent after the mode")
            else:
                shape.append(self.extent())
        self.declares = False
        self.expect("]")
        return Declared(self.declare_buffer(token, dtype, tuple(shape), storage), mode)

    def allocation(self) -> tuple[DType, tuple[Expr, ...], Storage]:
        """`alloc(...)`: the arguments of `declare_buffer` but for the name."""
        self.next()
        self.expect("(")
        dtype, shape, storage = self.dtype(), [], Storage()
        while self.accept(",") and not self.at(")"):
            if self.sees("name") and self.ahead("="):
                key = self.name("scope, strides or alignment")
                self.next()
                self.storage_item(key, storage)
            else:
                shape.append(self.extent())
        self.expect(")")
        return dtype, tuple(shape), storage


def _mode(name: str) -> Mode:
    return next(mode for mode in grammar.MODES if mode == name)
