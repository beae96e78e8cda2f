"""The C header of a kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc import __version__
from tensorc.codegen.cname import c_name
from tensorc.codegen.hook import HOOK
from tensorc.dtype import DType
from tensorc.ir.nodes import Buffer, Param, Var
from tensorc.runtime.abi import Signature, shape_text, symbols, writes
from tensorc.target import Target

# f16 and bf16 have no portable type in C: they are passed as their bits.
_C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "uint8_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U32: "uint32_t",
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.INDEX: "int64_t",
}
_ELEMENTS = {
    DType.BOOL: "a byte of 0 or 1",
    DType.F16: "the bits of an IEEE half",
    DType.BF16: "the bits of a bfloat16",
}
_WIDTH = 100
_MODES = {
    "in": "read",
    "const": "read; the same at every call",
    "out": "written",
    "inout": "read and written",
}


@dataclass(frozen=True, slots=True)
class Names:
    """What a kernel and its arguments are called in C, in the order of the C parameters.

    `workspace_sizes` are the sizes that `<function>_workspace_bytes` takes: all of them, or none
    when the workspace depends on none.
    """

    function: str
    arguments: tuple[str, ...]
    sizes: tuple[str, ...]
    workspace_sizes: tuple[str, ...]

    @property
    def workspace_bytes(self) -> str:
        return f"{self.function}_workspace_bytes"

    @classmethod
    def of(cls, signature: Signature, prefix: str = "") -> Names:
        # Taken from the start: the names that the interface itself brings.
        taken = {"workspace", "workers"}
        made = []
        for name in (*(param.name for param in signature.params), *signature.sizes):
            made.append(c_name(name, taken))
            taken.add(made[-1])
        count = len(signature.params)
        function = c_name(prefix + signature.name, linked=True)
        needs = symbols(signature.shared_bytes) + symbols(signature.worker_bytes)
        sizes = tuple(made[count:])
        return cls(function, tuple(made[:count]), sizes, sizes if needs else ())


def header(
    signature: Signature,
    names: Names,
    target: Target,
    failures: Sequence[str] = (),
    *,
    parallel: bool = False,
) -> str:
    """The text of the header; `failures` says what the results 1, 2, ... mean, `parallel` whether
    the kernel calls the hook of parallel loops."""
    lines = _lines(signature, names, target, failures, parallel)
    return "".join(f"{line}\n" for line in lines)


def _lines(
    signature: Signature, names: Names, target: Target, failures: Sequence[str], parallel: bool
) -> Iterator[str]:
    guard = f"TENSORC_{names.function.upper()}_H"
    needed = " ".join(name for name in target.features if not name.startswith("-"))
    yield "/*"
    yield from _wrapped(str(signature))
    yield " *"
    yield from _wrapped(f"Made by tensorc {__version__} for {target.describe()}.")
    if needed:
        yield from _wrapped(f"It needs a processor that has all of {needed}.")
    yield " */"
    yield f"#ifndef {guard}"
    yield f"#define {guard}"
    yield ""
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield ""
    yield "#ifdef __cplusplus"
    yield 'extern "C" {'
    yield "#endif"
    yield ""
    yield from _documentation(signature, names, failures)
    parameters = [
        _declaration(p, n) for p, n in zip(signature.params, names.arguments, strict=True)
    ]
    parameters += [f"int64_t {name}" for name in names.sizes]
    parameters += ["void *workspace", "int32_t workers"] if signature.scratch else []
    yield from _declared(f"int32_t {names.function}", parameters)
    if signature.scratch:
        yield ""
        yield "/* The bytes of workspace for up to this many workers. */"
        arguments = [f"int64_t {name}" for name in names.workspace_sizes] + ["int32_t workers"]
        yield from _declared(f"size_t {names.workspace_bytes}", arguments)
    if parallel:
        yield from _hook(signature)
    yield ""
    yield "#ifdef __cplusplus"
    yield "}"
    yield "#endif"
    yield ""
    yield f"#endif /* {guard} */"


def _documentation(signature: Signature, names: Names, failures: Sequence[str]) -> Iterator[str]:
    """What a caller must guarantee: nothing of this is checked in C."""
    yield "/*"
    for param, name in zip(signature.params, names.arguments, strict=True):
        was = "" if name == param.name else f" (`{_comment(param.name)}`)"
        yield f" * {name}{was}: {_meaning(param)}"
    for size, name in zip(signature.sizes, names.sizes, strict=True):
        was = "" if name == size else f" (`{_comment(size)}`)"
        yield f" * {name}{was}: the size of that name in the shapes, at least 0"
    if signature.scratch:
        size = f"{names.workspace_bytes}({', '.join([*names.workspace_sizes, 'workers'])})"
        yield f" * workspace: {size} bytes, aligned to 64, used by one call at a time"
        yield " * workers: workers that the workspace is for, at least 1"
    if any(writes(param) for param in signature.params):
        yield " * An array that is written overlaps no other."
    yield " * Returns 0, or the number of a failed check:" if failures else " * Returns 0."
    for number, failure in enumerate(failures, start=1):
        yield f" *   {number}: {_comment(failure)}"
    yield " */"


def _hook(signature: Signature) -> Iterator[str]:
    """What a program that brings threads of its own has to define."""
    bound = " and below the `workers` of the call" if signature.scratch else ""
    yield ""
    yield "/*"
    yield from _wrapped(
        "Its parallel loops call this function, here a serial loop that any other definition "
        "replaces; define it to use threads of your own:"
    )
    yield " *"
    yield f" * int32_t {HOOK}("
    yield " *     int32_t (*fn)(void *ctx, int64_t i, int32_t worker), void *ctx, int64_t n);"
    yield " *"
    yield from _wrapped(
        "It calls fn(ctx, i, worker) once for each i from 0 to n - 1, in any order. Calls at the "
        f"same time have different workers, all at least 0{bound}. It returns 0 when all of these "
        "did, else the result of the first i whose result is not 0; calls for a later i may then "
        "be left out."
    )
    yield " */"


def _meaning(param: Param) -> str:
    value = param.value
    note = _ELEMENTS.get(value.dtype)
    if isinstance(value, Var):
        return f"{value.dtype}, a scalar{f'; {note}' if note else ''}"
    shape = _comment(shape_text(value))
    layout = "row-major" if value.strides is None else f"strides ({_joined(value)})"
    alignment = f", aligned to {value.alignment} bytes" if value.alignment else ""
    return (
        f"{value.dtype}[{shape}], {layout}{alignment}, {_MODES[param.mode]}"
        f"{f'; {note}' if note else ''}"
    )


def _joined(buffer: Buffer) -> str:
    return ", ".join(map(str, buffer.strides or ()))


def _declaration(param: Param, name: str) -> str:
    kind = _C_TYPES[param.value.dtype]
    if isinstance(param.value, Var):
        return f"{kind} {name}"
    return f"{'' if writes(param) else 'const '}{kind} *{name}"


def _declared(start: str, parameters: list[str]) -> Iterator[str]:
    """A function's declaration, on one line if it fits."""
    line = f"{start}({', '.join(parameters) or 'void'});"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"{start}("
    yield from (f"    {parameter}," for parameter in parameters[:-1])
    yield f"    {parameters[-1]});"


def _wrapped(text: str) -> Iterator[str]:
    lines = textwrap.wrap(_comment(text), _WIDTH - 3, break_on_hyphens=False)
    return (f" * {line}" for line in lines)


def _comment(text: str) -> str:
    """`text` fit to stand within a comment of C, on one line, in ASCII."""
    plain = text.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    return plain.replace("*/", "* /").replace("/*", "/ *")
