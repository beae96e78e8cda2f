"""Typing while parsing: a term is an expression whose bare literals have no dtype yet.

A variable, a load or a cast tells its dtype; a literal takes the one that is asked for. Operands
of one operator have one dtype, so one telling operand settles its neighbours. Where nothing tells
and nothing asks, integers are of dtype "index" and floats are an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorc.dtype import DType
from tensorc.errors import ParseError
from tensorc.ir.grammar import INFIX, negated
from tensorc.ir.lexer import Source, Token
from tensorc.ir.nodes import Binary, BinaryOp, Cast, Const, Expr, Select, Unary, UnaryOp
from tensorc.ir.operands import OPERANDS
from tensorc.ir.types import dtype_of

_FOLD: Mapping[BinaryOp, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
}


@dataclass(frozen=True, slots=True)
class Term:
    """`make` gives the expression for a dtype: `dtype` if it tells one, else any asked for.

    `number` is the value of a literal, and `whole` is False once a float literal is inside.
    """

    token: Token
    dtype: DType | None
    make: Callable[[DType], Expr]
    number: int | float | None = None
    whole: bool = True


@dataclass(slots=True)
class Terms:
    """Makes terms of terms. With `folds`, arithmetic of literals is done at once, as in Python."""

    source: Source
    folds: bool = False

    def error(self, token: Token, reason: str) -> ParseError:
        return self.source.error(reason, token.line, token.column)

    def settle(self, term: Term, want: DType) -> Expr:
        """The expression, of dtype `want`. Raises ParseError when it tells another."""
        if term.dtype is not None and term.dtype is not want:
            raise self.error(
                term.token,
                f"this is {term.dtype}, but {want} is needed here; "
                + (
                    "compare it with something"
                    if want is DType.BOOL
                    else f"write {want}(...) to convert it"
                ),
            )
        return term.make(want)

    def alone(self, *terms: Term) -> DType:
        """The dtype of operands of one dtype that nothing around them fixes."""
        for term in terms:
            if term.dtype is not None:
                return term.dtype
        if all(term.whole for term in terms):
            return DType.INDEX
        raise self.error(
            terms[0].token, "nothing fixes the dtype of this literal; write e.g. f32(1.0)"
        )

    def known(self, token: Token, expr: Expr) -> Term:
        return Term(token, dtype_of(expr), lambda _: expr)

    def literal(self, token: Token, value: bool | float) -> Term:
        if isinstance(value, bool):
            return self.known(token, Const(value, DType.BOOL))
        whole = isinstance(value, int)
        return Term(token, None, lambda want: self._const(token, value, want), value, whole)

    def unary(self, op: UnaryOp, token: Token, a: Term) -> Term:
        if op == "isnan":
            dtype = self.alone(a)
            return self.known(token, Unary(op, self._operand(op, token, a, dtype)))
        if op == "neg" and self.folds and a.number is not None:
            return self.negative(token, a)
        return Term(
            token,
            a.dtype,
            lambda want: Unary(op, self._operand(op, token, a, want)),
            whole=a.whole,
        )

    def opposite(self, token: Token, a: Term) -> Term:
        """-a, a literal when `a` is one."""
        return self.unary("neg", token, a) if a.number is None else self.negative(token, a)

    def negative(self, token: Token, a: Term) -> Term:
        """The literal with a sign before it."""
        assert a.number is not None
        value = negated(a.number) if isinstance(a.number, float) else -a.number
        return self.literal(token, value)

    def logical(self, op: BinaryOp, token: Token, a: Term, b: Term) -> Term:
        """The lazy "and" and "or": of bool, whatever is around them."""
        return self.known(token, Binary(op, self.settle(a, DType.BOOL), self.settle(b, DType.BOOL)))

    def comparison(self, op: BinaryOp, token: Token, a: Term, b: Term) -> Term:
        dtype = self.alone(a, b)
        left = self._operand(op, token, a, dtype)
        return self.known(token, Binary(op, left, self.settle(b, dtype)))

    def binary(self, op: BinaryOp, token: Token, a: Term, b: Term) -> Term:
        """An operator that gives the dtype of its operands."""
        if self.folds and op in _FOLD and a.number is not None and b.number is not None:
            return self._folded(op, token, a.number, b.number)

        def make(want: DType) -> Expr:
            return Binary(op, self._operand(op, token, a, want), self.settle(b, want))

        return self.pair(a, b, make)

    def pair(self, a: Term, b: Term, make: Callable[[DType], Expr]) -> Term:
        """A term of two operands of one dtype; that which tells it answers for it."""
        teller = b if a.dtype is None and b.dtype is not None else a
        return Term(teller.token, teller.dtype, make, whole=a.whole and b.whole)

    def select(self, condition: Term, a: Term, b: Term) -> Term:
        chosen = self.settle(condition, DType.BOOL)

        def make(want: DType) -> Expr:
            return Select(chosen, self.settle(a, want), self.settle(b, want))

        return self.pair(a, b, make)

    def cast(self, dtype: DType, token: Token, a: Term) -> Term:
        """A conversion; literals alone are not converted but typed."""
        expr = self.settle(a, dtype) if a.dtype is None else Cast(dtype, a.make(a.dtype))
        return self.known(token, expr)

    def _operand(self, op: UnaryOp | BinaryOp, token: Token, a: Term, dtype: DType) -> Expr:
        expr = self.settle(a, dtype)
        legal = OPERANDS[op]
        if dtype not in legal:
            written = INFIX[op][0] if op in INFIX else op  # type: ignore[index]
            names = " ".join(t.value for t in DType if t in legal)
            hint = "; `//` divides integers" if op == "div" else ""
            raise self.error(token, f"`{written}` takes {names}, not {dtype}{hint}")
        return expr

    def _folded(self, op: BinaryOp, token: Token, a: float, b: float) -> Term:
        try:
            return self.literal(token, _FOLD[op](a, b))
        except (ZeroDivisionError, OverflowError) as error:
            raise self.error(token, str(error)) from None

    def _const(self, token: Token, value: float, want: DType) -> Const:
        if want is DType.BOOL:
            raise self.error(token, "a bool is needed here: write True, False or a comparison")
        if want.is_float:
            try:
                wrapped = want.wrap(value)
            except OverflowError:
                wrapped = math.inf
            if math.isinf(wrapped) and value not in (math.inf, -math.inf):
                raise self.error(token, f"the literal is out of range for {want}; write inf")
            return Const(wrapped, want)
        if not isinstance(value, int):
            raise self.error(token, f"a float literal where {want} is needed")
        if not want.min <= value <= want.max:
            raise self.error(
                token, f"the literal is out of range for {want}: {want.min}..{want.max}"
            )
        return Const(value, want)
