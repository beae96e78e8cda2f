"""Programs out of their tokens: the inverse of `program`, up to what a sentence leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.dtype import DType
from tensorc.ir.arith import index
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.naming import named
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Load,
    Param,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.tlm.failures import VocabularyError
from tensorc.tlm.numbers import number_of
from tensorc.tlm.words import OPERATORS, Token

_UNARY = frozenset(OPERATORS[: OPERATORS.index("add")])
FRACTION = 0.5
"""What a literal that is no whole number is read as."""


def decoded(tokens: Sequence[Token]) -> Func:
    """The program of these tokens.

    Names are by number: buffers b0, b1, ..., loops i0, ..., sizes n0, ... and scalars v0, ... Every
    dimension of a buffer that is no size has the extent 0, which stands for one that is not said.

    Raises:
        VocabularyError: the tokens are those of no program.
    """
    reader = _Reader(tokens)
    try:
        func = reader.function()
    except (IndexError, KeyError, ValueError) as error:
        place = f"token {reader.place} of {len(tokens)}"
        raise VocabularyError(f"{place}: this is no program: {error}") from None
    if reader.place != len(tokens):
        raise VocabularyError(f"token {reader.place} of {len(tokens)}: the program ends before it")
    return func


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.place = tokens, 0
        self.buffers: list[Buffer] = []
        self.scalars: list[Var] = []
        self.loops: list[Var] = []
        self.count = 0

    def take(self) -> Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def function(self) -> Func:
        params: list[Param] = []
        while self.tokens[self.place][0] in ("buffer", "scalar"):
            token = self.take()
            if token[0] == "scalar":
                scalar = Var(f"v{len(self.scalars)}", DType.of(_after(token, "type")))
                self.scalars.append(scalar)
                params.append(Param(scalar))
            else:
                params.append(Param(self._declared(token), _after(token, "mode")))  # type: ignore[arg-type]
        return Func("task", tuple(params), named(self.statement()))

    def _declared(self, token: Token) -> Buffer:
        scope = next((piece[6:] for piece in token if piece.startswith("scope ")), "global")
        shape: list[Expr] = [index(0)] * _number(token)
        while self.tokens[self.place][0] == "extent":
            size = self.take()
            shape[_number(size)] = Var(f"n{_after(size, 'level')}")
        buffer = Buffer(
            f"b{len(self.buffers)}",
            tuple(shape),
            DType.of(_after(token, "type")),
            scope,  # type: ignore[arg-type]
        )
        self.buffers.append(buffer)
        return buffer

    def statement(self) -> Stmt:
        token = self.take()
        match token[0]:
            case "spatial" | "reduction":
                return self._loop(token)
            case "if":
                condition = self.expression()
                return If(condition, self.statement())
            case "sequence":
                return Seq(tuple(self.statement() for _ in range(_number(token))))
            case "allocate":
                buffer = self._declared(token)
                return Alloc(buffer, self.statement())
            case "store":
                buffer = self._buffer(token)
                return Store("", buffer, self._indices(buffer), self.expression())
            case "reduce":
                return self._reduce(token)
        raise ValueError(f"no statement begins with {token!r}")

    def _reduce(self, token: Token) -> Stmt:
        op = _after(token, "combine")
        arity = COMBINERS[op].arity
        first = self._buffer(token)
        buffers = (first, *(self._buffer(self.take()) for _ in range(arity - 1)))
        indices = self._indices(first)
        return Reduce("", op, buffers, indices, tuple(self.expression() for _ in range(arity)))

    def _loop(self, token: Token) -> Stmt:
        begin: Expr = index(0)
        if "loop" in token:
            begin = self.expression()
            end = self.expression()
        else:
            end = index(_number(token))
        kind = next((piece[5:] for piece in token if piece.startswith("kind ")), "serial")
        variable = Var(f"i{self.count}")
        self.count += 1
        self.loops.append(variable)
        body = self.statement()
        self.loops.pop()
        return For(variable, begin, end, body, kind)  # type: ignore[arg-type]

    def expression(self) -> Expr:
        token = self.take()
        match token[0]:
            case "at":
                return self.loops[int(_after(token, "level"))]
            case "extent":
                return Var(f"n{_after(token, 'level')}")
            case "scalar":
                return self.scalars[int(_after(token, "level"))]
            case "constant":
                return _literal(token)
            case "load":
                buffer = self._buffer(token)
                return Load(buffer, self._indices(buffer))
            case "cast":
                return Cast(DType.of(_after(token, "type")), self.expression())
            case "select":
                return Select(self.expression(), self.expression(), self.expression())
        op = _after(token, "operator")
        if op in _UNARY:
            return Unary(op, self.expression())  # type: ignore[arg-type]
        return Binary(op, self.expression(), self.expression())  # type: ignore[arg-type]

    def _buffer(self, token: Token) -> Buffer:
        return self.buffers[int(_after(token, "buffer"))]

    def _indices(self, buffer: Buffer) -> tuple[Expr, ...]:
        return tuple(self.expression() for _ in buffer.shape)


def _after(token: Token, word: str) -> str:
    """What stands behind a word in the piece of a token that has it."""
    for piece in token:
        if piece.startswith(f"{word} "):
            return piece[len(word) + 1 :]
    raise ValueError(f"{token!r} says no {word}")


def _number(token: Token) -> int:
    number = number_of(token)
    if number is None:
        raise ValueError(f"{token!r} says no number")
    return number


def _literal(token: Token) -> Const:
    dtype = DType.of(_after(token, "type")) if any(p.startswith("type ") for p in token) else None
    sign = -1 if "minus" in token else 1
    named = {"nan": float("nan"), "infinity": float("inf"), "fraction": FRACTION}
    value: float = next((named[p] for p in token if p in named), 0)
    if not value:
        value = _number(token)
    if dtype is not None and dtype.is_float:
        value = float(value)
    return Const(value * sign, dtype or DType.INDEX)
