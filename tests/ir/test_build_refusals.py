"""Tensor expressions: what is refused, where, and with what advice."""

import math
import pickle

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir import build as tc
from tensorc.ir.nodes import Binary, Const, Var

A = tc.placeholder((4, 5), "f32", name="A")
B = tc.placeholder((4, 5), "i8", name="B")
S = tc.placeholder(("N",), "f32", name="S")
i, N = tc.var("i"), tc.var("N")
x, n, t = tc.scalar("x", "f32"), tc.scalar("n", "i8"), tc.scalar("t", "bool")
k = tc.reduce_axis(5, name="k")


def of_rows(fn, rows=4):
    return tc.compute((rows,), lambda r: fn(r))


REFUSED = {
    # dtypes
    "mixed": (lambda: x + n, r"`\+` mixes f32 and i8: cast one of the two"),
    "index and data": (lambda: n + i, r"`\+` mixes i8 and index"),
    "select": (lambda: tc.select(t, x, n), r"tc\.select mixes f32 and i8"),
    "divided integers": (lambda: n / 2, r"`/` takes floats, not i8: write a // b"),
    "rounded division of floats": (lambda: x // 2.0, r"write tc\.floor\(a / b\)"),
    "remainder of floats": (lambda: x % 2.0, r"`%` takes integers, not f32"),
    "bits of floats": (lambda: x & x, r"`&` takes integers or bool, not f32"),
    "sum of bool": (lambda: t + t, r"`\+` takes numbers, not bool"),
    "exp of integers": (lambda: tc.exp(n), r"`exp` takes floats, not i8"),
    "and of numbers": (lambda: tc.logical_and(n, n), r"compare first"),
    "not of numbers": (lambda: tc.logical_not(n), r"compare first"),
    "condition": (lambda: tc.select(n, x, x), r"compare first"),
    # numbers
    "too large": (lambda: n + 128, r"i8 here, and 128 is not one of its values"),
    "fraction": (lambda: n + 0.5, r"i8 here, and 0\.5 is not"),
    "whole float": (lambda: i + 1.0, r"index here, and 1\.0 is not"),
    "bool": (lambda: x * True, r"f32 here, and True is not"),
    "overflow": (lambda: x * 1e39, r"f32 here, and 1e\+39 is not"),
    "inexact integer": (lambda: x + (2**24 + 1), r"f32 here, and 16777217 is not"),
    "huge integer": (lambda: x + 10**400, r"is not one of its values"),
    "constant": (lambda: tc.const(300, "u8"), r"300 is not one of its values"),
    "two numbers": (lambda: tc.minimum(1, 2), r"write tc\.const\(value, dtype\)"),
    "a list": (lambda: x + {1}, r"`\+` takes an expression or a number, not a set"),
    "a tensor": (lambda: x + np.ones(3), r"index it to read one element"),
    "text": (lambda: x + "y", r"not a str"),
    # Python values
    "truth": (lambda: bool(x > 0.0), r"no truth value .* tc\.select"),
    "and": (lambda: (x > 0.0) and (x < 1.0), r"tc\.logical_and"),
    "chain": (lambda: 0.0 < x < 1.0, r"no truth value"),
    "in a list": (lambda: x in [n.cast("f32")], r"no truth value"),
    # reductions
    "inside": (
        lambda: of_rows(lambda r: tc.sum(A[r, k], axis=k) + 1.0),
        r"<sum over k> is used inside .* T = tc\.compute\(shape",
    ),
    "nested": (lambda: tc.sum(tc.sum(A[0, k], axis=k), axis=k), r"<sum over k> is used inside"),
    "sum of bools": (lambda: tc.sum(t, axis=k), r"sum reduces numbers, not bool: cast the value"),
    "sum of indices": (lambda: tc.sum(k, axis=k), r"sum reduces numbers, not index"),
    "any of numbers": (lambda: tc.any(n, axis=k), r"any reduces bool, not i8"),
    "bits": (lambda: tc.reduce("bitxor", x, axis=k), r"bitxor reduces integers, not f32"),
    "welford of integers": (lambda: tc.welford(n, axis=k), r"welford reduces floats, not i8"),
    "index dtype": (lambda: tc.argmax(x, axis=k, index=k), r"index of argmax is index"),
    "literal": (lambda: tc.sum(1.0, axis=k), r"write tc\.const"),
    # bodies
    "an index": (lambda: of_rows(lambda r: r), r"data, not indices: write \.cast\('i32'\)"),
    "a number": (lambda: of_rows(lambda r: 1.0), r"tc\.compute takes an expression, not 1\.0"),
    "whole tensor": (lambda: of_rows(lambda r: A), r"gives the tensor A; index it"),
    "stray axis": (lambda: of_rows(lambda r: A[r, k]), r"axis k is used where it does not run"),
    "index by data": (lambda: A[n, 0], r"index 0 of A is i8; write \.cast\('index'\)"),
    "fraction as index": (lambda: A[0.0, 0], r"index 0 of A takes index here"),
    "NumPy's sine": (lambda: np.sin(A[i, 0]), r"NumPy's sin takes arrays, .* write tc\.sin$"),
    "NumPy's name": (lambda: np.absolute(x), r"write tc\.abs$"),
    "NumPy's own": (lambda: np.arctan(x), r"functions of expressions are tc\.exp"),
    "a sine of Python": (lambda: math.sin(x), r"no value yet: the functions of expressions are"),
    "a number of Python": (lambda: range(n), r"no value yet"),
    "a slice": (lambda: A[:, 0], r"not a slice"),
    "size name": (lambda: tc.var("not a name"), r"named by an identifier"),
}  # fmt: skip
ARGUMENTS = {
    "shape": (lambda: tc.placeholder((-1,), "f32"), r"`shape`: a size is at least 0, got -1"),
    "float size": (lambda: tc.placeholder((1.5,), "f32"), r"`shape`: expected integers, sizes"),
    "no shape": (lambda: tc.placeholder(None, "f32"), r"`shape`: expected a tuple"),
    "size of an axis": (lambda: tc.placeholder((k,), "f32"), r"`shape`: k is no size"),
    "a mode as a size": (
        lambda: tc.placeholder((8, "output"), "f32"),
        r"output is a word for a mode, not a size; did you mean \"out\"\? .* mode='in'",
    ),
    "dtype": (lambda: tc.placeholder((1,), "f31"), r"`dtype`: unknown dtype 'f31'; legal here"),
    "dtype of NumPy": (lambda: tc.placeholder((1,), np.float32), r"did you mean f32\? legal here"),
    "its name": (lambda: tc.cast(x, "int64"), r"`dtype`: unknown dtype 'int64'; did you mean i64"),
    "index data": (lambda: tc.placeholder((1,), "index"), r"use 'i64'"),
    "name": (lambda: tc.placeholder((1,), "f32", name=""), r"`name`: expected some text"),
    "mode": (lambda: tc.placeholder((1,), "f32", mode="out"), r"expected 'in' or 'const'"),
    "parameters": (lambda: tc.compute((1, 2), lambda a: x), r"takes 1 index \(a\), .* 2 sizes"),
    "two names": (
        lambda: tc.compute((), lambda: tc.argmax(A[0, k], axis=k), name=("V",)),
        r"`name`: there are 2 results",
    ),
    "axis": (lambda: tc.sum(x, axis=i), r"`axis`: expected tc\.reduce_axis"),
    "no axis": (lambda: tc.sum(x, axis=()), r"`axis`: expected one or more axes, each once"),
    "axis twice": (lambda: tc.sum(x, axis=(k, k)), r"each once"),
    "reduction": (lambda: tc.reduce("mean", x, axis=k), r"unknown reduction 'mean'; legal here"),
    "arity": (lambda: tc.reduce("argmax", x, axis=k), r"reduces 2 values at once, got 1"),
    "bound": (lambda: tc.reduce_axis(2.5), r"`extent`: expected integers"),
    "bound by data": (lambda: tc.reduce_axis(B[0, 0].cast("index")), r"`extent`: expected"),
    # reads
    "rank": (lambda: A[0], r"A has 2 dimensions, got 1 index"),
    "negative": (lambda: A[0, -1], r"index 1 of A is -1, .* 0 <= index < 5: nothing wraps"),
    "past the end": (lambda: A[4, 0], r"index 0 of A is 4, legal is in 0 <= index < 4"),
    "negative of a size": (lambda: S[-1], r"index 0 of S is -1, legal is 0 or more"),
    "shifted": (lambda: of_rows(lambda r: A[r + 1, 0]), r"r \+ 1, reaches 4; .* < 4\. A read in"),
    "shifted down": (lambda: of_rows(lambda r: A[r - 1, 0]), r"r - 1, reaches -1"),
    "too long": (lambda: of_rows(lambda r: A[r, 0], 6), r"index 0 of A, r, reaches 5"),
    "reduced too far": (
        lambda: of_rows(lambda r: tc.sum(A[r, k * 2], axis=k)),
        r"index 1 of A, k \* 2, reaches 8",
    ),
    "a size too far": (lambda: tc.compute(("N",), lambda r: S[r + 1]), r"r \+ 1, reaches N"),
    # programs
    "missing input": (
        lambda: tc.func_of([], of_rows(lambda r: A[r, 0])),
        r"A is read but not among the inputs",
    ),
    "missing scalar": (
        lambda: tc.func_of([A], of_rows(lambda r: A[r, 0] * x)),
        r"scalar x is used but not among the inputs",
    ),
    "unknown size": (
        lambda: tc.func_of([], tc.compute((N * 2,), lambda r: r.cast("f32"))),
        r"size N is not, on its own, a dimension",
    ),
    "placeholder out": (lambda: tc.func_of([A], [A]), r"A is a placeholder; copy it"),
    "handle out": (lambda: tc.func_of([A], [x]), r"expected tensors from tc\.compute"),
    "size in": (lambda: tc.func_of([N], []), r"size N is read from the shapes"),
    "computed in": (lambda: tc.func_of([of_rows(lambda r: x)], []), r"expected placeholders"),
    "nothing": (lambda: tc.func_of([A], []), r"expected one or more tensors"),
    "twice": (lambda: tc.func_of([A, A], [of_rows(lambda r: A[r, 0])]), r"listed twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_expressions_without_meaning_are_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ExpressionError, match=message) as caught:
        make()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.dtypes) == (str(caught.value), caught.value.dtypes)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_refused(name):
    make, message = ARGUMENTS[name]
    with pytest.raises(ArgumentError, match=message):
        make()


def test_the_dtypes_that_do_not_mix_are_data():
    with pytest.raises(ExpressionError) as caught:
        _ = n + i
    assert caught.value.dtypes == (DType.I8, DType.INDEX)


def test_a_tensor_is_no_sequence():
    with pytest.raises(TypeError):
        iter(A)


# What is not refused ------------------------------------------------------------------------------


def test_guarded_reads_may_be_anywhere():
    of_rows(lambda r: tc.select(r >= 1, A[r - 1, 0], 0.0))
    of_rows(lambda r: tc.logical_and(r >= 1, A[r - 1, 0] > 0.0))
    of_rows(lambda r: tc.select((r < 3) & (A[r + 1, 0] > 0.0), x, x))


def test_reads_that_never_happen_may_be_anywhere():
    tc.compute((0,), lambda r: A[r + 7, 0])
    none = tc.reduce_axis((3, 3))
    of_rows(lambda r: tc.sum(A[r, none + 3], axis=none))


def test_handles_are_found_by_identity():
    y = tc.scalar("x", "f32")
    assert {x: 1, y: 2}[x] == 1
    assert x in [n, x][1:]
    assert y not in {x}


def test_numbers_take_the_dtype_of_the_other_operand():
    assert (1 - n).expr == Binary("sub", Const(1, DType.I8), n.expr)
    assert (2.0 / x).expr == Binary("div", Const(2.0, DType.F32), x.expr)
    assert (x + 1).expr == Binary("add", x.expr, Const(1.0, DType.F32))
    assert (x + 0.1).expr == Binary("add", x.expr, Const(0.1, DType.F32))
    assert (x < float("inf")).dtype is DType.BOOL
    assert (t == True).expr == Binary("eq", t.expr, Const(True, DType.BOOL))  # noqa: E712


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2), np.uint8(2)])
def test_numpy_numbers_are_numbers(number):
    expected = Binary("mul", Const(2.0, DType.F32), x.expr)
    assert (number * x).expr == expected
    assert (2.0 * x).expr == expected


def test_every_operator_builds_its_node():
    a, b = Var("a"), Var("b")
    left, right = tc.Handle(a), tc.Handle(b)
    made = {
        "add": left + right, "sub": left - right, "mul": left * right, "floordiv": left // right,
        "floormod": left % right, "bitand": left & right, "bitor": left | right,
        "bitxor": left ^ right, "shl": left << right, "shr": left >> right, "eq": left == right,
        "ne": left != right, "lt": left < right, "le": left <= right, "gt": left > right,
        "ge": left >= right, "min": tc.minimum(left, right), "max": tc.maximum(left, right),
        "truncdiv": tc.truncdiv(left, right), "truncmod": tc.truncmod(left, right),
    }  # fmt: skip
    for op, handle in made.items():
        assert handle.expr == Binary(op, a, b)


def test_bit_operators_on_conditions_are_lazy():
    assert (t & t).expr == Binary("and", t.expr, t.expr)
    assert (t | t).expr == Binary("or", t.expr, t.expr)
    assert (t ^ t).expr == Binary("ne", t.expr, t.expr)
