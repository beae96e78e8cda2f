"""Parallel loops: the body as a function of its own, which the hook calls for each iteration.

The iteration's function gets what the body uses in a record, and passes it on as parameters: only
parameters can say that pointers do not overlap. The record is on the stack of the caller, which
waits. A parallel loop inside another one is an ordinary loop, so a worker is never entered twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc.codegen.context import Context, Place
from tensorc.codegen.emit_index import index_of
from tensorc.codegen.emit_memory import forget, written_in
from tensorc.codegen.hook import HOOK
from tensorc.codegen.passes.trees import find, leaves, names_in
from tensorc.codegen.values import Value
from tensorc.dtype import DType
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Load, MaskedLoad
from tensorc.ir.walk import Leaf, nodes, variables, written


@dataclass(frozen=True, slots=True)
class _Capture:
    """A value of the enclosing function that the body uses."""

    type: str
    text: str
    attributes: str = ""


def region(c: Context, loop: For, begin: int | str, end: int | str) -> None:
    """The loop as one call of the hook; a result other than 0 is returned at once."""
    c.module.parallel = True
    number = len(c.module.functions)
    name = f"{c.module.symbol}.parallel.{number}"
    captures = _captures(c, loop, begin)
    record = _record(c, captures)
    _define_body(c, loop, begin, name, captures)
    c.module.functions.append(_trampoline(name, captures))
    out = c.out
    count = out.pure(f"sub i64 {end}, {begin}")
    code = out.result(f"call i32 @{HOOK}(ptr @{name}, ptr {record}, i64 {count})")
    out.leave_unless_zero(code)
    forget(c, written_in(c, loop))


def _captures(c: Context, loop: For, begin: int | str) -> dict[str, _Capture]:
    """By a name of ours: buffers and variables of the program, and what the workspace needs."""
    found: dict[str, _Capture] = {"begin": _Capture("i64", str(begin))}
    inner = {alloc.buffer.name for alloc in find(loop, Alloc)}
    used = {buffer.name for leaf in leaves(loop) for buffer in _buffers(leaf)}
    for buffer in sorted(used - inner):
        place = c.places[buffer]
        attributes = f" noalias align {place.alignment}"
        found[f"buffer {buffer}"] = _Capture("ptr", place.pointer, attributes)
    offsets: list[Expr] = [c.slots[name].offset for name in inner]
    shapes = [extent for leaf in leaves(loop) for b in _buffers(leaf) for extent in b.shape]
    for name in sorted(variables(loop).union(*map(names_in, [*offsets, *shapes]))):
        bound = c.variables.get(name)
        if isinstance(bound, Value):
            found[f"variable {name}"] = _Capture(bound.type, bound.text)
    if any(c.slots[name].home == "worker" for name in inner):
        found["workers"] = _Capture("ptr", first_worker(c))
        found["bytes"] = _Capture("i64", str(index_of(c, c.storage.worker)))
    return found


def _buffers(leaf: Leaf) -> Iterator[Buffer]:
    """The buffers of a statement: where an element lies depends on their shapes."""
    yield from written(leaf)
    yield from (load.buffer for load in nodes(leaf, Load))
    yield from (load.buffer for load in nodes(leaf, MaskedLoad))


def first_worker(c: Context) -> str:
    """Where the workers' parts of the workspace begin."""
    shared = index_of(c, c.storage.shared)
    return c.out.pure(f"getelementptr i8, ptr {c.shared}, i64 {shared}") if shared else c.shared


def _record(c: Context, captures: dict[str, _Capture]) -> str:
    """The captured values in memory, eight bytes each."""
    record = c.out.fresh("record")
    c.out.allocas.append(f"  {record} = alloca [{len(captures)} x i64], align 8")
    for position, capture in enumerate(captures.values()):
        field = c.out.pure(f"getelementptr i64, ptr {record}, i64 {position}")
        stored = "i8" if capture.type == "i1" else capture.type
        text = capture.text
        if capture.type == "i1":
            text = c.out.pure(f"zext i1 {text} to i8")
        c.out.effect(f"store {stored} {text}, ptr {field}, align 8")
    return record


def _trampoline(name: str, captures: dict[str, _Capture]) -> str:
    """The function that the hook calls."""
    lines, arguments = [], ["i64 %i", "i32 %worker"]
    for position, capture in enumerate(captures.values()):
        stored = "i8" if capture.type == "i1" else capture.type
        lines.append(f"  %f{position} = getelementptr i64, ptr %record, i64 {position}")
        lines.append(f"  %v{position} = load {stored}, ptr %f{position}, align 8")
        value = f"%v{position}"
        if capture.type == "i1":
            lines.append(f"  %b{position} = trunc i8 %v{position} to i1")
            value = f"%b{position}"
        arguments.append(f"{capture.type} {value}")
    body = "\n".join(lines)
    return (
        f"define internal i32 @{name}(ptr %record, i64 %i, i32 %worker) #0 {{\n{body}\n"
        f"  %code = call i32 @{name}.body({', '.join(arguments)})\n  ret i32 %code\n}}\n"
    )


def _define_body(
    c: Context, loop: For, begin: int | str, name: str, captures: dict[str, _Capture]
) -> None:
    """The body, in a context of its own."""
    inner = Context(c.module, c.storage, c.evaluate, c.execute)
    inner.inside_parallel = True
    inner.writes = c.writes
    inner.variables.update({n: v for n, v in c.variables.items() if isinstance(v, int)})
    out = inner.out
    arguments = ["i64 %i", "i32 %worker"]
    local: dict[str, str] = {}
    for key, capture in captures.items():
        kind, _, what = key.partition(" ")
        local[key] = text = out.named(what or kind)
        arguments.append(f"{capture.type}{capture.attributes} {text}")
        if kind == "buffer":
            outer = c.places[what]
            inner.places[what] = Place(text, outer.alignment, outer.elements)
        elif kind == "variable":
            bound = c.variables[what]
            assert isinstance(bound, Value)
            inner.variables[what] = bound._replace(text=text)
    variable = out.pure(f"add i64 %i, {local['begin']}")
    inner.variables[loop.var.name] = Value(variable, DType.INDEX)
    inner.natural |= c.natural
    if isinstance(begin, int) and begin >= 0:
        inner.natural.add(loop.var.name)
    if "workers" in local:
        worker = out.pure("sext i32 %worker to i64")
        offset = out.pure(f"mul i64 {worker}, {local['bytes']}")
        inner.worker = out.pure(f"getelementptr i8, ptr {local['workers']}, i64 {offset}")
    inner.execute(inner, loop.body)
    out.effect("ret i32 0")
    body = "entry:\n" + out.body()
    c.module.functions.append(
        f"define internal i32 @{name}.body({', '.join(arguments)}) noinline #0 {{\n{body}\n}}\n"
    )
