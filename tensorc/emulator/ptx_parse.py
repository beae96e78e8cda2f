"""A reader of PTX: text to `ptx.Module`.

A recursive descent over tokens. It takes the language's form and no more than the emulator has a
meaning for; what it refuses it names, with line and column. Debugging sections, pragmas and hints
of performance are read over.
"""

from __future__ import annotations

from tensorc.emulator.ptx import Function, Kernel, Module, Variable
from tensorc.emulator.ptx_declarations import SPACES, Declarations
from tensorc.emulator.ptx_kernel import KernelReader
from tensorc.emulator.ptx_tokens import END, PtxError

__all__ = ["PtxError", "parse_ptx"]

_LINKAGE = (".visible", ".extern", ".weak", ".common")


def parse_ptx(text: str, file: str = "<ptx>") -> Module:
    """Reads a PTX text.

    Raises:
        PtxError: the text is not PTX as far as this reader goes; it has line and column.
    """
    reader = _Reader(text, file)
    try:
        return reader.module()
    except RecursionError:
        raise reader.error("scopes or operands are nested too deeply") from None


class _Reader(Declarations):
    """The directives of a module."""

    def __init__(self, text: str, file: str):
        super().__init__(text, file)
        self.functions: list[Function] = []

    def module(self) -> Module:
        version = target = ""
        variables: list[Variable] = []
        kernels: list[Kernel] = []
        while self.kind != END:
            match self.text:
                case ".version":
                    self.take()
                    version = self.take()
                case ".target":
                    target = self.target()
                case ".address_size":
                    self.address_size()
                case ".file":
                    self.file_name()
                case ".section":
                    self.take()
                    self.take()
                    self.skip_braces()
                case _:
                    self.declaration(variables, kernels)
        if not version:
            raise self.error("a PTX text begins with .version")
        return Module(version, target, tuple(variables), tuple(kernels), tuple(self.functions))

    def target(self) -> str:
        self.take()
        target = self.word("a target")
        while self.accept(","):
            self.word("an option of the target")
        return target

    def address_size(self) -> None:
        self.take()
        if self.text != "64":
            raise self.error("only 64-bit addresses are emulated")
        self.take()

    def declaration(self, variables: list[Variable], kernels: list[Kernel]) -> None:
        while self.text in _LINKAGE:
            self.take()
        match self.text:
            case ".entry":
                start = self.at
                kernels.append(KernelReader(self).kernel())
                if kernels[-1].name in {kernel.name for kernel in kernels[:-1]}:
                    self.at = start
                    raise self.error(f"there is a kernel {kernels[-1].name} already")
            case ".func":
                self.functions += KernelReader(self).function()
            case ".pragma":
                self.skip_past(";")
            case text if text in SPACES:
                variables.append(self.variable())
            case _:
                raise self.error(f"expected a declaration, not {self.text}")
