"""Each condition of verify with the smallest program that breaks it, and its whole message."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

from tensorc.dtype import DType
from tensorc.errors import VerifyError
from tensorc.ir.arith import TRUE, index, var
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
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
)
from tensorc.ir.verify import CONDITIONS, verify, violations
from tensorc.ir.walk import at, normalised, replace, replace_buffer, rewrite
from tests.ir.strategies import functions

F32, I32 = DType.F32, DType.I32
N = var("N")
A = Buffer("A", (index(4),), F32)
C = Buffer("C", (index(4),), F32)
J = Buffer("J", (index(4),), I32)
S = Buffer("S", (), F32)
ONE, INT = Const(1.0, F32), Const(1, I32)
i, ZERO = var("i"), index(0)
NOTHING = Seq(())


def func(body: Stmt, *params: Param) -> Func:
    """A function of A (in), C (inout) and J (inout)."""
    return Func("f", params or (Param(A), Param(C, "inout"), Param(J, "inout")), body)


def loop(body: Stmt, **changes: Any) -> For:
    return replace(For(i, ZERO, index(4), body), **changes)


def store(value: Expr = ONE, at: Expr = ZERO, buffer: Buffer = C, name: str = "C") -> Store:
    return Store(name, buffer, (at,), value)


LANES = Ramp(ZERO, index(1), 4)

# condition, program, message, and whether it is checked as a lowered program
BROKEN: list[tuple[str, Func, str, bool]] = [
    (
        "parameters",
        func(NOTHING, Param(A), Param(Var("A", F32))),
        "parameter `A`: the parameter name `A` is already taken",
        False,
    ),
    (
        "buffer names",
        func(Alloc(replace(A, scope="local"), NOTHING)),
        "buffer `A`: the buffer name `A` is already taken",
        False,
    ),
    (
        "statement names",
        func(Seq((store(), store()))),
        "statement `C`: the statement name `C` is already taken",
        False,
    ),
    (
        "variable names",
        func(Seq((loop(NOTHING), loop(NOTHING)))),
        "loop `i`: the variable name `i` is already taken",
        False,
    ),
    (
        "variable names",
        func(loop(NOTHING, var=N), Param(Buffer("A", (N,), F32))),
        "loop `N`: the variable name `N` is already taken",
        False,
    ),
    (
        "variable names",
        func(loop(store(at=Let(i, ZERO, i)))),
        "statement `C`: `let i` hides the variable `i` around it",
        True,
    ),
    (
        "words",
        func(loop(NOTHING, kind="async")),
        "loop `i`: `async` is no loop kind; there are parallel, serial, unroll, vectorize",
        False,
    ),
    (
        "words",
        func(NOTHING, Param(A, "readonly")),  # type: ignore[arg-type]
        "parameter `A`: `readonly` is no mode; there are const, in, inout, out",
        False,
    ),
    (
        "words",
        func(Alloc(replace(S, scope="private"), NOTHING)),
        "buffer `S`: `private` is no scope; there are global, local, register, shared",
        False,
    ),
    (
        "words",
        func(NOTHING, Param(replace(A, scope="shared"))),
        'parameter `A`: a parameter has the scope "global", not "shared"',
        False,
    ),
    (
        "numbers",
        func(Alloc(replace(S, dtype=DType.INDEX), NOTHING)),
        "buffer `S`: a buffer holds data, not index",
        False,
    ),
    (
        "numbers",
        func(NOTHING, Param(replace(A, shape=(index(-1),)))),
        "parameter `A`: the extent -1 is negative",
        False,
    ),
    (
        "numbers",
        func(NOTHING, Param(replace(A, alignment=24))),
        "parameter `A`: the alignment 24 is no power of two",
        False,
    ),
    (
        "numbers",
        func(store(Broadcast(ONE, 0))),
        "statement `C`: a vector of 0 lanes",
        True,
    ),
    (
        "variables",
        func(loop(store(at=var("j")))),
        "statement `C`: `j` is no variable here; in scope: i",
        False,
    ),
    (
        "variables",
        func(loop(NOTHING, end=i)),
        "loop `i`: `i` is no variable here; in scope: none",
        False,
    ),
    (
        "variables",
        func(loop(store(Cast(F32, Var("i", I32))))),
        "statement `C`: `i` is used as i32, but it is index",
        False,
    ),
    (
        "buffers",
        func(Seq((Alloc(S, NOTHING), Store("S", S, (), ONE)))),
        "statement `S`: `S` is no buffer here; in scope: A, C, J",
        False,
    ),
    (
        "buffers",
        func(store(Load(replace(A, shape=(index(5),)), (ZERO,)))),
        "statement `C`: `A` is not the buffer that is declared by this name",
        False,
    ),
    (
        "sizes",
        func(NOTHING, Param(Buffer("A", (Binary("add", N, index(1)),), F32))),
        "parameter `A`: the size `N` is no dimension of its own anywhere",
        False,
    ),
    (
        "pure",
        func(loop(NOTHING, end=Cast(DType.INDEX, Load(J, (ZERO,))))),
        "loop `i`: `J[0]` reads a buffer, which a loop bound may not",
        False,
    ),
    (
        "pure",
        func(loop(If(Binary("gt", Load(A, (i,)), ONE), NOTHING))),
        "condition inside loop `i`: `A[i]` reads a buffer, which a condition may not",
        False,
    ),
    (
        "pure",
        func(Alloc(replace(S, shape=(Cast(DType.INDEX, Load(J, (ZERO,))),)), NOTHING)),
        "buffer `S`: `J[0]` reads a buffer, which a shape may not",
        False,
    ),
    (
        "modes",
        func(store(buffer=A, name="A")),
        'statement `A`: `A` is written, but its mode is "in"',
        False,
    ),
    (
        "modes",
        func(Reduce("A", "sum", (A,), (ZERO,), (ONE,)), Param(A, "const")),
        'statement `A`: `A` is written, but its mode is "const"',
        False,
    ),
    (
        "modes",
        func(NOTHING, Param(Var("x", F32), "out")),
        'parameter `x`: a scalar is an "in" parameter, not "out"',
        False,
    ),
    (
        "rank",
        func(Store("C", C, (ZERO, ZERO), ONE)),
        "statement `C`: `C` has 1 dimension, not 2",
        False,
    ),
    (
        "rank",
        func(NOTHING, Param(replace(A, strides=(4, 1)))),
        "parameter `A`: `A` has 2 strides for 1 dimensions",
        False,
    ),
    (
        "operands",
        func(store(Binary("add", ONE, INT))),
        "statement `C`: `f32(1.0) + i32(1)` mixes f32 and i32",
        False,
    ),
    (
        "operands",
        func(store(Binary("floordiv", ONE, ONE))),
        "statement `C`: `f32(1.0) // 1.0` is of f32; `floordiv` takes i16, i32, i64, i8, index, "
        "u32, u8",
        False,
    ),
    (
        "operands",
        func(store(Unary("gamma", ONE))),  # type: ignore[arg-type]
        "statement `C`: `gamma` is no operation",
        False,
    ),
    (
        "operands",
        func(store(Select(TRUE, ONE, INT))),
        "statement `C`: `select(True, f32(1.0), i32(1))` chooses between f32 and i32",
        False,
    ),
    (
        "operands",
        func(store(Ramp(ONE, ONE, 4), at=LANES)),
        "statement `C`: `ramp(f32(1.0), 1.0, 4)` is of f32; a ramp is of integers",
        True,
    ),
    (
        "operands",
        func(store(Let(Var("v", F32), INT, ONE))),
        "statement `C`: `let v` is f32, but its value i32",
        True,
    ),
    (
        "bool",
        func(If(index(1), NOTHING)),
        "condition inside function: the condition `index(1)` is index, not bool",
        False,
    ),
    (
        "bool",
        func(store(MaskedLoad(A, (ZERO,), INT))),
        "statement `C`: the condition `i32(1)` is i32, not bool",
        True,
    ),
    (
        "index",
        func(store(at=INT)),
        "statement `C`: the index `i32(1)` is i32, not index",
        False,
    ),
    (
        "index",
        func(loop(NOTHING, end=INT)),
        "loop `i`: the bound `i32(1)` is i32, not index",
        False,
    ),
    (
        "index",
        func(loop(NOTHING, var=Var("i", I32))),
        "loop `i`: the loop variable `i` is i32, not index",
        False,
    ),
    (
        "index",
        func(Alloc(replace(S, shape=(INT,)), NOTHING)),
        "buffer `S`: the extent `i32(1)` is i32, not index",
        False,
    ),
    (
        "stored",
        func(store(INT)),
        "statement `C`: the value `i32(1)` is i32, but `C` holds f32",
        False,
    ),
    (
        "reductions",
        func(Reduce("C", "median", (C,), (ZERO,), (ONE,))),
        "statement `C`: `median` is no reduction; there are sum, prod, min, max, any, all, bitand, "
        "bitor, bitxor, argmax, argmin, welford, logsumexp",
        False,
    ),
    (
        "reductions",
        func(Reduce("C", "argmax", (C,), (ZERO,), (ONE,))),
        "statement `C`: `argmax` takes 2 of each, not 1 buffers and 1 values",
        False,
    ),
    (
        "reductions",
        func(Reduce("C", "any", (C,), (ZERO,), (ONE,))),
        "statement `C`: `C` holds f32; `any` takes bool",
        False,
    ),
    (
        "reductions",
        func(Reduce("C", "sum", (C,), (ZERO,), (INT,))),
        "statement `C`: the value `i32(1)` is i32, but `C` holds f32",
        False,
    ),
    (
        "reductions",
        func(Reduce("J", "argmax", (J, J), (ZERO,), (INT, INT))),
        "statement `J`: `J` stands 2 times among the buffers",
        False,
    ),
    (
        "reductions",
        func(
            Alloc(
                Buffer("D", (index(4),), DType.F64, "local"),
                Reduce(
                    "C",
                    "logsumexp",
                    (C, Buffer("D", (index(4),), DType.F64, "local")),
                    (ZERO,),
                    (ONE, Const(1.0, DType.F64)),
                ),
            )
        ),
        "statement `C`: the buffers of `logsumexp` hold one dtype, not f32, f64",
        False,
    ),
    (
        "sequences",
        func(Seq((store(), Seq(())))),
        "function: a sequence directly in a sequence; flatten it with `walk.seq`",
        False,
    ),
    (
        "sequences",
        func(loop(Seq((store(),)))),
        "loop `i`: a sequence of one statement; use the statement",
        False,
    ),
    (
        "vectorize",
        func(loop(NOTHING, end=N, kind="vectorize"), Param(Buffer("A", (N,), F32))),
        "loop `i`: a vectorize loop runs a constant number of times",
        False,
    ),
    (
        "vectorize",
        func(loop(NOTHING, end=index(65), kind="vectorize")),
        "loop `i`: a vectorize loop of 65 lanes; at most 64",
        False,
    ),
    (
        "lowered",
        func(MaskedStore("C", C, (ZERO,), ONE, TRUE)),
        "statement `C`: MaskedStore belongs to lowered programs only",
        False,
    ),
    (
        "lowered",
        func(Prefetch(C, (ZERO,))),
        "a prefetch of `C`: Prefetch belongs to lowered programs only",
        False,
    ),
    (
        "lowered",
        func(store(at=Let(i, ZERO, i))),
        "statement `C`: Let belongs to lowered programs only",
        False,
    ),
    (
        "lanes",
        func(store(Load(A, (Ramp(ZERO, index(1), 2),)), at=LANES)),
        "statement `C`: vectors of 2 and 4 lanes together",
        True,
    ),
    (
        "lanes",
        func(loop(NOTHING, end=LANES)),
        "loop `i`: a vector of 4 lanes where one value belongs",
        True,
    ),
    (
        "lanes",
        func(store(Broadcast(ONE, 4))),
        "statement `C`: 4 lanes are stored in one element",
        True,
    ),
]


@pytest.mark.parametrize(
    ("condition", "program", "message", "lowered"),
    BROKEN,
    ids=[f"{n}-{case[0]}" for n, case in enumerate(BROKEN)],
)
def test_broken(condition: str, program: Func, message: str, lowered: bool) -> None:
    """The program breaks this condition, at this place, and no other."""
    (error,) = violations(program, lowered=lowered)
    assert error.reason == message
    assert error.condition == condition
    assert isinstance(at(program, error.path), Node)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(VerifyError) as raised:
        verify(program, lowered=lowered)
    assert str(raised.value) == str(error)


def test_every_condition_is_broken_by_some_program() -> None:
    assert {case[0] for case in BROKEN} == {condition.name for condition in CONDITIONS}
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)


def test_all_violations_are_listed() -> None:
    program = func(Seq((store(INT), store(at=var("j")), Seq(()))))
    assert [error.condition for error in violations(program)] == [
        "statement names",
        "variables",
        "stored",
        "sequences",
    ]


def test_the_path_leads_to_the_fault() -> None:
    program = func(loop(If(Binary("lt", i, index(2)), store(Binary("add", ONE, INT)))))
    (error,) = violations(program)
    assert error.path == ("body", "body", "body", "value")
    assert at(program, error.path) == Binary("add", ONE, INT)


# Programs that break nothing ----------------------------------------------------------------------


def unlowered(node: Node) -> Node | None:
    """What stands for a lowered form in a program that is not."""
    match node:
        case Ramp(base=value) | Broadcast(value=value):
            return value
        case Let(var=var, value=value, body=body):
            hidden = {var.name: value}
            return rewrite(body, lambda n: hidden.get(getattr(n, "name", None)))
        case MaskedLoad(buffer=buffer, indices=indices):
            return Load(buffer, indices)
        case MaskedStore(name=name, buffer=buffer, indices=indices, value=value):
            return Store(name, buffer, indices, value)
        case Prefetch():
            return Seq(())
    return None


def plain(function: Func) -> Func:
    """A random function without the lowered forms, and what the strategy draws too freely put
    right: scopes of parameters, extents of vectorize loops, reductions twice into one buffer."""

    def change(node: Node) -> Node | None:
        match node:
            case Reduce() if len({b.name for b in node.buffers}) < len(node.buffers):
                first, value = node.buffers[:1], node.values[:1]
                return replace(node, op="max", buffers=first, values=value)
            case For(kind="vectorize"):
                return replace(node, begin=ZERO, end=index(64))
        return unlowered(node)

    params, body = [], normalised(rewrite(function.body, change))
    for param in function.params:
        if isinstance(param.value, Buffer):
            shared = replace(param.value, scope="global")
            body = replace_buffer(body, param.name, shared)
            param = replace(param, value=shared)
        params.append(param)
    return replace(function, params=tuple(params), body=body)


@given(functions())
def test_well_formed_functions_verify(function: Func) -> None:
    well_formed = plain(function)
    assert list(violations(well_formed)) == []
    assert list(violations(well_formed, lowered=True)) == []
