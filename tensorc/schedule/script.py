"""Traces out of Python source: calls of a schedule's methods, read and not executed.

The arguments of a call are literals, or names to which a call before it was assigned. The value of
such a name depends on the nest, so the steps are followed on the state that they begin at.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from tensorc.analysis.effects import statements
from tensorc.errors import ArgumentError, ParseError
from tensorc.ir.nodes import Span
from tensorc.schedule.record import from_record, suggestion
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import REGISTRY, Step, legal

Value: TypeAlias = Any
ALONE = ("fuse", "fission", "cache_read")
"""The primitives whose method hands back one name; that of the others is a tuple of names."""
ASKED = ("loops", "statements")


def from_python(text: str, file: str = "<trace>") -> tuple[Step, ...]:
    """The steps of a text like the one that `to_python` writes. Raises ParseError."""
    return tuple(step for step, _ in read(text, file))


def read(text: str, file: str, state: State | None = None) -> tuple[tuple[Step, Span], ...]:
    """The steps of a text and their lines; up to the first that `state`, if given, refuses.

    Raises ParseError, for a name too whose value is not known without a state.
    """
    if not isinstance(text, str):
        raise ArgumentError("text", f"expected the text of a trace, got {text!r:.80}")
    reader = Reader(text, file, state)
    found = []
    for statement in reader.body():
        step = reader.statement(statement)
        if step is not None:
            found.append((step, Span(file, statement.lineno)))
        if reader.stopped:
            break
    return tuple(found)


class Reader:
    """The text being read: the names assigned so far, and the state after the steps so far."""

    def __init__(self, text: str, file: str, state: State | None) -> None:
        self.text, self.file, self.state = text, file, state
        self.names: dict[str, Value] = {}
        self.stopped = False

    def body(self) -> Sequence[ast.stmt]:
        try:
            found = ast.parse(self.text).body
        except SyntaxError as error:
            line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
            shown = (error.text or "").rstrip()
            raise ParseError(error.msg, line, column, shown, self.file) from None
        except (ValueError, RecursionError, MemoryError) as error:
            reason = f"no Python that can be read: {error}"
            raise ParseError(reason, 1, 1, self._line(1), self.file) from None
        if not any(isinstance(statement, ast.Assign) for statement in found):
            # Without names there is nothing to follow.
            self.state = None
        return found

    def statement(self, node: ast.stmt) -> Step | None:
        """The step of a statement, None for a question; what it gives is assigned."""
        targets: list[ast.expr] = []
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call):
                pass
            case ast.Assign(targets=targets, value=ast.Call(func=ast.Attribute(attr=name)) as call):
                pass
            case _:
                self._refuse(node, "a call such as s.split(...) was expected")
        try:
            if name in ASKED:
                step, value = None, self._asked(name, call)
            elif name in REGISTRY:
                step = self._step(name, call)
                value = self._after(step)
            else:
                lead = "the primitives are"
                reason = f"{name} is unknown; {suggestion(name, sorted(REGISTRY), lead)}"
                raise ArgumentError(name, reason)
            for target in targets:
                self._assign(target, value)
        except ArgumentError as error:
            called = name not in REGISTRY and error.argument == name
            self._refuse(node, error.reason if called else str(error), error)
        return step

    def _step(self, name: str, call: ast.Call) -> Step:
        values: list[Value] = []
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                values += self._several(argument.value)
            else:
                values.append(self._value(argument))
        named = {k.arg: self._value(k.value) for k in call.keywords if k.arg is not None}
        if len(named) < len(call.keywords):
            raise ArgumentError(name, "each argument must stand by itself, not in a **mapping")
        fields = [f.name for f in dataclasses.fields(REGISTRY[name])]  # type: ignore[arg-type]
        if name == "reorder":
            return from_record({"primitive": name, "order": values, **named})
        if len(values) > len(fields):
            raise ArgumentError(name, f"it takes {', '.join(fields)}")
        entry = dict(zip(fields, values, strict=False))
        for field in named.keys() & entry.keys():
            raise ArgumentError(field, "it is given twice")
        entry |= named
        if name == "split" and isinstance(entry.get("factors"), int):
            entry["factors"] = [entry["factors"]]
        return from_record({"primitive": name, **entry})

    # What calls give ------------------------------------------------------------------------------

    def _after(self, step: Step) -> Value:
        """What the step's method gives; None when nobody can know."""
        if self.state is None:
            return None
        if not legal(step, self.state):
            self.stopped = True
            return None
        made = step.made(self.state)
        self.state = step.apply(self.state)
        return made[0] if step.primitive in ALONE else made

    def _asked(self, name: str, call: ast.Call) -> Value:
        if self.state is None:
            return None
        arguments = [self._value(a) for a in call.args]
        arguments += [self._value(keyword.value) for keyword in call.keywords]
        known = {s.name: s.loop_names for s in statements(self.state.func)}
        if name == "statements" and not arguments:
            return tuple(known)
        if name == "loops" and arguments in ([], [None]):
            return tuple(loops(self.state.func))
        if name == "loops" and len(arguments) == 1 and arguments[0] in known:
            return known[arguments[0]]
        reason = f"it takes none of the arguments {arguments!r:.80}; statements: {', '.join(known)}"
        raise ArgumentError(name, reason)

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                unknown = value is None
                if not unknown and (isinstance(value, str) or len(value) != len(parts)):
                    raise ArgumentError(ast.unparse(target), f"the call gives {value!r}")
                for number, part in enumerate(parts):
                    self._assign(part, None if unknown else value[number])
            case _:
                raise ArgumentError(ast.unparse(target), "results are assigned to names")

    # Arguments ------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name(id=name):
                return self._named(name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
                whole = self._named(name)
                if isinstance(whole, str) or not 0 <= place < len(whole):
                    raise ArgumentError("argument", f"{name} is {whole!r}")
                return whole[place]
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._value(part) for part in parts]
            case ast.Lambda():
                return _layout(node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            reason = f"{ast.unparse(node)!r:.80} is not a literal"
            raise ArgumentError("argument", reason) from None

    def _several(self, node: ast.expr) -> list[Value]:
        found = self._value(node)
        if not isinstance(found, list | tuple):
            raise ArgumentError("argument", f"{ast.unparse(node)!r:.80} is not several values")
        return list(found)

    def _named(self, name: str) -> Value:
        if name not in self.names:
            raise ArgumentError("argument", f"{name!r} is not a literal, nor assigned before")
        value = self.names[name]
        if value is None:
            reason = (
                f"what {name!r} is depends on the nest: read the trace with the schedule that it "
                'is for, or write the name itself, e.g. "i1"'
            )
            raise ArgumentError("argument", reason)
        return value

    # Errors ---------------------------------------------------------------------------------------

    def _line(self, number: int) -> str:
        lines = re.split(r"\r\n|\r|\n", self.text)
        return lines[number - 1] if number <= len(lines) else ""

    def _refuse(self, node: ast.stmt, reason: str, cause: Exception | None = None) -> NoReturn:
        line, column = node.lineno, node.col_offset + 1
        raise ParseError(reason, line, column, self._line(line), self.file) from cause


def _layout(node: ast.Lambda) -> list[str]:
    """The places of a layout's function, its arguments called d0, d1, ..."""
    arguments = node.args
    extra = (arguments.posonlyargs, arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    if any(extra) or arguments.defaults:
        raise ArgumentError("layout", "it takes plain arguments, as in lambda d0, d1: (d1, d0)")
    numbers = {argument.arg: f"d{n}" for n, argument in enumerate(arguments.args)}
    for name in ast.walk(node.body):
        if isinstance(name, ast.Name):
            name.id = numbers.get(name.id, name.id)
    places = node.body.elts if isinstance(node.body, ast.Tuple) else [node.body]
    return [ast.unparse(place) for place in places]
