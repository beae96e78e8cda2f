"""LLVM text to code in memory: right results at every level, errors with a place, other targets."""

from __future__ import annotations

import ctypes
import gc
import pickle
import re
import threading
import weakref
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.codegen.elf import symbols_of
from tensorc.codegen.jit import (
    LLVMError,
    Optimisation,
    compile_module,
    load_object,
)
from tensorc.errors import ArgumentError, CompileError, TargetError
from tensorc.target import Target

HOST = Target.parse("cpu")
LEVELS = get_args(Optimisation)
INT64 = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
MASK = (1 << 64) - 1

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
programs = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)
words = st.integers(-(1 << 63), (1 << 63) - 1)


def text_of(program: list[tuple[str, int, int]]) -> str:
    """A chain of operations, each on two earlier values, every value through a stack slot."""
    lines = ["define i64 @f(i64 %v0, i64 %v1) nounwind {"]
    for number, (name, left, right) in enumerate(program, start=2):
        lines += [
            f"  %s{number} = alloca i64",
            f"  %t{number} = {name} i64 %v{left % number}, %v{right % number}",
            f"  store i64 %t{number}, ptr %s{number}",
            f"  %v{number} = load i64, ptr %s{number}",
        ]
    return "\n".join([*lines, f"  ret i64 %v{len(program) + 1}", "}"])


@given(programs, words, words, st.sampled_from(LEVELS))
def test_compiled_arithmetic(
    program: list[tuple[str, int, int]], first: int, second: int, level: Optimisation
) -> None:
    values = [first, second]
    for number, (name, left, right) in enumerate(program, start=2):
        values.append(OPERATORS[name](values[left % number], values[right % number]))
    module = compile_module(text_of(program), HOST, opt=level)
    assert INT64(module.address("f"))(first, second) & MASK == values[-1] & MASK


DOT = """
@scale = global double 2.0
define internal double @times(double %x) alwaysinline nounwind {
  %s = load double, ptr @scale
  %r = fmul double %x, %s
  ret double %r
}
define i32 @dot(ptr noalias %a, ptr noalias %b, ptr noalias %out, i64 %n) nounwind {
entry:
  %sum = alloca double
  store double 0.0, ptr %sum
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %exit
body:
  %pa = getelementptr double, ptr %a, i64 %i
  %pb = getelementptr double, ptr %b, i64 %i
  %x = load double, ptr %pa
  %y = load double, ptr %pb
  %z = call double @times(double %y)
  %p = fmul double %x, %z
  %old = load double, ptr %sum
  %new = fadd double %old, %p
  store double %new, ptr %sum
  %next = add i64 %i, 1
  br label %head
exit:
  %result = load double, ptr %sum
  store double %result, ptr %out
  ret i32 0
}
"""


@pytest.mark.parametrize("level", LEVELS)
def test_loops_memory_and_variables(level: Optimisation) -> None:
    module = compile_module(DOT, HOST, opt=level)
    dot = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
        module.address("dot")
    )
    for count in (0, 1, 7):
        a = (ctypes.c_double * 8)(*range(8))
        b = (ctypes.c_double * 8)(*range(3, 11))
        out = ctypes.c_double(-1.0)
        assert dot(a, b, ctypes.addressof(out), count) == 0
        assert out.value == sum(2.0 * i * (i + 3) for i in range(count))
    assert ctypes.c_double.from_address(module.address("scale")).value == 2.0


def test_levels_do_what_they_say() -> None:
    plain, short, full = (compile_module(DOT, HOST, opt=level).optimised_text() for level in LEVELS)
    assert "alloca" in plain
    assert "call double @times" in plain
    for text in (short, full):
        assert "alloca" not in text
        assert "@times" not in text
        assert "x double>" not in text  # nothing is vectorised behind the schedule's back
        assert text.count("fadd") == 1  # nor unrolled


def test_equal_texts_give_equal_objects() -> None:
    first, second = (compile_module(DOT, HOST) for _ in range(2))
    assert first.object_bytes() == second.object_bytes()
    assert first.optimised_text() == second.optimised_text()
    # What is shown does not depend on what was asked before.
    assert first.assembly() == first.assembly() == second.assembly()


