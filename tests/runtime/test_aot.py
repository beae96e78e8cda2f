"""Kernels without Python: objects, libraries and headers, used by C programs."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from tensorc import __version__
from tensorc.codegen.cname import c_name
from tensorc.codegen.elf import symbols_of
from tensorc.codegen.hook import HOOK
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, CompileError, TargetError
from tensorc.ir.nodes import Buffer, Param, Var
from tensorc.ir.parse import parse
from tensorc.runtime import aot, parallel
from tensorc.runtime.abi import Signature
from tensorc.runtime.archive import archive
from tensorc.runtime.header import Names, header
from tensorc.runtime.module import build
from tensorc.target import Target
from tests.runtime import programs

CC = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler (cc, gcc or clang) on this machine")


def run_c(folder, source, *linked, flags=()):
    """Compile a C program, link it with files, run it; gives what it prints."""
    (folder / "main.c").write_text(textwrap.dedent(source))
    command = [CC, *WARNINGS, f"-I{folder}", "main.c", *map(str, linked), "-o", "main", *flags]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


MAIN = """
    #include <math.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include "matmul.h"

    int main(void) {
        enum { M = 5, K = 7, N = 3, EDGE = 16 };
        float a[M * K], b[K * N], memory[EDGE + M * N + EDGE], *c = memory + EDGE;
        for (int i = 0; i < M * K; i++) a[i] = (float)(i % 5) - 2;
        for (int i = 0; i < K * N; i++) b[i] = (float)(i % 3) - 1;
        for (int i = 0; i < EDGE + M * N + EDGE; i++) memory[i] = -77;
        if (matmul(a, b, 0.5f, c, M, K, N) != 0) return 1;
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j] * 0.5f;
                if (fabsf(sum - c[i * N + j]) > 1e-5f) return 2;
            }
        for (int i = 0; i < EDGE; i++)
            if (memory[i] != -77 || c[M * N + i] != -77) return 3;
        puts("right");
        return 0;
    }
"""


@needs_cc
@pytest.mark.parametrize("kind", ["o", "a"])
def test_a_c_program_calls_the_kernel(tmp_path, kind):
    written = build(programs.MATMUL).save(tmp_path / f"matmul.{kind}")
    assert written == (tmp_path / f"matmul.{kind}", tmp_path / "matmul.h")
    assert run_c(tmp_path, MAIN, written[0], flags=["-lm"]) == "right\n"


@needs_cc
def test_a_c_program_calls_a_shared_library(tmp_path):
    library, _ = build(programs.MATMUL).save(tmp_path / "libmatmul.so")
    (tmp_path / "libmatmul.h").rename(tmp_path / "matmul.h")
    flags = ["-lm", f"-Wl,-rpath,{tmp_path}"]
    assert run_c(tmp_path, MAIN, library, flags=flags) == "right\n"


# J1: halide/Halide I#2151 and others: two exports in one program.
J1_MAIN = """
    #include <math.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include "f.h"
    #include "g.h"

    #ifdef OWN_POOL
    static int workers_seen = 0, regions = 0;
    int tensorc_parallel_for(int (*fn)(void *, int64_t, int32_t), void *context, int64_t n);
    int tensorc_parallel_for(int (*fn)(void *, int64_t, int32_t), void *context, int64_t n) {
        regions++;
        for (int64_t i = n - 1; i >= 0; i--) {
            int code = fn(context, i, (int32_t)(i % 3));
            if (code) return code;
            if (i % 3 == 2) workers_seen = 3;
        }
        return 0;
    }
    #endif

    int main(void) {
        enum { M = 6, N = 1000, WORKERS = 3 };
        static float a[M * N], b[M * N], c[M * N];
        for (int i = 0; i < M * N; i++) a[i] = (float)(i % 17) / 4 - 2;
        size_t size = f_workspace_bytes(M, N, WORKERS);
        if (size != WORKERS * ((N * 4 + 63) / 64 * 64)) return 1;
        char *raw = malloc(size + 128), *canary;
        char *workspace = raw + 64 - (size_t)raw % 64;
        for (canary = workspace + size; canary < raw + size + 128; canary++) *canary = 42;
        if (f(a, b, M, N, workspace, WORKERS) || g(a, c, M, N)) return 2;
        for (canary = workspace + size; canary < raw + size + 128; canary++)
            if (*canary != 42) return 3;
        for (int i = 0; i < M * N; i++) {
            if (fabsf(b[i] - expf(a[i]) / 2) > 1e-5f) return 4;
            if (fabsf(c[i] - expf(a[i])) > 1e-5f) return 5;
        }
    #ifdef OWN_POOL
        if (workers_seen != 3 || regions != 2) return 6;
    #endif
        free(raw);
        puts("right");
        return 0;
    }
