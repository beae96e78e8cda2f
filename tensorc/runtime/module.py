"""Compiled kernels that can be called, inspected, timed and saved."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, NoReturn, Protocol

import numpy as np

from tensorc.analysis.bounds import check_bounds
from tensorc.analysis.effects import index_scalars, sizes
from tensorc.analysis.legal_sizes import first_outside, legal_sizes
from tensorc.codegen.context import Check
from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import (
    LoadedObject,
    check_runs_here,
    compile_module,
    load_object,
)
from tensorc.codegen.llvm import emit
from tensorc.codegen.locks import ForkLock
from tensorc.codegen.pipeline import Lowered, Options, lower
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, TensorcError
from tensorc.ir.arith import TRUE
from tensorc.ir.depth import within_depth
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Buffer, Expr, Func, Var
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.walk import replace, variables
from tensorc.ir.words import counted, kind_of
from tensorc.runtime import aot, parallel
from tensorc.runtime.abi import Signature, alignment_of, extents
from tensorc.runtime.array import aligned_bytes, empty, numpy_dtype, of_storage, view
from tensorc.runtime.code import compiled
from tensorc.runtime.entry import Call, Refusal, make_entry
from tensorc.runtime.failures import RuntimeCheckError, accesses_text, failure_text
from tensorc.runtime.header import Names, header
from tensorc.runtime.packing import Packed, packing
from tensorc.runtime.profile import Profile, measured
from tensorc.runtime.work import Values
from tensorc.target import Target

__all__ = ["Module", "RuntimeCheckError", "build"]

Array = np.ndarray[Any, Any]
ALIGNMENT = 64


class Scheduled(Protocol):
    """What `build` takes beside a `Func`: a schedule."""

    @property
    def func(self) -> Func: ...

    @property
    def target(self) -> Target: ...


@within_depth("the program to be built")
def build(
    what: Func | Scheduled,
    target: str | Target | None = None,
    *,
    checks: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Module:
    """Compile a function or a schedule.

    A function that was compiled before, for the same target and with the same options, comes from
    the compile cache, in another process too.

    Args:
        what: a `Func`, or an object with a `func` and a `target`, such as a `Schedule`.
        target: the machine to compile for, by default that of `what`, else this one.
        checks: check bounds, initialisation and index overflow at run time.
        name: a name for the compiled function in place of its own.
        device: for a cuda target, where it runs: "cupy" (the default) is a GPU through CuPy,
            "emulated" the CPU; or a `tensorc.runtime.device.Device` with a method `wrap`.

    Raises:
        ArgumentError: `what` is nothing that can be compiled, or there is no such device.
        TargetError: the target is not understood, or is not a CPU that LLVM knows.
        VerifyError: the function is not a well-formed program.
        CompileError: the code generator or LLVM refuses the function.
        LimitError: the function would exceed a limit of the code generator.
    """
    func = what if isinstance(what, Func) else getattr(what, "func", None)
    if not isinstance(func, Func):
        reason = f"it is {kind_of(what)}; needed a Func or a Schedule"
        raise ArgumentError("what", reason)
    if isinstance(what, Func) and not checks:
        verify(what)
        check_bounds(what)
    wanted = target if target is not None else getattr(what, "target", "cpu")
    if name is not None:
        if type(name) is not str or not name:
            raise ArgumentError("name", f"needed a name for the function, got {name!r:.80}")
        func = replace(func, name=name)
    packs = () if isinstance(what, Func) else getattr(what, "packs", ())
    source = func if isinstance(what, Func) else getattr(what, "source", func)
    machine, options = Target.parse(wanted), Options(checks=checks)
    if machine.kind == "cuda":
        from tensorc.runtime.cuda import CudaModule

        place = "cupy" if device is None else device
        return CudaModule(func, machine, options, packs, place, source)
    if device is not None:
        reason = f"code for {machine.kind} runs in this process; a device is for cuda targets"
        raise ArgumentError("device", reason)
    return Module(func, machine, options, packs, source)


class Module:
    """A compiled function.

    Call it with all parameters in order, outputs included: arrays of NumPy, torch or anything with
    DLPack, `__array_interface__` or the buffer protocol, and numbers. Sizes follow from the shapes.
    Nothing is copied. What does not fit is refused by an ArgumentError before anything is touched.
    A torch tensor that requires gradients is read as if detached, and may not be written.

    Calls from several threads run at the same time; the interpreter lock is free meanwhile.

    Where a schedule changed the layout of a constant, a call takes the constant as it was declared
    and packs it when it sees it for the first time; a saved object takes it packed, see `pack`.

    Sizes for which the program, `source` before its schedule, would leave an array are refused,
    too, as far as that is affine; see `tensorc.analysis.legal_sizes`.
    """

    def __init__(
        self,
        func: Func,
        target: Target,
        options: Options,
        packs: Sequence[tuple[str, Func]] = (),
        source: Func | None = None,
    ):
        self.func, self.target, self._options = func, target, options
        self._source = func if source is None else source
        self._packs = tuple(packs)
        self._packed = {
            name: Packed([packer(f, target) for n, f in packs if n == name]) for name in dict(packs)
        }
        self._code = compiled(func, target, options, self._legal())
        self._loaded: LoadedObject | None = None
        self._loading = ForkLock()
        self._entry = make_entry(self.signature, self._code.parallel, self._outside)
        self._call: Call = self._first_call

    def _legal(self) -> Expr:
        """The condition on sizes that the entry asks. Checked code asks at each access instead."""
        if self._options.checks:
            return TRUE
        legal = legal_sizes(self._source)
        known = {*Signature(self.func.name, self.func.params).sizes, *index_scalars(self.func)}
        # A size that only the former layout of a constant had is known to no caller of the code.
        return legal if variables(legal) <= known else legal_sizes(self.func)

    def _outside(self, values: Mapping[str, int]) -> str:
        known = {*sizes(self._source), *index_scalars(self._source)}
        return first_outside(self._source if known <= values.keys() else self.func, values)

    def __call__(self, *arguments: object, **named: Never) -> None:
        """Run the kernel. There are no arguments by name.

        Raises:
            ArgumentError: an argument does not fit.
            TargetError: this machine cannot run the code.
            RuntimeCheckError: a run-time check failed (only with checks=True).
            LimitError: a workspace or the threads could not be had.
        """
        if named:
            self._refuse_names(named)
        self._call(*arguments)

    def _refuse_names(self, named: Mapping[str, object], *, outputs: bool = True) -> NoReturn:
        names = [param.name for param in self.signature.params if outputs or param.mode != "out"]
        reason = f"arguments have no names but an order: {', '.join(names)}"
        raise ArgumentError(next(iter(named)), reason)

    def _first_call(self, *arguments: object) -> None:
        call = self._bound(self.signature.function(self.address))
        names = [param.name for param in self.signature.params]
        places = {names.index(name): packed for name, packed in self._packed.items()}
        self._call = packing(call, places) if places else call
        self._call(*arguments)

    def pack(self, name: str, array: object) -> Array:
        """A constant in the layout in which the kernel, and a saved object, reads it.

        Raises:
            ArgumentError: the schedule changed no layout of this name, the array does not fit, or
                it is of bf16 and NumPy lacks that.
        """
        if not isinstance(name, str):
            raise ArgumentError("name", f"needed the name of a constant, got {name!r:.80}")
        if name not in self._packed:
            legal = ", ".join(self._packed) or "none"
            raise ArgumentError(name, f"its layout is as declared; packed are: {legal}")
        packed = self._packed[name](array)
        if isinstance(packed, np.ndarray):
            return packed
        bits: Array = packed.owner
        return bits.view(numpy_dtype(DType.BF16, name))

    def fill(self, *inputs: object, **named: Never) -> Array:
        """Like `run`, for one output, which is in storage form: of bf16 the bits, as uint16.

        Raises:
            ArgumentError: as `run`; or there is not one output.
        """
        arguments = self._arguments(inputs, named)
        outputs = [p.value for p in self.signature.params if p.mode == "out"]
        if len(outputs) != 1:
            names = ", ".join(output.name for output in outputs) or "none"
            raise ArgumentError("outputs", f"`fill` makes one, {self.signature.name} has: {names}")
        (output,) = outputs
        assert isinstance(output, Buffer)
        shape, element = _shape(output, self._sizes(arguments)), STORAGE[output.dtype]
        size = math.prod(shape) * element.itemsize
        made = aligned_bytes(size, max(alignment_of(output), ALIGNMENT))
        bits: Array = made.view(element).reshape(shape)
        arguments[output.name] = of_storage(bits, output.dtype)
        self(*(arguments[param.name] for param in self.signature.params))
        return bits

    def _bound(self, function: Callable[..., int]) -> Call:
        """The entry check in front of a C function."""
        workspaces = Workspaces(self._code.parallel)
        return self._entry.bind(function, self._failure, parallel.prepare, workspaces)

    def run(self, *inputs: object, **named: Never) -> Any:
        """Run the kernel on the parameters that are not "out", in order, and make the others.

        Returns the new NumPy arrays: one alone, several as a tuple, None for none.

        Raises:
            ArgumentError: as a call; or an output has a size that no input tells.
        """
        arguments = self._arguments(inputs, named)
        sizes = self._sizes(arguments)
        made = {
            param.name: _output(param.value, sizes)
            for param in self.signature.params
            if param.mode == "out" and isinstance(param.value, Buffer)
        }
        arguments |= made
        self(*(arguments[param.name] for param in self.signature.params))
        outputs = tuple(made.values())
        return outputs[0] if len(outputs) == 1 else outputs or None

    def _arguments(
        self, inputs: Sequence[object], named: Mapping[str, object]
    ) -> dict[str, object]:
        """The inputs by name, once there are as many as parameters that are not "out"."""
        if named:
            self._refuse_names(named, outputs=False)
        signature = self.signature
        names = [param.name for param in signature.params if param.mode != "out"]
        if len(inputs) != len(names):
            missing = names[len(inputs)] if len(inputs) < len(names) else f"#{len(names) + 1}"
            needed = f"{counted(len(names), 'input')} ({', '.join(names)})"
            raise ArgumentError(missing, f"{signature.name} takes {needed}, got {len(inputs)}")
        return dict(zip(names, inputs, strict=True))

    def _sizes(self, inputs: dict[str, object]) -> dict[str, int]:
        """The sizes that the shapes of the inputs tell; the entry check finds contradictions."""
        sizes: dict[str, int] = {}
        for position, buffer in self.signature.buffers:
            if buffer.name in inputs and any(isinstance(e, Var) for e in buffer.shape):
                shape = view(inputs[buffer.name], buffer.name).shape
                # One that is packed comes in another rank.
                if len(shape) != len(buffer.shape) and buffer.name not in self._packed:
                    Refusal(self.signature).rank(position, shape)
                for extent, got in zip(buffer.shape, shape, strict=False):
                    if isinstance(extent, Var):
                        sizes.setdefault(extent.name, got)
        return sizes

    def _failure(self, code: int) -> TensorcError:
        checks = self._code.checks
        check = checks[code - 1] if 0 < code <= len(checks) else Check("?", "?", f"result {code}")
        accesses = accesses_text(self.func, check.statement, check.buffer)
        return RuntimeCheckError(self.func.name, *check, accesses)

    @property
    def signature(self) -> Signature:
        """The parameters, sizes and workspace of the C interface."""
        return self._code.signature

    @property
    def address(self) -> int:
        """Where the kernel's entry lies in this process, for as long as the module lives.

        Raises:
            TargetError: this machine cannot run the code; it names what is missing.
        """
        # Threads that make the first call together must load and look up once: LLVM would unload
        # the code together with what the loser found.
        with self._loading:
            if self._loaded is None:
                check_runs_here(self.target)
                hook = {HOOK: parallel.address()} if self._code.parallel else {}
                self._loaded = load_object(self._code.object, hook)
            return self._loaded.address(self._code.symbol)

    # Inspection -------------------------------------------------------------------------------

    def source(self, stage: str = "ir") -> str:
        """The program at a stage: "ir" as given, each lowering stage by name, "entry" (the check of
        the arguments, in Python), "llvm", "optimised" (LLVM again), "asm" and "header" (C).

        Raises:
            ArgumentError: there is no such stage; the message lists them.
        """
        if not isinstance(stage, str):
            raise ArgumentError("stage", f"needed the name of a stage, got {stage!r:.80}")
        if stage == "ir":
            return print_func(self.func)
        if stage == "entry":
            return self._entry.source
        if stage == "header":
            return self._header(Names.of(self.signature))
        lowered = self._lowered()
        stages = dict(lowered.stages)
        if stage in stages:
            return print_func(stages[stage])
        made = {"llvm", "optimised", "asm"}
        if stage not in made:
            legal = ", ".join(["ir", *stages, "entry", "llvm", "optimised", "asm", "header"])
            raise ArgumentError("stage", f"there is no stage {stage!r}; legal here: {legal}")
        kernel = emit(lowered, self.signature.legal)
        if stage == "llvm":
            return kernel.text
        code = compile_module(kernel.text, self.target)
        return code.optimised_text() if stage == "optimised" else code.assembly()

    def _lowered(self) -> Lowered:
        return lower(self.func, self.target, self._options)

    def _header(self, names: Names) -> str:
        failures = [failure_text(*check) for check in self._code.checks]
        return header(self.signature, names, self.target, failures, parallel=self._code.parallel)

    def __reduce__(self) -> tuple[Any, ...]:
        """A module travels as its program; the other process takes its code from the cache."""
        return Module, (self.func, self.target, self._options, self._packs, self._source)

    def __repr__(self) -> str:
        code = self._code
        facts = [f"{len(code.object)} bytes of object code"]
        facts += ["parallel"] if code.parallel else []
        facts += ["workspace"] if code.signature.scratch else []
        facts += ["checked"] if self._options.checks else []
        return f"<Module {self.signature}\n  {self.target.describe()}; {', '.join(facts)}>"

    def profile(self, *arguments: object, repeats: int = 20) -> Profile:
        """Where the time goes: run the kernel on the arguments of a call, one time to warm up and
        `repeats` times measured, in a variant that reads the clock around each outermost nest.

        Raises:
            ArgumentError: as a call, or `repeats` is no integer of 1 or more.
        """
        if type(repeats) is not int or repeats < 1:
            raise ArgumentError("repeats", f"needed an integer of 1 or more, got {repeats!r:.80}")
        options = dataclasses.replace(self._options, profile=True)
        variant = Module(self.func, self.target, options, source=self._source)
        names = (*(param.name for param in self.signature.params), *self.signature.sizes)
        function = self.signature.function(variant.address, ctypes.c_void_p)
        counters, values = 0, dict[str, float]()

        def kernel(*passed: float) -> int:
            nonlocal values
            values = dict(zip(names, passed, strict=False))
            return function(*passed, counters)

        call = variant._bound(kernel)

        def run(place: int) -> Values:
            nonlocal counters
            counters = place
            call(*arguments)
            return values

        return measured(variant._lowered(), variant._code.nests, run, repeats)

    # Shipping ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, prefix: str = "") -> tuple[Path, ...]:
        """Write the kernel for use from C, and a header beside it; returns the paths.

        The suffix says what: `.o` or `.obj` an object file, `.a` or `.lib` a static library, `.so`,
        `.dylib` or `.dll` a shared library (linked by the system's C compiler), `.h` the header
        alone. The function is called as the kernel, behind `prefix`, as far as C allows.

        Raises:
            ArgumentError: `path` names no file in a folder that exists, or its suffix is unknown;
                nothing is written.
            CompileError: a shared library cannot be linked on this machine.
            OSError: a file cannot be written.
        """
        place = aot.checked_path(path)
        if not isinstance(prefix, str):
            raise ArgumentError("prefix", f"expected a string, got {prefix!r:.80}")
        names = Names.of(self.signature, prefix)
        kernel = emit(self._lowered(), self.signature.legal)
        return aot.write(place, self._header(names), kernel, self.signature, names)


def packer(func: Func, target: Target) -> Callable[[object], Any]:
    """What packs a constant for a kernel: the result is an argument of it."""
    module = Module(func, target, Options())
    (dtype,) = (p.value.dtype for p in module.signature.params if p.mode == "out")
    return lambda array: of_storage(module.fill(array), dtype)


def _shape(buffer: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    """The extents of an output that is to be made."""
    try:
        shape = extents(buffer, sizes)
    except KeyError as missing:
        reason = f"its size {missing.args[0]} follows from no input: call the module with an output"
        raise ArgumentError(buffer.name, reason) from None
    if any(extent < 0 for extent in shape):
        raise ArgumentError(buffer.name, f"its shape would be {shape}")
    return shape


def _output(buffer: Buffer, sizes: dict[str, int]) -> Array:
    shape = _shape(buffer, sizes)
    made = empty(shape, buffer.dtype, max(alignment_of(buffer), ALIGNMENT), buffer.name)
    if buffer.strides is not None:
        raise ArgumentError(buffer.name, "it has declared strides: call the module with an output")
    return made


class Workspace:
    """Scratch memory of one running call. `arguments` is what the kernel takes."""

    __slots__ = ("_memory", "arguments", "size")

    def __init__(self, size: int, workers: int):
        self.size = size
        self._memory = aligned_bytes(size, ALIGNMENT)
        self.arguments = (self._memory.ctypes.data, workers)


class Workspaces:
    """The workspaces of a module: as many as calls ever ran at once, each as large as needed."""

    def __init__(self, parallel_loops: bool):
        self._parallel = parallel_loops
        self._free: list[Workspace] = []

    def take(self, shared: int, worker: int) -> Workspace:
        """A workspace of at least shared + workers * worker bytes, for one call."""
        workers = parallel.prepare() if self._parallel else 1
        needed = shared + workers * worker
        try:
            # Taking from a list's end is atomic, so that no lock is needed.
            found = self._free.pop()
        except IndexError:
            return Workspace(needed, workers)
        if found.size < needed:
            return Workspace(needed, workers)
        found.arguments = (found.arguments[0], workers)
        return found

    def give_back(self, workspace: Workspace) -> None:
        self._free.append(workspace)
