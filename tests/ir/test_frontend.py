"""`@tc.func`: the same grammar on Python source, names from Python, spans into this file."""

import math
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ParseError
from tensorc.ir import frontend
from tensorc.ir.frontend import Buffer, f32, f64, func
from tensorc.ir.interp.run import run
from tensorc.ir.nodes import Const, For, If, Store
from tensorc.ir.parse import parse
from tensorc.ir.walk import nodes, walk

ROWS = 4
SCALE = 0.1
FLAG = True
SHAPES = SimpleNamespace(wide=np.int64(16), ratio=np.float32(0.5), inner=SimpleNamespace(size=3))
HALF = DType.F16
# The functions under test are no Python: their names, strings and assignments mean something else.
# ruff: noqa: F722, F821, F841, SIM201, PIE808


def same(made, text):
    assert made == parse(textwrap.dedent(text))


def test_the_text_form_is_python():
    @func
    def matmul(
        A: Buffer["f32", 4, "K"],
        B: Buffer["f32", "K", "N"],
        alpha: f32,
        C: Buffer["f32", 4, "N", "out"],
    ):
        for i in parallel(4):
            T = alloc("f32", N, scope="register")
            for j in vectorize(N, width=8):
                T[j] = 0
                for k in range(1, K):
                    T[j] += A[i, k] * B[k, j]
            for j2 in range(N):
                last: C[i, j2] = select(T[j2] > 0.0, exp(T[j2]), alpha)

    same(
        matmul,
        """
        def matmul(
            A: Buffer["f32", 4, K],
            B: Buffer["f32", K, N],
            alpha: f32,
            C: Buffer["f32", 4, N, "out"],
        ):
            for i in parallel(4):
                T = alloc("f32", N, scope="register")
                for j in vectorize(N, width=8):
                    T[j] = 0.0
                    for k in range(1, K):
                        T[j] += A[i, k] * B[k, j]
                for j2 in range(N):
                    last: C[i, j2] = select(T[j2] > 0.0, exp(T[j2]), alpha)
        """,
    )


def test_what_python_people_write():
    # fmt: off
    @func
    def f(A: Buffer["f32", ROWS, "N"], b: Buffer["bool", 4, "inout"]) -> None:
        """A docstring
        over two lines."""
        # A comment.
        for i in range(ROWS):
            for j in range(0, N):  # another
                if 0 <= i < N - 1 and \
                   not (j == 3):
                    A[i,
                      j] = (A[i, j] +
                            1) * -A[i, j] ** 2 if A[i, j] > 0x10 else 1_000.
                    A[i, j] -= 1
                    A[i, j] *= minimum(A[i, j], 1, 2)
                b[i] |= i == 1 or i != 2
    # fmt: on

    same(
        f,
        """
        def f(A: Buffer["f32", 4, N], b: Buffer["bool", 4, "inout"]):
            for i in range(4):
                for j in range(N):
                    if 0 <= i and i < N - 1 and not j == 3:
                        A[i, j] = select(
                            A[i, j] > 16.0, (A[i, j] + 1.0) * -pow(A[i, j], 2.0), 1000.0
                        )
                        A[i, j] += -1.0
                        A[i, j] *= min(min(A[i, j], 1.0), 2.0)
                    b[i] |= i == 1 or i != 2
        """,
    )


def test_the_package_may_be_named():
    @frontend.func
    def f(A: frontend.Buffer["f32", 4, "out"], n: frontend.index):
        for i in tc.parallel(4):
            T = tc.alloc("f32")
            tc.reduce("max", A[i], tc.exp(tc.f32(n)))

    same(
        f,
        """
        def f(A: Buffer["f32", 4, "out"], n: index):
            for i in parallel(4):
                T = alloc("f32")
                reduce("max", A[i], exp(f32(n)))
        """,
    )


# Names from Python --------------------------------------------------------------------------------


