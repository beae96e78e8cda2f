"""Lowering for CUDA: from a scheduled function to kernels and the host's program, stage by stage.

Every stage of a kernel takes a function and gives one that means the same, so each can be printed,
verified and interpreted by itself. A function that all threads run keeps its bound loops to the
end: the text of a loop is what turns an iteration into a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorc.codegen.cuda import source
from tensorc.codegen.cuda.across import across, by_threads
from tensorc.codegen.cuda.ahead import ahead, asynchronous
from tensorc.codegen.cuda.barriers import barriers
from tensorc.codegen.cuda.host import Launch, Part, split
from tensorc.codegen.cuda.memory import place
from tensorc.codegen.cuda.single import single
from tensorc.codegen.cuda.staging import staged
from tensorc.codegen.cuda.unrolling import unrolled
from tensorc.codegen.passes.accumulators import accumulators
from tensorc.codegen.passes.reductions import reductions
from tensorc.codegen.passes.trees import with_body
from tensorc.codegen.passes.vectors import vectors
from tensorc.codegen.pipeline import Options
from tensorc.ir import arith
from tensorc.ir.grid import BLOCKS, axis_of, kernels
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, If, Seq, Stmt
from tensorc.ir.walk import replace, seq
from tensorc.target import Target

Grid = tuple[Expr, Expr, Expr]
ONE = arith.index(1)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        stages: the function after each stage, by name.
        own: for the arrays that each thread has of its own: how many indices name the thread.
        device: temporaries in the device's memory that this kernel alone uses; the host gives it
            one for each launch.
        grid: blocks along x, y and z, in the sizes and the loops of the host.
        text: the CUDA C++.
    """

    stages: tuple[tuple[str, Func], ...]
    own: Mapping[str, int]
    device: tuple[Buffer, ...]
    grid: Grid
    text: source.Text

    @property
    def func(self) -> Func:
        return self.stages[-1][1]


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """A function for a CUDA device: the host's program, whose leaves are launches of kernels."""

    original: Func
    host: Stmt
    kernels: tuple[Kernel, ...]
    target: Target
    options: Options

    @property
    def source(self) -> str:
        """The CUDA C++ of all kernels, one text without any header."""
        return source.module_text(kernel.text for kernel in self.kernels)


def lower_cuda(func: Func, target: Target, options: Options) -> CudaProgram:
    """Kernels out of a scheduled function.

    Raises:
        CompileError: threads depend on each other where no barrier can stand.
        LimitError: the size of a temporary cannot be known before a launch.
    """
    host, parts = split(func)
    made = tuple(_kernel(part, target) for part in parts)
    return CudaProgram(func, _with_memory(host, made), made, target, options)


def _kernel(part: Part, target: Target) -> Kernel:
    stages = [("kernel", part.func)]

    def after(name: str, made: Func) -> Func:
        stages.append((name, made))
        return made

    current = after("across", across(part.func))
    current = after("reductions", reductions(current, by_threads(current)))
    current = after("staging", staged(current, target))
    placed = place(Part(current, part.host))
    current = after("memory", placed.func)
    early = ahead(current, target)
    current = after("barriers", barriers(current, part.host))
    current = after("single", single(current))
    current = after("unrolling", unrolled(current))
    current = after("vectors", vectors(current))
    current = after("accumulators", accumulators(current))
    current = after("copies", asynchronous(current, early))
    text = source.emit(current, placed.own)
    return Kernel(tuple(stages), placed.own, placed.device, _grid(part.func), text)


def _grid(func: Func) -> Grid:
    found = kernels(func)
    loops = dict.fromkeys(BLOCKS, ONE)
    for _, loop in found[0].blocks if found else ():
        loops[str(axis_of(loop))] = arith.sub(loop.end, loop.begin)  # type: ignore[assignment]
    return loops[BLOCKS[0]], loops[BLOCKS[1]], loops[BLOCKS[2]]


def _with_memory(host: Stmt, made: tuple[Kernel, ...]) -> Stmt:
    """The host's program with the memory of each kernel allocated around its launch."""
    match host:
        case Launch(kernel=number):
            inner: Stmt = host
            for buffer in reversed(made[number].device):
                inner = Alloc(buffer, inner)
            return inner
        case Seq(body=parts):
            return seq(*(_with_memory(part, made) for part in parts))
        case For(body=body) | If(body=body):
            return with_body(host, _with_memory(body, made))
        case Alloc(body=body):
            return replace(host, body=_with_memory(body, made))
    raise TypeError(f"not a statement of the host: {host!r}")
