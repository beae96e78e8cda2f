"""What all translations of instructions share: operands as LLVM values, registers, sites, faults.

Within a basic block a register is the LLVM value it was last given. Between blocks it goes through
a stack slot, which LLVM promotes; between segments through the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tensorc.codegen.writer import Writer
from tensorc.emulator.flow import writes
from tensorc.emulator.layout import MODULE_REGION, REGION_SHIFT, Context, Frame
from tensorc.emulator.ptx import (
    Address,
    Float,
    Instruction,
    Integer,
    Kernel,
    Name,
    Not,
    Operand,
    Register,
    Sink,
    Special,
    Vector,
    bits_of,
)
from tensorc.emulator.ptx_tokens import literal_bits
from tensorc.errors import CompileError

__all__ = ["Emitter", "Site", "Symbols", "UnsupportedInstructionError", "Value", "llvm_type"]


class UnsupportedInstructionError(CompileError):
    """PTX with an instruction, or a form of one, that the emulator does not know.

    `instruction` is its name with all modifiers, `line` its line of the PTX text, and `supported`
    what may stand there instead.
    """

    def __init__(self, instruction: str, line: int, reason: str, supported: Sequence[str]):
        self.instruction, self.line, self.reason = instruction, line, reason
        self.supported = tuple(supported)
        legal = f"; supported: {', '.join(self.supported)}" if supported else ""
        super().__init__(f"PTX line {line}: `{instruction}`: {reason}{legal}")


@dataclass(frozen=True, slots=True)
class Value:
    """An LLVM value and its type."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction that reports and counters name. `size` is what an access covers, in bytes."""

    instruction: Instruction
    space: str = ""
    kind: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Symbols:
    """Where variables are: offsets in their space, and the sizes of the spaces in bytes."""

    offsets: Mapping[str, tuple[str, int]]
    shared: int
    local: int


def llvm_type(type_name: str) -> str:
    """The LLVM type that a PTX type is computed in; halves and pairs of them are integers here."""
    match type_name:
        case "pred":
            return "i1"
        case "f32":
            return "float"
        case "f64":
            return "double"
        case _:
            return f"i{bits_of(type_name)}"


_WIDTH = {"float": 32, "double": 64}


def width_of(type_name: str) -> int:
    """The width of an LLVM type."""
    return _WIDTH.get(type_name) or int(type_name[1:])


_OF_FRAME = {"%tid.x": Frame.TID_X, "%tid.y": Frame.TID_Y, "%tid.z": Frame.TID_Z}
_OF_LAUNCH = {
    "%ntid.x": Context.BLOCK_X,
    "%ntid.y": Context.BLOCK_Y,
    "%ntid.z": Context.BLOCK_Z,
    "%nctaid.x": Context.GRID_X,
    "%nctaid.y": Context.GRID_Y,
    "%nctaid.z": Context.GRID_Z,
    "%ctaid.x": Context.CTAID_X,
    "%ctaid.y": Context.CTAID_Y,
    "%ctaid.z": Context.CTAID_Z,
    "%nwarpid": Context.WARPS,
    "%total_smem_size": Context.SHARED_BYTES,
    "%dynamic_smem_size": Context.DYNAMIC_BYTES,
    # There is one processor here, and its clock counts what is in order: barriers.
    "%clock": Context.EPOCH,
    "%clock64": Context.EPOCH,
    "%globaltimer": Context.EPOCH,
}
_CONSTANT = {"%smid": 0, "%nsmid": 1, "%gridid": 0, "WARP_SZ": 32}
_LANE_MASKS = {
    "%lanemask_eq": "{bit}",
    "%lanemask_lt": "{below}",
    "%lanemask_le": "{below} {bit}",
    "%lanemask_gt": "not {below} {bit}",
    "%lanemask_ge": "not {below}",
}
SPECIALS = (*_OF_FRAME, *_OF_LAUNCH, *_CONSTANT, *_LANE_MASKS, "%laneid", "%warpid")


