"""Programs as text, which `parse` reads back exactly.

The text is Python's syntax wherever Python has one. A literal is bare where its surroundings fix
its dtype (the other operand, the buffer stored to, an index) and `f32(2.0)` elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.dtype import DType
from tensorc.ir import grammar
from tensorc.ir.depth import within_depth
from tensorc.ir.grammar import ANY, COMPARE, INFIX, NOT, SIGN, name_text, number_text
from tensorc.ir.naming import default_names
from tensorc.ir.nodes import (
    COMPARISONS,
    Alloc,
    AsyncCopy,
    Barrier,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Commit,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Param,
    Prefetch,
    Ramp,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    Wait,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import Path
from tensorc.ir.writer import Layout, Writer

WIDTH = 100
INDENT = "    "
_ZERO = Const(0, DType.INDEX)


def layout(func: Func) -> Layout:
    """A function's text together with the places of its nodes."""
    writer = Writer(default_names(func))
    _header(writer, func)
    _block(writer, func.body, 1, ("body",))
    return Layout(tuple(writer.lines), writer.places)


@within_depth("the program to be printed")
def print_func(func: Func) -> str:
    """The text of a function: parse(print_func(func)) == func."""
    return layout(func).text


def print_stmt(stmt: Stmt) -> str:
    """The text of a statement, as it would stand alone in a function."""
    writer = Writer(default_names(stmt))
    _block(writer, stmt, 0, ())
    return "".join(line + "\n" for line in writer.lines)


@within_depth("the expression to be printed")
def print_expr(expr: Expr, context: DType | None = None) -> str:
    """The text of an expression where `context` is the dtype that its surroundings ask for (None:
    none; literals alone then show theirs)."""
    writer = Writer(())
    _expr(writer, expr, context or _known(expr), ANY, ())
    return "".join(writer.pieces)


# Functions ----------------------------------------------------------------------------------------


def _header(writer: Writer, func: Func) -> None:
    params = [f"{name_text(p.name)}: {_param_type(p)}" for p in func.params]
    name = name_text(func.name)
    line = f"def {name}({', '.join(params)}):"
    if len(line) <= WIDTH:
        writer.lines.append(line)
    else:
        writer.lines += [f"def {name}(", *(f"{INDENT}{p}," for p in params), "):"]


def _param_type(param: Param) -> str:
    value = param.value
    if isinstance(value, Var):
        return str(value.dtype)
    parts = [f'"{value.dtype}"', *map(_extent, value.shape)]
    if param.mode != "in":
        parts.append(f'"{param.mode}"')
    parts += (f'"{key}": {text}' for key, text in _storage(value))
    return f"Buffer[{', '.join(parts)}]"


def _extent(expr: Expr) -> str:
    """An extent of a parameter, in backticks where it would be read as a slip for a mode."""
    if isinstance(expr, Var) and expr.name in grammar.MODE_MEANT:
        return grammar.quoted(expr.name, "`")
    return print_expr(expr, DType.INDEX)


def _storage(buffer: Buffer) -> Iterator[tuple[str, str]]:
    """What a buffer has beside dtype and shape, where it is not the usual."""
    if buffer.scope != "global":
        yield "scope", f'"{buffer.scope}"'
    if buffer.strides is not None:
        strides = "".join(f"{s}, " for s in buffer.strides)
        yield "strides", f"({strides[:-1] if len(buffer.strides) == 1 else strides[:-2]})"
    if buffer.alignment is not None:
        yield "alignment", str(buffer.alignment)


# Statements ---------------------------------------------------------------------------------------


def _block(writer: Writer, body: Stmt, depth: int, path: Path) -> None:
    if not isinstance(body, Seq):
        _stmt(writer, body, depth, path, last=True)
        return
    for position, part in enumerate(body.body):
        last = position == len(body.body) - 1
        _stmt(writer, part, depth, (*path, "body", position), last)
    if not body.body:
        writer.lines.append(INDENT * depth + "pass")


def _stmt(writer: Writer, stmt: Stmt, depth: int, path: Path, last: bool) -> None:
    if isinstance(stmt, Seq):
        _block(writer, stmt, depth, path)
        return
    if depth:
        writer.put(INDENT * depth)
    match stmt:
        case For(body=body):
            _for(writer, stmt, path)
            _block(writer, body, depth + 1, (*path, "body"))
        case If(condition=condition, body=body):
            writer.put("if ")
            start = len(writer.pieces)
            _expr(writer, condition, DType.BOOL, ANY, (*path, "condition"))
            writer.mark(path, start)
            writer.put(":")
            writer.end()
            _block(writer, body, depth + 1, (*path, "body"))
        case Alloc(buffer=buffer, body=body):
            _alloc(writer, buffer, path, last)
            _block(writer, body, depth if last else depth + 1, (*path, "body"))
        case Store() | Reduce() | MaskedStore():
            label = writer.next_label()
            if stmt.name != label:
                writer.put(name_text(stmt.name) + ": ")
            _leaf(writer, stmt, path)
            writer.end()
        case AsyncCopy(body=body):
            writer.put("with asynchronous():")
            writer.end()
            _block(writer, body, depth + 1, (*path, "body"))
        case _:
            _order(writer, stmt, path)
            writer.end()


