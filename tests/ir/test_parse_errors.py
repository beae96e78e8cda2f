"""Texts that are not programs: what is said, and where."""

from __future__ import annotations

import pickle

import pytest

from tensorc.errors import ParseError, TensorcError
from tensorc.ir.parse import parse

HEADER = (
    'def f(A: Buffer["f32", 8, N], I: Buffer["i32", 8], b: Buffer["bool", 8], x: f32, n: i32, '
    "m: index):\n"
)
# A statement, with ^ before the place that is blamed, and a part of what is said.
STATEMENTS = [
    # Names.
    ("A[^q, 0] = 1", "q is no variable"),
    ("^Q[0, 0] = 1", "Q is no buffer; in scope here: A, I, b"),
    ("for i in range(8):\n  A[i, 0] = 1\nA[^i, 0] = 1", "i is used outside its scope"),
    ("A[0, 0] = ^I", "I is a buffer"),
    ("for i in range(8):\n  for ^i in range(8):\n    pass", "i is already a variable"),
    ("for ^N in range(8):\n  pass", "N is already a variable"),
    ("for i in range(8):\n  pass\nfor ^i in range(8):\n  pass", "i is used twice"),
    ('^A = alloc("f32", 4)', "A is already a buffer"),
    ('with alloc("f32", 4) as T:\n  pass\nwith alloc("f32", 4) as ^T:\n  pass', "T is used twice"),
    ("L: A[0, 0] = 1\nL: ^A[0, 0] = 1", "statement name L is used twice"),
    ("A[0, 0] = 1\nA: ^A[0, 0] = 1", "statement name A is used twice"),
    ("for ^in in range(8):\n  pass", "the reserved word in; as a name it is written `in`"),
    ("A[let(^x := 1, x), 0] = 1", "x is already a variable"),
    ("A[let(y := 1, y) + ^y, 0] = 1", "y is no variable"),
    # Dtypes.
    ("A[0, 0] = ^n", "this is i32, but f32 is needed here; write f32(...)"),
    ("A[0, 0] = ^m", "this is index, but f32 is needed here"),
    ("A[^n, 0] = 1", "this is i32, but index is needed here; write index(...)"),
    ("A[0, 0] = x + ^I[0]", "this is i32, but f32 is needed"),
    ("A[0, 0] = ^I[0] + x", "this is i32, but f32 is needed"),
    ("b[0] = x < ^n", "this is i32, but f32 is needed"),
    ("b[0] = x < 1 and ^n", "this is i32, but bool is needed here; compare it"),
    ("A[0, 0] = select(^x, 1, 2)", "this is f32, but bool is needed"),
    ("A[0, 0] = select(x > 0, 1, ^n)", "this is i32, but f32 is needed"),
    ("A[0, 0] = x if ^n else x", "this is i32, but bool is needed"),
    ("for i in range(^n):\n  pass", "this is i32, but index is needed"),
    ("if ^n:\n  pass", "this is i32, but bool is needed"),
    ("b[0] = not ^n", "this is i32, but bool is needed"),
    ("I[0] = ^exp(n)", "`exp` takes f16 bf16 f32 f64, not i32"),
    ("I[0] = n ^/ n", "`/` takes f16 bf16 f32 f64, not i32; `//` divides integers"),
    ("A[0, 0] = x ^// x", "`//` takes"),
    ("A[0, 0] = x ^& x", "`&` takes"),
    ("b[0] = b[0] ^< b[1]", "`<` takes"),
    ("b[0] = ^-b[0]", "`neg` takes"),
    ("b[0] = ^isnan(n)", "`isnan` takes"),
    ("b[0] ^+= True", "the reduction sum takes"),
    ('reduce(^"any", A[0, 0], True)', "the reduction any takes bool, not f32"),
    ('reduce(^"argmax", (A[0, 0], A[0, 0]), (x, x))', "the reduction argmax takes"),
    # Literals.
    ("I[0] = ^2147483648", "out of range for i32: -2147483648..2147483647"),
    ("I[0] = ^1.5", "a float literal where i32 is needed"),
    ("A[0, 0] = ^1e39", "out of range for f32"),
    ("A[0, 0] = ^1e999", "out of range"),
    ("A[0, 0] = ^" + "9" * 5000, "too long"),
    ("A[^01, 0] = 1", "leading zero"),
    ("b[0] = ^1", "write True, False or a comparison"),
    ("b[0] = ^1.0 < 2.0", "nothing fixes the dtype"),
    ("A[0, 0] = ^nan(1)", "not the bit pattern of a NaN"),
    # Accesses.
    ("^A[0] = 1", "A takes 2 indices, not 1"),
    ("^A[()] = 1", "A takes 2 indices, not 0"),
    ("A[0, 0] = ^I[0, 0]", "I takes 1 index, not 2"),
    ("A[0^:1, 0] = 1", "a slice: write a loop"),
    ("A[0, 0] = A[0, 0]^[1]", "only a buffer can be indexed, once"),
    ("for i in range(index(^I[0])):\n  pass", "a loop bound reads no buffer"),
    ("if ^b[0]:\n  pass", "a condition reads no buffer"),
    ("if load(^b[0], True):\n  pass", "a condition reads no buffer"),
    # Calls and reductions.
    ("A[0, 0] = ^sine(x)", "sine is no function; there are abs"),
    ("A[0, 0] = ^exp(x, x)", "exp takes 1 argument, not 2"),
    ("A[0, 0] = ^pow(x)", "pow takes 2 arguments, not 1"),
    ("A[0, 0] = ^f32()", "f32 takes 1 argument, not 0"),
    ("A[0, 0] = broadcast(x, ^0)", "at least one lane"),
    ("A[0, 0] = broadcast(x, ^x)", "the number of lanes, an integer literal"),
    ('reduce(^"avg", A[0, 0], x)', "'avg' is no reduction; there are sum, prod"),
    ('reduce("argmax", ^A[0, 0], x)', "expected `(` and 2 operands, found `A`"),
    ('reduce("argmax", (A[0, 0]^), x)', "expected `,` and 2 operands, found `)`"),
    ('reduce("argmax", (^I[0], I[1]), (n, n))', "written at the same indices"),
    ("A[0, 0] ^/= x", "expected one of ="),
    # Statements.
    ("^t = x", "there are no scalar variables: write t = alloc"),
    ("^f(x)", "expected a loop, `if`"),
    ("^x", "expected a loop, `if`"),
    ("L: ^T = alloc('f32')", "T = alloc(...) has no label and is alone in its line"),
    ("if x > 0: ^T = alloc('f32')", "T = alloc(...) has no label and is alone in its line"),
    ("^while True:\n  pass", "found `while`"),
    ("^return", "found `return`"),
    ("for i in ^A:\n  pass", "a loop runs over one of range(...)"),
    ("for i in ^range():\n  pass", "a loop has an end"),
    ("for i in ^range(0, 8, 2):\n  pass", "for steps, multiply the variable"),
    ("for i in range(8, p=1, ^p=2):\n  pass", "the annotation p is given twice"),
    (
        "for i in range(8, p=^x):\n  pass",
        "expected the value of an annotation, a string or an integer literal",
    ),
    ("for i in range(8):\n  pass\n^else:\n  pass", "a loop has no else branch"),
    ("for i in range(8):\n^pass", "expected an indented block"),
    ("pass\n  ^pass", "indented more than its block"),
    ("if x > 0:\n    pass\n  ^pass", "matches no enclosing block"),
    ("A[0, 0] = x ^x", "expected an operator or the end of the line, found `x`"),
    ("A[0, 0] = ^", "expected an expression, found the end of the line"),
    ("A[0, 0] = ^(x", "`(` is never closed"),
    ("b[0] = x == ^not b[0]", "`not` binds less tightly"),
    ("with ^range(8) as T:\n  pass", "expected alloc(...)"),
    # Allocations.
    ('T = alloc(^"f33", 4)', "unknown dtype 'f33'; legal here: bool, i8"),
    ("T = alloc(^f32, 4)", "expected a dtype, a string"),
    ('^T = alloc("index", 4)', "an index is never stored"),
    ('T = alloc("f32", ^n)', "this is i32, but index is needed"),
    ('T = alloc("f32", index(^I[0]))', "a shape reads no buffer"),
    ('T = alloc("f32", ^"N")', "an expression, not a string"),
    ('T = alloc("f32", 4, scope=^"heap")', "'heap' is no scope; there are global, local"),
    ('T = alloc("f32", 4, ^size=4)', "scope, strides and alignment, no size"),
    ('^T = alloc("f32", 4, strides=(1, 2))', "T needs 1 stride, one per dimension"),
    ('T = alloc("f32", 4, strides=(^x,))', "expected a stride, an integer literal"),
    # Tokens.
    ("A[0, 0] = ^$", "'$' starts no token"),
    ("A[0, 0] = ^'", "never closed"),
    ("A[0, 0] = ^`x", "a name is never closed"),
    ("A[0, 0] = ^``", "a name is not empty"),
    ("A[0, 0^) = 1", "`)` closes nothing"),
    ("for i in range(8, p=^'\\q'):\n  pass", "unknown escape \\q"),
]


