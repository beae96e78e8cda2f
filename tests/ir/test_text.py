"""The text form: exact round trips, places, and that nothing but ParseError is ever raised."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ParseError
from tensorc.ir.grammar import name_text, number_text
from tensorc.ir.hash import structural_hash
from tensorc.ir.lexer import Source, tokens
from tensorc.ir.naming import default_names, named
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    MaskedStore,
    Param,
    Prefetch,
    Reduce,
    Seq,
    Store,
    Unary,
    Var,
)
from tensorc.ir.operands import FLOATS
from tensorc.ir.parse import parse
from tensorc.ir.print import layout, print_expr, print_func, print_stmt
from tensorc.ir.walk import at, leaves, replace, replace_at, walk
from tests.ir.strategies import NAMES, constants, functions

INDEX, F = DType.INDEX, DType.F32
i, x = Var("i"), Var("x", F)
LESS = Binary("lt", i, i)
A = Buffer("A", (Const(8, INDEX), Const(8, INDEX)), F)

MATMUL = """\
def matmul(A: Buffer["f32", 8, K], B: Buffer["f32", K, N], C: Buffer["f32", 8, N, "out"]):
    for i in parallel(8):
        C.acc = alloc("f32", N, scope="register")
        for j in range(N):
            C.acc[j] = 0.0
            for k in range(1, K, prefetch=2, note="so"):
                C.acc[j] += A[i, k] * B[k, j]
        if i < 3 and N % 4 == 0:
            last: C[i, 0] = select(A[i, 0] > 0.0, exp(A[i, 0]), -0.0)
        reduce("max", C[i, 0], C.acc[0])
