"""What became of a kernel: its stages, its LLVM IR, and the hot loop with its share of peak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tensorc.codegen.cuda.report import KernelReport
from tensorc.codegen.pipeline import Options as BuildOptions
from tensorc.codegen.pipeline import lower
from tensorc.ir.print import print_func
from tensorc.runtime.module import Module, build
from tensorc.schedule.schedule import Schedule

ISSUE = 6.0
UNITS = 2.0
"""A recent core issues about six instructions a cycle, two of them multiply-adds, two loads."""

_LABEL = re.compile(r"^(\.?[A-Za-z_$][\w.$]*):")
_JUMP = re.compile(r"^\s+(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z\s+\w+,)\s+(\.?[A-Za-z_$][\w.$]*)")
_MULTIPLY_ADD = re.compile(r"^\s+v?fn?m(?:add|sub|la)")
_MEMORY = re.compile(r"^\s+(?:(?!lea|nop|prefetch)[a-z]\w*\s[^#]*\(|(?:ld|st)\w*\s.*\[)")


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The innermost loop with the most multiply-adds, then instructions, counted statically.

    `share` is the share of the multiply-add peak that the issue width, the load ports and the
    multiply-add units together allow; what memory costs is not in it.
    """

    label: str
    instructions: int
    multiply_adds: int
    memory_operands: int
    share: float
    text: str

    @property
    def summary(self) -> str:
        """The counts, and what follows from them."""
        rest = f"{self.instructions} instructions, {self.memory_operands} memory operands"
        if not self.multiply_adds:
            return f"no multiply-adds in {rest}"
        return f"{self.multiply_adds} multiply-adds in {rest}: at most {self.share:.0%} of peak"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Each stage's text, the LLVM IR and the hot loop (None when there is no loop left)."""

    stages: tuple[tuple[str, str], ...]
    llvm: str
    hot: HotLoop | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "stages": [{"name": n, "text": t} for n, t in self.stages],
            "llvm": self.llvm,
            "hot": None if self.hot is None else asdict(self.hot),
        }

    def sections(self) -> Iterator[tuple[str, str]]:
        """Titles and texts, in the order of compilation; stages that changed nothing are named."""
        yield from _changes(self.stages)
        yield "llvm", self.llvm
        if self.hot is None:
            yield "hot loop", "the machine code has no loop\n"
        else:
            yield f"hot loop: {self.hot.summary}", self.hot.text


@dataclass(frozen=True, slots=True)
class CudaExplanation:
    """Each stage's text, the CUDA C++, and what each kernel takes of a multiprocessor."""

    stages: tuple[tuple[str, str], ...]
    cuda: str
    kernels: tuple[KernelReport, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "stages": [{"name": n, "text": t} for n, t in self.stages],
            "cuda": self.cuda,
            "kernels": [kernel.as_dict() for kernel in self.kernels],
        }

    def sections(self) -> Iterator[tuple[str, str]]:
        """Titles and texts, in the order of compilation."""
        yield from _changes(self.stages)
        yield "cuda", self.cuda
        for kernel in self.kernels:
            yield f"kernel {kernel.name}", "\n".join(kernel.lines()) + "\n"


def explanation(schedule: Schedule) -> Explanation | CudaExplanation:
    """Lower, emit and compile a scheduled function, and keep what each part made.

    For a cuda target no device is needed, but NVRTC is (NvrtcMissingError).
    """
    if schedule.target.kind == "cuda":
        return _of_kernels(schedule)
    lowered = lower(schedule.func, schedule.target, BuildOptions())
    stages = [("schedule", print_func(schedule.func))]
    stages += [(name, print_func(func)) for name, func in lowered.stages]
    module: Module = build(schedule)
    return Explanation(tuple(stages), module.source("llvm"), hot_loop(module.source("asm")))


def _changes(stages: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    previous = ""
    for name, text in stages:
        yield f"stage {name}", text if text != previous else "(unchanged)\n"
        previous = text


def _of_kernels(schedule: Schedule) -> CudaExplanation:
    from tensorc.runtime.cuda import CudaModule

    module = CudaModule(schedule.func, schedule.target, BuildOptions(), schedule.state.packs)
    stages = [("schedule", print_func(schedule.func))]
    for kernel in module.kernels:
        stages += [(f"{name} of {kernel.text.name}", print_func(f)) for name, f in kernel.stages]
    return CudaExplanation(tuple(stages), module.source(), module.report())


def hot_loop(assembly: str) -> HotLoop | None:
    """The innermost loop of an assembly text with the most multiply-adds, then instructions."""
    return max(_innermost(assembly.splitlines()), key=_heat, default=None)


def _heat(loop: HotLoop) -> tuple[int, int]:
    return loop.multiply_adds, loop.instructions


def _innermost(lines: list[str]) -> Iterator[HotLoop]:
    """The loops without a loop inside: from a label to a jump back to it."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label[1]] = number
        jump = _JUMP.match(line)
        if jump and jump[1] in labels:
            start = labels[jump[1]]
            if not any(_backward(lines[n], labels, start, n) for n in range(start + 1, number)):
                yield _counted(jump[1], lines[start : number + 1])


def _backward(line: str, labels: dict[str, int], start: int, number: int) -> bool:
    """Is the line a jump back to a label inside the loop: is there a loop in the loop?"""
    jump = _JUMP.match(line)
    return bool(jump) and start < labels.get(jump[1], number + 1) <= number  # type: ignore[index]


def _counted(label: str, lines: list[str]) -> HotLoop:
    code = [x for x in lines if x.startswith(("\t", " ")) and not x.strip().startswith((".", "#"))]
    adds = sum(1 for x in code if _MULTIPLY_ADD.match(x))
    memory = sum(1 for x in code if _MEMORY.match(x))
    cycles = max(adds / UNITS, memory / UNITS, len(code) / ISSUE)
    share = adds / UNITS / cycles if cycles else 0.0
    return HotLoop(label, len(code), adds, memory, share, "\n".join(lines) + "\n")
