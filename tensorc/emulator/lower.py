"""A PTX kernel to one LLVM function that runs a thread to its next cut.

    i32 resume(ptr context, ptr frame)

goes on at the cut whose number the frame holds and returns a `layout.Status`. What it needs beside
it: functions of the run-time parts (`schedule_text`, `race_text`), helpers (`helpers`), and the
table of the warp operations that it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tensorc.emulator import barriers, choices, convert, exchange, floats, integers, memory
from tensorc.emulator.emitter import Emitter, Site, Symbols, Translation, llvm_type, zero
from tensorc.emulator.exchange import Exchange
from tensorc.emulator.flow import Block, Flow, flow_of
from tensorc.emulator.helpers import helper_text
from tensorc.emulator.layout import RESULT, SLOT_WORDS, Context, Found, Frame, Status
from tensorc.emulator.operations import operation_text
from tensorc.emulator.ptx import Instruction, Kernel, Register, Vector, bits_of
from tensorc.errors import CompileError

__all__ = ["Lowered", "lower", "supported"]

_TRANSLATIONS: dict[str, Translation] = {
    **integers.TRANSLATIONS,
    **choices.TRANSLATIONS,
    **floats.TRANSLATIONS,
    **convert.TRANSLATIONS,
    **memory.TRANSLATIONS,
}
_CONTROL = ("bra", "brx", "ret", "exit", "trap", "brkpt")
_FLOATS = {"f32": "float", "f64": "double"}


@dataclass(frozen=True, slots=True)
class Lowered:
    """The LLVM text of a kernel, its sites, and what a thread's frame holds, in bytes."""

    text: str
    sites: tuple[Site, ...]
    local_offset: int
    local_bytes: int
    frame_bytes: int
    copies: bool
    clocks: bool


def supported() -> tuple[str, ...]:
    """The names of all instructions that the emulator knows."""
    known = {*_TRANSLATIONS, *_CONTROL, *exchange.EXCHANGES, "bar", "barrier"}
    return tuple(sorted(known))


def lower(kernel: Kernel, symbols: Symbols, checked: bool) -> Lowered:
    """Translates a kernel. With `checked` every access asks the detectors, else the bounds alone.

    Raises:
        UnsupportedInstructionError: an instruction that the emulator does not know.
        CompileError: an operand that does not exist, or a branch to nowhere.
    """
    return _Lowering(kernel, symbols, checked).lowered()


