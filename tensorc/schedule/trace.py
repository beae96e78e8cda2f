"""A trace: the steps of a schedule as data, as JSON, as Python source, and back.

A step's fields are its whole record. Every name that a step makes is a function of the state before
it, so a trace holds plain names and replays on any function with the same ones.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ParseError
from tensorc.ir.arith import index
from tensorc.ir.nodes import Binary, BinaryOp, Expr, Span, Unary, Var
from tensorc.ir.print import print_expr
from tensorc.ir.walk import variables
from tensorc.schedule import primitives
from tensorc.schedule.step import REGISTRY, Step, ill_typed

VERSION = 1
Json: TypeAlias = Any

assert primitives.__all__, "importing the primitives registers them"


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, and the texts they can be saved as.

    `spans` are the lines that asked for the steps, as far as they are known; reports name them.
    """

    steps: tuple[Step, ...]
    spans: tuple[Span | None, ...] = dataclasses.field(default=(), compare=False)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_json(self) -> str:
        """See `to_json`; `Trace.from_json` reads it back."""
        return to_json(self.steps)

    def to_python(self, name: str = "s") -> str:
        """See `to_python`; `Trace.from_python` reads it back."""
        return to_python(self.steps, name)

    def placed(self) -> Iterator[tuple[Step, Span | None]]:
        """Each step, and the line that asked for it."""
        return zip_longest(self.steps, self.spans)

    @classmethod
    def from_json(cls, text: str, file: str = "<trace>") -> Trace:
        """The trace of a JSON text; errors and reports name `file`. Raises ParseError."""
        steps = from_json(text, file)
        found = [n for n, x in enumerate(text.splitlines(), 1) for _ in range(x.count(_ENTRY))]
        lines = found if len(found) == len(steps) else [1] * len(steps)
        return cls(steps, tuple(Span(file, line) for line in lines))

    @classmethod
    def from_python(cls, text: str, file: str = "<trace>") -> Trace:
        """The trace of a Python text; nothing is executed. Raises ParseError."""
        steps = from_python(text, file)
        return cls(steps, tuple(Span(file, node.lineno) for node in ast.parse(text).body))


def to_json(steps: Iterable[Step]) -> str:
    """The steps as a JSON object {"version": 1, "steps": [...]}, one line a step."""
    lines = [json.dumps(record(step)) for step in steps]
    inside = ",\n    ".join(lines)
    body = f"[\n    {inside}\n  ]" if lines else "[]"
    return f'{{\n  "version": {VERSION},\n  "steps": {body}\n}}\n'


_ENTRY = '"primitive"'


def from_json(text: str, file: str = "<trace>") -> tuple[Step, ...]:
    """The steps of a JSON text. Raises ParseError for a text that is no trace."""
    if not isinstance(text, str):
        raise ArgumentError("text", f"expected the text of a trace, got {text!r:.80}")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines() else ""
        raise ParseError(error.msg, error.lineno, error.colno, line, file) from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise _refused(text, f'an object with "version": {VERSION} was expected', file)
    if not isinstance(data.get("steps"), list):
        raise _refused(text, 'a list "steps" was expected', file)
    return tuple(_numbered(text, n, entry, file) for n, entry in enumerate(data["steps"], 1))


def _numbered(text: str, number: int, entry: Json, file: str) -> Step:
    try:
        return from_record(entry)
    except ArgumentError as error:
        raise _refused(text, f"step {number}: {error}", file) from error


def _refused(text: str, reason: str, file: str) -> ParseError:
    first = text.splitlines()[0] if text.splitlines() else ""
    return ParseError(reason, 1, 1, first, file)


def record(step: Step) -> dict[str, Json]:
    """A step as a dictionary of plain values: the primitive, then the fields that matter."""
    fields = {name: _plain(value) for name, value in step.arguments().items()}
    return {"primitive": step.primitive, **fields}


def from_record(entry: Json) -> Step:
    """The step of a dictionary. Raises ArgumentError that names what does not fit."""
    name = entry.get("primitive") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise ArgumentError("primitive", f"got {entry!r:.80}; the primitives are {known}")
    kind = REGISTRY[name]
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {key: value for key, value in entry.items() if key != "primitive"}
    for key in given:
        if key not in fields:
            raise ArgumentError(str(key), f"{name} has the fields {', '.join(fields)}")
    for key, field in fields.items():
        if key not in given and field.default is dataclasses.MISSING:
            raise ArgumentError(key, f"{name} needs it")
    layout = kind is primitives.TransformLayout
    step = kind(**{n: _value(v, layout and n == "layout") for n, v in given.items()})
    for violation in ill_typed(step):
        raise ArgumentError("steps", violation.message)
    return step


