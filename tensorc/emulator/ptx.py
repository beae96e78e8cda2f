"""PTX as data: modules, kernels, variables, instructions and their operands.

The language is NVIDIA's "Parallel Thread Execution ISA"; section numbers in this package are those
of its version 9.0. Names of registers that inline assembly declares in a scope of its own carry the
scope's number (`p#3`), so that a name is one register in the whole kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Address",
    "Float",
    "Function",
    "Instruction",
    "Integer",
    "Kernel",
    "Label",
    "Module",
    "Name",
    "Not",
    "Operand",
    "Pair",
    "Parameter",
    "Place",
    "Register",
    "Sink",
    "Special",
    "Variable",
    "Vector",
    "bits_of",
]

Space = Literal["shared", "global", "const", "local"]

_BITS = {"pred": 1, "f16x2": 32, "bf16x2": 32, "bf16": 16, "tf32": 32}


def bits_of(type_name: str) -> int:
    """The width of a fundamental type (section 5.2), such as 32 for "f32"; 0 if it is none."""
    if type_name in _BITS:
        return _BITS[type_name]
    number = type_name[1:]
    if type_name[:1] in "bsuf" and number in ("8", "16", "32", "64", "128"):
        return int(number)
    return 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instruction comes from: its line of PTX, and the source's where `.loc` tells it.

    `caller` is the line that the innermost call, inlined there, stands at; 0 where there is none.
    """

    line: int
    file: str = ""
    source_line: int = 0
    caller: int = 0

    def __str__(self) -> str:
        if not self.source_line:
            return f"PTX line {self.line}"
        called = f", called at line {self.caller}" if self.caller else ""
        return f"{self.file}:{self.source_line}{called} (PTX line {self.line})"


@dataclass(frozen=True, slots=True)
class Register:
    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A predefined register, such as %tid.x or %laneid."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer:
    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A literal 0f... (32 bits) or 0d... (64), as its bits."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, a function or a label; a variable may have an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Not:
    """`!p` of a predicate."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Vector:
    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; without a base the offset is the address."""

    base: Register | Name | None
    offset: int


Operand: TypeAlias = (
    Register | Special | Integer | Float | Name | Sink | Not | Vector | Pair | Address
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard opcode.modifiers operands;`."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand | None
    place: Place

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    @property
    def types(self) -> tuple[str, ...]:
        """The modifiers that are types, in order."""
        return tuple(part for part in self.modifiers if bits_of(part))


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Bytes in a state space; `size` is None for dynamic shared memory, which the launch sizes."""

    name: str
    space: Space
    align: int
    size: int | None
    initial: bytes | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: `size` bytes at `offset` of the parameters."""

    name: str
    type: str
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """`threads` is the limit of .maxntid or .reqntid; `exact` the block that the latter demands."""

    name: str
    parameters: tuple[Parameter, ...]
    registers: Mapping[str, str]
    variables: tuple[Variable, ...]
    body: tuple[Instruction | Label, ...]
    threads: int | None
    exact: tuple[int, int, int] | None
    targets: Mapping[str, tuple[str, ...]]

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset + p.size for p in self.parameters), default=0)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the device: names of its results and parameters, and its body."""

    name: str
    results: tuple[str, ...]
    parameters: tuple[str, ...]
    registers: Mapping[str, str]
    variables: tuple[Variable, ...]
    body: tuple[Instruction | Label, ...]
    targets: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX text: its version and target as written, its variables, kernels and functions."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    kernels: tuple[Kernel, ...]
    functions: tuple[Function, ...]
