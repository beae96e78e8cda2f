"""Control flow of a kernel: basic blocks, cuts, and what a thread's frame must keep across them.

A kernel is *cut* where threads wait for each other: at block barriers and at operations of a warp.
Between two cuts a thread runs alone, with its registers in the processor's. What lives across a cut
goes through the thread's frame, and only when it has to:

* a register is *saved* at a cut when it is live after it and may have changed since the cut before;
* it is *restored* behind a cut when it is read, or saved again, before the next cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tensorc.emulator.ptx import (
    Address,
    Instruction,
    Kernel,
    Label,
    Name,
    Not,
    Operand,
    Pair,
    Register,
    Vector,
)

__all__ = ["Block", "Flow", "flow_of", "is_cut", "reads", "writes"]

_NO_RESULT = frozenset(
    [
        "st",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "brkpt",
        "cp",
        "prefetch",
        "prefetchu",
        "membar",
        "fence",
        "call",
        "nanosleep",
        "pmevent",
        "bar",
        "barrier",
        "griddepcontrol",
        "discard",
        "applypriority",
    ]
)
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap"})
_WARP = frozenset({"shfl", "vote", "match", "redux", "activemask", "elect", "mma", "ldmatrix"})


def is_cut(instruction: Instruction) -> bool:
    """Whether threads wait for each other here."""
    match instruction.opcode:
        case "bar" | "barrier":
            return True
        case opcode:
            return opcode in _WARP


def registers(operand: Operand) -> Iterator[str]:
    """The registers in an operand."""
    match operand:
        case Register(name=name):
            yield name
        case Not(operand=inner):
            yield from registers(inner)
        case Vector(elements=elements):
            for element in elements:
                yield from registers(element)
        case Pair(first=first, second=second):
            yield from registers(first)
            yield from registers(second)
        case Address(base=Register(name=name)):
            yield name


def has_result(instruction: Instruction) -> bool:
    if instruction.opcode in ("bar", "barrier"):
        return instruction.has("red")
    return instruction.opcode not in _NO_RESULT


def writes(instruction: Instruction) -> tuple[str, ...]:
    """The registers that an instruction gives a value; with a guard it may."""
    if not has_result(instruction) or not instruction.operands:
        return ()
    return tuple(registers(instruction.operands[0]))


def reads(instruction: Instruction) -> tuple[str, ...]:
    """The registers that an instruction reads, its guard included."""
    operands = instruction.operands[1:] if has_result(instruction) else instruction.operands
    guard = () if instruction.guard is None else (instruction.guard,)
    return tuple(name for operand in (*guard, *operands) for name in registers(operand))


@dataclass(slots=True)
class Block:
    """A basic block: at most its last instruction branches, returns or is a cut."""

    number: int
    instructions: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)

    @property
    def cut(self) -> Instruction | None:
        last = self.instructions[-1] if self.instructions else None
        return last if last is not None and is_cut(last) else None


@dataclass(frozen=True, slots=True)
class Flow:
    """`save` and `restore` are by the number of the block that ends with the cut.

    `entering` are the registers whose values a block takes over from the blocks before it within a
    segment.
    """

    blocks: tuple[Block, ...]
    labels: dict[str, int]
    save: dict[int, tuple[str, ...]]
    restore: dict[int, tuple[str, ...]]
    entering: tuple[frozenset[str], ...]

    @property
    def frame(self) -> tuple[str, ...]:
        """The registers that have a place in the frame, in order."""
        kept = [*self.save.values(), *self.restore.values()]
        return tuple(sorted({name for names in kept for name in names}))


def flow_of(kernel: Kernel) -> Flow:
    """Blocks, and what to keep across cuts.

    Raises:
        KeyError: a branch goes to a label that the kernel does not have.
    """
    blocks, labels = _blocks(kernel)
    for block in blocks:
        block.successors = _successors(block, labels, kernel, len(blocks))
    return _Liveness(blocks).flow(labels)


def _blocks(kernel: Kernel) -> tuple[list[Block], dict[str, int]]:
    blocks = [Block(0)]
    labels: dict[str, int] = {}

    def start() -> None:
        if blocks[-1].instructions:
            blocks.append(Block(len(blocks)))

    for item in kernel.body:
        if isinstance(item, Label):
            start()
            labels[item.name] = blocks[-1].number
            continue
        blocks[-1].instructions.append(item)
        if item.opcode in _ENDS or is_cut(item):
            blocks.append(Block(len(blocks)))
    return blocks, labels


def _successors(block: Block, labels: dict[str, int], kernel: Kernel, count: int) -> list[int]:
    following = [block.number + 1] if block.number + 1 < count else []
    if not block.instructions:
        return following
    last = block.instructions[-1]
    ended = last.opcode in _ENDS and last.guard is None
    found = [] if ended else following
    for operand in last.operands:
        if isinstance(operand, Name) and last.opcode in ("bra", "brx"):
            names = kernel.targets.get(operand.name, (operand.name,))
            found = [*found, *(labels[name] for name in names)]
    return found


class _Liveness:
    """Sets of registers as bits of integers: kernels have thousands of registers."""

    def __init__(self, blocks: Sequence[Block]):
        self.blocks = blocks
        self.names: dict[str, int] = {}
        # Up to a block's cut: read before written, and written. The cut's own results apart.
        self.used = [0] * len(blocks)
        self.defined = [0] * len(blocks)
        self.results = [0] * len(blocks)
        for block in blocks:
            self._local(block)
        self.predecessors: list[list[int]] = [[] for _ in blocks]
        for block in blocks:
            for successor in block.successors:
                self.predecessors[successor].append(block.number)

    def bits(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= 1 << self.names.setdefault(name, len(self.names))
        return found

    def set_of(self, bits: int) -> tuple[str, ...]:
        return tuple(name for name, number in self.names.items() if bits >> number & 1)

    def _local(self, block: Block) -> None:
        number = block.number
        for instruction in block.instructions:
            self.used[number] |= self.bits(reads(instruction)) & ~self.defined[number]
            written = self.bits(writes(instruction))
            if instruction is block.cut:
                self.results[number] = written
            elif instruction.guard is None:
                self.defined[number] |= written
            else:
                # Without the guard's consent the old value stays, so it is read.
                self.used[number] |= written & ~self.defined[number]

    def flow(self, labels: dict[str, int]) -> Flow:
        live = self._backwards(self._live_at)
        dirty = self._dirty()
        save = [0] * len(self.blocks)
        for block in self.blocks:
            if block.cut is not None and block.successors:
                after = live[block.successors[0]] & ~self.results[block.number]
                save[block.number] = dirty[block.number] & after

        def needed(number: int, after: int) -> int:
            return self._needed_at(number, after, save[number])

        entering = self._backwards(needed)
        restore = [0] * len(self.blocks)
        for block in self.blocks:
            if block.cut is not None and block.successors:
                following = entering[block.successors[0]]
                restore[block.number] = following & ~self.results[block.number]
        cuts = [block.number for block in self.blocks if block.cut is not None]
        return Flow(
            tuple(self.blocks),
            labels,
            {number: self.set_of(save[number]) for number in cuts},
            {number: self.set_of(restore[number]) for number in cuts},
            tuple(frozenset(self.set_of(bits)) for bits in entering),
        )

    def _guarded(self, number: int) -> bool:
        cut = self.blocks[number].cut
        return cut is not None and cut.guard is not None

    def _live_at(self, number: int, after: int) -> int:
        if not self._guarded(number):
            after &= ~self.results[number]
        return self.used[number] | (after & ~self.defined[number])

    def _needed_at(self, number: int, after: int, saved: int) -> int:
        """What a block takes from the blocks before it in the same segment."""
        if self.blocks[number].cut is not None:
            after = saved | (after if self._guarded(number) else 0)
        return self.used[number] | (after & ~self.defined[number])

    def _backwards(self, transfer: Callable[[int, int], int]) -> list[int]:
        found = [0] * len(self.blocks)
        waiting = list(range(len(self.blocks)))
        while waiting:
            number = waiting.pop()
            after = 0
            for successor in self.blocks[number].successors:
                after |= found[successor]
            before = transfer(number, after)
            if before != found[number]:
                found[number] = before
                waiting += self.predecessors[number]
        return found

    def _dirty(self) -> list[int]:
        """What may have changed since the last cut, at the end of each block, before its cut."""
        found = [0] * len(self.blocks)
        behind = [0] * len(self.blocks)
        waiting = list(reversed(range(len(self.blocks))))
        written = [d | self._guard_written(n) for n, d in enumerate(self.defined)]
        while waiting:
            number = waiting.pop()
            before = 0
            for predecessor in self.predecessors[number]:
                before |= behind[predecessor]
            found[number] = before | written[number]
            after = self.results[number]
            if self.blocks[number].cut is None or self._guarded(number):
                after |= found[number]
            if after != behind[number]:
                behind[number] = after
                waiting += self.blocks[number].successors
        return found

    def _guard_written(self, number: int) -> int:
        block = self.blocks[number]
        return self.bits(
            name
            for instruction in block.instructions
            if instruction.guard is not None and instruction is not block.cut
            for name in writes(instruction)
        )