def _order(writer: Writer, stmt: Stmt, path: Path) -> None:
    """What says when, and writes nothing."""
    match stmt:
        case Prefetch(buffer=buffer, indices=indices):
            writer.put("prefetch(")
            _access(writer, buffer, indices, path)
            writer.put(")")
        case Barrier():
            writer.put("barrier()")
        case Commit():
            writer.put("commit()")
        case Wait(groups=groups):
            writer.put(f"wait({groups})")


def _for(writer: Writer, loop: For, path: Path) -> None:
    writer.put("for ")
    start = len(writer.pieces)
    writer.put(name_text(loop.var.name))
    writer.mark(path, start)
    writer.put(f" in {grammar.LOOPS[loop.kind]}(")
    if loop.begin != _ZERO:
        _expr(writer, loop.begin, DType.INDEX, ANY, (*path, "begin"))
        writer.put(", ")
    _expr(writer, loop.end, DType.INDEX, ANY, (*path, "end"))
    for key, value in loop.annotations:
        text = grammar.quoted(value) if isinstance(value, str) else str(value)
        writer.put(f", {name_text(key)}={text}")
    writer.put("):")
    writer.end()


def _alloc(writer: Writer, buffer: Buffer, path: Path, last: bool) -> None:
    name = name_text(buffer.name)
    parts = [f'"{buffer.dtype}"', *(print_expr(n, DType.INDEX) for n in buffer.shape)]
    parts += (f"{key}={text}" for key, text in _storage(buffer))
    made = f"alloc({', '.join(parts)})"
    writer.put("" if last else f"with {made} as ")
    start = len(writer.pieces)
    writer.put(name)
    writer.mark(path, start)
    writer.put(f" = {made}" if last else ":")
    writer.end()


def _leaf(writer: Writer, stmt: Store | Reduce | MaskedStore, path: Path) -> None:
    if isinstance(stmt, Reduce):
        _reduce(writer, stmt, path)
        return
    masked = isinstance(stmt, MaskedStore)
    writer.put("store(" if masked else "")
    _access(writer, stmt.buffer, stmt.indices, path)
    writer.put(", " if masked else " = ")
    _expr(writer, stmt.value, stmt.buffer.dtype, ANY, (*path, "value"))
    if isinstance(stmt, MaskedStore):
        writer.put(", ")
        _expr(writer, stmt.mask, DType.BOOL, ANY, (*path, "mask"))
        writer.put(")")


def _reduce(writer: Writer, stmt: Reduce, path: Path) -> None:
    single = len(stmt.buffers) == 1 == len(stmt.values)
    operator = grammar.ASSIGNMENTS.get(stmt.op) if single else None
    writer.put("" if operator else f"reduce({grammar.quoted(stmt.op)}, ")
    writer.put("" if single else "(")
    for position, buffer in enumerate(stmt.buffers):
        writer.put(", " if position else "")
        _access(writer, buffer, stmt.indices, path)
    writer.put(f" {operator} " if operator else ", " if single else "), (")
    for position, value in enumerate(stmt.values):
        writer.put(", " if position else "")
        dtype = stmt.buffers[min(position, len(stmt.buffers) - 1)].dtype
        _expr(writer, value, dtype, ANY, (*path, "values", position))
    writer.put("" if operator else ")" if single else "))")


# Expressions --------------------------------------------------------------------------------------


def _expr(writer: Writer, expr: Expr, want: DType | None, level: int, path: Path) -> None:
    """Write `expr` where the reader knows that its dtype is `want` (None: knows nothing), in
    parentheses when it binds less tightly than `level`."""
    match expr:
        case Var(name=name):
            writer.put(name_text(name))
        case Const():
            writer.put(_literal(expr, want))
        case Binary():
            _binary(writer, expr, want, level, path)
        case Load(buffer=buffer, indices=indices):
            _access(writer, buffer, indices, path)
        case Unary():
            _unary(writer, expr, want, level, path)
        case Cast(dtype=dtype, a=a):
            _call(writer, str(dtype), (a,), (_known(a),), (("a",),), path)
        case Select(condition=condition, a=a, b=b):
            wants = (DType.BOOL, *_pair(a, want))
            _call(
                writer, "select", (condition, a, b), wants, (("condition",), ("a",), ("b",)), path
            )
        case _:
            _lowered(writer, expr, want, path)


