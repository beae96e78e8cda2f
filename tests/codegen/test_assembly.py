"""What LLVM makes of the text: registers stay registers, and nothing outside is called."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tensorc.codegen.elf import symbols_of
from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import compile_module
from tensorc.codegen.llvm import emit
from tensorc.codegen.pipeline import Options, lower
from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, Expr, Unary
from tensorc.ir.parse import parse
from tensorc.target import Target
from tests.codegen.programs import PROGRAMS
from tests.codegen.test_arithmetic import BOUNDED, DATA, FLOATS, load, pointwise

CROSS = [
    "cpu:x86-64",
    "cpu:x86-64-v3",
    "cpu:x86-64-v4",
    "cpu:generic;triple=aarch64-unknown-linux-gnu",
    "cpu:generic;triple=riscv64-unknown-linux-gnu",
]


def tile(rows: int, lanes: int, tail: int = 0) -> str:
    """The inner loops of a packed matmul of `rows` x `lanes` tiles, k unrolled by 4; with `tail`,
    only so many rows of the last tile exist."""
    total = 8 * rows - (rows - tail if tail else 0)
    guard = f"if i0 * {rows} + i1 < {total}:" if tail else "if i1 < 1000:"
    return f"""
def tile(A: Buffer["f32", 8, 64, 4, {rows}], B: Buffer["f32", 64, 4, {lanes}],
         C: Buffer["f32", {total}, {lanes}, "inout"]):
    for i0 in range(8):
        acc = alloc("f32", {rows}, {lanes}, scope="register")
        for i2 in range({rows}):
            for v2 in vectorize({lanes}):
                {guard.replace("i1", "i2")}
                    acc[i2, v2] = C[i0 * {rows} + i2, v2]
        for k0 in range(64):
            for k1 in unroll(4):
                for i1 in unroll({rows}):
                    for v in vectorize({lanes}):
                        {guard}
                            acc[i1, v] += A[i0, k0, k1, i1] * B[k0, k1, v]
        for i3 in range({rows}):
            for v3 in vectorize({lanes}):
                {guard.replace("i1", "i3")}
                    C[i0 * {rows} + i3, v3] = acc[i3, v3]
"""


def assembly(text: str, target: str) -> str:
    made = Target.parse(target)
    return compile_module(emit(lower(parse(text), made)).text, made).assembly()


def blocks(text: str) -> list[list[str]]:
    """The instructions of each basic block."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line.endswith(":"):
            found.append([])
        elif line and not line.startswith("."):
            found[-1].append(line)
            if line.startswith("j"):
                found.append([])
    return found


def hottest(text: str) -> list[str]:
    """The block with the most multiply-adds."""
    return max(blocks(text), key=lambda block: sum("fmadd" in line for line in block))


@pytest.mark.parametrize(
    ("target", "rows", "lanes", "register"),
    [("cpu:x86-64-v3", 6, 16, "ymm"), ("cpu:x86-64-v4", 12, 32, "zmm")],
)
@pytest.mark.parametrize("tail", [0, 2])
def test_accumulators_stay_in_registers(
    target: str, rows: int, lanes: int, register: str, tail: int
) -> None:
    loop = hottest(assembly(tile(rows, lanes, tail), target))
    adds = [line for line in loop if "fmadd" in line]
    assert len(adds) == 4 * rows * 2
    assert all(register in line for line in adds)
    assert not [line for line in loop if "rsp" in line or "rbp" in line]
    # What is written in the loop is counters and addresses: no accumulator goes to memory.
    assert not [line for line in loop if re.match(r"vmov\w+\s+%[yz]mm\d+, .*\(", line)]


def test_contraction_is_the_only_licence() -> None:
    strict = Options(strict_float=True)
    target = Target.parse("cpu:x86-64-v3")
    func = parse(tile(6, 16))
    flags = Counter(re.findall(r"f(?:add|mul) (\w+)", emit(lower(func, target)).text))
    assert set(flags) == {"contract"}
    text = emit(lower(func, target, strict)).text
    assert "contract" not in text
    assert "fmadd" not in compile_module(text, target).assembly()


@pytest.mark.parametrize("target", CROSS)
def test_nothing_is_called(target: str) -> None:
    """No C library, no run-time library of a compiler, for any operation in any dtype."""
    made = Target.parse(target)
    count = 5
    for dtype in DATA:
        a, b = load("A", dtype, count), load("B", dtype, count)
        ops = ["add", "min"] if dtype is not DType.BOOL else ["bitand"]
        ops += ["div", "pow"] if dtype in FLOATS else []
        ops += ["floordiv", "truncmod", "shr"] if dtype.is_integer else []
        exprs: dict[str, Expr] = {f"O.{op}": Binary(op, a, b) for op in ops}  # type: ignore[arg-type]
        if dtype in FLOATS:
            unary = ["floor", "round", "sqrt", *sorted(BOUNDED - {"pow"})]
            exprs |= {f"O.{op}": Unary(op, a) for op in unary}  # type: ignore[arg-type]
        for kind in ("serial", "vectorize"):
            func = pointwise(exprs, {"A": dtype, "B": dtype}, kind, count)  # type: ignore[arg-type]
            kernel = emit(lower(func, made))
            symbols = symbols_of(compile_module(kernel.text, made).object_bytes())
            assert symbols is not None
            assert not symbols.undefined, (dtype, kind)
            assert symbols.defined == (kernel.symbol,)


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_the_hook_is_needed(name: str) -> None:
    for text in CROSS:
        target = Target.parse(text)
        kernel = emit(lower(parse(PROGRAMS[name][0]), target))
        symbols = symbols_of(compile_module(kernel.text, target).object_bytes())
        assert symbols is not None
        assert set(symbols.undefined) == ({HOOK} if kernel.parallel else set())
        assert symbols.defined == (kernel.symbol,)
