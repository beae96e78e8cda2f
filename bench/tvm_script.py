"""A task of ours as one of TVM's: the text of a TensorIR function that computes the same.

Every nest of a task becomes a block of its own: a map has spatial axes, a reduction spatial axes
and reduction axes, and the store before it is its initial value. That is what MetaSchedule's rules
take. What a block reads and writes, TVM's parser infers. Parameters are the inputs in their order,
then the outputs in theirs. Inputs of mode "const" are `layout_free_buffers`: MetaSchedule may
choose their layout, as our schedules may, and whoever calls the kernel packs them once.

Differences that stay: a maximum begins with the least finite number, as TVM's own reductions do
(its rule for parallel reductions takes no other), and TVM's minimum and maximum do not propagate
NaN. Indices have 32 bits, which is TVM's default.

What cannot be said so is refused, with the reason; nothing here needs TVM.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorc.dtype import DType
from tensorc.ir.arith import constant, sub
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.grammar import INFIX
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Node,
    Param,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import children, nodes, variables, written

DTYPES: Mapping[DType, str] = {
    DType.BOOL: "bool", DType.I8: "int8", DType.U8: "uint8", DType.I16: "int16",
    DType.I32: "int32", DType.I64: "int64", DType.U32: "uint32", DType.F32: "float32",
    DType.F64: "float64", DType.INDEX: "int32",
}  # fmt: skip
MOST_ELEMENTS = 2**31

CALLS: Mapping[str, str] = {
    "min": "min", "max": "max", "pow": "pow", "truncdiv": "truncdiv", "truncmod": "truncmod",
    "bitand": "bitwise_and", "bitor": "bitwise_or", "bitxor": "bitwise_xor", "shl": "shift_left",
    "shr": "shift_right", "abs": "abs", "floor": "floor", "ceil": "ceil", "round": "nearbyint",
    "trunc": "trunc", "isnan": "isnan", "exp": "exp", "log": "log", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf", "sigmoid": "sigmoid", "sin": "sin",
    "cos": "cos",
}  # fmt: skip
DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})


class TranslationError(ValueError):
    """A task that has no counterpart here; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A nest: loops, outermost first, around a statement.

    Attributes:
        kept: how many of the loops are around the whole of a reduction; all loops of a map.
        start: the store before a reduction, of its initial value.
    """

    loops: tuple[For, ...]
    kept: int
    leaf: Store | Reduce
    start: Store | None = None


def translate(func: Func) -> str:
    """The text of a TensorIR function, `main`, for TVM's parser.

    Raises:
        TranslationError: the task is none that TVM's schedules take.
    """
    params = [_parameter(param) for param in ordered(func)]
    found = list(_stages(func.body, ()))
    _check_stages(found)
    local = [alloc.buffer for alloc in nodes(func.body, Alloc)]
    for buffer in local:
        _check_buffer(buffer)
    text = _named(found, [*params, *local])
    constants = [n for n, param in enumerate(ordered(func)) if param.mode == "const"]
    free = f', "layout_free_buffers": {constants}' if constants else ""
    declared = (f"{text.buffers[buffer.name]}: T.Buffer({_type(buffer)})" for buffer in params)
    lines = [
        "@T.prim_func(s_tir=True)",
        f"def main({', '.join(declared)}):",
        f'    T.func_attr({{"global_symbol": "main", "tirx.noalias": True{free}}})',
    ]
    for buffer in local:
        lines.append(f"    {text.buffers[buffer.name]} = T.sblock_alloc_buffer({_type(buffer)})")
    for stage in found:
        lines += text.stage(stage)
    return "\n".join(lines) + "\n"


def ordered(func: Func) -> list[Param]:
    """The parameters in the order of the translation: inputs, then outputs."""
    return sorted(func.params, key=lambda param: param.mode == "out")


# What can be said ---------------------------------------------------------------------------------


def _parameter(param: Param) -> Buffer:
    if not isinstance(param.value, Buffer):
        raise TranslationError(f"{param.name} is a number that is given to each call")
    if param.mode == "inout":
        raise TranslationError(f"{param.name} is read and written")
    _check_buffer(param.value)
    return param.value


def _check_buffer(buffer: Buffer) -> None:
    if buffer.dtype not in DTYPES:
        reason = f"{buffer.name} is of {buffer.dtype}, which is rounded at each operator here"
        raise TranslationError(reason)
    if buffer.strides is not None:
        raise TranslationError(f"{buffer.name} has strides")
    extents = [constant(extent) for extent in buffer.shape]
    if any(extent is None for extent in extents):
        raise TranslationError(f"{buffer.name} has a size that only a call knows")
    if math.prod(extent or 0 for extent in extents) >= MOST_ELEMENTS:
        raise TranslationError(f"{buffer.name} has more elements than 32 bits can count")


def _stages(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[Stage]:
    match stmt:
        case For():
            inner = list(_stages(stmt.body, (*loops, stmt)))
            if len(inner) != 1:
                raise TranslationError(f"loop {stmt.var.name} is around {len(inner)} statements")
            yield from inner
        case Alloc():
            if loops:
                raise TranslationError(f"{stmt.buffer.name} is made anew in each iteration")
            yield from _stages(stmt.body, loops)
        case Seq():
            yield from _sequence(stmt.body, loops)
        case Store():
            yield Stage(loops, len(loops), stmt)
        case Reduce(buffers=buffers) if len(buffers) > 1:
            raise TranslationError(f"{stmt.name} reduces into {len(buffers)} buffers at once")
        case Reduce():
            reason = f"no store of its initial value stands right before reduction {stmt.name}"
            raise TranslationError(reason)
        case _:
            raise TranslationError(f"there is a statement of kind {type(stmt).__name__}")


def _sequence(body: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[Stage]:
    """The nests of a sequence; a store and the reduction that it is the start of are one."""
    position = 0
    while position < len(body):
        start = body[position]
        inner, leaf = _nest(body[position + 1]) if position + 1 < len(body) else ((), None)
        if isinstance(leaf, Reduce) and isinstance(start, Store) and _starts(start, leaf):
            yield Stage((*loops, *inner), len(loops), leaf, start)
            position += 2
        else:
            yield from _stages(start, loops)
            position += 1


def _nest(stmt: Stmt) -> tuple[tuple[For, ...], Stmt]:
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return tuple(loops), stmt


def _starts(start: Store, leaf: Reduce) -> bool:
    return leaf.buffers == (start.buffer,) and leaf.indices == start.indices


def _check_stages(stages: list[Stage]) -> None:
    done: set[str] = set()
    for stage in stages:
        _check_loops(stage)
        _check_places(stage)
        (buffer,) = written(stage.leaf)
        loads = [load for part in _values(stage) for load in nodes(part, Load)]
        if any(load.buffer.name == buffer.name for load in loads):
            raise TranslationError(f"{stage.leaf.name} reads what it writes")
        if buffer.name in done:
            raise TranslationError(f"{buffer.name} is written in several places")
        done.add(buffer.name)


def _values(stage: Stage) -> tuple[Expr, ...]:
    own = stage.leaf.values if isinstance(stage.leaf, Reduce) else (stage.leaf.value,)
    return own if stage.start is None else (*own, stage.start.value)


def _check_loops(stage: Stage) -> None:
    for loop in stage.loops:
        if constant(loop.begin) != 0:
            raise TranslationError(f"loop {loop.var.name} does not begin at 0")
        if constant(sub(loop.end, loop.begin)) is None:
            names = ", ".join(sorted(variables(loop.end)))
            raise TranslationError(f"loop {loop.var.name} runs as often as {names} says")


def _check_places(stage: Stage) -> None:
    """Each iteration of the loops that are kept writes an element of its own."""
    places = [index for index in stage.leaf.indices if not isinstance(index, Const)]
    plain = [index.name for index in places if isinstance(index, Var)]
    kept = [loop.var.name for loop in stage.loops[: stage.kept]]
    if len(plain) < len(places) or sorted(plain) != sorted(kept):
        reason = f"the indices that {stage.leaf.name} writes at are not its loops, one each"
        raise TranslationError(reason)


# Names --------------------------------------------------------------------------------------------


def _named(stages: list[Stage], buffers: list[Buffer]) -> _Text:
    taken = {"T", *keyword.kwlist}  # T is what the words of TVM's parser stand in

    def free(name: str) -> str:
        word = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in name)
        word = word if word.isidentifier() else f"_{word}"
        while word in taken:
            word += "_"
        taken.add(word)
        return word

    loops = [loop.var.name for stage in stages for loop in stage.loops]
    return _Text(
        {buffer.name: free(buffer.name) for buffer in buffers},
        {loop: free(loop) for loop in loops},
        {loop: free(f"v_{loop}") for loop in loops},
    )


def _type(buffer: Buffer) -> str:
    shape = tuple(constant(extent) for extent in buffer.shape)
    return f'{shape}, "{DTYPES[buffer.dtype]}"'


# Text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    """Writes statements with the words for each buffer, loop and axis of a block."""

    buffers: Mapping[str, str]
    loops: Mapping[str, str]
    axes: Mapping[str, str]

    def stage(self, stage: Stage) -> list[str]:
        indent = "    "
        loops = [self.loops[loop.var.name] for loop in stage.loops]
        axes = [self.axes[loop.var.name] for loop in stage.loops]
        kinds = "S" * stage.kept + "R" * (len(loops) - stage.kept)
        lines = []
        if loops:
            extents = ", ".join(str(constant(loop.end)) for loop in stage.loops)
            lines.append(f"{indent}for {', '.join(loops)} in T.grid({extents}):")
            indent += "    "
        lines.append(f'{indent}with T.sblock("{stage.leaf.name}"):')
        indent += "    "
        if loops:
            bound = f'T.axis.remap("{kinds}", [{", ".join(loops)}])'
            lines.append(f"{indent}{', '.join(axes)} = {bound}")
        if stage.start is not None:
            value = self.start(stage.start, stage.leaf)
            lines.append(f"{indent}with T.init():")
            lines.append(f"{indent}    {self.element(stage.start)} = {value}")
        lines.append(f"{indent}{self.element(stage.leaf)} = {self.value(stage.leaf)}")
        return lines

    def start(self, start: Store, leaf: Store | Reduce) -> str:
        dtype = start.buffer.dtype
        if isinstance(leaf, Reduce) and leaf.op in ("min", "max") and dtype.is_float:
            (identity,) = COMBINERS[leaf.op].identity((dtype,))
            least = "min_value" if leaf.op == "max" else "max_value"
            if start.value == identity:
                return f'T.{least}("{DTYPES[dtype]}")'
        return self.expr(start.value)

    def value(self, leaf: Store | Reduce) -> str:
        if isinstance(leaf, Store):
            return self.expr(leaf.value)
        own = Load(leaf.buffers[0], leaf.indices)
        (combined,) = COMBINERS[leaf.op].combine((own,), leaf.values)
        return self.expr(combined)

    def element(self, access: Load | Store | Reduce) -> str:
        buffer = written(access)[0] if isinstance(access, Store | Reduce) else access.buffer
        indices = ", ".join(map(self.expr, access.indices)) or "()"
        return f"{self.buffers[buffer.name]}[{indices}]"

    def expr(self, expr: Expr) -> str:
        match expr:
            case Const():
                return _literal(expr)
            case Var(name=name):
                return self.axes[name]
            case Load():
                return self.element(expr)
            case Unary():
                return self.unary(expr)
            case Binary():
                return self.binary(expr)
            case Cast():
                return self.cast(expr)
            case Select():
                return self.select(expr)
        raise TranslationError(f"there is an expression of kind {type(expr).__name__}")

    def operand(self, expr: Expr) -> str:
        """An expression as a part of another one, in parentheses unless it is one piece."""
        text = self.expr(expr)
        piece = ast.parse(text, mode="eval").body
        plain = isinstance(piece, ast.Call | ast.Constant | ast.Name | ast.Subscript)
        return text if plain else f"({text})"

    def unary(self, expr: Unary) -> str:
        if expr.op == "neg":
            return f"-{self.operand(expr.a)}"
        if expr.op == "not":
            bits = dtype_of(expr.a) is not DType.BOOL
            return f"T.bitwise_not({self.expr(expr.a)})" if bits else f"not {self.operand(expr.a)}"
        return f"T.{CALLS[expr.op]}({self.expr(expr.a)})"

    def binary(self, expr: Binary) -> str:
        a, b = expr.a, expr.b
        _check_operator(expr)
        if expr.op in ("and", "or") and not _certain(b) <= _certain(a):
            other = f"T.bool({expr.op == 'or'})"
            parts = (self.expr(b), other) if expr.op == "and" else (other, self.expr(b))
            return f"T.if_then_else({self.expr(a)}, {', '.join(parts)})"
        if expr.op in CALLS:
            return f"T.{CALLS[expr.op]}({self.expr(a)}, {self.expr(b)})"
        return f"{self.operand(a)} {INFIX[expr.op][0]} {self.operand(b)}"

    def cast(self, expr: Cast) -> str:
        given = dtype_of(expr.a)
        if expr.dtype is DType.BOOL:
            zero = _literal(Const(0, given))
            return f"{self.operand(expr.a)} != {zero}"
        if given.is_float and not expr.dtype.is_float:
            raise TranslationError("a float is converted to an integer, saturating here alone")
        if expr.dtype not in DTYPES or given not in DTYPES:
            raise TranslationError(f"there is a conversion from {given} to {expr.dtype}")
        return f'T.Cast("{DTYPES[expr.dtype]}", {self.expr(expr.a)})'

    def select(self, expr: Select) -> str:
        """Of the two kinds in TVM, the one that evaluates both sides where no load is guarded."""
        a, b = _certain(expr.a), _certain(expr.b)
        eager = a | b <= _certain(expr.condition) | (a & b)
        word = "Select" if eager else "if_then_else"
        parts = ", ".join(map(self.expr, (expr.condition, expr.a, expr.b)))
        return f"T.{word}({parts})"


def _certain(expr: Node) -> frozenset[Load]:
    """The loads that every evaluation performs; our "and", "or" and `Select` are lazy."""
    match expr:
        case Select(condition=condition, a=a, b=b):
            return _certain(condition) | (_certain(a) & _certain(b))
        case Binary(op="and" | "or", a=a):
            return _certain(a)
    own = frozenset((expr,)) if isinstance(expr, Load) else frozenset()
    return own.union(*(_certain(child) for _, child in children(expr)))


def _check_operator(expr: Binary) -> None:
    number = expr.b.value if isinstance(expr.b, Const) else None
    if expr.op in DIVISIONS and (number is None or number <= 0):
        raise TranslationError(f"{expr.op} by what may not be positive")
    shift = expr.op in ("shl", "shr")
    if shift and (number is None or not 0 <= number < dtype_of(expr.a).bits):
        raise TranslationError(f"{expr.op} by what may be no less than the width")


def _literal(const: Const) -> str:
    value, dtype = const.value, const.dtype
    if dtype is DType.INDEX:
        return str(value)
    if dtype not in DTYPES:
        raise TranslationError(f"there is a number of {dtype}")
    text = str(value) if math.isfinite(value) else f'"{value}"'
    return f"T.{DTYPES[dtype]}({text})"
