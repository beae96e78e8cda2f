"""From LLVM text to machine code in this process, or to an object file for another one.

One path serves the process, the cache and ahead-of-time output: text is parsed, verified, optimised
and emitted as a relocatable object file, and a link step places the object in memory. An object out
of a cache takes the same last step.

Kernels arrive vectorised and unrolled by their schedule, so LLVM's own vectorisers and unrollers
stay off at every level of `opt`:

* "short": inline what is marked so, promote stack slots, rotate loops, tidy the control flow. On a
  register-tiled matmul this runs as fast as "full" at about half its compile time
  (`bench/levels.py`).
* "full": LLVM's O3. It also keeps in a register what an unscheduled nest accumulates in memory,
  which a schedule says with cache_write; such a nest runs several times faster than with "short".
* "none": the text as it is and the fastest instruction selection, for tests and for debugging.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from llvmlite import binding

from tensorc.codegen.elf import symbols_of
from tensorc.codegen.locks import ForkLock
from tensorc.errors import ArgumentError, CompileError, TargetError
from tensorc.target import Target

__all__ = ["CompiledModule", "LLVMError", "LoadedObject", "compile_module", "load_object"]

Optimisation = Literal["none", "short", "full"]
_NO_SYMBOLS: Mapping[str, int] = MappingProxyType({})


class LLVMError(CompileError):
    """LLVM refused a text. `line` counts from 1 and is None where LLVM does not tell it."""

    def __init__(self, reason: str, line: int | None = None, excerpt: str = ""):
        self.reason, self.line, self.excerpt = reason, line, excerpt
        where = f"line {line} of the LLVM text: " if line else "LLVM: "
        super().__init__(where + reason + (f"\n{excerpt}" if excerpt else ""))


# Two look-ups of one symbol at once would drop one of the answers, and unload the code.
_looking = ForkLock()


class LoadedObject:
    """Machine code in memory. Its addresses are valid for as long as it is referenced."""

    def __init__(self, data: bytes, symbols: Mapping[str, int]):
        self._defined = self._check(data, symbols)
        self._session = _session()
        self._library = f"tensorc.{next(_library_numbers)}"
        builder = binding.JITLibraryBuilder().add_object_img(data)
        for name, value in symbols.items():
            builder.import_symbol(name, value)
        try:
            self._tracker = builder.link(self._session, self._library)
        except RuntimeError as error:
            raise CompileError(f"the object file cannot be linked: {error}") from None
        # A lookup's answer unloads the library when it is dropped, so each is kept.
        self._found: dict[str, Any] = {}

    @staticmethod
    def _check(data: bytes, symbols: Mapping[str, int]) -> tuple[str, ...]:
        """The symbols that `data` defines, once it is known that it needs no others than given."""
        table = symbols_of(data)
        if table is None:
            return ()
        missing = sorted(set(table.undefined) - set(symbols))
        if missing:
            raise CompileError(
                f"the code needs {', '.join(missing)}, which nobody provides; provided here: "
                f"{', '.join(sorted(symbols))}"
            )
        return table.defined

    def address(self, symbol: str) -> int:
        """The address of a function or variable.

        Raises:
            CompileError: the object defines no such symbol.
        """
        # Without the lock first: a fork in one thread must not find another in it at every call.
        if symbol not in self._found:
            with _looking:
                if symbol not in self._found:
                    self._found[symbol] = self._looked_up(symbol)
        address: int = self._found[symbol][symbol]
        return address

    def _looked_up(self, symbol: str) -> Any:
        try:
            return self._session.lookup(self._library, symbol)
        except RuntimeError as error:
            legal = f"; it defines {', '.join(self._defined)}" if self._defined else ""
            raise CompileError(f"no symbol {symbol!r} in the object{legal} ({error})") from None


def load_object(data: bytes, symbols: Mapping[str, int] = _NO_SYMBOLS) -> LoadedObject:
    """Places an object file for this machine in memory; LLVM optimises nothing here.

    `symbols` gives the addresses of the external symbols that the object uses, such as
    `tensorc_parallel_for`. Nothing else is resolved, except `memcpy`, `memmove` and `memset`, calls
    of which LLVM makes on its own.

    The bytes must be what a compiler wrote: LLVM ends the process over an object file that was
    changed since, so bytes out of a file are to be checked first, as the compile cache does.

    Raises:
        CompileError: the bytes are cut or no object file, or use a symbol that is not given.
    """
    return LoadedObject(data, {**_memory_functions(), **symbols})


class CompiledModule:
    """An optimised module: its text, its assembly, its object file, and its code in memory.

    Addresses are valid for as long as the module is referenced.
    """

    def __init__(self, module: Any, target: Target, level: int, symbols: Mapping[str, int]):
        self.target = target
        self._level = level
        self._symbols = symbols
        # Emission rewrites the module, so what is shown later needs a copy from before.
        self._bitcode: bytes = module.as_bitcode()
        self._object: bytes = _machine(target, level).emit_object(module)
        self._loaded: LoadedObject | None = None

    def optimised_text(self) -> str:
        """The LLVM text after optimisation."""
        with binding.create_context() as context, self._reparsed(context) as module:
            return str(module)

    def assembly(self) -> str:
        """The target's assembly text."""
        with binding.create_context() as context, self._reparsed(context) as module:
            text: str = _machine(self.target, self._level).emit_assembly(module)
            return text

    def object_bytes(self) -> bytes:
        """The relocatable, position-independent object file."""
        return self._object

    def address(self, symbol: str) -> int:
        """The address of a function or variable in this process.

        Raises:
            TargetError: this machine cannot run code for the module's target.
            CompileError: the module defines no such symbol, or uses one that nobody provides.
        """
        if self._loaded is None:
            check_runs_here(self.target)
            self._loaded = load_object(self._object, self._symbols)
        return self._loaded.address(symbol)

    def _reparsed(self, context: Any) -> Any:
        return binding.parse_bitcode(self._bitcode, context)


