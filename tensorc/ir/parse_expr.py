"""The expressions of the text form, by precedence climbing.

expression: infix ["if" infix "else" expression]       # select(condition, a, b)
infix:      prefix {operator prefix}                   # Python's precedence; a < b < c chains
prefix:     ("not" | "-" | "+" | "~") prefix | atom ["**" prefix]
atom:       number | True | False | inf | nan | nan(bits) | name | access
          | function(expression, ...) | dtype(expression) | "(" expression ")"
          | let(name := expression, expression) | load(access, mask)
          | ramp(base, stride, lanes) | broadcast(expression, lanes)
access:     name "[" expression, ... "]" | name "[()]"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tensorc.dtype import DType, meant
from tensorc.errors import ParseError
from tensorc.ir import grammar
from tensorc.ir.grammar import COMPARE, INFIX_OF, NOT, OR
from tensorc.ir.lexer import Source, Token
from tensorc.ir.nodes import (
    Broadcast,
    Buffer,
    Expr,
    Let,
    Load,
    MaskedLoad,
    Ramp,
    Var,
)
from tensorc.ir.reader import Reader
from tensorc.ir.terms import Term, Terms

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Outside:
    """What a text can see around itself. `python` says that it is a Python function's source:
    then `value` finds Python's names (None: there is none) and `plain` drops a `tc.` prefix."""

    python: bool = False
    value: Callable[[str], object] = lambda name: None
    plain: Callable[[str], str] = lambda name: name


@dataclass(slots=True)
class Names:
    """The variables and buffers in scope, by the name in the source, and all names ever given."""

    variables: dict[str, Var] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    taken_variables: set[str] = field(default_factory=set)
    taken_buffers: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)


