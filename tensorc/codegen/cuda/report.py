"""What a compiled kernel takes and what bounds it, read off its cubin: no device is needed.

The model counts what one run of the main loop costs a multiprocessor on each of its pipes, if all
the others were free (S. Williams, A. Waterman, D. Patterson: Roofline, 2009). It ranks kernels and
names what to change; it knows nothing of latencies, of bank conflicts, or of what the caches hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tensorc.codegen.cubin import Resources, resources
from tensorc.codegen.cuda.occupancy import Occupancy, occupancy
from tensorc.codegen.cuda.sass import Instruction, counted, instructions, main_loop
from tensorc.target import Target

LANES = 32
FP32_LANES: Mapping[str, int] = {"sm_75": 64, "sm_80": 64}
"""Multiply-adds of f32 a cycle, where it is not 128."""
TENSOR_FLOPS: Mapping[str, int] = {
    "sm_75": 1024, "sm_80": 2048, "sm_86": 512, "sm_89": 512, "sm_90": 4096, "sm_100": 8192,
    "sm_120": 512,
}  # fmt: skip
"""Operations of tensor cores a cycle, of f16 and bf16 with sums in f32, by data sheets."""
FLOPS_OF_MMA: Mapping[str, int] = {"sm_75": 16 * 8 * 8 * 2}
"""Operations of one such instruction, where it is not 16 x 8 x 16."""
SPECIAL_LANES = 16
"""Functions of the special unit a cycle."""
SHARED_BYTES = 128
"""Bytes of shared memory a cycle: 32 banks of 4."""
GLOBAL_BYTES = 64
"""Bytes a cycle between a multiprocessor and the second-level cache."""
ISSUED = 4
"""Instructions of warps a cycle."""
MATRIX_BYTES = 16
"""Bytes that ldmatrix reads for each thread."""


@dataclass(frozen=True, slots=True)
class MainLoop:
    """The main loop of a kernel: its instructions in all, and each operation that is told apart.

    Attributes:
        pipes: cycles of a multiprocessor for one run of it by one warp.
        bound: the pipe that takes the most.
        wide: whether all its loads from global memory are of 128 bits, None if it has none.
    """

    instructions: int
    operations: Mapping[str, int]
    pipes: Mapping[str, float]
    bound: str
    wide: bool | None

    @property
    def tensor(self) -> int:
        """Instructions of tensor cores."""
        return self.operations.get("HMMA", 0) + self.operations.get("IMMA", 0)


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What a kernel takes.

    Attributes:
        registers, stack: of each thread; the stack in bytes.
        spills: instructions that access it.
        threads: of a block.
        shared: bytes of a block, those that the launch asks for included.
        occupancy: how many blocks a multiprocessor runs.
        instructions: of the whole kernel.
        loop: the main loop.
    """

    name: str
    registers: int
    stack: int
    spills: int
    threads: int
    shared: int
    occupancy: Occupancy
    instructions: int
    loop: MainLoop

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        full, loop = self.occupancy, self.loop
        counts = ", ".join(f"{count} {name}" for name, count in loop.operations.items())
        pipes = ", ".join(f"{name} {cycles:.2f}" for name, cycles in loop.pipes.items() if cycles)
        return [
            f"registers {self.registers}, stack {self.stack} bytes, {self.spills} accesses to it",
            f"shared memory {self.shared} bytes, {self.threads} threads a block",
            f"occupancy {full.share:.0%}: {full.blocks} blocks or {full.warps} warps, by"
            f" {full.limit}",
            f"main loop: {loop.instructions} of {self.instructions} instructions: {counts}",
            f"cycles of a warp: {pipes}; bound by {loop.bound}",
        ]


@dataclass(frozen=True, slots=True)
class Launched:
    """How a kernel is launched: threads of a block, and bytes of shared memory asked for."""

    threads: int
    dynamic: int = 0


def report(
    image: bytes, target: Target, launched: Mapping[str, Launched]
) -> tuple[KernelReport, ...]:
    """What each kernel in `launched` takes, of a cubin for a target.

    Raises:
        CompileError: the image is no cubin.
        TargetError: the target is not a cuda device.
    """
    found = resources(image)
    return tuple(_kernel(name, found[name], target, how) for name, how in launched.items())


def _kernel(name: str, taken: Resources, target: Target, how: Launched) -> KernelReport:
    number = int("".join(c for c in target.cpu if c.isdigit()))
    code = instructions(taken.code, number)
    static = taken.shared
    if number >= _RESERVED_SINCE and static:
        static -= target.limit("shared_reserved_per_block")
    shared = static + how.dynamic
    full = occupancy(target, taken.registers, shared, how.threads)
    spills = sum(x.name in ("LDL", "STL") for x in code)
    loop = _loop(main_loop(code), target)
    return KernelReport(
        name, taken.registers, taken.stack, spills, how.threads, shared, full, len(code), loop
    )


_RESERVED_SINCE = 90


def _loop(code: Sequence[Instruction], target: Target) -> MainLoop:
    pipes = _pipes(code, target)
    loads = [x.bits for x in code if x.name in ("LDG", "LDGSTS")]
    wide = all(bits == 128 for bits in loads) if loads else None
    bound = max(pipes, key=lambda name: pipes[name])
    return MainLoop(len(code), counted(code), pipes, bound, wide)


def _pipes(code: Sequence[Instruction], target: Target) -> dict[str, float]:
    """Cycles that one run of some instructions by a warp takes of each pipe."""

    def number(*names: str) -> int:
        return sum(x.name in names for x in code)

    def bytes_(*names: str) -> int:
        return sum(x.bits // 8 * LANES for x in code if x.name in names)

    matrices = number("LDSM") * MATRIX_BYTES * LANES
    flops = number("HMMA", "IMMA") * FLOPS_OF_MMA.get(target.cpu, 16 * 8 * 16 * 2)
    floats = number("FFMA", "FADD", "FMUL") * LANES
    return {
        "fma": floats / FP32_LANES.get(target.cpu, 128),
        "tensor": flops / TENSOR_FLOPS.get(target.cpu, 4096),
        "special": number("MUFU") * LANES / SPECIAL_LANES,
        "shared": (bytes_("LDS", "STS", "LDGSTS") + matrices) / SHARED_BYTES + number("SHFL"),
        "global": bytes_("LDG", "STG", "LDGSTS", "LDL", "STL") / GLOBAL_BYTES,
        "issue": len(code) / ISSUED,
    }