def test_numbers_come_from_globals_and_arithmetic_of_literals_is_done():
    @func
    def f(A: Buffer["f32", ROWS * 2 + 1, SHAPES.wide, SHAPES.inner.size - 1], x: f64):
        for i in range(ROWS - 1, ROWS // 3 + 7 % ROWS):
            if FLAG:
                A[i, 0, 1] = SCALE / 3 * SHAPES.ratio + math.pi * f32(x) + f32(-ROWS)

    third = DType.F32.wrap(0.1 / 3 * 0.5)
    same(
        f,
        f"""
        def f(A: Buffer["f32", 9, 16, 2], x: f64):
            for i in range(3, 4):
                if True:
                    A[i, 0, 1] = {third!r} + {math.pi!r} * f32(x) + f32(-4.0)
        """,
    )


def test_enclosing_functions_are_seen_also_where_only_annotations_use_them():
    def make(rows, columns, dtype, ROWS=7):
        @func
        def f(A: Buffer[dtype, rows, columns], B: Buffer[HALF, ROWS]):
            for i in range(rows):
                A[i, 0] = 1

        return f

    for rows, dtype in ((3, "f32"), (5, "i32")):
        same(
            make(rows, 9, dtype),
            f"""
            def f(A: Buffer["{dtype}", {rows}, 9], B: Buffer["f16", 7]):
                for i in range({rows}):
                    A[i, 0] = 1
            """,
        )


def test_a_declared_name_comes_before_pythons():
    @func
    def f(A: Buffer["f32", "ROWS"], SCALE: f32):
        for FLAG in range(ROWS):
            A[FLAG] = SCALE

    same(
        f,
        """
        def f(A: Buffer["f32", ROWS], SCALE: f32):
            for FLAG in range(ROWS):
                A[FLAG] = SCALE
        """,
    )


def test_a_string_in_a_shape_is_an_expression_of_sizes():
    @func
    def f(A: Buffer["f32", "N", "2 * N + M // 4", " ROWS - 1 "], B: Buffer["f32", "M"]):
        for i in range(N):
            A[i, 0, 0] = 0

    same(
        f,
        """
        def f(A: Buffer["f32", N, 2 * N + M // 4, ROWS - 1], B: Buffer["f32", M]):
            for i in range(N):
                A[i, 0, 0] = 0
        """,
    )


def test_names_that_are_used_again_are_made_unique():
    @func
    def f(A: Buffer["f32", 4, 4], i_3: f32):
        for i in range(4):
            for j in range(i, 4):
                A[i, j] = i_3
        for i in range(4):
            T = alloc("f32")
            T[()] = A[i, i]
            A[i, 0] = T[()]
        for j in range(4):
            T = alloc("f32", 2)
            T[0] = A[j, j]
        for i in range(4):
            A[i, i] = 1

    same(
        f,
        """
        def f(A: Buffer["f32", 4, 4, "out"], i_3: f32):
            for i in range(4):
                for j in range(i, 4):
                    A[i, j] = i_3
            for i_2 in range(4):
                T = alloc("f32")
                T[()] = A[i_2, i_2]
                A[i_2, 0] = T[()]
            for j_2 in range(4):
                T_2 = alloc("f32", 2)
                T_2[0] = A[j_2, j_2]
            for i_4 in range(4):
                A[i_4, i_4] = 1
        """,
    )


# Branches -----------------------------------------------------------------------------------------


def test_else_is_a_second_if_of_the_negation():
    @func
    def f(A: Buffer["f32", 8], x: f32):
        for i in range(8):
            if i < 3 and i != 2:
                A[i] = 0
            elif x < 1.0:
                A[i] = 1
            else:
                A[i] = 2

    same(
        f,
        """
        def f(A: Buffer["f32", 8], x: f32):
            for i in range(8):
                if i < 3 and i != 2:
                    A[i] = 0
                if i >= 3 or i == 2:
                    if x < 1.0:
                        A[i] = 1
                    if not x < 1.0:
                        A[i] = 2
        """,
    )


AND_OR = st.sampled_from(("and", "or"))
RELATION = st.sampled_from(("<", "<=", ">", ">=", "==", "!="))
INDEX = st.sampled_from(("i", "j", "2", "i + j"))
FLOAT = st.sampled_from(("x", "y", "x - y"))
COMPARISON = st.builds("{} {} {}".format, INDEX, RELATION, INDEX.filter(lambda e: e != "2"))
COMPARISON |= st.builds("{} {} {}".format, FLOAT, RELATION, FLOAT | st.just("0.5"))
CONDITION = st.recursive(
    COMPARISON,
    lambda c: st.builds("not ({})".format, c) | st.builds("({}) {} ({})".format, c, AND_OR, c),
    max_leaves=6,
)


@given(CONDITION, st.sampled_from((0.0, 0.5, math.nan)), st.sampled_from((0.5, math.nan)))
def test_exactly_one_branch_is_taken(condition, x, y):
    made = parse(
        f"""def f(A: Buffer["i32", 4, 4, "inout"], x: f32, y: f32):
            for i in range(4):
                for j in range(4):
                    if {condition}:
                        A[i, j] += 1
                    else:
                        A[i, j] += 100
        """
    )
    zeros = np.zeros((4, 4), np.int32)
    taken = run(made, {"A": zeros, "x": x, "y": y}).outputs["A"]
    names = {"x": np.float32(x), "y": np.float32(y), "nan": math.nan}
    for i in range(4):
        for j in range(4):
            assert taken[i, j] == (1 if eval(condition, {}, {**names, "i": i, "j": j}) else 100)


# Places -------------------------------------------------------------------------------------------


def test_spans_point_into_this_file():
    @func
    def f(A: Buffer["f32", 4]):
        for index_name in range(4):
            if index_name < 3:
                A[index_name + 1] = 0

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    texts = {}
    for _, node in walk(f):
        if isinstance(node, For | If | Store):
            span = node.span
            assert Path(span.file).samefile(__file__)
            texts[type(node)] = lines[span.line - 1][span.column : span.end_column]
    assert texts == {For: "index_name", If: "index_name < 3", Store: "A[index_name + 1]"}
    assert lines[f.span.line - 1][f.span.column : f.span.end_column] == "f"


def scalar(A: Buffer["f32", 4]):
    for i in range(4):
        x = A[i]


def shadow(A: Buffer["f32", 4]):
    for i in range(4):
        for i in range(4):
            A[i] = 0


def unknown(A: Buffer["f32", 4]):
    A[nothing] = 0


def string(A: Buffer["f32", 4]):
    A[__name__] = 0


def endless(A: Buffer["f32", 4]):
    while True:
        pass


def default(A: Buffer["f32", 4], x: tc.DType = 1.0):
    pass


def untyped(A):
    pass


def moded(A: Buffer["f32", 8, "output"]):
    pass


def halves(A: Buffer["f32", 4]):
    A[1 // 0] = 1


def unfinished(A: Buffer["f32", "N +"]):
    pass


@pytest.mark.parametrize(
    ("function", "place", "reason"),
    [
        (scalar, "x = A[i]", "there are no scalar variables"),
        (shadow, "i in range(4):", "i is already a variable here"),
        (unknown, "nothing]", "nothing is no variable"),
        (string, "__name__]", "is a Python str, not a number"),
        (endless, "while", "found `while`"),
        (default, "tc.DType = 1.0", "tc.DType is no type"),
        (untyped, "):", "expected `:` and a type"),
        (moded, '"output"', 'not a size; did you mean "out"?'),
        (halves, "// 0", "division"),
        (unfinished, '"]', "expected an expression"),
    ],
)
def test_errors_point_into_this_file(function, place, reason):
    with pytest.raises(ParseError) as caught:
        func(function)
    error = caught.value
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert Path(error.file).samefile(__file__)
    assert error.source == lines[error.line - 1]
    assert error.source[error.column - 1 :].startswith(place)
    assert reason in error.reason


def test_what_has_no_source_is_refused():
    for thing in (3, len, For):
        with pytest.raises(ArgumentError, match="no function written with `def`"):
            func(thing)
    names = {}
    exec("def f(A):\n    pass", names)
    with pytest.raises(ArgumentError, match=r"give the text to tc\.parse"):
        func(names["f"])
    with pytest.raises(ParseError, match="expected a function"):
        func(lambda A: A)


def test_a_name_that_has_no_value_yet_is_unknown():
    def make():
        def f(A: Buffer["f32", 4]):
            A[later] = 0

        with pytest.raises(ParseError, match="later is no variable"):
            func(f)
        later = 3
        return func(f), later

    made, later = make()
    assert next(nodes(made, Store)).indices == (Const(later, DType.INDEX),)
