"""The reader of one kernel: its parameters, limits, registers, labels and instructions."""

from __future__ import annotations

from tensorc.emulator.ptx import (
    Address,
    Function,
    Instruction,
    Integer,
    Kernel,
    Label,
    Name,
    Not,
    Operand,
    Pair,
    Parameter,
    Place,
    Register,
    Sink,
    Special,
    Variable,
    Vector,
    bits_of,
)
from tensorc.emulator.ptx_declarations import SPACES, Declarations
from tensorc.emulator.ptx_tokens import END, float_literal

# The most bytes of parameters that a kernel may have (section 10.1 of the CUDA C++ Programming
# Guide: 4 KiB before sm_70), and more registers than a compiler gives out.
_PARAMETER_BYTES = 32764
_REGISTERS = 1 << 20


class KernelReader:
    """One kernel, and the scopes of names within it."""

    def __init__(self, reader: Declarations):
        self.tokens = reader
        self.parameters: list[Parameter] = []
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.body: list[Instruction | Label] = []
        self.targets: dict[str, tuple[str, ...]] = {}
        self.scopes: list[dict[str, str]] = []
        self.scope_count = 0
        self.source: tuple[str, int, int] = ("", 0, 0)

    def kernel(self) -> Kernel:
        tokens = self.tokens
        tokens.expect(".entry")
        name = tokens.word("the name of a kernel")
        if tokens.accept("("):
            while not tokens.accept(")"):
                self.parameter()
                tokens.accept(",")
        threads, exact = self.limits()
        self.block()
        return Kernel(
            name,
            tuple(self.parameters),
            self.registers,
            tuple(self.variables),
            tuple(self.body),
            threads,
            exact,
            self.targets,
        )

    def function(self) -> list[Function]:
        """A function with a body; none where it is only declared."""
        tokens = self.tokens
        tokens.expect(".func")
        results = self.function_parameters()
        name = tokens.word("the name of a function")
        parameters = self.function_parameters()
        while tokens.text not in ("{", ";"):
            tokens.take()  # .noreturn, .attribute(...) and the like
        if tokens.accept(";"):
            return []
        self.block()
        return [
            Function(
                name, results, parameters, self.registers, tuple(self.variables),
                tuple(self.body), self.targets,
            )
        ]  # fmt: skip

    def function_parameters(self) -> tuple[str, ...]:
        first = len(self.parameters)
        if self.tokens.accept("("):
            while not self.tokens.accept(")"):
                self.parameter()
                self.tokens.accept(",")
        return tuple(parameter.name for parameter in self.parameters[first:])

    def parameter(self) -> None:
        tokens = self.tokens
        tokens.expect(".param")
        align, element = tokens.shape()
        name = tokens.word("the name of a parameter")
        count = tokens.dimensions()
        if count is None:
            raise tokens.error("a parameter has a size")
        size = count * bits_of(element) // 8
        end = max((p.offset + p.size for p in self.parameters), default=0)
        at = -(-end // align) * align
        if at + size > _PARAMETER_BYTES:
            raise tokens.error(f"the parameters have more than {_PARAMETER_BYTES} bytes")
        self.parameters.append(Parameter(name, element, size, at))

    def limits(self) -> tuple[int | None, tuple[int, int, int] | None]:
        """The directives between parameters and body that limit a launch."""
        threads, exact = None, None
        tokens = self.tokens
        while tokens.text != "{":
            directive = tokens.take()
            numbers: list[int] = []
            while tokens.kind == "number":
                numbers.append(tokens.integer())
                tokens.accept(",")
            if directive in (".maxntid", ".reqntid"):
                x, y, z = (*numbers, 1, 1)[:3]
                threads = x * y * z
                exact = (x, y, z) if directive == ".reqntid" else exact
            elif directive in (".reqnctapercluster", ".explicitcluster"):
                raise tokens.error("clusters of blocks are not emulated")
            elif directive == ".pragma":
                tokens.skip_past(";")
        return threads, exact

    # Statements -----------------------------------------------------------------------------------

    def block(self) -> None:
        """`{ ... }`, a scope of names."""
        tokens = self.tokens
        tokens.expect("{")
        number = self.scope_count
        self.scopes.append(self.labels(number))
        self.scope_count += 1
        while not tokens.accept("}"):
            self.statement(number)
        self.scopes.pop()

    def labels(self, scope: int) -> dict[str, str]:
        """The labels of the scope that begins here: other ones may have labels of the same names,
        and branches come before them."""
        tokens, found = self.tokens, dict[str, str]()
        start, depth = tokens.at, 0
        while tokens.kind != END and depth >= 0:
            word, text = tokens.kind == "word", tokens.take()
            depth += {"{": 1, "}": -1}.get(text, 0)
            if word and depth == 0 and tokens.text == ":":
                if text in found:
                    raise tokens.error(f"there is a label {text} already")
                found[text] = text if scope == 0 else f"{text}#{scope}"
        tokens.at = start
        return found

    def statement(self, scope: int) -> None:
        tokens = self.tokens
        match tokens.text:
            case "{":
                self.block()
            case ".reg":
                self.registers_of(scope)
            case ".loc":
                self.location()
            case ".file":
                tokens.file_name()
            case ".pragma":
                tokens.skip_past(";")
            case ".param":
                self.call_parameter()
            case text if text in SPACES:
                self.variables.append(tokens.variable())
            case _:
                self.labelled_or_instruction()

    def call_parameter(self) -> None:
        """An argument or result of a call is a variable of the caller, with a name of its own."""
        tokens = self.tokens
        tokens.take()
        align, element = tokens.shape()
        name = tokens.word("the name of a parameter")
        count = tokens.dimensions() or 0
        tokens.expect(";")
        unique = f"{name}#{self.scope_count}.{len(self.variables)}"
        self.scopes[-1][name] = unique
        size = count * bits_of(element) // 8
        self.variables.append(Variable(unique, "local", align, size))

    def registers_of(self, scope: int) -> None:
        tokens = self.tokens
        tokens.take()
        type_name = tokens.take()[1:]
        if not bits_of(type_name):
            raise tokens.error(f"registers of type .{type_name} are not emulated")
        while True:
            name = tokens.word("the name of a register")
            names = [name]
            if tokens.accept("<"):
                names = [f"{name}{number}" for number in range(tokens.count(name, _REGISTERS))]
                tokens.expect(">")
            for each in names:
                unique = each if scope == 0 else f"{each}#{scope}"
                self.scopes[-1][each] = unique
                self.registers[unique] = type_name
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def location(self) -> None:
        """`.loc file line column[, function_name label, inlined_at file line column]`."""
        tokens = self.tokens
        tokens.take()
        file, line = tokens.integer(), tokens.integer()
        tokens.integer()
        caller = 0
        while tokens.accept(","):
            match tokens.word("function_name or inlined_at"):
                case "function_name":
                    tokens.word("a label")
                    if tokens.accept("+"):
                        tokens.integer()
                case _:
                    tokens.integer()
                    caller = tokens.integer()
                    tokens.integer()
        if line:
            self.source = (tokens.files.get(file, str(file)), line, caller)

    def labelled_or_instruction(self) -> None:
        tokens = self.tokens
        if tokens.kind == "word":
            start = tokens.at
            name = tokens.take()
            if tokens.accept(":"):
                if tokens.text in (".branchtargets", ".callprototype"):
                    self.branch_targets(name)
                else:
                    self.body.append(Label(self.scopes[-1][name]))
                return
            tokens.at = start
        self.instruction()

    def branch_targets(self, name: str) -> None:
        tokens = self.tokens
        if tokens.take() == ".callprototype":
            tokens.skip_past(";")
            return
        labels = [self.label()]
        while tokens.accept(","):
            labels.append(self.label())
        tokens.expect(";")
        self.targets[self.scopes[-1][name]] = tuple(labels)

    def label(self) -> str:
        name = self.tokens.word("a label")
        found = self.named(name)
        return found.name if isinstance(found, Name) else name

    def instruction(self) -> None:
        tokens = self.tokens
        place = Place(tokens.line, *self.source)
        guard: Operand | None = None
        if tokens.accept("@"):
            negated = tokens.accept("!")
            predicate = self.named(tokens.word("a predicate"))
            guard = Not(predicate) if negated else predicate
        opcode, *modifiers = tokens.word("an instruction").split(".")
        operands: list[Operand] = []
        while not tokens.accept(";"):
            if operands:
                tokens.expect(",")
            operands.append(self.operand())
        self.body.append(Instruction(opcode, tuple(modifiers), tuple(operands), guard, place))

    # Operands -------------------------------------------------------------------------------------

    def operand(self) -> Operand:
        tokens = self.tokens
        match tokens.text:
            case "{":
                return Vector(self.listed("{", "}"))
            case "(":
                return Vector(self.listed("(", ")"))
            case "[":
                return self.address()
            case "!":
                tokens.take()
                return Not(self.named(tokens.word("a predicate")))
        if tokens.kind == "float":
            return float_literal(tokens.take())
        if tokens.kind != "word":
            return Integer(tokens.integer())
        found = self.named(tokens.take())
        if tokens.accept("|"):
            return Pair(found, self.operand())
        if isinstance(found, Name) and tokens.text in ("+", "-"):
            tokens.accept("+")
            return Name(found.name, tokens.integer())
        return found

    def listed(self, opening: str, closing: str) -> tuple[Operand, ...]:
        tokens = self.tokens
        tokens.expect(opening)
        elements: list[Operand] = []
        while not tokens.accept(closing):
            if elements:
                tokens.expect(",")
            elements.append(self.operand())
        return tuple(elements)

    def address(self) -> Address:
        tokens = self.tokens
        tokens.expect("[")
        base: Register | Name | None = None
        offset = 0
        if tokens.kind == "word":
            found = self.named(tokens.take())
            if not isinstance(found, Register | Name):
                raise tokens.error("an address is a register or a variable, with an offset")
            base = found
            if tokens.text in ("+", "-"):
                tokens.accept("+")
                offset = tokens.integer()
        else:
            offset = tokens.integer()
        tokens.expect("]")
        return Address(base, offset)

    def named(self, name: str) -> Register | Special | Name | Sink:
        if name == "_":
            return Sink()
        for scope in reversed(self.scopes):
            if name in scope:
                found = scope[name]
                return Register(found) if found in self.registers else Name(found)
        return Special(name) if name.startswith("%") or name == "WARP_SZ" else Name(name)
