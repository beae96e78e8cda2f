"""Random programs of accesses and barriers, and a brute-force answer to whether they race.

One kernel interprets them, so that a program costs a launch and no compilation. The oracle looks at
every pair of accesses and follows every chain of barriers between them; it has no clocks, no
shadow memory and no limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc.emulator import EmulatedDevice
from tests.emulator.kernels import ptx_of

THREADS, WARP, BLOCKS, CELLS = 96, 32, 2, 96
READ, WRITE, ATOMIC, BARRIER, MEET = range(5)
FULL = 0xFFFFFFFF
INTERPRETER = """
extern "C" __global__ void interpret(const int* program, int steps, int* memory, int* out) {
  __shared__ int cells[96];
  int t = threadIdx.x, sum = 0;
  cells[t] = t;
  __syncthreads();
  for (int p = 0; p < steps; ++p) {
    const int* step = program + 8 * p;
    int op = step[0], index = (step[1] * t + step[2]) % step[5];
    unsigned mask = step[6];
    if (op == 3) __syncthreads();
    else if (op == 4) { if (mask >> t % 32 & 1) __syncwarp(mask); }
    else if (t >= step[3] && t < step[4]) {
      int* place = step[7] ? memory + index + (step[7] == 2 ? 96 * blockIdx.x : 0) : cells + index;
      if (op == 0) sum += *place;
      else if (op == 1) *place = sum;
      else atomicAdd(place, 1);
    }
  }
  out[blockIdx.x * 96 + t] = sum;
}
"""


@dataclass(frozen=True)
class Step:
    """Threads from `low` below `high` touch cell (a t + b) % m of `space`; or a barrier.

    Space 0 is shared memory, 1 global memory, 2 a part of global memory for each block.
    """

    op: int
    a: int = 0
    b: int = 0
    low: int = 0
    high: int = THREADS
    m: int = CELLS
    mask: int = FULL
    space: int = 0

    def row(self) -> list[int]:
        mask = self.mask - (1 << 32) if self.mask >> 31 else self.mask
        return [self.op, self.a, self.b, self.low, self.high, self.m, mask, self.space]

    def cell(self, thread: int, block: int) -> int:
        return (self.a * thread + self.b) % self.m + (CELLS * block if self.space == 2 else 0)


Program = tuple[Step, ...]
Choose = Callable[[Sequence[int]], int]


def random_program(choose: Choose, masks: bool) -> Program:
    """A program out of choices; `masks` allows barriers of a part of a warp."""
    return tuple(_random_step(choose, masks) for _ in range(choose(range(2, 8))))


def _random_step(choose: Choose, masks: bool) -> Step:
    op = choose([READ, READ, READ, WRITE, WRITE, ATOMIC, BARRIER, BARRIER, MEET, MEET])
    if op == BARRIER:
        return Step(op)
    if op == MEET:
        partial = [0x55555555, 0x0000FFFF, 0xFFFF0000, 0x00FF00FF, 0x80000001]
        return Step(op, mask=choose([FULL, *partial]) if masks else FULL)
    low = choose([0, 0, 0, 32, choose(range(THREADS))])
    high = min(choose([THREADS, THREADS, low + 1, low + 32, choose(range(low, THREADS))]), THREADS)
    return Step(
        op,
        a=choose([1, 1, 1, 0, 2]),
        b=choose([0, 0, 1, 32, choose(range(THREADS))]),
        low=low,
        high=high,
        m=choose([CELLS, CELLS, 64, 32]),
        space=choose([0, 0, 0, 1, 2]),
    )


Touch = tuple[int, int, int, int]  # block, position of the step, thread, op


def races(program: Program) -> bool:
    """Whether two accesses conflict that nothing orders."""
    touched: dict[tuple[int, int], list[Touch]] = {}
    for block in range(BLOCKS):
        for position, step in enumerate(program):
            if step.op <= ATOMIC:
                for thread in range(step.low, step.high):
                    place = (-1 if step.space else block, step.cell(thread, block))
                    touched.setdefault(place, []).append((block, position, thread, step.op))
    return any(_unordered(program, each) for each in touched.values())


def _unordered(program: Program, touched: list[Touch]) -> bool:
    for number, (block, later, thread, op) in enumerate(touched):
        for other_block, earlier, other, other_op in touched[:number]:
            if op == other_op and op in (READ, ATOMIC):
                continue
            if block != other_block:
                return True
            if thread != other and not _knows(program, earlier, other, later, thread):
                return True
    return False


def _knows(program: Program, earlier: int, other: int, later: int, thread: int) -> bool:
    """Whether a chain of barriers leads from one thread's step to another's."""
    if earlier == later:
        return False
    reached = {other}
    for step in program[earlier + 1 : later]:
        if step.op == BARRIER:
            return True
        if step.op == MEET:
            for warp in {each // WARP for each in reached}:
                members = {warp * WARP + lane for lane in range(WARP) if step.mask >> lane & 1}
                if members & reached:
                    reached |= members
    return thread in reached


def detected(program: Program, order: str, seed: int) -> bool:
    """Whether the emulator finds a race, and nothing else ever."""
    device = EmulatedDevice(order=order, seed=seed, strict=False)  # type: ignore[arg-type]
    code = np.array([step.row() for step in program], np.int32)
    memory, out = np.zeros(2 * CELLS, np.int32), np.zeros(BLOCKS * THREADS, np.int32)
    held = [device.wrap(array) for array in (code, memory, out)]
    function = device.load(ptx_of(INTERPRETER)).function("interpret")
    arguments = [held[0], np.int32(len(program)), *held[1:]]
    device.launch(function, BLOCKS, THREADS, arguments)
    findings = device.reports[-1].findings
    assert {finding.kind for finding in findings} <= {"Race"}, device.reports[-1]
    return bool(findings)