def _plain(value: object) -> Json:
    if isinstance(value, Expr):
        return print_expr(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _value(value: Json, expressions: bool) -> Json:
    if isinstance(value, list | tuple):
        return tuple(_value(v, expressions) for v in value)
    if expressions and isinstance(value, str):
        return expression(value)
    if isinstance(value, str | int | bool) or value is None:
        return value
    raise ArgumentError("value", f"{value!r} is no field of a step")


# Index expressions of layouts -------------------------------------------------------------------

_OPERATORS: dict[type, BinaryOp] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}


def expression(text: str) -> Expr:
    """An index expression over names and integers. Raises ArgumentError."""
    try:
        return _expression(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise ArgumentError("layout", f"{text!r} is no index expression") from error


def _expression(node: ast.expr) -> Expr:
    match node:
        case ast.Name(id=name):
            return Var(name, DType.INDEX)
        case ast.Constant(value=int(value)):
            return index(value)
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return Unary("neg", _expression(a))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return Binary(_OPERATORS[type(op)], _expression(a), _expression(b))
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[a, b]):
            return Binary(name, _expression(a), _expression(b))
    raise ArgumentError("layout", f"{ast.unparse(node)!r} is no index expression")


# Python source ----------------------------------------------------------------------------------


def to_python(steps: Iterable[Step], name: str = "s") -> str:
    """The steps as calls of the methods of `Schedule`, one a line."""
    return "".join(f"{name}.{call(step)}\n" for step in steps)


def call(step: Step) -> str:
    """A step as the method call that makes it, e.g. `split("i", [10, 6])`."""
    values = list(step.arguments().items())
    if isinstance(step, primitives.Reorder):
        return f"reorder({', '.join(map(_literal, step.order))})"
    if isinstance(step, primitives.TransformLayout) and not ill_typed(step):
        return f"transform_layout({_literal(step.buffer)}, {_function(step.layout)})"
    if isinstance(step, primitives.Split) and len(step.factors) == 1:
        values = [(n, v[0] if n == "factors" else v) for n, v in values]
    positional = _leading(step)
    parts = [_literal(v) if n in positional else f"{n}={_literal(v)}" for n, v in values]
    return f"{step.primitive}({', '.join(parts)})"


def _leading(step: Step) -> set[str]:
    """The fields without a default: the arguments that stand first, by position."""
    fields = dataclasses.fields(step)  # type: ignore[arg-type]
    return {f.name for f in fields if f.default is dataclasses.MISSING}


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


def _function(layout: tuple[Expr, ...]) -> str:
    used = set().union(*(variables(e) for e in layout))
    count = max((int(n[1:]) + 1 for n in used if re.fullmatch(r"d\d+", n)), default=0)
    inside = ", ".join(print_expr(e) for e in layout)
    tail = "," if len(layout) == 1 else ""
    return f"lambda {', '.join(f'd{n}' for n in range(count))}: ({inside}{tail})"


def from_python(text: str, file: str = "<trace>") -> tuple[Step, ...]:
    """The steps of a text like the one that `to_python` writes.

    Only calls of a schedule's methods with literal arguments; nothing is executed. Raises
    ParseError for anything else.
    """
    if not isinstance(text, str):
        raise ArgumentError("text", f"expected the text of a trace, got {text!r:.80}")
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        raise ParseError(error.msg, line, column, (error.text or "").rstrip(), file) from None
    return tuple(_step(statement, text, file) for statement in body)


def _step(statement: ast.stmt, text: str, file: str) -> Step:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=args, keywords=keywords)):
            pass
        case _:
            raise _at(statement, text, "a call such as s.split(...) was expected", file)
    if name not in REGISTRY:
        raise _at(statement, text, f"the primitives are {', '.join(sorted(REGISTRY))}", file)
    fields = [f.name for f in dataclasses.fields(REGISTRY[name])]  # type: ignore[arg-type]
    try:
        values = [_argument(a) for a in args]
        if name == "reorder":
            return from_record({"primitive": name, "order": values})
        if len(values) > len(fields):
            raise ArgumentError(name, f"it takes {', '.join(fields)}")
        entry = dict(zip(fields, values, strict=False))
        entry |= {k.arg: _argument(k.value) for k in keywords if k.arg is not None}
        if name == "split" and isinstance(entry.get("factors"), int):
            entry["factors"] = [entry["factors"]]
        return from_record({"primitive": name, **entry})
    except ArgumentError as error:
        raise _at(statement, text, str(error), file) from error


def _argument(node: ast.expr) -> Json:
    if isinstance(node, ast.Lambda):
        places = node.body.elts if isinstance(node.body, ast.Tuple) else [node.body]
        return [ast.unparse(place) for place in places]
    try:
        return ast.literal_eval(node)
    except ValueError:
        reason = f"{ast.unparse(node)!r} is not a literal"
        raise ArgumentError("argument", reason) from None


def _at(node: ast.stmt, text: str, reason: str, file: str) -> ParseError:
    line = text.splitlines()[node.lineno - 1]
    return ParseError(reason, node.lineno, node.col_offset + 1, line, file)
