"""A function's machine code and what its caller must know, made or taken from the compile cache."""

from __future__ import annotations

import json
import struct
import warnings
from dataclasses import asdict, dataclass

from tensorc import config
from tensorc.codegen.context import Check
from tensorc.codegen.jit import compile_module
from tensorc.codegen.llvm import emit
from tensorc.codegen.pipeline import Options, lower
from tensorc.dtype import DType
from tensorc.errors import CacheWarning, ParseError
from tensorc.ir.arith import TRUE
from tensorc.ir.nodes import Buffer, Expr, Func, Param, Seq, Var
from tensorc.ir.parse import parse
from tensorc.ir.print import print_expr, print_func
from tensorc.ir.verify import verify
from tensorc.runtime.abi import Signature
from tensorc.runtime.cache import CacheKey, cache_in
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Code:
    """An object file and how to call it.

    Attributes:
        object: the relocatable object file.
        symbol: the global symbol of the entry.
        signature: the C interface.
        parallel: whether it needs the parallel hook.
        checks: what result k + 1 of the entry means.
        nests: for code that measures itself, the names of its outermost nests. The entry takes a
            last pointer, to two 64-bit counters for each: ticks of the clock, and how often.
    """

    object: bytes
    symbol: str
    signature: Signature
    parallel: bool
    checks: tuple[Check, ...]
    nests: tuple[str, ...]


def compiled(func: Func, target: Target, options: Options, legal: Expr = TRUE) -> Code:
    """The code of a function, from the compile cache if it was compiled before.

    `legal` is the condition on sizes that its entry asks before anything is written.

    Raises:
        VerifyError: it is not a well-formed program.
        CompileError: the code generator or LLVM refuses it.
        LimitError: it would exceed a limit of the code generator.
        TargetError: the target is not one that LLVM knows.
    """
    store = cache_in(config.cache_dir / "compiled")
    asked = {} if legal == TRUE else {"legal": print_expr(legal)}
    key = CacheKey.of(print_func(func), target, **asked, **asdict(options))
    payload = store.get(key)
    if payload is not None:
        found = _unpacked(func, payload, legal)
        if found is not None:
            return found
        message = f"an entry of the compile cache for {func.name} is damaged; it is compiled anew"
        warnings.warn(message, CacheWarning, stacklevel=4)
    code = made(func, target, options, legal)
    store.put(key, _packed(code))
    return code


def compiled_text(text: str, target: Target) -> bytes:
    """The object file of a module of LLVM text, from the compile cache if it was compiled before.

    Raises:
        LLVMError: the text does not parse, or is not a valid module.
        TargetError: the target is not one that LLVM knows.
    """
    store = cache_in(config.cache_dir / "compiled")
    key = CacheKey.of(text, target, form="llvm")
    found = store.get(key)
    if found is None:
        found = compile_module(text, target).object_bytes()
        store.put(key, found)
    return found


def made(func: Func, target: Target, options: Options, legal: Expr = TRUE) -> Code:
    """The code of a function, made anew: as `compiled`, which keeps what is asked for again."""
    verify(func)
    kernel = emit(lower(func, target, options), legal)
    data = compile_module(kernel.text, target).object_bytes()
    workspace = kernel.shared_bytes, kernel.worker_bytes
    signature = Signature(kernel.name, kernel.params, *workspace, legal)
    return Code(data, kernel.symbol, signature, kernel.parallel, kernel.checks, kernel.profile)


# Entries of the cache: the length of a JSON text, the text, the object. ---------------------------

_LENGTH = struct.Struct("<I")


def _packed(code: Code) -> bytes:
    facts = {
        "symbol": code.symbol,
        "workspace": _workspace_text(code.signature),
        "parallel": code.parallel,
        "checks": code.checks,
        "nests": code.nests,
    }
    text = json.dumps(facts).encode()
    return _LENGTH.pack(len(text)) + text + code.object


def _unpacked(func: Func, payload: bytes, legal: Expr) -> Code | None:
    """What `_packed` packed; None for anything else."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        text, data = payload[_LENGTH.size :][:length], payload[_LENGTH.size + length :]
        match json.loads(text):
            case {
                "symbol": str(symbol),
                "workspace": str(workspace),
                "parallel": bool(parallel),
                "checks": list(checks),
                "nests": list(nests),
            }:
                (param,) = parse(workspace).params
                assert isinstance(param.value, Buffer)
                shared, worker, *_ = param.value.shape
                signature = Signature(func.name, func.params, shared, worker, legal)
                meanings = tuple(Check(*map(str, check)) for check in checks)
                return Code(data, symbol, signature, parallel, meanings, tuple(map(str, nests)))
    except (struct.error, ParseError, ValueError, TypeError, AssertionError):
        return None
    return None


def _workspace_text(signature: Signature) -> str:
    """The two expressions of the workspace's size, as the shape of a parameter."""
    sizes = tuple(Var(name) for name in signature.sizes)
    shape = (signature.shared_bytes, signature.worker_bytes, *sizes)
    return print_func(Func("workspace", (Param(Buffer("bytes", shape, DType.U8)),), Seq(())))