class ExpressionParser(Reader):
    """The names in scope, and the rules for expressions."""

    def __init__(self, source: Source, outside: Outside):
        super().__init__(source)
        self.outside = outside
        self.names = Names()
        self.terms = Terms(source, folds=outside.python)
        # What is being read where no buffer may be: "a loop bound", "a condition", "a shape".
        self.unreadable: str | None = None

    # Expressions ----------------------------------------------------------------------------------

    def integer(self, what: str) -> int:
        """A literal integer, which may have a sign."""
        token = self.token
        term = self.expression()
        if not isinstance(term.number, int):
            raise self.error(token, f"expected {what} an integer literal")
        return term.number

    def typed(self, dtype: DType) -> Expr:
        return self.terms.settle(self.expression(), dtype)

    def unread(self, what: str, dtype: DType) -> Expr:
        """An expression of this dtype that reads no buffer."""
        self.unreadable, outer = what, self.unreadable
        expr = self.typed(dtype)
        self.unreadable = outer
        return expr

    def expression(self) -> Term:
        term = self.infix(OR)
        if not self.at("if"):
            return term
        self.next()
        condition = self.infix(OR)
        self.expect("else", " of the conditional expression")
        return self.terms.select(condition, term, self.expression())

    def infix(self, level: int) -> Term:
        left = self.prefix(level)
        while True:
            token = self.token
            found = INFIX_OF.get(token.text) if token.kind in ("operator", "name") else None
            if found is None or found[1] < level:
                return left
            op, strength = found
            if strength == COMPARE:
                left = self.comparisons(left)
                continue
            self.next()
            right = self.infix(strength + 1)
            make = self.terms.logical if op in ("and", "or") else self.terms.binary
            left = make(op, token, left, right)

    def comparisons(self, left: Term) -> Term:
        """a < b < c is a < b and b < c."""
        result: Term | None = None
        while self.at(*_COMPARISONS):
            token = self.next()
            right = self.infix(COMPARE + 1)
            part = self.terms.comparison(INFIX_OF[token.text][0], token, left, right)
            result = part if result is None else self.terms.logical("and", token, result, part)
            left = right
        assert result is not None
        return result

    def prefix(self, level: int) -> Term:
        if self.at("not"):
            token = self.next()
            if level > NOT:
                raise self.error(
                    token, "`not` binds less tightly than this operator: use parentheses"
                )
            operand = self.terms.known(token, self.terms.settle(self.infix(NOT), DType.BOOL))
            return self.terms.unary("not", token, operand)
        if not self.at("-", "+", "~"):
            return self.power()
        token = self.next()
        literal = self.token.kind == "number" or self.at("inf", "nan")
        operand = self.prefix(grammar.SIGN)
        if token.text == "+":
            return operand
        if token.text == "~":
            return self.terms.unary("not", token, operand)
        if literal:
            return self.terms.opposite(token, operand)
        return self.terms.unary("neg", token, operand)

    def power(self) -> Term:
        base = self.atom()
        if self.at("["):
            raise self.error(self.token, "only a buffer can be indexed, once: write A[i, k]")
        if not self.at("**"):
            return base
        token = self.next()
        return self.terms.binary("pow", token, base, self.prefix(grammar.SIGN))

    def atom(self) -> Term:
        token = self.token
        if token.kind == "number":
            self.next()
            return self.terms.literal(token, self.number(token))
        if self.accept("("):
            term = self.expression()
            self.expect(")")
            return term
        if token.kind != "name":
            raise self.expected("an expression")
        if token.text in ("True", "False"):
            self.next()
            return self.terms.literal(token, token.text == "True")
        if token.text in ("inf", "nan"):
            self.next()
            return self.terms.literal(token, self.special(token))
        if self.ahead("["):
            return self.access()
        if self.ahead("(") and token.text[0] != "`":
            return self.call()
        return self.variable(self.name("an expression"))

    def special(self, token: Token) -> float:
        """inf, nan, or nan with the 64 bits that the double has."""
        if token.text == "inf" or not self.accept("("):
            return float(token.text)
        bits = self.integer("the bits of a NaN,")
        self.expect(")")
        try:
            return grammar.nan_of(bits)
        except ValueError as error:
            raise self.error(token, str(error)) from None

    # Names ----------------------------------------------------------------------------------------

    def variable(self, token: Token) -> Term:
        known = self.names.variables.get(token.value)
        if known is not None:
            return self.terms.known(token, known)
        if token.value in self.names.buffers:
            raise self.error(
                token, f"{token.value} is a buffer: index it, or write {token.value}[()]"
            )
        value = self.outside.value(token.value)
        if isinstance(value, int | float):
            return self.terms.literal(token, value)
        if value is not None:
            raise self.error(
                token, f"{token.value} is a Python {type(value).__name__}, not a number"
            )
        raise self.unknown(token, "variable", self.names.variables)

    def unknown(
        self, token: Token, what: str, known: dict[str, Var] | dict[str, Buffer]
    ) -> ParseError:
        names = ", ".join(known) or "none"
        taken = token.value in self.names.taken_variables | self.names.taken_buffers
        reason = "is used outside its scope" if taken else f"is no {what}"
        return self.error(token, f"{token.text} {reason}; in scope here: {names}")

    def buffer(self, token: Token) -> Buffer:
        found = self.names.buffers.get(token.value)
        if found is None:
            raise self.unknown(token, "buffer", self.names.buffers)
        return found

    def access(self) -> Term:
        token = self.token
        buffer, indices = self.element()
        return self.terms.known(token, Load(buffer, indices))

    def element(self) -> tuple[Buffer, tuple[Expr, ...]]:
        """An access: its buffer and as many indices as that has dimensions."""
        token = self.name("a buffer")
        buffer = self.buffer(token)
        if self.unreadable:
            raise self.error(
                token,
                f"{self.unreadable} reads no buffer, only loop variables, sizes "
                "and scalar parameters",
            )
        self.expect("[")
        indices: list[Expr] = []
        if self.at("(") and self.ahead(")") and self.ahead("]", 2):
            self.next(), self.next()
        else:
            while not self.at("]"):
                indices.append(self.typed(DType.INDEX))
                if self.at(":"):
                    raise self.error(self.token, "a slice: write a loop over the elements")
                if not self.accept(","):
                    break
        self.expect("]")
        rank = len(buffer.shape)
        if len(indices) != rank:
            noun = "index" if rank == 1 else "indices"
            raise self.error(token, f"{buffer.name} takes {rank} {noun}, not {len(indices)}")
        return buffer, tuple(indices)

    # Calls ----------------------------------------------------------------------------------------

    def call(self) -> Term:
        token = self.name("a function")
        name = self.outside.plain(token.value)
        self.expect("(")
        if name in _SPECIAL:
            term = _SPECIAL[name](self, token)
            self.expect(")")
            return term
        arguments = self.arguments()
        if name in grammar.CASTS:
            self.count(token, arguments, 1)
            return self.terms.cast(grammar.CASTS[name], token, arguments[0])
        if name in grammar.UNARY_CALLS:
            self.count(token, arguments, 1)
            return self.terms.unary(grammar.UNARY_CALLS[name], token, arguments[0])
        if name == "select":
            self.count(token, arguments, 3)
            return self.terms.select(*arguments)
        if name in grammar.BINARY_CALLS:
            return self.binary_call(token, name, arguments)
        own = meant(name)
        if own:
            raise self.error(token, f"{token.text} is no function; the cast is {own}(x)")
        raise self.error(
            token, f"{token.text} is no function; there are {_FUNCTIONS} and the dtypes"
        )

    def binary_call(self, token: Token, name: str, arguments: list[Term]) -> Term:
        if len(arguments) < 2 or grammar.BINARY_CALLS[name] not in ("min", "max"):
            self.count(token, arguments, 2)
        result = arguments[0]
        for argument in arguments[1:]:
            result = self.terms.binary(grammar.BINARY_CALLS[name], token, result, argument)
        return result

    def arguments(self) -> list[Term]:
        """The arguments of a call, up to and including its closing parenthesis."""
        terms = []
        while not self.at(")"):
            terms.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")")
        return terms

    def count(self, token: Token, arguments: list[Term], number: int) -> None:
        if len(arguments) != number:
            noun = "argument" if number == 1 else "arguments"
            raise self.error(token, f"{token.text} takes {number} {noun}, not {len(arguments)}")

    def let(self, token: Token) -> Term:
        name = self.name("the name of the value")
        if name.value in self.names.variables:
            raise self.error(name, f"{name.value} is already a variable here")
        self.expect(":=")
        value_term = self.expression()
        value = self.terms.settle(value_term, self.terms.alone(value_term))
        var = Var(name.value, self.terms.alone(value_term))
        self.expect(",")
        self.names.variables[name.value] = var
        body = self.expression()
        del self.names.variables[name.value]
        return Term(
            token,
            body.dtype,
            lambda want: Let(var, value, self.terms.settle(body, want)),
            whole=body.whole,
        )

    def ramp(self, _: Token) -> Term:
        base = self.expression()
        self.expect(",")
        stride = self.expression()
        self.expect(",")
        lanes = self.lanes()

        def make(want: DType) -> Expr:
            return Ramp(self.terms.settle(base, want), self.terms.settle(stride, want), lanes)

        return self.terms.pair(base, stride, make)

    def broadcast(self, token: Token) -> Term:
        value = self.expression()
        self.expect(",")
        lanes = self.lanes()
        return Term(
            token,
            value.dtype,
            lambda want: Broadcast(self.terms.settle(value, want), lanes),
            whole=value.whole,
        )

    def lanes(self) -> int:
        token = self.token
        lanes = self.integer("the number of lanes,")
        if lanes < 1:
            raise self.error(token, "a vector has at least one lane")
        return lanes

    def load(self, token: Token) -> Term:
        buffer, indices = self.element()
        self.expect(",")
        mask = self.typed(DType.BOOL)
        return self.terms.known(token, MaskedLoad(buffer, indices, mask))


_SPECIAL: dict[str, Callable[[ExpressionParser, Token], Term]] = {
    "let": ExpressionParser.let,
    "ramp": ExpressionParser.ramp,
    "broadcast": ExpressionParser.broadcast,
    "load": ExpressionParser.load,
}
_FUNCTIONS = ", ".join(sorted([*grammar.UNARY_CALLS, *grammar.BINARY_CALLS, *_SPECIAL, "select"]))