def wide(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    return f"""
define void @f(ptr %p) nounwind {{
  %x = load {vector}, ptr %p, align 4
  %y = fadd {vector} %x, %x
  store {vector} %y, ptr %p, align 4
  ret void
}}
"""


@pytest.mark.parametrize(
    ("cpu", "register", "absent"),
    [
        ("x86-64-v2", "xmm", "ymm"),
        ("x86-64-v3", "ymm", "zmm"),
        ("x86-64-v4", "zmm", "ymm"),
        ("emeraldrapids", "zmm", "ymm"),
        ("znver4", "zmm", "ymm"),
    ],
)
def test_a_full_vector_is_one_register(cpu: str, register: str, absent: str) -> None:
    target = Target.parse(f"cpu:{cpu}")
    assembly = compile_module(wide(target.lanes(32)), target).assembly()
    assert register in assembly
    assert absent not in assembly
    assert len(re.findall(r"\baddps|vaddps", assembly)) == 1


# --- symbols ------------------------------------------------------------------------------------

CALLER = """
declare i64 @callback(i64)
@constant = private constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
define i64 @f(i64 %i, i64 %j) nounwind {
  %p = getelementptr i64, ptr @constant, i64 %i
  %v = load i64, ptr %p
  %r = call i64 @callback(i64 %v)
  %s = add i64 %r, %j
  ret i64 %s
}
"""
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda value: value + 1)
CALLBACK_ADDRESS = ctypes.cast(CALLBACK, ctypes.c_void_p).value or 0


def test_external_symbols_are_the_given_ones() -> None:
    module = compile_module(CALLER, HOST, symbols={"callback": CALLBACK_ADDRESS})
    assert INT64(module.address("f"))(2, 5) == 36
    again = load_object(module.object_bytes(), {"callback": CALLBACK_ADDRESS})
    assert INT64(again.address("f"))(3, 0) == 41
    assert again.address("f") != module.address("f")


def test_a_missing_symbol_is_named() -> None:
    module = compile_module(CALLER, HOST, symbols={"other": 1})
    with pytest.raises(CompileError, match=r"needs callback.*provided here: .*memcpy.*other"):
        module.address("f")


def test_libm_is_not_linked_silently() -> None:
    text = """
declare double @llvm.exp.f64(double)
define double @f(double %x) nounwind {
  %y = call double @llvm.exp.f64(double %x)
  ret double %y
}
"""
    with pytest.raises(CompileError, match="needs exp,"):
        compile_module(text, HOST).address("f")


def test_memory_functions_are_provided() -> None:
    text = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