def compile_module(
    text: str,
    target: Target,
    *,
    opt: Optimisation = "short",
    symbols: Mapping[str, int] = _NO_SYMBOLS,
) -> CompiledModule:
    """Compiles LLVM text. The target's triple and data layout replace the text's own.

    `symbols` is what `load_object` takes, for `CompiledModule.address`.

    Raises:
        LLVMError: the text does not parse, or is not a valid module.
        TargetError: the target is not a CPU that LLVM knows.
        ArgumentError: there is no such level of optimisation.
    """
    if opt not in get_args(Optimisation):
        legal = ", ".join(get_args(Optimisation))
        raise ArgumentError("opt", f"there is no level {opt!r}; legal here: {legal}")
    level = 0 if opt == "none" else 3
    machine = _machine(target, level)
    # Closed in this order: a module that outlives its context, which a garbage collection can bring
    # about, is freed memory.
    with binding.create_context() as context, _parsed(text, context) as module:
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        try:
            module.verify()
        except RuntimeError as error:
            raise _verifier_error(str(error), text) from None
        if opt != "none":
            _optimise(module, machine, opt)
        return CompiledModule(module, target, level, symbols)


def check_runs_here(target: Target) -> None:
    """Raises TargetError, which names what is missing, if this machine cannot run the target."""
    here = Target.parse("cpu")
    missing = list(target.missing_on(here))
    theirs, ours = (binding.get_object_format(t.triple) for t in (target, here))
    if not missing and theirs != ours:
        missing.append(f"{theirs} object files")
    if missing:
        raise TargetError(
            f"code for {target.cpu} ({target.triple}) cannot run here: this machine, {here.cpu} "
            f"({here.triple}), has no {', '.join(missing)}"
        )


# --- LLVM -------------------------------------------------------------------------------------

_library_numbers = itertools.count()


@cache
def _session() -> Any:
    """The linker. Each object is a library of its own in it."""
    _initialise()
    return binding.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@cache
def _memory_functions() -> dict[str, int]:
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    names = ("memcpy", "memmove", "memset")
    found = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names}
    return {name: address for name, address in found.items() if address is not None}


@cache
def _initialise() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    # The object loader parses sections with the native target's tables.
    binding.initialize_native_asmparser()


@lru_cache(maxsize=16)
def _machine(target: Target, level: int) -> Any:
    """LLVM's code generator for a target; `level` 0 is the fastest to run, 3 the best."""
    _initialise()
    if target.kind != "cpu":
        raise TargetError(f"LLVM generates code for CPUs, not for {target.describe()}")
    wasm = target.architecture == "wasm32"
    try:
        return binding.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu,
            features=target.llvm_features,
            opt=level,
            # WebAssembly has position-independent code only for dynamic linking.
            reloc="static" if wasm else "pic",
            codemodel="default",
            abiname="lp64d" if target.architecture == "riscv64" else "",
        )
    except RuntimeError as error:
        raise TargetError(f"LLVM has no code generator for {target.triple!r}: {error}") from None


def _optimise(module: Any, machine: Any, opt: Optimisation) -> None:
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    options.slp_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    if opt == "full":
        builder.getModulePassManager().run(module, builder)
        return
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


# --- errors -----------------------------------------------------------------------------------

_POSITION = re.compile(r"<string>:(\d+):(\d+): error: (.*)")
_CONTEXT_LINES = 2


def _parsed(text: str, context: Any) -> Any:
    try:
        return binding.parse_assembly(text, context)
    except RuntimeError as error:
        found = _POSITION.search(str(error))
        if found is None:
            raise LLVMError(str(error)) from None
        line, column = int(found[1]), int(found[2])
        raise LLVMError(found[3], line, _excerpt(text, line, column)) from None


def _verifier_error(message: str, text: str) -> LLVMError:
    """LLVM's verifier prints the instruction, not its place: look for it in the text."""
    reason, *instructions = message.splitlines()
    wanted = {" ".join(instruction.split()) for instruction in instructions} - {""}
    for number, line in enumerate(text.splitlines(), start=1):
        if " ".join(line.split()) in wanted:
            return LLVMError(reason, number, _excerpt(text, number))
    return LLVMError(message.strip())


def _excerpt(text: str, line: int, column: int | None = None) -> str:
    """The lines around `line` with their numbers, that line marked, its column underlined."""
    rows = []
    lines = text.splitlines()
    first = max(1, line - _CONTEXT_LINES)
    for number in range(first, min(len(lines), line + _CONTEXT_LINES) + 1):
        mark = ">" if number == line else " "
        rows.append(f"{mark}{number:5d} | {lines[number - 1]}")
        if number == line and column is not None:
            rows.append(" " * (len(rows[-1]) - len(lines[number - 1]) + column - 1) + "^")
    return "\n".join(rows)
