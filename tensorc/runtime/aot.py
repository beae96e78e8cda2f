"""Kernels as files for programs without Python: objects, static and shared libraries, headers.

An object defines two functions, the kernel and `<kernel>_workspace_bytes` if it takes a workspace,
and a weak serial `tensorc_parallel_for` if it has parallel loops. It needs nothing from outside. It
carries a text that names its target.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from llvmlite import binding

from tensorc.codegen.hook import HOOK, SERIAL_HOOK
from tensorc.codegen.jit import (
    CompiledModule,
    LoadedObject,
    check_runs_here,
    compile_module,
    load_object,
)
from tensorc.codegen.llvm import Kernel
from tensorc.errors import ArgumentError, CompileError, TargetError
from tensorc.ir.nodes import Binary, Const, Expr, Var
from tensorc.runtime.abi import Signature
from tensorc.runtime.archive import archive
from tensorc.runtime.header import Names
from tensorc.target import Target

OBJECT, STATIC, SHARED, HEADER = "object", "static library", "shared library", "header"
KINDS = {
    ".o": OBJECT,
    ".obj": OBJECT,
    ".a": STATIC,
    ".lib": STATIC,
    ".so": SHARED,
    ".dylib": SHARED,
    ".dll": SHARED,
    ".h": HEADER,
}
_C_COMPILERS = ("cc", "gcc", "clang")
_LINK_SECONDS = 120
_NOTE = b"tensorc-target:"
# What every object with floats refers to there; the C library's definition gives way to this one.
_MSVC_FLOATS = "$_fltused = comdat any\n@_fltused = weak_odr global i32 0, comdat\n"
_SECTION, _MACHO_SECTION = ".tensorc", "__TEXT,__tensorc"


def checked_path(path: object) -> Path:
    """The path of a file that can be made, of a kind that we can write, with its header beside it.

    Raises:
        ArgumentError: it is no path, or its folder is missing, or a folder itself.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ArgumentError("path", f"expected a path as a string or a Path, got {path!r:.80}")
    made = Path(path)
    kind_of(made)
    for place in (made, made.with_suffix(".h")):
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            if not place.parent.is_dir():
                raise ArgumentError("path", f"there is no folder {str(place.parent)!r}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError("path", f"{path!r:.80} names no file: {reason}") from None
        else:
            if stat.S_ISDIR(status.st_mode):
                raise ArgumentError("path", f"{str(place)!r} is a folder")
    return made


def kind_of(path: Path) -> str:
    """What a file of this name is to hold.

    Raises:
        ArgumentError: its suffix says nothing that we can write.
    """
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        legal = ", ".join(KINDS)
        raise ArgumentError("path", f"{path.name!r} does not end in one of {legal}")
    return kind


def write(
    path: Path, header: str, kernel: Kernel, signature: Signature, names: Names
) -> tuple[Path, ...]:
    """Write what the suffix of `path` asks for, with the header beside it; gives the files' paths.

    Raises:
        ArgumentError: the suffix is unknown.
        CompileError: a shared library cannot be linked on this machine.
        OSError: a file cannot be written.
    """
    kind = kind_of(path)
    beside = path.with_suffix(".h")
    if kind != HEADER:
        target = kernel.target
        code = exported(kernel, signature, names).object_bytes()
        if kind == STATIC:
            bsd = binding.get_object_format(target.triple) == "MachO"
            symbols = [("_" if bsd else "") + name for name in _defined(kernel, signature, names)]
            code = archive(f"{names.function}.o", code, symbols, bsd=bsd)
        if kind == SHARED:
            _link(path, code, target)
        else:
            path.write_bytes(code)
    beside.write_text(header, encoding="ascii")
    return (beside,) if kind == HEADER else (path, beside)


def target_of(data: bytes) -> Target:
    """The target that is written in an object or a library of ours.

    Raises:
        TargetError: there is none.
    """
    start = data.find(_NOTE)
    if start < 0:
        raise TargetError("these bytes are no object of tensorc: they name no target")
    start += len(_NOTE)
    return Target.from_json(data[start : data.index(b"\0", start)].decode("ascii", "replace"))


def load(path: str | os.PathLike[str], hook: int) -> LoadedObject:
    """Places a saved object file in this process; `hook` is the address of the parallel hook.

    Raises:
        TargetError: the file is no object of ours, or its code needs what this machine lacks.
        CompileError: the object is damaged.
    """
    data = Path(path).read_bytes()
    check_runs_here(target_of(data))
    return load_object(data, {HOOK: hook})


# The object -----------------------------------------------------------------------------------


def exported(kernel: Kernel, signature: Signature, names: Names) -> CompiledModule:
    """The kernel under the name of its header, with all that it needs to stand alone."""
    parts = [_note_text(names.function, kernel.target)]
    if kernel.parallel:
        parts.append(SERIAL_HOOK)
    if signature.scratch:
        parts.append(_workspace_text(signature, names, kernel.target))
    if kernel.target.triple.endswith("msvc"):
        parts.append(_MSVC_FLOATS)
    # Closed in this order: a module must not outlive its context.
    with (
        binding.create_context() as context,
        binding.parse_assembly(kernel.text, context) as module,
    ):
        module.get_function(kernel.symbol).name = names.function
        for part in parts:
            module.link_in(binding.parse_assembly(part, context))
        text = str(module)
    return compile_module(text, kernel.target)


def _defined(kernel: Kernel, signature: Signature, names: Names) -> Iterator[str]:
    """The global symbols of the object."""
    yield names.function
    if signature.scratch:
        yield names.workspace_bytes
    if kernel.parallel:
        yield HOOK


def _note_text(function: str, target: Target) -> str:
    """The target as a private string in a section of its own, which the linker keeps."""
    note = _NOTE + target.to_json().encode("ascii") + b"\0"
    text = "".join(f"\\{byte:02X}" for byte in note)
    name = f"@{function}.target"
    macho = binding.get_object_format(target.triple) == "MachO"
    section = _MACHO_SECTION if macho else _SECTION
    return (
        f'{name} = internal constant [{len(note)} x i8] c"{text}", section "{section}"\n'
        f'@llvm.used = appending global [1 x ptr] [ptr {name}], section "llvm.metadata"\n'
    )


def _workspace_text(signature: Signature, names: Names, target: Target) -> str:
    """The function size_t f_workspace_bytes([int64_t N, ...,] int32_t workers)."""
    writer = _Sizes(dict(zip(signature.sizes, names.sizes, strict=True)))
    shared, worker = writer.value(signature.shared_bytes), writer.value(signature.worker_bytes)
    count = writer.result("sext i32 %workers to i64")
    total = writer.result(f"mul i64 {count}, {worker}")
    total = writer.result(f"add i64 {total}, {shared}")
    total = writer.result(f"call i64 @llvm.smax.i64(i64 {total}, i64 0)")
    width = 32 if target.architecture in ("wasm32", "i386", "arm") else 64
    if width < 64:
        total = writer.result(f"trunc i64 {total} to i{width}")
    arguments = [f"i64 %{name}" for name in names.workspace_sizes] + ["i32 %workers"]
    return (
        "declare i64 @llvm.smax.i64(i64, i64)\ndeclare i64 @llvm.smin.i64(i64, i64)\n"
        f"define i{width} @{names.workspace_bytes}({', '.join(arguments)}) nounwind {{\n"
        + "".join(f"  {line}\n" for line in writer.lines)
        + f"  ret i{width} {total}\n}}\n"
    )


class _Sizes:
    """LLVM text of index expressions over the sizes; divisors are positive numbers."""

    def __init__(self, names: dict[str, str]):
        self._names = names
        self.lines: list[str] = []

    def result(self, instruction: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def value(self, expr: Expr) -> str:
        match expr:
            case Const(value=value):
                return str(int(value))
            case Var(name=name):
                return f"%{self._names[name]}"
            case Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
                return self.result(f"{op} i64 {self.value(a)}, {self.value(b)}")
            case Binary(op="min" | "max" as op, a=a, b=b):
                pair = f"i64 {self.value(a)}, i64 {self.value(b)}"
                return self.result(f"call i64 @llvm.s{op}.i64({pair})")
            case Binary(op="floordiv", a=a, b=Const(value=divisor)) if divisor > 0:
                return self._floordiv(self.value(a), int(divisor))
            case Binary(op="floormod", a=a, b=Const(value=divisor)) if divisor > 0:
                dividend = self.value(a)
                quotient = self._floordiv(dividend, int(divisor))
                whole = self.result(f"mul i64 {quotient}, {int(divisor)}")
                return self.result(f"sub i64 {dividend}, {whole}")
        raise CompileError(f"the size of the workspace is not an expression over sizes: {expr!r}")

    def _floordiv(self, dividend: str, divisor: int) -> str:
        quotient = self.result(f"sdiv i64 {dividend}, {divisor}")
        rest = self.result(f"srem i64 {dividend}, {divisor}")
        # The sign bit of the rest, as 0 or -1: LLVM's quotient is rounded to zero.
        return self.result(f"add i64 {quotient}, {self.result(f'ashr i64 {rest}, 63')}")


# Linking ----------------------------------------------------------------------------------------


def _link(path: Path, code: bytes, target: Target) -> None:
    here = Target.parse("cpu")
    if binding.get_object_format(target.triple) != binding.get_object_format(here.triple) or (
        target.architecture != here.architecture
    ):
        raise CompileError(
            f"a shared library for {target.triple} cannot be linked on this machine "
            f"({here.triple}): save an object file and link it there"
        )
    compiler = next(filter(None, map(shutil.which, _C_COMPILERS)), None)
    if compiler is None:
        raise CompileError(
            f"a shared library needs one of {', '.join(_C_COMPILERS)} as its linker, and none was "
            "found: save an object file or a static library instead"
        )
    # The library stands alone, and the linker proves it.
    flags = ["-shared", "-nostdlib"]
    flags += ["-Wl,-z,defs"] if binding.get_object_format(here.triple) == "ELF" else []
    with tempfile.TemporaryDirectory(prefix="tensorc-") as folder:
        member = Path(folder) / "kernel.o"
        member.write_bytes(code)
        command = [compiler, *flags, "-o", os.fspath(path.absolute()), os.fspath(member)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LINK_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{compiler} could not be run: {error}") from None
    if done.returncode != 0:
        raise CompileError(f"{compiler} could not link {path.name}: {done.stderr.strip()}")
