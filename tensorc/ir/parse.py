"""The parser of the text form. `parse(print_func(f)) == f`.

    function:  {decorator} "def" name "(" [name ":" type, ...] ")" ["->" "None"] block
    type:      dtype | Buffer[dtype, extent, ..., mode, "scope": ..., "strides": ..., "alignment":
               ...]        # strings but for the extents, which are expressions of sizes
    block:     ":" NEWLINE INDENT {statement} DEDENT | ":" simple statement NEWLINE
    statement: "for" name "in" kind "(" [begin ","] end {"," name "=" value} ")" block
             | "if" condition block {"elif" condition block} ["else" block]
             | "with" alloc "as" name block
             | name "=" alloc           # whose scope is the rest of the block
             | [label ":"] (access ("=" | "+=" | "-=" | "*=" | "|=" | "&=" | "^=") expression
                            | "reduce" "(" op, access(es), expression(s) ")"
                            | "store" "(" access, expression, mask ")")
             | "pass" | string          # nothing
    alloc:     "alloc" "(" dtype, extent, ..., scope=..., strides=..., alignment=... ")"

Names are dotted identifiers, whose parts after a dot may be keywords, or stand in backticks.
Expressions are in `parse_expr`; how literals get their dtypes, in `terms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir import grammar
from tensorc.ir.arith import index
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.infer import inferred_modes, negation
from tensorc.ir.lexer import Source, Token
from tensorc.ir.naming import named
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedStore,
    Param,
    Prefetch,
    Reduce,
    Span,
    Stmt,
    Store,
    Wait,
)
from tensorc.ir.operands import REDUCTIONS
from tensorc.ir.parse_decl import DeclarationParser
from tensorc.ir.parse_expr import Outside
from tensorc.ir.walk import leaves, seq

T = TypeVar("T")

_STATEMENTS = (
    "a loop, `if`, `with alloc(...) as T`, `T = alloc(...)`, `A[i] = ...`, `A[i] += ...` or "
    "reduce(...)"
)
_LOOPS = ", ".join(f"{word}(...)" for word in grammar.LOOP_OF)


def parse(text: str, file: str = "<text>") -> Func:
    """The function that a text stands for. Spans in it, and in errors, name `file`.

    Raises ParseError, with the place, for a text that is not one well-typed function, and
    ArgumentError for what is no text.
    """
    if not isinstance(text, str):
        raise ArgumentError("text", f"expected the text of a function, got {text!r:.80}")
    return parse_source(Source(text, file), Outside())


def parse_source(source: Source, outside: Outside) -> Func:
    parser: Parser | None = None
    try:
        parser = Parser(source, outside)
        return parser.function()
    except RecursionError:
        token = parser.token if parser else None
        line, column = (token.line, token.column) if token else (source.first_line, 0)
    raise source.error("this is nested too deeply", line, column)


class Parser(DeclarationParser):
    """Functions and statements."""

    def function(self) -> Func:
        while not self.at("def"):
            if self.sees("end") or not self.at("@"):
                raise self.expected("a function, `def name(...):`")
            while self.next().kind not in ("newline", "end"):
                pass
        self.next()
        name = self.name("the function's name")
        declared = self.parameters()
        if self.accept("->") and not self.accept("None"):
            raise self.expected("None: a function returns nothing, it writes its buffers")
        body = named(self.block())
        if not self.sees("end"):
            raise self.expected("nothing after the function")
        self.check_names(body)
        modes = inferred_modes(body)
        params = tuple(
            Param(d.value, d.mode or modes.get(d.value.name, "in"))
            if isinstance(d.value, Buffer)
            else Param(d.value)
            for d in declared
        )
        return Func(name.value, params, body, self.span(name))

    def check_names(self, body: Stmt) -> None:
        seen = set()
        for _, leaf in leaves(body):
            if leaf.name in seen and leaf.span:
                raise self.source.error(
                    f"the statement name {leaf.name} is used twice",
                    leaf.span.line,
                    leaf.span.column,
                )
            seen.add(leaf.name)

    # Blocks ---------------------------------------------------------------------------------------

    def block(self) -> Stmt:
        self.expect(":")
        variables, buffers = dict(self.names.variables), dict(self.names.buffers)
        if not self.sees("newline"):
            body = self.simple()
        else:
            self.next()
            if not self.sees("indent"):
                raise self.expected("an indented block")
            self.next()
            body = self.rest()
            self.next()
        self.names.variables, self.names.buffers = variables, buffers
        return body

    def rest(self) -> Stmt:
        """The statements up to the end of the block."""
        parts: list[Stmt] = []
        while not self.sees("dedent"):
            if not self.allocates():
                parts.append(self.statement())
                continue
            name = self.name("a buffer")
            self.next()
            buffer = self.declare_buffer(name, *self.allocation())
            self.line_end()
            parts.append(Alloc(buffer, self.rest(), self.span(name)))
        return seq(*parts)

    def allocates(self) -> bool:
        """Whether this is `name = alloc(...`."""
        if not self.sees("name") or not self.ahead("=") or not self.ahead("(", 3):
            return False
        return self.outside.plain(self.tokens[self.position + 2].text) == "alloc"

    def line_end(self) -> None:
        if not self.sees("newline"):
            raise self.expected("an operator or the end of the line")
        self.next()

    def statement(self) -> Stmt:
        token = self.token
        if token.kind == "indent":
            raise self.error(token, "this line is indented more than its block")
        if self.at("for"):
            return self.loop()
        if self.accept("if"):
            return self.branches()
        if self.accept("with"):
            return self.asynchronous() if self.at("asynchronous") else self.with_alloc()
        return self.simple()

    def branches(self) -> Stmt:
        """What stands after `if` or `elif`; else branches become Ifs of the negation."""
        start = self.token
        condition = self.unread("a condition", DType.BOOL)
        span = self.span(start, self.tokens[self.position - 1])
        body = self.block()
        chosen = If(condition, body, span)
        if self.accept("elif"):
            return seq(chosen, If(negation(condition), self.branches(), span))
        if self.accept("else"):
            return seq(chosen, If(negation(condition), self.block(), span))
        return chosen

    def with_alloc(self) -> Stmt:
        if not (self.sees("name") and self.outside.plain(self.token.text) == "alloc"):
            raise self.expected("alloc(...)")
        allocation = self.allocation()
        self.expect("as")
        name = self.name("a buffer")
        outer = dict(self.names.buffers)
        buffer = self.declare_buffer(name, *allocation)
        body = self.block()
        self.names.buffers = outer
        return Alloc(buffer, body, self.span(name))

    def loop(self) -> Stmt:
        self.next()
        name = self.name("a loop variable")
        self.expect("in")
        kind = self.name(f"one of {_LOOPS}")
        word = self.outside.plain(kind.value)
        if word not in grammar.LOOP_OF:
            raise self.error(kind, f"a loop runs over one of {_LOOPS}, not {kind.text}")
        self.expect("(")
        begin, end, annotations = self.range_arguments(kind)
        outer = dict(self.names.variables)
        var = self.declare_variable(name, DType.INDEX)
        body = self.block()
        self.names.variables = outer
        if self.at("else"):
            raise self.error(self.token, "a loop has no else branch")
        return For(
            var,
            begin,
            end,
            body,
            grammar.LOOP_OF[word],
            tuple(annotations.items()),
            self.span(name),
        )

    def range_arguments(self, kind: Token) -> tuple[Expr, Expr, dict[str, str | int]]:
        bounds: list[Expr] = []
        annotations: dict[str, str | int] = {}
        while not self.at(")"):
            if self.sees("name") and self.ahead("="):
                key = self.name("an annotation")
                if key.value in annotations:
                    raise self.error(key, f"the annotation {key.text} is given twice")
                self.next()
                annotations[key.value] = self.annotation()
            else:
                bounds.append(self.unread("a loop bound", DType.INDEX))
            if not self.accept(","):
                break
        self.expect(")")
        if len(bounds) not in (1, 2):
            raise self.error(
                kind,
                "a loop has an end, or a begin and an end; for steps, multiply the "
                "variable where it is used",
            )
        return (bounds[0] if bounds[1:] else index(0)), bounds[-1], annotations

    def annotation(self) -> str | int:
        token = self.token
        if self.sees("string") or isinstance(self.outside.value(token.value), str):
            return self.string("the value of an annotation")
        return self.integer("the value of an annotation, a string or")

    # Simple statements ----------------------------------------------------------------------------

    def simple(self) -> Stmt:
        token = self.token
        if token.kind == "string" or self.at("pass"):
            self.next()
            self.line_end()
            return seq()
        if token.kind != "name" or token.text in grammar.RESERVED:
            raise self.expected(_STATEMENTS)
        label = ""
        if self.ahead(":"):
            label = self.name("a label").value
            self.next()
        stmt = self.leaf(label)
        self.line_end()
        return stmt

    def leaf(self, label: str) -> Stmt:
        token = self.token
        if self.ahead("["):
            return self.assignment(label)
        word = self.outside.plain(token.text)
        if self.ahead("(") and word == "reduce":
            return self.reduction(label)
        if self.ahead("(") and word == "store":
            return self.masked_store(label)
        if self.ahead("(") and word == "prefetch" and not label:
            return self.prefetch()
        if self.ahead("(") and word in ("barrier", "commit", "wait") and not label:
            return self.order(word)
        if self.allocates():
            raise self.error(
                token, f"{token.text} = alloc(...) has no label and is alone in its line"
            )
        if self.ahead("="):
            raise self.error(
                token,
                f"{token.text} is no element of a buffer, and there are no scalar "
                f'variables: write {token.text} = alloc("f32") and {token.text}[()] = ...',
            )
        raise self.expected(_STATEMENTS)

    def assignment(self, label: str) -> Stmt:
        buffer, indices, span = self.target()
        token = self.next()
        if token.text == "=":
            return Store(label, buffer, indices, self.typed(buffer.dtype), span)
        if token.text == "-=":
            self.check_reduction(token, "sum", (buffer,))
            value = self.terms.opposite(token, self.expression())
            expr = self.terms.settle(value, buffer.dtype)
            return Reduce(label, "sum", (buffer,), indices, (expr,), span)
        if token.text in grammar.REDUCTION_OF:
            op = grammar.REDUCTION_OF[token.text]
            self.check_reduction(token, op, (buffer,))
            return Reduce(label, op, (buffer,), indices, (self.typed(buffer.dtype),), span)
        raise self.error(
            token, "expected one of = += -= *= |= &= ^=, or write it out: A[i] = A[i] / x"
        )

    def target(self) -> tuple[Buffer, tuple[Expr, ...], Span]:
        """An access that is written, and its place."""
        start = self.token
        buffer, indices = self.element()
        return buffer, indices, self.span(start, self.tokens[self.position - 1])

    def reduction(self, label: str) -> Stmt:
        self.next()
        self.expect("(")
        op_token = self.token
        op = self.string("a reduction operator")
        if op not in COMBINERS:
            raise self.error(op_token, f"{op!r} is no reduction; there are {', '.join(COMBINERS)}")
        self.expect(",")
        arity = COMBINERS[op].arity
        targets = self.several(arity, lambda _: self.target())
        _, indices, span = targets[0]
        if any(others != indices for _, others, _ in targets):
            raise self.source.error(
                "the buffers of one reduction are written at the same indices",
                span.line,
                span.column,
            )
        buffers = tuple(buffer for buffer, _, _ in targets)
        self.check_reduction(op_token, op, buffers)
        self.expect(",")
        values = self.several(arity, lambda position: self.typed(buffers[position].dtype))
        self.accept(",")
        self.expect(")")
        return Reduce(label, op, buffers, indices, tuple(values), span)

    def prefetch(self) -> Stmt:
        self.next()
        self.expect("(")
        buffer, indices, _ = self.target()
        self.expect(")")
        return Prefetch(buffer, indices)

    def order(self, word: str) -> Stmt:
        """barrier(), commit() or wait(groups)."""
        self.next()
        self.expect("(")
        groups = self.integer("how many groups") if word == "wait" else 0
        self.expect(")")
        if word == "wait":
            return Wait(groups)
        return Barrier() if word == "barrier" else Commit()

    def asynchronous(self) -> Stmt:
        start = self.next()
        self.expect("(")
        self.expect(")")
        body = self.block()
        if not isinstance(body, Store) or not isinstance(body.value, Load):
            raise self.error(start, "what is asynchronous is one store of what a load reads")
        return AsyncCopy(body)

    def several(self, count: int, read: Callable[[int], T]) -> list[T]:
        """One piece, or `count` pieces in parentheses with commas between them."""
        if count == 1:
            return [read(0)]
        pieces = []
        self.expect("(", f" and {count} operands")
        for position in range(count):
            if position:
                self.expect(",", f" and {count} operands")
            pieces.append(read(position))
        self.accept(",")
        self.expect(")")
        return pieces

    def check_reduction(self, token: Token, op: str, buffers: tuple[Buffer, ...]) -> None:
        for buffer, legal in zip(buffers, REDUCTIONS[op], strict=True):
            if buffer.dtype not in legal:
                names = " ".join(t.value for t in DType if t in legal)
                raise self.error(token, f"the reduction {op} takes {names}, not {buffer.dtype}")
        if op in ("welford", "logsumexp") and len({b.dtype for b in buffers}) > 1:
            raise self.error(token, f"the buffers of {op} have one dtype")

    def masked_store(self, label: str) -> Stmt:
        self.next()
        self.expect("(")
        buffer, indices, span = self.target()
        self.expect(",")
        value = self.typed(buffer.dtype)
        self.expect(",")
        mask = self.typed(DType.BOOL)
        self.expect(")")
        return MaskedStore(label, buffer, indices, value, mask, span)