class _Lowering:
    def __init__(self, kernel: Kernel, symbols: Symbols, checked: bool):
        self.kernel = kernel
        self.sites: list[Site] = []
        self.e = Emitter(kernel, symbols, checked, self.sites)
        self.out = self.e.out
        try:
            self.flow: Flow = flow_of(kernel)
        except KeyError as error:
            raise CompileError(f"kernel {kernel.name}: there is no label {error}") from None
        self.e.storage = _storage(kernel)
        self.e.slotted = frozenset().union(*self.flow.entering)
        self.local_offset = -(-Frame.HEAD * 4 // 16) * 16
        self.places, self.frame_bytes = self._places(self.local_offset + symbols.local)
        self.resumed: list[int] = []
        self.state = self.e.frame_word(Frame.STATE)
        self.step_limit = self.e.context(Context.STEPS)

    def _places(self, start: int) -> tuple[dict[str, int], int]:
        """Where the frame holds each register that crosses a cut."""
        at = -(-start // 16) * 16
        places: dict[str, int] = {}
        widths = {
            name: max(bits_of(self.kernel.registers[name]) // 8, 1) for name in self.flow.frame
        }
        for name in sorted(widths, key=lambda each: (-widths[each], each)):
            places[name] = at
            at += widths[name]
        return places, -(-at // 64) * 64

    def lowered(self) -> Lowered:
        for block in self.flow.blocks:
            self.block(block)
        names = {item.opcode for item in self.kernel.body if isinstance(item, Instruction)}
        clocks = any(
            isinstance(item, Instruction) and item.opcode in ("bar", "barrier") and item.has("warp")
            for item in self.kernel.body
        )
        return Lowered(
            self.text(),
            tuple(self.sites),
            self.local_offset,
            self.e.symbols.local,
            self.frame_bytes,
            "cp" in names,
            clocks,
        )

    # Text -----------------------------------------------------------------------------------------

    def text(self) -> str:
        e = self.e
        body = self.out.body()
        slots = [f"  {e.slot(name)} = alloca {e.storage[name]}" for name in sorted(self.e.slotted)]
        undefined = [
            f"  store {e.storage[name]} {zero(e.storage[name])}, ptr {e.slot(name)}"
            for name in sorted(self.flow.entering[0])
        ]
        cases = " ".join(f"i32 {number + 1}, label %resume{number}" for number in self.resumed)
        lines = [
            "define i32 @resume(ptr %context, ptr %frame) nounwind {\nhead:",
            *slots,
            "  %steps = alloca i64",
            *e.entry,
            *undefined,
            f"  store i64 {self.step_limit}, ptr %steps",
            f"  switch i32 {self.state}, label %b0 [ {cases} ]",
            body,
            f"fault:\n  ret i32 {int(Status.FAULT)}\n}}",
        ]
        operations = ", ".join(f'ptr @"op.{name}"' for name in e.operations) or "ptr null"
        table = f"@operations = constant [{max(1, len(e.operations))} x ptr] [{operations}]\n"
        texts = [operation_text(name, e.helpers) for name in e.operations]
        e.runtime_function("tc.report.lane")
        declared = [memory.DECLARATIONS[name] for name in e.runtime]
        return "\n".join([*lines, table, *texts, *helper_text(e.helpers), *declared, _WEIGHTS])

    # Blocks ---------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        e = self.e
        self.out.start(f"%b{block.number}")
        e.current, e.modified = {}, set()
        with self.out.scope():
            *before, last = block.instructions or (None,)
            for instruction in before:
                if instruction is not None:
                    self.instruction(instruction)
            match last:
                case None:
                    self.leave(block)
                case Instruction(opcode=opcode) if opcode in _CONTROL:
                    self.control(block, last)
                case _ if block.cut is last:
                    self.cut(block, last)
                case _:
                    self.instruction(last)
                    self.leave(block)

    def instruction(self, instruction: Instruction) -> None:
        translation = _TRANSLATIONS.get(instruction.opcode)
        if translation is None:
            raise self.e.refuse(instruction, "no such instruction here", supported())
        with self.e.guarded(instruction):
            try:
                translation(self.e, instruction)
            except (IndexError, KeyError, ValueError, StopIteration) as error:
                raise self.e.refuse(instruction, f"a form without a meaning ({error})") from None

    def flush(self, successors: Iterable[int]) -> None:
        """What the following blocks take over goes to the slots."""
        e = self.e
        wanted = frozenset().union(*(self.flow.entering[number] for number in successors))
        for name in sorted(e.modified & wanted):
            self.out.effect(f"store {e.storage[name]} {e.stored(name)}, ptr {e.slot(name)}")

    def leave(self, block: Block) -> None:
        """Fall through to the next block, or off the end of the kernel."""
        self.flush(block.successors)
        if block.successors:
            self.out.jump(f"%b{block.successors[0]}")
        else:
            self.out.effect(f"ret i32 {int(Status.DONE)}")

    def control(self, block: Block, last: Instruction) -> None:
        e, out = self.e, self.out
        self.flush(block.successors)
        if any(successor <= block.number for successor in block.successors):
            self.count_step(last)
        condition = None if last.guard is None else e.read(last.guard, "pred")
        targets = block.successors[1:] if condition is not None else block.successors
        match last.opcode:
            case "bra":
                if condition is None:
                    out.jump(f"%b{targets[0]}")
                else:
                    out.branch(condition, f"%b{targets[0]}", f"%b{block.successors[0]}")
                return
            case "brx":
                if condition is not None:
                    raise e.refuse(last, "an indexed branch with a guard is not emulated")
                self.indexed_branch(last, targets)
                return
        ending = out.fresh("end")
        following = f"%b{block.number + 1}" if condition is not None else ending
        if condition is not None:
            out.branch(condition, ending, following)
        else:
            out.jump(ending)
        out.start(ending)
        if last.opcode in ("trap", "brkpt"):
            out.effect(self.report(Found.TRAP, last))
            out.jump("%fault")
        else:
            out.effect(f"ret i32 {int(Status.DONE)}")

    def indexed_branch(self, last: Instruction, targets: list[int]) -> None:
        index = self.e.read(last.operands[0], "u32")
        cases = " ".join(f"i32 {n}, label %b{target}" for n, target in enumerate(targets))
        self.out.effect(f"switch i32 {index}, label %fault [ {cases} ]")

    def count_step(self, last: Instruction) -> None:
        out = self.out
        left = out.result("load i64, ptr %steps")
        less = out.result(f"sub i64 {left}, 1")
        out.effect(f"store i64 {less}, ptr %steps")
        over = out.result(f"icmp slt i64 {less}, 0")
        self.e.leave_through(over, self.report(Found.STEPS, last))

    def report(self, found: Found, instruction: Instruction) -> str:
        site = self.e.site(instruction)
        function = self.e.runtime_function("tc.report.here")
        return f"call void {function}(ptr %context, i64 {int(found)}, i64 {site}, i64 0)"

    # Cuts -----------------------------------------------------------------------------------------

    def cut(self, block: Block, last: Instruction) -> None:
        e, out = self.e, self.out
        following = f"%b{block.number + 1}"
        guarded = last.guard is not None
        if last.guard is not None:
            self.flush(block.successors)
            condition = e.read(last.guard, "pred")
            waiting = out.fresh("wait")
            out.branch(condition, waiting, following)
            out.start(waiting)
        exchanged = self.exchange(last)
        site = e.site(last)
        for index, word in enumerate(exchanged.words):
            out.effect(f"store i32 {word}, ptr {self.slot_word(index)}")
        for where, value in (
            (Frame.STATE, block.number + 1),
            (Frame.SITE, site),
            (Frame.MASK, exchanged.mask),
            (Frame.OPERATION, self.meeting(last, exchanged, site)),
            (Frame.VALUE, exchanged.value),
            (Frame.WHOLE, int(exchanged.whole)),
        ):
            out.effect(f"store i32 {value}, ptr {e.frame_at(where)}")
        for name in self.flow.save[block.number]:
            out.effect(f"store {e.storage[name]} {e.stored(name)}, ptr {self.place(name)}")
        status = Status.WARP if exchanged.operation else Status.BARRIER
        out.effect(f"ret i32 {int(status)}")
        if block.successors:
            self.resume(block, exchanged, following, guarded)

    def meeting(self, last: Instruction, exchanged: Exchange, site: int) -> int:
        """What those who meet at a cut must agree in: the operation, or which barrier it is.

        All threads of a block wait at one instruction, unless a barrier is not `.aligned`.
        """
        if exchanged.operation:
            return self.e.operation(exchanged.operation)
        aligned = last.opcode == "bar" or last.has("aligned")
        return site if aligned else -1

    def exchange(self, last: Instruction) -> Exchange:
        try:
            if last.opcode in ("bar", "barrier"):
                return barriers.barrier(self.e, last)
            return exchange.EXCHANGES[last.opcode](self.e, last)
        except (IndexError, KeyError, ValueError, StopIteration) as error:
            raise self.e.refuse(last, f"a form without a meaning ({error})") from None

    def resume(self, block: Block, exchanged: Exchange, following: str, guarded: bool) -> None:
        e, out = self.e, self.out
        self.resumed.append(block.number)
        out.start(f"%resume{block.number}")
        with out.scope():
            e.current, e.modified = {}, set()
            for name in self.flow.restore[block.number]:
                text = out.result(f"load {e.storage[name]}, ptr {self.place(name)}")
                out.effect(f"store {e.storage[name]} {text}, ptr {e.slot(name)}")
            words = [
                out.result(f"load i32, ptr {self.slot_word(RESULT + index)}")
                for index in range(exchanged.results)
            ]
            exchanged.give(e, words)
            self.flush(block.successors[:1])
            out.jump(following)

    def place(self, name: str) -> str:
        return self.e.entry_value(f"getelementptr i8, ptr %frame, i64 {self.places[name]}")

    def slot_word(self, index: int) -> str:
        e = self.e
        first = e.entry_value(f"mul i32 {e.lane()}, {SLOT_WORDS * 4}")
        base = e.context_pointer(Context.SLOTS)
        lane = e.entry_value(f"getelementptr i8, ptr {base}, i32 {first}")
        return e.entry_value(f"getelementptr i32, ptr {lane}, i64 {index}")


_WEIGHTS = '!0 = !{!"branch_weights", i32 1, i32 1000000}\n'


def _storage(kernel: Kernel) -> dict[str, str]:
    """The LLVM type in which each register lives between blocks.

    A register of 32 or 64 bits that is mostly used as a float lives as one, so that it needs no
    moves between the units of the processor.
    """
    votes: Counter[str] = Counter()
    for item in kernel.body:
        if not isinstance(item, Instruction):
            continue
        as_float = any(name in _FLOATS for name in item.types) and item.opcode != "cvt"
        for operand in item.operands:
            elements = operand.elements if isinstance(operand, Vector) else (operand,)
            for element in elements:
                if isinstance(element, Register):
                    votes[element.name] += 1 if as_float else -1
    found = {}
    for name, type_name in kernel.registers.items():
        storage = llvm_type(type_name)
        if votes[name] > 0 and storage in ("i32", "i64"):
            storage = "float" if storage == "i32" else "double"
        found[name] = storage
    return found
