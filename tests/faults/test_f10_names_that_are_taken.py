"""tilelang #1561, nnfusion #163, apache/tvm #1316 and others: names of C or libraries, or twice."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import tensorc as tc
from tests.faults.running import outputs
from tests.schedule.checking import schedule

NAMES = ["int", "double", "max", "tanh", "threadIdx", "free", "layer1.weight", "1234"]
FUNCTIONS = ["main", "asm"]
N = 19


def program(function: str) -> tc.Func:
    """The sum of tensors of all names, two of which are called X, by weights 1, 2, 4, ..."""
    inputs = [tc.placeholder((N,), "f32", name=name) for name in [*NAMES, "X", "X"]]

    def total(loop):
        found = inputs[0][loop]
        for n, tensor in enumerate(inputs[1:], 1):
            found = found + tensor[loop] * float(2**n)
        return found

    return tc.func_of(inputs, [tc.compute((N,), total, name="memcpy")], name=function)


def steps(function: str) -> tc.Schedule:
    s = tc.Schedule(program(function))
    outer, inner = s.split("loop", 8)
    s.cache_read("memcpy", "int", at=outer)
    s.vectorize(inner)
    s.parallel(outer)
    return s


def inputs() -> dict[str, np.ndarray]:
    names = [param.name for param in program("f").params if param.mode == "in"]
    return {name: np.arange(N, dtype=np.float32) + n for n, name in enumerate(names)}


def right() -> list[float]:
    return sum(a * 2.0**n for n, a in enumerate(inputs().values())).tolist()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_printed_text_tells_two_of_one_name_apart(function: str) -> None:
    func = steps(function).func
    names = [param.name for param in func.params]
    assert names == [*NAMES, "X", "X_2", "memcpy"]
    text = str(tc.Schedule(func))
    assert text.startswith(f"def {function}(")
    assert "X[" in text
    assert "X_2[" in text
    assert tc.parse(text) == func


@pytest.mark.parametrize("function", FUNCTIONS)
def test_llvm(function: str) -> None:
    s = steps(function)
    assert outputs(s, **inputs())["memcpy"].tolist() == right()
    text = tc.build(s).source("llvm")
    # Neither an entry called `main` nor one that is a word of the assembler takes over the name.
    assert f"define i32 @{function}(" not in text


def c_names(header: str, function: str) -> tuple[str, list[str]]:
    """The name of the function that a header declares, and those of its parameters."""
    found = re.search(rf"int32_t ({function}\w*)\((.*?)\);", header, re.DOTALL)
    assert found is not None
    return found[1], [part.split()[-1].lstrip("*") for part in found[2].split(",")]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_c_header(function: str) -> None:
    name, names = c_names(tc.build(steps(function)).source("header"), function)
    assert name == f"{function}_"
    assert len(set(names)) == len(NAMES) + 3
    assert all(re.fullmatch(r"[A-Za-z_]\w*", one) for one in names)
    assert not {"int", "double", function} & set(names)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_program_of_c(function: str, tmp_path) -> None:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang) on this machine")
    module = tc.build(steps(function))
    module.save(tmp_path / "kernel.o")
    name, names = c_names(module.source("header"), function)
    arrays = ", ".join(f"a[{n}]" for n in range(len(NAMES) + 2))
    (tmp_path / "program.c").write_text(f"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"
int main(void) {{
    float a[{len(names) - 1}][{N}], out[{N}];
    for (int n = 0; n < {len(names) - 1}; n++)
        for (int i = 0; i < {N}; i++) a[n][i] = (float)(i + n);
    if ({name}({arrays}, out)) return 1;
    for (int i = 0; i < {N}; i++) printf("%.1f ", (double)out[i]);
    return 0;
}}
""")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-I."]
    command = [compiler, *flags, "program.c", "kernel.o", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./program"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert [float(word) for word in done.stdout.split()] == right()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('def f(X: Buffer["f32", 4], X: Buffer["f32", 4, "out"]):\n    X[0] = 1.0\n',
         "two parameters are called X"),
        ('def f(X: Buffer["f32", 4, "out"]):\n    X = alloc("f32", 4)\n    X[0] = 1.0\n',
         "X is already a buffer here"),
        ('def f(X: Buffer["f32", 4, "out"]):\n    for i in range(2):\n'
         "        for i in range(2):\n            X[i] = 1.0\n", "i is already a variable here"),
        ('def f(X: Buffer["f32", 4, "out"]):\n    for i in range(2):\n        X[i] = 1.0\n'
         "    for i in range(2):\n        X[i] = 1.0\n", "the name i is used twice"),
    ],
)  # fmt: skip
def test_in_a_text_a_name_is_used_once(text: str, reason: str) -> None:
    with pytest.raises(tc.ParseError, match=reason):
        tc.parse(text)


def test_the_kind_loops_and_temporaries() -> None:
    names = ["while", "ptr", "entry", "printf", "expf", "workers"]
    lines = ['def exp(A: Buffer["f32", 4], return_: Buffer["f32", 4, "out"]):']
    last = "A"
    for name in names:
        lines.append(f'    `{name}` = alloc("f32", 4)')
        lines.append(f"    for `{name}.loop` in range(4):")
        lines.append(f"        `{name}`[`{name}.loop`] = `{last}`[`{name}.loop`] + 1.0")
        last = name
    lines += ["    for int in range(4):", f"        return_[int] = exp(`{last}`[int] - 6.0)"]
    s = schedule("\n".join(lines) + "\n")
    s.vectorize("while.loop")
    s.parallel("int")
    a = np.zeros(4, np.float32)
    assert outputs(s, 1e-6, A=a)["return_"].tolist() == [1.0] * 4
