"""A function's machine code and what its caller must know, made or taken from the compile cache."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from tensorc.codegen.jit import compile_module
from tensorc.codegen.llvm import Kernel, emit
from tensorc.codegen.pipeline import Options, lower
from tensorc.dtype import DType
from tensorc.errors import ParseError
from tensorc.ir.nodes import Buffer, Func, Param, Seq, Var
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.runtime.abi import Signature
from tensorc.target import Target


class Check(NamedTuple):
    """A run-time check: the statement, the buffer (or what else it is of), and what it asks."""

    statement: str
    buffer: str
    what: str


@dataclass(frozen=True, slots=True)
class Code:
    """An object file and how to call it.

    Attributes:
        object: the relocatable object file.
        symbol: the global symbol of the entry.
        signature: the C interface.
        parallel: whether it needs the parallel hook.
        checks: what result k + 1 of the entry means.
    """

    object: bytes
    symbol: str
    signature: Signature
    parallel: bool
    checks: tuple[Check, ...]


def make(func: Func, target: Target, options: Options) -> Code:
    """Compile a function.

    Raises:
        VerifyError: it is not a well-formed program.
        CompileError: the code generator or LLVM refuses it.
        LimitError: it would exceed a limit of the code generator.
        TargetError: the target is not one that LLVM knows.
    """
    verify(func)
    kernel = emit(lower(func, target, options))
    data = compile_module(kernel.text, target).object_bytes()
    return Code(data, kernel.symbol, signature_of(kernel), kernel.parallel, ())


def signature_of(kernel: Kernel) -> Signature:
    return Signature(kernel.name, kernel.params, kernel.shared_bytes, kernel.worker_bytes)


# The cache holds objects and text. -----------------------------------------------------------


def metadata_of(code: Code) -> str:
    """All of `code` but the object, as JSON."""
    return json.dumps(
        {
            "symbol": code.symbol,
            "workspace": _workspace_text(code.signature),
            "parallel": code.parallel,
            "checks": code.checks,
        }
    )


def code_from(func: Func, data: bytes, metadata: str) -> Code | None:
    """What `metadata_of` described; None if the text is damaged."""
    try:
        match json.loads(metadata):
            case {
                "symbol": str(symbol),
                "workspace": str(workspace),
                "parallel": bool(parallel),
                "checks": list(checks),
            }:
                # The workspace's size is an expression, written as the shape of a parameter.
                (param,) = parse(workspace).params
                shared, worker, *_ = param.value.shape
                signature = Signature(func.name, func.params, shared, worker)
                return Code(
                    data, symbol, signature, parallel, tuple(Check(*map(str, c)) for c in checks)
                )
    except (ParseError, ValueError, TypeError, AttributeError):
        return None
    return None


def _workspace_text(signature: Signature) -> str:
    sizes = tuple(Var(name) for name in signature.sizes)
    shape = (signature.shared_bytes, signature.worker_bytes, *sizes)
    return print_func(Func("workspace", (Param(Buffer("bytes", shape, DType.U8)),), Seq(())))