def _lowered(writer: Writer, expr: Expr, want: DType | None, path: Path) -> None:
    match expr:
        case Ramp(base=base, stride=stride, lanes=lanes):
            wants = _pair(base, want)
            steps: tuple[Path, ...] = (("base",), ("stride",))
            _call(writer, "ramp", (base, stride), wants, steps, path, f", {lanes}")
        case Broadcast(value=value, lanes=lanes):
            _call(writer, "broadcast", (value,), (want,), (("value",),), path, f", {lanes}")
        case Let(var=var, value=value, body=body):
            writer.put(f"let({name_text(var.name)} := ")
            _expr(writer, value, _known(value), ANY, (*path, "value"))
            writer.put(", ")
            _expr(writer, body, want, ANY, (*path, "body"))
            writer.put(")")
        case MaskedLoad(buffer=buffer, indices=indices, mask=mask):
            writer.put("load(")
            _access(writer, buffer, indices, path)
            writer.put(", ")
            _expr(writer, mask, DType.BOOL, ANY, (*path, "mask"))
            writer.put(")")
        case _:
            raise TypeError(f"not an expression: {expr!r}")


def _access(writer: Writer, buffer: Buffer, indices: tuple[Expr, ...], path: Path) -> None:
    start = len(writer.pieces)
    writer.put(name_text(buffer.name) + ("[" if indices else "[()"))
    for position, index in enumerate(indices):
        if position:
            writer.put(", ")
        _expr(writer, index, DType.INDEX, ANY, (*path, "indices", position))
    writer.put("]")
    writer.mark(path, start)


def _binary(writer: Writer, expr: Binary, want: DType | None, level: int, path: Path) -> None:
    op, a, b = expr.op, expr.a, expr.b
    if op in COMPARISONS:
        want_a, want_b = _pair(a, _known(a, b))
    elif op in ("and", "or"):
        want_a = want_b = DType.BOOL
    else:
        want_a, want_b = _pair(a, want)
    if op not in INFIX:
        _call(writer, op, (a, b), (want_a, want_b), (("a",), ("b",)), path)
        return
    symbol, strength = INFIX[op]
    if strength < level:
        writer.put("(")
    _expr(writer, a, want_a, strength + (strength == COMPARE), (*path, "a"))
    writer.put(f" {symbol} ")
    _expr(writer, b, want_b, strength + 1, (*path, "b"))
    if strength < level:
        writer.put(")")


def _unary(writer: Writer, expr: Unary, want: DType | None, level: int, path: Path) -> None:
    op, a = expr.op, expr.a
    if op == "isnan":
        want = _known(a)
    if op not in ("neg", "not"):
        _call(writer, op, (a,), (want,), (("a",),), path)
        return
    logical = op == "not" and dtype_of(a) is DType.BOOL
    strength = NOT if logical else SIGN
    if strength < level:
        writer.put("(")
    writer.put("-" if op == "neg" else "not " if logical else "~")
    # A sign before a literal belongs to it, so a negated literal stands in parentheses.
    bare = op == "neg" and isinstance(a, Const)
    writer.put("(" if bare else "")
    _expr(writer, a, want, ANY if bare else strength, (*path, "a"))
    writer.put(")" if bare else "")
    if strength < level:
        writer.put(")")


def _call(
    writer: Writer,
    name: str,
    operands: tuple[Expr, ...],
    wants: tuple[DType | None, ...],
    steps: tuple[Path, ...],
    path: Path,
    rest: str = "",
) -> None:
    writer.put(name + "(")
    for position, operand in enumerate(operands):
        if position:
            writer.put(", ")
        _expr(writer, operand, wants[position], ANY, path + steps[position])
    writer.put(rest + ")")


# Literals -----------------------------------------------------------------------------------------


def _literal(const: Const, want: DType | None) -> str:
    text = number_text(const.value, const.dtype)
    if const.dtype is want or const.dtype is DType.BOOL:
        return text
    return f"{const.dtype}({text})"


def _known(*operands: Expr) -> DType | None:
    """The dtype that a reader finds in operands of one dtype when nothing around them fixes it."""
    return dtype_of(operands[0]) if any(map(_tells, operands)) else None


def _pair(a: Expr, want: DType | None) -> tuple[DType | None, DType | None]:
    """What is known at each of two operands of one dtype: once `a` is read, it tells `b`'s."""
    return (want, want) if want is not None else (None, dtype_of(a))


def _tells(expr: Expr) -> bool:
    """Whether the text of `expr` shows its dtype even with its literals bare."""
    match expr:
        case Const(dtype=dtype):
            return dtype is DType.BOOL
        case Var() | Load() | MaskedLoad() | Cast():
            return True
        case Unary(op=op, a=a):
            return op == "isnan" or _tells(a)
        case Binary(op=op, a=a, b=b):
            return op in COMPARISONS or op in ("and", "or") or _tells(a) or _tells(b)
        case Select(a=a, b=b):
            return _tells(a) or _tells(b)
        case Ramp(base=a, stride=b):
            return _tells(a) or _tells(b)
        case Broadcast(value=a) | Let(body=a):
            return _tells(a)
    raise TypeError(f"not an expression: {expr!r}")