class Emitter:
    """The text of one kernel's function as it grows, and the registers' values at this point."""

    def __init__(self, kernel: Kernel, symbols: Symbols, checked: bool, sites: list[Site]):
        self.kernel, self.symbols, self.checked, self.sites = kernel, symbols, checked, sites
        self.out = Writer()
        self.entry: list[str] = []
        self._entry_values: dict[str, str] = {}
        self.current: dict[str, Value] = {}
        self.modified: set[str] = set()
        self.storage: Mapping[str, str] = {}
        self.slotted: frozenset[str] = frozenset()
        self.helpers: dict[str, None] = {}
        self.runtime: dict[str, None] = {}
        self.operations: dict[str, int] = {}
        self.carry = "false"

    # Refusals -------------------------------------------------------------------------------------

    def refuse(
        self, instruction: Instruction, reason: str, supported: Sequence[str] = ()
    ) -> UnsupportedInstructionError:
        return UnsupportedInstructionError(
            instruction.name, instruction.place.line, reason, supported
        )

    def site(self, instruction: Instruction, space: str = "", kind: str = "", size: int = 0) -> int:
        self.sites.append(Site(instruction, space, kind, size))
        return len(self.sites) - 1

    # Values ---------------------------------------------------------------------------------------

    def entry_value(self, text: str) -> str:
        """The value of an instruction at the head of the function."""
        if text not in self._entry_values:
            name = f"%e{len(self._entry_values)}"
            self._entry_values[text] = name
            self.entry.append(f"  {name} = {text}")
        return self._entry_values[text]

    def context(self, word: Context) -> str:
        """A word of the context, as i64."""
        at = self.entry_value(f"getelementptr i64, ptr %context, i64 {int(word)}")
        return self.entry_value(f"load i64, ptr {at}")

    def context_pointer(self, word: Context) -> str:
        return self.entry_value(f"inttoptr i64 {self.context(word)} to ptr")

    def frame_at(self, word: Frame) -> str:
        return self.entry_value(f"getelementptr i32, ptr %frame, i64 {int(word)}")

    def frame_word(self, word: Frame) -> str:
        return self.entry_value(f"load i32, ptr {self.frame_at(word)}")

    def lane(self) -> str:
        return self.entry_value(f"and i32 {self.frame_word(Frame.THREAD)}, 31")

    def convert(self, value: Value, wanted: str, signed: bool = False) -> str:
        """The bits of a value as another LLVM type, cut or extended."""
        if value.type == wanted:
            return value.text
        width, wide = width_of(value.type), width_of(wanted)
        text = value.text
        if not value.type.startswith("i"):
            text = self.out.pure(f"bitcast {value.type} {text} to i{width}")
        if width != wide:
            word = "trunc" if wide < width else ("sext" if signed else "zext")
            text = self.out.pure(f"{word} i{width} {text} to i{wide}")
        if not wanted.startswith("i"):
            text = self.out.pure(f"bitcast i{wide} {text} to {wanted}")
        return text

    def register(self, name: str) -> Value:
        if name not in self.current:
            storage = self.storage[name]
            text = zero(storage)  # nobody gave it a value
            if name in self.slotted:
                text = self.out.result(f"load {storage}, ptr {self.slot(name)}")
            self.current[name] = Value(text, storage)
        return self.current[name]

    def slot(self, name: str) -> str:
        """The stack slot of a register."""
        return f'%"{name}"'

    def read(self, operand: Operand, type_name: str) -> str:
        """An operand as the LLVM type of a PTX type."""
        wanted = llvm_type(type_name)
        match operand:
            case Register(name=name):
                return self.convert(self.register(name), wanted, type_name.startswith("s"))
            case Integer(value=value):
                return self._literal(value, wanted)
            case Float():
                width = width_of(wanted)
                bits = literal_bits(operand, width) if width >= 32 else operand.bits
                return self._literal(bits, wanted)
            case Special(name=name):
                return self.convert(self._special(name), wanted)
            case Not(operand=inner):
                return self.out.pure(f"xor i1 {self.read(inner, 'pred')}, true")
            case Name(name=name, offset=offset):
                return self.convert(Value(self.variable(name, offset), "i64"), wanted)
            case _:
                raise CompileError(f"{operand} is no operand of type {type_name}")

    def _literal(self, bits: int, wanted: str) -> str:
        width = width_of(wanted)
        if width == 1:
            return "true" if bits & 1 else "false"
        return self.convert(Value(_signed(bits, width), f"i{width}"), wanted)

    def variable(self, name: str, offset: int = 0) -> str:
        """The address of a variable in its space; those of modules are generic."""
        if name not in self.symbols.offsets:
            known = ", ".join(self.symbols.offsets) or "none"
            raise CompileError(f"there is no variable {name!r}; those of the kernel: {known}")
        space, at = self.symbols.offsets[name]
        base = MODULE_REGION << REGION_SHIFT if space in ("global", "const") else 0
        return str(base + at + offset)

    def _special(self, name: str) -> Value:
        if name in _OF_FRAME:
            return Value(self.frame_word(_OF_FRAME[name]), "i32")
        if name in _OF_LAUNCH:
            return Value(self.context(_OF_LAUNCH[name]), "i64")
        if name in _CONSTANT:
            return Value(str(_CONSTANT[name]), "i32")
        lane = self.lane()
        if name == "%laneid":
            return Value(lane, "i32")
        if name == "%warpid":
            return Value(self.entry_value(f"lshr i32 {self.frame_word(Frame.THREAD)}, 5"), "i32")
        if name in _LANE_MASKS:
            return Value(self._lane_mask(_LANE_MASKS[name], lane), "i32")
        raise CompileError(f"no register {name}; those predefined here: {', '.join(SPECIALS)}")

    def _lane_mask(self, form: str, lane: str) -> str:
        bit = self.out.pure(f"shl i32 1, {lane}")
        below = self.out.pure(f"sub i32 {bit}, 1")
        terms = form.removeprefix("not ").format(bit=bit, below=below).split()
        text = terms[0]
        for term in terms[1:]:
            text = self.out.pure(f"or i32 {text}, {term}")
        return self.out.pure(f"xor i32 {text}, -1") if form.startswith("not ") else text

    def write(self, operand: Operand, text: str, type_name: str) -> None:
        """Gives a register a value of a PTX type."""
        match operand:
            case Sink():
                return
            case Register(name=name):
                width = bits_of(self.kernel.registers[name])
                value = Value(text, llvm_type(type_name))
                if width_of(value.type) != width:
                    signed = type_name.startswith("s")
                    value = Value(self.convert(value, f"i{width}", signed), f"i{width}")
                self.current[name] = value
                self.modified.add(name)
            case _:
                raise CompileError(f"{operand} cannot take a result")

    def elements(self, operand: Operand) -> tuple[Operand, ...]:
        return operand.elements if isinstance(operand, Vector) else (operand,)

    def address(self, operand: Operand) -> str:
        """The i64 of `[base + offset]`."""
        if not isinstance(operand, Address):
            raise CompileError(f"{operand} is no address")
        match operand.base:
            case None:
                return str(operand.offset)
            case Name(name=name):
                return self.variable(name, operand.offset)
            case base:
                text = self.read(base, "u64")
        return self.out.pure(f"add i64 {text}, {operand.offset}") if operand.offset else text

    # Calls ----------------------------------------------------------------------------------------

    def helper(self, name: str) -> str:
        """The name of a function out of `helpers`, which the module will have."""
        self.helpers[name] = None
        return f'@"{name}"'

    def runtime_function(self, name: str) -> str:
        self.runtime[name] = None
        return f'@"{name}"'

    def operation(self, name: str) -> int:
        """The number of a warp operation in the kernel's table."""
        return self.operations.setdefault(name, len(self.operations))

    # Blocks ---------------------------------------------------------------------------------------

    def leave_if(self, condition: str) -> None:
        """End the launch if the condition holds; who computed it has reported why."""
        going_on = self.out.fresh("on")
        self.out.effect(f"br i1 {condition}, label %fault, label {going_on}, !prof !0")
        self.out.start(going_on)

    def leave_through(self, condition: str, report: str) -> None:
        """If the condition holds, call the report and end the launch."""
        failed, going_on = self.out.fresh("failed"), self.out.fresh("on")
        self.out.effect(f"br i1 {condition}, label {failed}, label {going_on}, !prof !0")
        self.out.start(failed)
        self.out.effect(report)
        self.out.jump("%fault")
        self.out.start(going_on)

    @contextmanager
    def guarded(self, instruction: Instruction) -> Iterator[None]:
        """What is written inside happens where the instruction's guard says so."""
        if instruction.guard is None:
            yield
            return
        names = writes(instruction)
        condition = self.read(instruction.guard, "pred")
        old = {name: self.stored(name) for name in names}
        before = dict(self.current)
        origin = self.out.block
        inside, behind = self.out.fresh("if"), self.out.fresh("fi")
        self.out.branch(condition, inside, behind)
        self.out.start(inside)
        with self.out.scope():
            yield
            new = {name: self.stored(name) for name in names}
            end = self.out.block
            self.out.jump(behind)
        self.out.start(behind)
        self.current = before
        for name in names:
            storage = self.storage[name]
            text = self.out.result(
                f"phi {storage} [ {old[name]}, %{origin} ], [ {new[name]}, %{end} ]"
            )
            self.current[name] = Value(text, storage)

    def stored(self, name: str) -> str:
        """The value of a register in the type in which it lives between blocks."""
        return self.convert(self.register(name), self.storage[name])


def zero(type_name: str) -> str:
    """The zero of an LLVM type."""
    return "0" if type_name.startswith("i") else "0.0"


def _signed(value: int, width: int) -> str:
    """An integer as LLVM writes it, whose bits are those of `value`."""
    value &= (1 << width) - 1
    return str(value - (1 << width) if value >> (width - 1) else value)


Translation = Callable[[Emitter, Instruction], None]