"""


def round_trip(func: Func) -> None:
    text = print_func(func)
    assert parse(text) == func
    assert print_func(parse(text)) == text


# Round trips --------------------------------------------------------------------------------------


@given(functions())
def test_parse_reads_back_what_print_wrote(func):
    round_trip(func)


def test_a_printed_text_is_printed_again():
    assert print_func(parse(MATMUL)) == MATMUL


@pytest.mark.parametrize("dtype", DType)
@given(data=st.data())
def test_every_literal_keeps_its_bits(dtype, data):
    const = data.draw(constants(dtype))
    buffer = Buffer("A", (), DType.I8)
    comparison = Binary("eq", const, const)
    round_trip(Func("f", (Param(buffer, "out"),), Store("A", buffer, (), Cast(DType.I8, const))))
    round_trip(Func("f", (Param(buffer, "out"),), If(comparison, Seq(()))))


@given(st.sampled_from(sorted(FLOATS, key=str)), st.floats(allow_nan=False, allow_infinity=False))
def test_no_shorter_decimal_has_the_value(dtype, value):
    value = dtype.wrap(value)
    assume(math.isfinite(value))
    text = number_text(value, dtype)
    assert Const(float(text), dtype) == Const(value, dtype)
    exact = Decimal(value)
    for digits in range(1, len(Decimal(text).normalize().as_tuple().digits)):
        for rounding in (ROUND_FLOOR, ROUND_CEILING):
            shorter = exact.normalize(Context(prec=digits, rounding=rounding))
            assert dtype.wrap(float(shorter)) != value


@given(NAMES)
def test_any_name_survives(name):
    buffer = Buffer(name, (Const(4, INDEX), Var(name)), F)
    body = For(Var(name + "i"), Const(0, INDEX), Var(name), Store(name + "s", buffer, (i, i), x))
    body = replace(body, body=replace(body.body, indices=(body.var, body.var)))
    body = replace(body, annotations=((name, name),))
    scalar = Var(name + "x", F)
    body = replace(body, body=replace(body.body, value=scalar))
    round_trip(Func(name, (Param(buffer, "out"), Param(scalar)), body))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Const(2.0, F), "f32(2.0)"),
        (Const(-1, DType.I8), "i8(-1)"),
        (Const(True, DType.BOOL), "True"),
        (Binary("add", Const(1, INDEX), i), "1 + i"),
        (Binary("add", Const(1, INDEX), Const(2, INDEX)), "index(1) + 2"),
        (Binary("lt", Const(1.0, F), Const(2.0, F)), "f32(1.0) < 2.0"),
        (Binary("lt", Const(1.0, F), x), "1.0 < x"),
        (Binary("mul", Binary("add", x, x), x), "(x + x) * x"),
        (Binary("add", x, Binary("mul", x, x)), "x + x * x"),
        (Binary("sub", x, Binary("sub", x, x)), "x - (x - x)"),
        (Binary("sub", Binary("sub", x, x), x), "x - x - x"),
        (Unary("neg", Const(2, INDEX)), "-(index(2))"),
        (Unary("neg", Binary("mul", x, x)), "-(x * x)"),
        (Binary("mul", Unary("neg", x), x), "-x * x"),
        (Binary("sub", x, Const(-1.0, F)), "x - -1.0"),
        (Unary("not", i), "~i"),
        (Unary("not", Binary("lt", i, i)), "not i < i"),
        (Binary("eq", Unary("not", LESS), LESS), "(not i < i) == (i < i)"),
        (Binary("lt", Cast(INDEX, Binary("lt", i, i)), i), "index(i < i) < i"),
        (Binary("bitand", i, Binary("shl", i, i)), "i & i << i"),
        (Binary("shl", Binary("bitand", i, i), i), "(i & i) << i"),
        (Cast(F, Const(1, DType.I32)), "f32(i32(1))"),
        (Load(Buffer("T", (), F), ()), "T[()]"),
        (Binary("truncdiv", i, Const(4, INDEX)), "truncdiv(i, 4)"),
        (Unary("neg", Const(math.inf, DType.F64)), "-(f64(inf))"),
        (Const(-math.inf, DType.F64), "f64(-inf)"),
    ],
)  # fmt: skip
def test_the_text_of(expr, text):
    assert print_expr(expr) == text


def test_a_known_dtype_leaves_literals_bare():
    assert print_expr(Const(2.0, F), F) == "2.0"
    assert print_expr(Binary("add", Const(1, INDEX), Const(2, INDEX)), INDEX) == "1 + 2"


def test_a_statement_alone():
    func = parse(MATMUL)
    lines = MATMUL.splitlines(keepends=True)[1:]
    assert print_stmt(func.body) == "".join(line[4:] for line in lines)


# Places -------------------------------------------------------------------------------------------


@given(functions())
def test_each_place_is_where_the_node_was_written(func):
    shown = layout(func)
    assert shown.text == print_func(func)
    placed = (For, If, Alloc, Store, Reduce, MaskedStore, Prefetch, Load, MaskedLoad)
    expected = {path for path, node in walk(func) if isinstance(node, placed)}
    assert set(shown.places) == expected
    for path, place in shown.places.items():
        text = shown.lines[place.line - 1][place.column : place.end_column]
        match at(func, path):
            case For(var=var):
                assert text == name_text(var.name)
            case If(condition=condition):
                assert text == print_expr(condition)
            case Alloc(buffer=buffer):
                assert text == name_text(buffer.name)
            case Load() as load:
                assert text == print_expr(load)
            case (
                Store(buffer=b, indices=n)
                | MaskedStore(buffer=b, indices=n)
                | MaskedLoad(buffer=b, indices=n)
                | Prefetch(buffer=b, indices=n)
            ):
                assert text == print_expr(Load(b, n))
            case Reduce(buffers=buffers, indices=n):
                assert text == print_expr(Load(buffers[0], n))


@given(functions())
def test_spans_are_the_places_of_the_text(func):
    shown = layout(func)
    for path, node in walk(parse(shown.text, "a file")):
        if isinstance(node, For | If | Alloc | Store | Reduce | MaskedStore):
            place, span = shown.places[path], node.span
            assert (span.line, span.column, span.end_column) == place
            assert span.file == "a file"


# Default names and modes --------------------------------------------------------------------------


@given(functions())
def test_labels_stand_only_where_a_name_is_not_the_default(func):
    nameless = func
    for path, leaf in leaves(func):
        nameless = replace_at(nameless, path, replace(leaf, name=""))
    plain = replace(func, body=named(nameless.body))
    assert default_names(plain) == [leaf.name for _, leaf in leaves(plain)]
    assert len(set(default_names(plain))) == len(default_names(plain))
    round_trip(plain)


def test_default_names():
    func = parse(
        """def f(A: Buffer["f32", 8], B: Buffer["f32", 8]):
            A[0] = 0.0
            A[0] += 1.0
            A[1] = 1.0
            B[0] = 0.0
            A_5: A[2] = A[1]
        """
    )
    assert [leaf.name for _, leaf in leaves(func)] == ["A.init", "A", "A.init_2", "B", "A_5"]


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        ("pass", "in"),
        ("B[0] = A[0]", "in"),
        ("A[0] = 1", "out"),
        ("A[0] = 1; A[0] += 1", "out"),
        ("A[0] += 1", "inout"),
        ("A[0] += 1; A[0] = 1", "inout"),
        ("A[0] = A[1]", "inout"),
        ("B[0] = A[0]; A[0] = 1", "inout"),
        ("store(A[0], 1.0, B[0] > 0); A[0] = 1", "inout"),
        ("reduce('logsumexp', (B[0], A[0]), (0, 1))", "inout"),
    ],
)
def test_a_mode_that_is_not_written_is_inferred(body, mode):
    lines = "".join(f"\n    {line}" for line in body.split("; "))
    func = parse(f'def f(A: Buffer["f32", 8], B: Buffer["f32", 8, "inout"]):{lines}\n')
    assert func.params[0].mode == mode
    assert func.params[1].mode == "inout"


# Hashes -------------------------------------------------------------------------------------------


@given(functions(depth=2), functions(depth=2))
def test_hashes_are_equal_exactly_when_functions_are(a, b):
    assert structural_hash(parse(print_func(a))) == structural_hash(a)
    assert (structural_hash(a) == structural_hash(b)) == (a == b)


def run_python(code: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_hash_is_the_same_in_every_process_and_needs_no_library():
    code = f"""
