"""A step as plain data: the primitive and its fields, and back."""

from __future__ import annotations

import ast
import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import index
from tensorc.ir.nodes import Binary, BinaryOp, Expr, Unary, Var
from tensorc.ir.print import print_expr
from tensorc.schedule import primitives
from tensorc.schedule.step import REGISTRY, Step, ill_typed

Json: TypeAlias = Any

assert primitives.__all__, "importing the primitives registers them"


def record(step: Step) -> dict[str, Json]:
    """A step as a dictionary of plain values: the primitive, then the fields that matter."""
    fields = {name: _plain(value) for name, value in step.arguments().items()}
    return {"primitive": step.primitive, **fields}


def from_record(entry: Json) -> Step:
    """The step of a dictionary. Raises ArgumentError that names what does not fit."""
    name = entry.get("primitive") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name not in REGISTRY:
        reason = f"got {entry!r:.80}; {suggestion(name, sorted(REGISTRY), 'the primitives are')}"
        raise ArgumentError("primitive", reason)
    kind = REGISTRY[name]
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {key: value for key, value in entry.items() if key != "primitive"}
    for key in given:
        if key not in fields:
            reason = suggestion(key, fields, f"{name} has the fields")
            raise ArgumentError(str(key), reason)
    for key, field in fields.items():
        if key not in given and field.default is dataclasses.MISSING:
            raise ArgumentError(key, f"{name} needs it")
    layout = kind is primitives.TransformLayout
    step = kind(**{n: _value(v, layout and n == "layout") for n, v in given.items()})
    for violation in ill_typed(step):
        raise ArgumentError("steps", violation.message)
    return step


def suggestion(name: object, legal: Iterable[str], lead: str) -> str:
    """The names that are legal, behind the one among them that an unknown name is nearest to."""
    known = list(legal)
    near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
    return "".join(f"did you mean {n}? " for n in near) + f"{lead} {', '.join(known)}"


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
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError("layout", f"{text!r} is no index expression") from error


def _expression(node: ast.expr) -> Expr:
    match node:
        case ast.Name(id=name):
            return Var(name, DType.INDEX)
        case ast.Constant(value=int(value)) if type(value) is int:
            return index(value)
        case ast.Call(func=ast.Name(id="index"), args=[ast.Constant(value=int()) as literal]):
            # A literal alone is printed with its dtype.
            return _expression(literal)
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return Unary("neg", _expression(a))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return Binary(_OPERATORS[type(op)], _expression(a), _expression(b))
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[a, b]):
            return Binary(name, _expression(a), _expression(b))
    raise ArgumentError("layout", f"{ast.unparse(node)!r} is no index expression")
