"""Calls of functions, replaced by their bodies.

The arguments and results of a call are variables of the caller in local memory. The body's
registers, labels and local variables get names of their own at each call; its shared variables
exist once. A function that leads back to itself is left, for the lowering to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from tensorc.emulator.ptx import (
    Address,
    Function,
    Instruction,
    Kernel,
    Label,
    Module,
    Name,
    Not,
    Operand,
    Pair,
    Register,
    Variable,
    Vector,
)

__all__ = ["inlined"]


def inlined(module: Module) -> Module:
    """The module with kernels that call none of its functions, except recursive ones."""
    functions = {function.name: function for function in module.functions}
    if not functions:
        return module
    kernels = tuple(_Inliner(functions).kernel(kernel) for kernel in module.kernels)
    return replace(module, kernels=kernels)


class _Inliner:
    def __init__(self, functions: Mapping[str, Function]):
        self.functions = functions
        self.numbers = count()
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.targets: dict[str, tuple[str, ...]] = {}

    def kernel(self, kernel: Kernel) -> Kernel:
        self.registers |= kernel.registers
        self.variables |= {variable.name: variable for variable in kernel.variables}
        self.targets |= kernel.targets
        body = tuple(self.expanded(kernel.body, ()))
        return replace(
            kernel,
            registers=self.registers,
            variables=tuple(self.variables.values()),
            body=body,
            targets=self.targets,
        )

    def expanded(
        self, body: tuple[Instruction | Label, ...], within: tuple[str, ...]
    ) -> Iterator[Instruction | Label]:
        for item in body:
            name = _called(item, self.functions)
            if name is None or name in within or isinstance(item, Label):
                yield item
            else:
                yield from self.call(item, self.functions[name], (*within, name))

    def call(
        self, call: Instruction, function: Function, within: tuple[str, ...]
    ) -> Iterator[Instruction | Label]:
        names = self.renamed(call, function)
        behind = f"behind~{next(self.numbers)}"
        if call.guard is not None:
            yield _branch(behind, _opposite(call.guard), call)
        for item in self.expanded(function.body, within):
            yield names.item(item, behind)
        yield Label(behind)

    def renamed(self, call: Instruction, function: Function) -> _Names:
        number = next(self.numbers)
        names: dict[str, str] = {}
        for name, type_name in function.registers.items():
            names[name] = f"{name}~{number}"
            self.registers[names[name]] = type_name
        for variable in function.variables:
            names[variable.name] = variable.name
            if variable.space == "local":
                names[variable.name] = f"{variable.name}~{number}"
            new = names[variable.name]
            self.variables[new] = replace(variable, name=new)
        labels = {item.name for item in function.body if isinstance(item, Label)}
        for label in (*labels, *function.targets):
            names[label] = f"{label}~{number}"
        for label, targets in function.targets.items():
            self.targets[names[label]] = tuple(names[target] for target in targets)
        given, taken = _arguments(call)
        names |= dict(zip(function.parameters, given, strict=True))
        names |= dict(zip(function.results, taken, strict=True))
        return _Names(names)


def _called(item: Instruction | Label, functions: Mapping[str, Function]) -> str | None:
    if isinstance(item, Instruction) and item.opcode == "call":
        for operand in item.operands:
            if isinstance(operand, Name) and operand.name in functions:
                return operand.name
    return None


def _arguments(call: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the variables that a call gives and takes."""
    place = next(n for n, operand in enumerate(call.operands) if isinstance(operand, Name))
    parts = [
        tuple(e.name for operand in part if isinstance(operand, Vector) for e in operand.elements
              if isinstance(e, Name))
        for part in (call.operands[place + 1 :], call.operands[:place])
    ]  # fmt: skip
    return parts[0], parts[1]


def _branch(label: str, guard: Operand | None, instruction: Instruction) -> Instruction:
    return Instruction("bra", (), (Name(label),), guard, instruction.place)


def _opposite(guard: Operand) -> Operand:
    return guard.operand if isinstance(guard, Not) else Not(guard)


@dataclass(frozen=True, slots=True)
class _Names:
    """New names of a body's registers, labels, variables and parameters."""

    names: Mapping[str, str]

    def item(self, item: Instruction | Label, behind: str) -> Instruction | Label:
        if isinstance(item, Label):
            return Label(self.names.get(item.name, item.name))
        guard = None if item.guard is None else self.operand(item.guard)
        if item.opcode == "ret":
            return _branch(behind, guard, item)
        return replace(item, guard=guard, operands=tuple(map(self.operand, item.operands)))

    def operand(self, operand: Operand) -> Operand:
        match operand:
            case Register(name=name):
                return Register(self.names.get(name, name))
            case Name(name=name, offset=offset):
                return Name(self.names.get(name, name), offset)
            case Not(operand=inner):
                return Not(self.operand(inner))
            case Vector(elements=elements):
                return Vector(tuple(map(self.operand, elements)))
            case Pair(first=first, second=second):
                return Pair(self.operand(first), self.operand(second))
            case Address(base=Register() | Name() as base, offset=offset):
                renamed = self.operand(base)
                assert isinstance(renamed, Register | Name)
                return Address(renamed, offset)
            case _:
                return operand