import sys
from tensorc.ir.hash import structural_hash
from tensorc.ir.parse import parse
print(structural_hash(parse({MATMUL!r})))
assert not {{"numpy", "islpy", "torch", "llvmlite", "hypothesis"}} & set(sys.modules)
"""
    assert run_python(code, "1") == run_python(code, "2") == structural_hash(parse(MATMUL)) + "\n"


# Any text at all ----------------------------------------------------------------------------------


def accepts_or_refuses(text: str) -> None:
    """The text is refused with a place inside it, or accepted as a function that round-trips."""
    try:
        func = parse(text)
    except ParseError as error:
        refusal = error
    else:
        round_trip(func)
        return
    lines = re.split("\r\n|\r|\n", text)
    assert refusal.source == lines[refusal.line - 1]
    assert 1 <= refusal.column <= len(refusal.source) + 1


@given(st.text())
def test_any_string(text):
    accepts_or_refuses(text)


@given(st.text("()[]{}:,=+-*/%&|^~<>!@`'\"\\#\n\t .0123456789eExX_defiforrangeinNA", max_size=60))
def test_any_string_after_a_header(text):
    accepts_or_refuses(f'def f(A: Buffer["f32", 4, N], x: f32):\n    A[0, 0] = {text}')


@given(functions(depth=3), st.data())
def test_characters_changed(func, data):
    text = print_func(func)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 4)))
        text = text[:start] + data.draw(st.text(max_size=3)) + text[end:]
    accepts_or_refuses(text)


@given(functions(depth=3), st.data())
def test_tokens_dropped_repeated_and_exchanged(func, data):
    words = [t.text if t.text else " " for t in tokens(Source(print_func(func), ""))]
    for _ in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, len(words) - 1))
        second = data.draw(st.integers(0, len(words) - 1))
        match data.draw(st.sampled_from(("drop", "repeat", "exchange", "copy"))):
            case "drop" if len(words) > 1:
                del words[first]
            case "repeat":
                words.insert(first, words[first])
            case "exchange":
                words[first], words[second] = words[second], words[first]
            case _:
                words[first] = words[second]
    accepts_or_refuses(" ".join(words))


@pytest.mark.parametrize("opening", ["(", "-", "not ", "A[", "f32(", "select(True, "])
def test_deep_nesting_is_refused(opening):
    body = opening * 20_000
    closing = {"(": ")", "[": "]"}.get(opening.strip()[-1:], "")
    closing = ")" if opening.startswith("select") else closing
    tail = ", 0.0)" if opening.startswith("select") else closing
    with pytest.raises(ParseError, match="nested too deeply"):
        parse(f'def f(A: Buffer["f32", 4]):\n    A[0] = {body}1{tail * 20_000}\n')


def test_deep_blocks_are_refused():
    lines = [f"{' ' * n}for i{n} in range(2):" for n in range(1, 3000)]
    with pytest.raises(ParseError, match="nested too deeply"):
        parse("\n".join(["def f():", *lines, " " * 3000 + "pass"]))