"""


def save_both(folder, suffix):
    return [
        build(programs.ROWS, name="f").save(folder / f"f{suffix}")[0],
        build(programs.EXP, name="g").save(folder / f"g{suffix}")[0],
    ]


@needs_cc
@pytest.mark.parametrize("suffix", [".o", ".a", ".so"])
@pytest.mark.parametrize("pool", ["serial", "own"])
def test_j1_two_kernels_with_exp_and_the_pool_in_one_program(tmp_path, suffix, pool):
    flags = ["-lm", f"-Wl,-rpath,{tmp_path}", "-rdynamic"]
    flags += ["-DOWN_POOL"] if pool == "own" else []
    assert run_c(tmp_path, J1_MAIN, *save_both(tmp_path, suffix), flags=flags) == "right\n"


def test_j1_only_the_entry_points_are_global_and_nothing_is_missing(tmp_path):
    target = "cpu:x86-64-v3"
    f = build(programs.ROWS, target, name="f").save(tmp_path / "f.o")[0]
    g = build(programs.MATMUL, target, name="g").save(tmp_path / "g.o")[0]
    found = [symbols_of(path.read_bytes()) for path in (f, g)]
    assert found[0].defined == ("f", "f_workspace_bytes", HOOK)
    assert found[1].defined == ("g",)
    assert all(symbols.undefined == () for symbols in found)


@needs_cc
def test_j1_both_libraries_in_one_process(tmp_path):
    a = np.linspace(-2, 2, 60, dtype=np.float32).reshape(6, 10)
    f, g = (ctypes.CDLL(str(path)) for path in save_both(tmp_path, ".so"))
    b, c = np.zeros_like(a), np.zeros_like(a)
    f.f_workspace_bytes.restype = ctypes.c_size_t
    size = f.f_workspace_bytes(ctypes.c_int64(6), ctypes.c_int64(10), 1)
    assert size == 64
    workspace = np.zeros(size + 64, np.uint8)
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    place = workspace.ctypes.data + -workspace.ctypes.data % 64
    arrays = (pointer(a.ctypes.data), pointer(b.ctypes.data), long(6), long(10))
    assert f.f(*arrays, pointer(place), 1) == 0
    assert g.g(pointer(a.ctypes.data), pointer(c.ctypes.data), long(6), long(10)) == 0
    np.testing.assert_allclose(b, np.exp(a) / 2, rtol=1e-5)
    np.testing.assert_allclose(c, np.exp(a), rtol=1e-5)


# J5: the target is written into what leaves the process, and is checked on the way in.
def test_j5_an_object_names_its_target_and_the_loader_refuses_a_foreign_one(tmp_path):
    for text in ("cpu", "cpu:x86-64-v2", "cpu:generic;triple=aarch64-linux-gnu"):
        path = build(programs.IN_PLACE, text).save(tmp_path / "x.o")[0]
        assert aot.target_of(path.read_bytes()) == Target.parse(text)
        assert aot.target_of((tmp_path / "x.o").read_bytes() + b"rest") == Target.parse(text)
    here = Target.parse("cpu")
    more = replace(here, features=(*here.features, "imagined"))
    path = build(programs.IN_PLACE, more).save(tmp_path / "x.o")[0]
    with pytest.raises(TargetError, match="imagined"):
        aot.load(path, parallel.address())
    with pytest.raises(TargetError, match="no object of tensorc"):
        aot.target_of(b"\x7fELF something else")
    (tmp_path / "broken.o").write_bytes(path.read_bytes()[:-40])
    with pytest.raises((TargetError, CompileError)):
        aot.load(tmp_path / "broken.o", parallel.address())


@pytest.mark.skipif(Target.parse("cpu").architecture != "x86_64", reason="looks at x86 registers")
def test_j5_an_object_for_less_uses_less(tmp_path):
    assert "zmm" not in build(programs.VECTOR, "cpu:x86-64-v3").source("asm")
    assert "ymm" in build(programs.VECTOR, "cpu:x86-64-v3").source("asm")
    assert "ymm" not in build(programs.VECTOR, "cpu:x86-64-v2").source("asm")


def test_a_saved_object_runs_in_this_process(tmp_path):
    module = build(programs.ROWS, name="f")
    loaded = aot.load(module.save(tmp_path / "f.o")[0], parallel.address())
    a = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    c = np.zeros_like(a)
    workspace = np.zeros(256, np.uint8)
    place = workspace.ctypes.data + -workspace.ctypes.data % 64
    function = module.signature.function(loaded.address("f"))
    assert function(a.ctypes.data, c.ctypes.data, 3, 4, place, 1) == 0
    np.testing.assert_allclose(c, np.exp(a) / 2, rtol=1e-5)


def coff_symbols(data):
    """The external symbols of a COFF object: defined, undefined (PE format, section 5.4)."""
    table, count = struct.unpack_from("<2I", data, 8)
    strings = table + 18 * count
    found, position = ([], []), 0
    while position < count:
        name, _, section, _, kind, auxiliary = struct.unpack_from(
            "<8sIhHBB", data, table + 18 * position
        )
        if name[:4] == b"\0\0\0\0":
            start = strings + struct.unpack("<I", name[4:])[0]
            name = data[start : data.index(b"\0", start)]
        text = name.rstrip(b"\0").decode()
        # A weak symbol (105) names its default definition, which has a name made of its own; a
        # constant is called by its value, so that a linker keeps one of equal ones.
        if kind in (2, 105) and not text.startswith((".weak.", "__real@", "__xmm@")):
            found[section == 0 and kind == 2].append(text)
        position += 1 + auxiliary
    return found


def macho_symbols(data):
    """The external symbols of a Mach-O object: defined, undefined (loader.h, nlist.h)."""
    commands, place = struct.unpack_from("<I", data, 16)[0], 32
    found = ([], [])
    for _ in range(commands):
        kind, size = struct.unpack_from("<2I", data, place)
        if kind == 2:
            table, count, strings, _ = struct.unpack_from("<4I", data, place + 8)
            for k in range(count):
                name, bits, section = struct.unpack_from("<IBB", data, table + 16 * k)
                if bits & 1:
                    start = strings + name
                    text = data[start : data.index(b"\0", start)].decode()
                    found[section == 0].append(text)
        place += size
    return found


def elf_symbols(data):
    symbols = symbols_of(data)
    return list(symbols.defined), list(symbols.undefined)


FOREIGN = [
    ("cpu:x86-64-v2;triple=x86_64-unknown-linux-gnu", b"\x7fELF\x02\x01", 18, b"\x3e", elf_symbols),
    ("cpu:generic;triple=aarch64-linux-gnu", b"\x7fELF\x02\x01", 18, b"\xb7", elf_symbols),
    ("cpu:generic;triple=riscv64-linux-gnu", b"\x7fELF\x02\x01", 18, b"\xf3", elf_symbols),
    ("cpu:x86-64;triple=x86_64-pc-windows-msvc", b"\x64\x86", 0, b"\x64", coff_symbols),
    ("cpu:apple-m1;triple=arm64-apple-macosx11.0", b"\xcf\xfa\xed\xfe", 4, b"\x0c", macho_symbols),
    ("cpu:x86-64;triple=x86_64-apple-macosx11.0", b"\xcf\xfa\xed\xfe", 4, b"\x07", macho_symbols),
    ("cpu:generic;triple=wasm32-unknown-unknown", b"\0asm\x01\0\0\0", 0, b"\0", None),
]


@pytest.mark.parametrize(("text", "magic", "place", "machine", "symbols"), FOREIGN)
@pytest.mark.parametrize("program", ["ROWS", "MATMUL"])
def test_objects_for_other_machines(tmp_path, text, magic, place, machine, symbols, program):
    module = build(getattr(programs, program), text)
    data = module.save(tmp_path / "k.o")[0].read_bytes()
    assert data.startswith(magic)
    assert data[place : place + 1] == machine
    assert aot.target_of(data) == module.target
    name = module.signature.name
    assert name.encode() in data
    if symbols is not None:
        expected = {name} | ({f"{name}_workspace_bytes", HOOK} if program == "ROWS" else set())
        defined, undefined = symbols(data)
        plain = {symbol.removeprefix("_") for symbol in defined}
        assert plain - {"fltused"} == expected
        assert undefined == []
    library = module.save(tmp_path / "k.a")[0].read_bytes()
    assert library.startswith(b"!<arch>\n")
    assert data in library
    if module.target.triple != Target.parse("cpu").triple:
        with pytest.raises(CompileError, match="save an object file and link it there"):
            module.save(tmp_path / "k.so")


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"\.o, \.obj, \.a") as caught:
        build(programs.IN_PLACE).save(tmp_path / "x.exe")
    assert caught.value.argument == "path"
    assert list(tmp_path.iterdir()) == []


def test_without_a_c_compiler_a_shared_library_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match="needs one of cc, gcc, clang"):
        build(programs.IN_PLACE).save(tmp_path / "x.so")
    assert build(programs.IN_PLACE).save(tmp_path / "x.o")[0].exists()


@pytest.mark.skipif(os.name != "posix", reason="the linker is a shell script")
def test_a_linker_that_fails_is_quoted(tmp_path, monkeypatch):
    linker = tmp_path / "cc"
    linker.write_text("#!/bin/sh\necho disk on fire >&2\nexit 1\n")
    linker.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(CompileError, match=r"could not link x\.so: disk on fire"):
        build(programs.IN_PLACE).save(tmp_path / "x.so")


@pytest.mark.parametrize(
    "path",
    [None, 5, b"x.o", "", "a\0b.o", "no/folder/x.so", "x" * 300 + ".o", "file/x.a", "d.o", "e.a"],
)
def test_a_path_that_cannot_be_written_is_refused_first(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "d.o").mkdir()
    (tmp_path / "e.h").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError) as caught:
        build(programs.IN_PLACE).save(path)
    assert caught.value.argument == "path"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_prefix_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="`prefix`: expected a string, got 5"):
        build(programs.IN_PLACE).save(tmp_path / "x.o", prefix=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".o", ".a", ".h"])
def test_any_file_name_will_do(tmp_path, suffix):
    for path in build(programs.IN_PLACE).save(tmp_path / f"größer als vierzehn{suffix}"):
        assert path.stat().st_size > 0


def test_a_prefix_and_the_header_alone(tmp_path):
    module = build(programs.IN_PLACE)
    assert module.save(tmp_path / "api.h", prefix="lib_") == (tmp_path / "api.h",)
    text = (tmp_path / "api.h").read_text()
    assert "int32_t lib_in_place(int32_t *X, int32_t by, int64_t N);" in text
    data = module.save(tmp_path / "x.o", prefix="lib_")[0].read_bytes()
    if symbols_of(data) is not None:
        assert symbols_of(data).defined == ("lib_in_place",)


# F10: names of C and its library as names of a program, the part of the header.
F10_NAMES = ["int", "double", "max", "tanh", "threadIdx", "free", "layer1.weight", "layer1_weight",
             "1234", "X", "class", "_Bool", "__x", "I", "NULL", "uint8_t", "unix", "*/ int x; /*",
             "x\ny", "é", "workspace", "workers", "", " "]  # fmt: skip


def test_f10_c_names_are_legal_distinct_and_stable():
    taken = set()
    for name in F10_NAMES:
        made = c_name(name, taken)
        assert made.isascii()
        assert made.isidentifier()
        assert made not in taken
        taken.add(made)
    assert [c_name(n) for n in ("plain", "double", "layer1.weight", "1234", "tanh")] == [
        "plain", "double_", "layer1_weight", "_1234", "tanh",
    ]  # fmt: skip
    assert [c_name(n, linked=True) for n in ("tanh", "main", "expf", HOOK, "mine")] == [
        "tanh_", "main_", "expf_", f"{HOOK}_", "mine",
    ]  # fmt: skip
    assert c_name("x", {"x", "x_2"}) == "x_3"


@needs_cc
@pytest.mark.parametrize("function", ["main", "asm", "exp", "1234", "a.b", "é", "*/", "free"])
def test_f10_headers_compile_whatever_the_names(tmp_path, function):
    sizes = (Var("int"), Var("N"), Var("*/"))
    params = tuple(Param(Buffer(name, sizes, DType.F32), "inout") for name in F10_NAMES)
    params += (Param(Var("register", DType.F64)),)
    signature = Signature(function, params, Var("N"))
    (tmp_path / "k.h").write_text(header(signature, Names.of(signature), Target.parse("cpu")))
    includes = "#include <complex.h>\n#include <tgmath.h>\n#include <stdlib.h>\n#include <string.h>"
    source = f'{includes}\n#include "k.h"\n#include "k.h"\nint unused;\n'
    (tmp_path / "k.c").write_text(source)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-c"]
    subprocess.run([CC, *flags, "k.c", "-o", "k.o"], cwd=tmp_path, check=True)
    cxx = shutil.which("c++") or shutil.which("g++")
    if cxx:
        (tmp_path / "k.cc").write_text('#include "k.h"\n#include "k.h"\nint unused;\n')
        subprocess.run([cxx, "-Wall", "-Werror", "-c", "k.cc"], cwd=tmp_path, check=True)


@needs_cc
def test_f10_a_kernel_called_main_links_into_a_program(tmp_path):
    path = build(programs.IN_PLACE, name="main").save(tmp_path / "k.o")[0]
    source = """
        #include "k.h"
        #include <stdio.h>
        int main(void) {
            int32_t x[3] = {1, 2, 3};
            if (main_(x, 10, 3)) return 1;
            printf("%d %d %d", x[0], x[1], x[2]);
            return 0;
        }
    """
    assert run_c(tmp_path, source, path) == "11 12 13"


def test_the_header(golden):
    text = (
        'def layer(A: Buffer["f16", 3, N], W: Buffer["f32", N, 4, "const", "alignment": 64],'
        ' flag: bool, gain: f32, S: Buffer["bf16", 2, N, "strides": (64, 1)],'
        ' double: Buffer["i64", N, "inout"], C: Buffer["bool", 3, "out"]):\n'
        "    for i in parallel(3):\n"
        '        T = alloc("f32", N)\n'
        "        for j in range(N):\n            T[j] = f32(A[i, j])\n"
        "        for k in range(N):\n            double[k] = i64(T[k])\n"
        "        C[i] = True\n"
    )
    func = parse(text)
    n = Var("N")
    signature = Signature(func.name, func.params, worker_bytes=n)
    target = replace(Target.parse("cpu:x86-64-v3"), cores=8)
    text = header(signature, Names.of(signature), target)
    golden.check(text.replace(__version__, "VERSION"))


def test_an_archive_is_one_that_ar_reads(tmp_path):
    made = archive("kernel.o", b"odd", ["f", "g_workspace_bytes"], bsd=False)
    assert made == archive("kernel.o", b"odd", ["f", "g_workspace_bytes"], bsd=False)
    count, first, second = struct.unpack_from(">3I", made, 68)
    assert (count, first, second) == (2, first, first)
    assert made[first : first + 10] == b"kernel.o/ "
    assert made[first + 60 :] == b"odd\n"
    ar = shutil.which("ar")
    if ar:
        (tmp_path / "x.a").write_bytes(made)
        done = subprocess.run([ar, "p", "x.a", "kernel.o"], cwd=tmp_path, capture_output=True)
        assert done.stdout == b"odd"


def test_an_archive_for_apple():
    made = archive("kernel.o", b"even", ["_f", "_g"], bsd=True)
    assert made[8:13] == b"#1/12"
    assert made[68:80] == b"__.SYMDEF\0\0\0"
    size, name_f, place, name_g, place_g, length = struct.unpack_from("<6I", made, 80)
    assert (size, name_f, name_g, length) == (16, 0, 3, 8)
    assert made[104:110] == b"_f\0_g\0"
    assert place == place_g == 112
    assert made[place : place + 5] == b"#1/12"
    assert made[place + 60 : place + 72] == b"kernel.o\0\0\0\0"
    assert (place + 72) % 8 == 0
    assert made[place + 72 :] == b"even"


def test_no_python_is_needed_where_the_object_is_used(tmp_path):
    data = build(programs.ROWS).save(tmp_path / "k.o")[0].read_bytes()
    assert b"Py" not in data.replace(b"PyPI", b"")
    assert sys.executable.encode() not in data