define void @f(ptr %a, ptr %b, i64 %n) nounwind {
  call void @llvm.memset.p0.i64(ptr %a, i8 7, i64 %n, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %a, i64 %n, i1 false)
  %c = getelementptr i8, ptr %b, i64 1
  store i8 9, ptr %b
  call void @llvm.memmove.p0.p0.i64(ptr %c, ptr %b, i64 %n, i1 false)
  ret void
}
"""
    module = compile_module(text, HOST)
    table = symbols_of(module.object_bytes())
    assert table is None or set(table.undefined) == {"memset", "memcpy", "memmove"}
    a, b = (ctypes.create_string_buffer(1001) for _ in range(2))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(module.address("f"))(
        ctypes.addressof(a), ctypes.addressof(b), 1000
    )
    assert b.raw == b"\x09\x09" + b"\x07" * 999


def test_an_unknown_symbol_lists_the_known() -> None:
    with pytest.raises(CompileError, match=r"'nothing'.*defines dot, scale"):
        compile_module(DOT, HOST).address("nothing")


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "reason", "underlined"),
    [
        ("define i32 @f() {\n  %x = add i32 1, %y\n  ret i32 %x\n}", 2, "undefined value", "%y"),
        ("define i32 @f() {\n  ret i32 0\n}\n\nnonsense", 5, "expected top-level", "nonsense"),
        ("define i32 @f() {\n  ret i64 0\n}", 2, "value doesn't match", "i64 0"),
        (
            "define i32 @f(i32 %a) {\nentry:\n  %x = add i32 %a, %b\n  br label %n\n"
            "n:\n  %b = add i32 1, %a\n  ret i32 %x\n}",
            *(3, "does not dominate", None),
        ),
    ],
)
def test_a_wrong_text_is_shown(text: str, line: int, reason: str, underlined: str | None) -> None:
    with pytest.raises(LLVMError, match=reason) as caught:
        compile_module(text, HOST)
    error = caught.value
    assert error.line == line
    marked = [row for row in error.excerpt.splitlines() if row.startswith(">")]
    wrong = text.splitlines()[line - 1]
    assert marked == [f">{line:5d} | {wrong}"]
    if underlined:
        rows = error.excerpt.splitlines()
        column = rows[rows.index(marked[0]) + 1].index("^")
        assert marked[0][column:].startswith(underlined)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.excerpt) == (str(error), error.line, error.excerpt)


def test_a_level_that_is_not() -> None:
    with pytest.raises(ArgumentError, match="none, short, full"):
        compile_module(DOT, HOST, opt="fast")  # type: ignore[arg-type]


def test_bytes_that_are_no_object_file() -> None:
    data = compile_module(DOT, HOST).object_bytes()
    for wrong in (b"", b"text", *(data[:length] for length in range(0, len(data), 37))):
        with pytest.raises(CompileError, match="cannot be linked"):
            load_object(wrong)


def test_a_symbol_table_that_is_cut() -> None:
    data = compile_module("define void @f() { ret void }", HOST).object_bytes()
    whole = symbols_of(data)
    for length in range(len(data)):
        assert symbols_of(data[:length]) in (None, whole)


# --- other targets ------------------------------------------------------------------------------

FORMATS = {
    "cpu:generic;triple=aarch64-linux-gnu": b"\x7fELF",
    "cpu:generic;triple=riscv64-linux-gnu": b"\x7fELF",
    "cpu:generic;triple=wasm32-unknown-unknown": b"\0asm",
    "cpu:x86-64-v3;triple=x86_64-pc-windows-msvc": b"\x64\x86",
    "cpu:apple-m1;triple=arm64-apple-macosx": b"\xcf\xfa\xed\xfe",
    "cpu:x86-64-v3;triple=x86_64-apple-macosx": b"\xcf\xfa\xed\xfe",
}


@pytest.mark.parametrize("text", FORMATS)
def test_objects_for_other_targets(text: str) -> None:
    target = Target.parse(text)
    module = compile_module(DOT, target)
    assert module.object_bytes().startswith(FORMATS[text])
    assert f'target triple = "{target.triple}"' in module.optimised_text()
    assert "dot" in module.assembly()
    if HOST.architecture == "x86_64" and "linux" in HOST.triple:
        with pytest.raises(TargetError, match="cannot run here"):
            module.address("dot")


def test_hard_floats_on_riscv() -> None:
    module = compile_module(DOT, Target.parse("cpu:generic;triple=riscv64-linux-gnu"))
    # Flag 4 of the header: floating-point arguments of double precision in registers.
    assert module.object_bytes()[48] & 6 == 4


def test_code_for_a_better_machine_is_refused_here() -> None:
    module = compile_module(DOT, Target("cpu", HOST.triple, "", features=("teleport",)), opt="none")
    with pytest.raises(TargetError, match="has no teleport"):
        module.address("dot")


def test_llvm_knows_no_such_target() -> None:
    with pytest.raises(TargetError, match="vax-dec-vms"):
        compile_module(DOT, Target("cpu", "vax-dec-vms", "generic"))
    with pytest.raises(TargetError, match="not for cuda sm_90"):
        compile_module(DOT, Target("cuda", "", "sm_90"))


# --- lifetime and threads -----------------------------------------------------------------------


def test_code_lives_as_long_as_its_module() -> None:
    module = compile_module(CALLER, HOST, symbols={"callback": CALLBACK_ADDRESS})
    function = INT64(module.address("f"))
    for _ in range(20):
        other = compile_module(DOT, HOST)
        other.address("dot")
        del other
    gc.collect()
    assert function(0, 0) == 11
    watch = weakref.ref(module)
    del module
    assert watch() is None


def test_several_threads_compile() -> None:
    results: list[int] = []

    def work(number: int) -> None:
        for step in range(8):
            text = f"define i64 @f(i64 %a, i64 %b) {{\n %c = add i64 %a, {number}\n ret i64 %c\n}}"
            module = compile_module(text, HOST)
            results.append(INT64(module.address("f"))(step, 0) - step - number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 32
