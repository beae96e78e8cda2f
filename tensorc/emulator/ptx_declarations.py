"""Variables, parameters and file names of a PTX text."""

from __future__ import annotations

from pathlib import PurePosixPath

from tensorc.emulator.ptx import Space, Variable, bits_of
from tensorc.emulator.ptx_tokens import END, Tokens, float_literal, literal_bits

# Bytes of one variable, which a launch or a load of the module allocates.
_LARGEST = 1 << 31

SPACES: dict[str, Space] = {
    ".shared": "shared",
    ".global": "global",
    ".const": "const",
    ".local": "local",
}


class Declarations(Tokens):
    """What modules and kernels declare alike. `files` are the names that `.file` gives."""

    def __init__(self, text: str, file: str):
        super().__init__(text, file)
        self.files: dict[int, str] = {}
        # The names come at the end of the text, their uses before.
        while self.kind != END:
            if self.text == ".file":
                self.file_name()
            else:
                self.take()
        self.at = 0

    def file_name(self) -> None:
        self.take()
        number = self.integer()
        self.files[number] = PurePosixPath(self.take().strip('"').replace("\\", "/")).name
        while self.accept(","):
            self.integer()

    def variable(self) -> Variable:
        space = SPACES[self.take()]
        align, element = self.shape()
        name = self.word("the name of a variable")
        count = self.dimensions()
        initial = self.initial(element) if self.accept("=") else None
        self.expect(";")
        size = None if count is None else count * bits_of(element) // 8
        if initial is not None and size is not None:
            if len(initial) > size:
                raise self.error(f"{name} has {size} bytes and initial values for {len(initial)}")
            initial = initial.ljust(size, b"\0")
        return Variable(name, space, align, size, initial)

    def dimensions(self) -> int | None:
        """The product of `[n]...`; None for `[]`, whose size the launch gives."""
        count = 1
        while self.accept("["):
            if self.accept("]"):
                return None
            count *= self.count("an extent", _LARGEST // max(count, 1))
            self.expect("]")
        return count

    def shape(self) -> tuple[int, str]:
        """Alignment and element type; what a pointer points to (`.ptr ...`) is read over."""
        align, element, pointer = 0, "", False
        while self.kind == "directive":
            if self.accept(".align"):
                number = self.alignment()
                align = align if pointer else number
            elif self.text == ".ptr" or (pointer and self.text in SPACES):
                self.take()
                pointer = True
            elif bits_of(self.text[1:]):
                element = self.take()[1:]
            else:
                raise self.error(f"a variable of type {self.text} is not emulated")
        if not element:
            raise self.error(f"expected a type, not {self.text}")
        return align or bits_of(element) // 8, element

    def alignment(self) -> int:
        number = self.integer()
        if number < 1 or number & (number - 1):
            raise self.error(f"an alignment is a power of two, not {number}")
        return number

    def initial(self, element: str) -> bytes:
        width = bits_of(element) // 8
        braces = self.accept("{")
        values = [self.constant(width)]
        while braces and self.accept(","):
            values.append(self.constant(width))
        if braces:
            self.expect("}")
        mask = (1 << 8 * width) - 1
        return b"".join((value & mask).to_bytes(width, "little") for value in values)

    def constant(self, width: int) -> int:
        if self.kind == "float":
            return literal_bits(float_literal(self.take()), 8 * width)
        if self.kind == "word":
            raise self.error("an address as an initial value is not emulated")
        return self.integer()
