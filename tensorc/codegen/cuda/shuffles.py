"""What the threads of a warp combine by shuffles, as CUDA C++.

In each step a lane takes the value of the lane half as far along as in the step before, so that the
first lane has what all have after log2 steps (J. Luitjens: Faster Parallel Reductions on Kepler,
2014). Lanes are named by the mask of their group alone: others may be elsewhere.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tensorc.codegen.cuda.expressions import BOTH, Text, element, literal, to_memory, write
from tensorc.dtype import DType
from tensorc.errors import CompileError
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.grid import THREADS, WARP, axis_of, extent_of, group_of
from tensorc.ir.nodes import Const, Expr, For, If, Load, Reduce, Stmt, Var

if TYPE_CHECKING:
    from tensorc.codegen.cuda.statements import Writer

_SHUFFLED = frozenset({DType.I32, DType.U32, DType.I64, DType.F32, DType.F64})
"""The types for which there are shuffles; narrower integers travel as ints, halves as floats."""


def combine(w: Writer, loop: For) -> None:
    """Write a loop whose iterations the lanes of warps combine; its variable is declared."""
    guards: list[Expr] = []
    body: Stmt = loop.body
    while isinstance(body, If):
        guards.append(body.condition)
        body = body.body
    if not isinstance(body, Reduce):
        raise CompileError(f"`{loop.var.name}` is bound to threads and holds no reduction alone")
    axis, extent = str(axis_of(loop)), extent_of(loop) or 0
    width = 1 << (group_of(loop) - 1).bit_length()
    total = -(-extent // width) * width
    some = total < w.block[axis]
    with w.braces(f"if ({axis} < {total})") if some else nullcontext():
        held = _values(w, body, axis, extent, total)
        if width > 1:
            _steps(w, body, held, width, axis)
        _result(w, body, held, f"{axis} % {width}" if width < total else axis, guards)


def _values(w: Writer, node: Reduce, axis: str, extent: int, total: int) -> tuple[Var, ...]:
    """What each lane begins with; lanes past the end, with the identity."""
    identity = COMBINERS[node.op].identity(tuple(b.dtype for b in node.buffers))
    held = tuple(_variable(w, f"{b.name}.sum", b.dtype) for b in node.buffers)
    for var, value, none in zip(held, node.values, identity, strict=True):
        assert isinstance(none, Const)
        text = write(w.scope, value).text
        if extent < total:
            text = f"{axis} < {extent} ? {text} : {literal(w.scope, none.value, none.dtype).text}"
        w.line(f"{_kind(w, var)} {w.scope.names[var.name]} = {text};")
    return held


def _variable(w: Writer, wanted: str, dtype: DType) -> Var:
    name = w.name(wanted)
    w.scope.names[name] = name
    return Var(name, dtype)


def _kind(w: Writer, var: Var) -> str:
    return w.scope.kind(var.dtype)


def _steps(w: Writer, node: Reduce, held: tuple[Var, ...], width: int, axis: str) -> None:
    step, mask = w.name("step"), _mask(w, width, axis)
    w.line("#pragma unroll")
    with w.braces(f"for (int {step} = {width // 2}; {step} > 0; {step} /= 2)"):
        others = tuple(_variable(w, f"{var.name}.other", var.dtype) for var in held)
        for var, other in zip(held, others, strict=True):
            moved = _shuffled(w, var, f"{mask}, {{}}, {step}, {width}")
            w.line(f"const {_kind(w, var)} {other.name} = {moved};")
        new = COMBINERS[node.op].combine(held, others)
        texts = [write(w.scope, value).text for value in new]
        if len(held) > 1:
            texts = [_named(w, text, var) for text, var in zip(texts, held, strict=True)]
        for var, text in zip(held, texts, strict=True):
            w.line(f"{var.name} = {text};")


def _named(w: Writer, text: str, var: Var) -> str:
    name = w.name(f"{var.name}.new")
    w.line(f"const {_kind(w, var)} {name} = {text};")
    return name


def _shuffled(w: Writer, var: Var, arguments: str) -> str:
    kind = _kind(w, var)
    if var.dtype in _SHUFFLED or kind == "float":
        return f"__shfl_down_sync({arguments.format(var.name)})"
    return f"({kind})__shfl_down_sync({arguments.format(f'(int){var.name}')})"


def _mask(w: Writer, width: int, axis: str) -> str:
    """The lanes of the group: a row of threads is part of a warp, or made of whole warps."""
    if width == WARP:
        return "0xffffffffu"
    group, (x, y, z) = (1 << width) - 1, (w.block[a] for a in THREADS)
    if x >= WARP or (x == width and y == z == 1):
        return f"{group:#x}u"
    row = THREADS[1] if z == 1 else f"({THREADS[1]} + {THREADS[2]} * {y})"
    name = w.name("lanes")
    lane = f"({axis} + {row} * {x}) % {WARP}"
    w.line(f"const unsigned {name} = {group:#x}u << ({lane} / {width} * {width});")
    return name


def _result(w: Writer, node: Reduce, held: tuple[Var, ...], place: str, guards: list[Expr]) -> None:
    """The first lane combines what there is with what was there."""
    s = w.scope
    tests = [f"{place} == 0", *(write(s, guard).within(BOTH) for guard in guards)]
    old = tuple(Load(buffer, node.indices) for buffer in node.buffers)
    with w.braces(f"if ({' && '.join(tests)})"):
        new = [write(s, value).text for value in COMBINERS[node.op].combine(old, held)]
        if len(held) > 1:
            new = [_named(w, text, var) for text, var in zip(new, held, strict=True)]
        for buffer, text in zip(node.buffers, new, strict=True):
            target = element(s, buffer, node.indices).text
            w.line(f"{target} = {to_memory(s, Text(text), buffer.dtype).text};")