@pytest.mark.parametrize(("marked", "reason"), STATEMENTS)
def test_a_bad_statement(marked, reason):
    lines = "".join(f"    {line}\n" for line in marked.split("\n"))
    before, _, after = (HEADER + lines).partition("^")
    text = before + after
    with pytest.raises(ParseError) as caught:
        parse(text, "prog.txt")
    error = caught.value
    assert reason in error.reason
    assert (error.line, error.column) == (before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    assert error.source == text.split("\n")[error.line - 1]
    assert str(error).startswith(f"prog.txt:{error.line}:{error.column}: {error.reason}\n")


FUNCTIONS = [
    ("^", "expected a function"),
    ("^x", "expected a function"),
    ("^class f: pass", "expected a function"),
    ("def ^(): pass", "expected the function's name, found `(`"),
    ("def f(^1): pass", "expected a parameter"),
    ("def f(A^): pass", "and a type, e.g. A: Buffer"),
    ("def f(A: ^B): pass", "B is no type; write Buffer"),
    ("def f^(A: Buffer(): pass", "`(` is never closed"),
    ("def f(A: Buffer^()): pass", "expected `[`"),
    ('def f(^A: Buffer["index", 4]): pass', "an index is never stored"),
    ('def f(A: Buffer["f32", "in", ^4]): pass', "expected no extent after the mode"),
    ('def f(A: Buffer["f32", 4, ^"size": 4]): pass', "no size"),
    ('def f(A: Buffer["f32", n], ^n: f32): pass', "n is already a variable"),
    ('def f(n: f32, A: Buffer["f32", ^n]): pass', "n is a parameter, not a size"),
    ('def f(A: Buffer["f32", 4], ^A: f32): pass', "two parameters are called A"),
    ('def f(A: Buffer["f32", 8, ^"output"]): pass', 'did you mean "out"? the modes are in, const'),
    ('def f(A: Buffer["f32", 8, ^constant]): pass', 'did you mean "const"?'),
    ('def f(A: Buffer["f32", 8, ^inout]): pass', "a word for a mode, not a size; the modes"),
    ('def f(A: Buffer[^"float32", 8]): pass', "unknown dtype 'float32'; did you mean f32?"),
    ("def f(x: ^float32): pass", "unknown dtype 'float32'; did you mean f32?"),
    ("def f(x: f32 ^= 1): pass", "a parameter has no default value"),
    ("def f() -> ^f32: pass", "expected None"),
    ("def f() ^pass", "expected `:`"),
    ("def f(): pass\n^pass", "expected nothing after the function"),
    ("def f():\n    pass\n^def g(): pass", "expected nothing after the function"),
    ("def f():\n^", "expected an indented block"),
    ("def f(): ^(", "never closed"),
]


@pytest.mark.parametrize(("marked", "reason"), FUNCTIONS)
def test_a_bad_function(marked, reason):
    before, _, after = marked.partition("^")
    with pytest.raises(ParseError) as caught:
        parse(before + after)
    error = caught.value
    assert reason in error.reason
    assert (error.line, error.column) == (before.count("\n") + 1, len(before.split("\n")[-1]) + 1)


def test_an_error_is_a_syntax_error_and_data():
    with pytest.raises(ParseError) as caught:
        parse("def f(:\n")
    error = caught.value
    assert isinstance(error, SyntaxError)
    assert isinstance(error, TensorcError)
    copy = pickle.loads(pickle.dumps(error))
    assert vars(copy) == vars(error)
    assert str(copy) == str(error) == str(caught.value)
