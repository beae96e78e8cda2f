"""Functions in LLVM text, written with loops and conditions: the run-time parts are such."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorc.codegen.writer import Writer

__all__ = ["Function", "Variable"]


class Variable:
    """A local variable: a stack slot that LLVM promotes."""

    def __init__(self, function: Function, type_name: str, initial: str):
        self._out, self.type = function.out, type_name
        self._slot = self._out.fresh("v")
        self._out.allocas.append(f"  {self._slot} = alloca {type_name}")
        self.set(initial)

    def get(self) -> str:
        return self._out.result(f"load {self.type}, ptr {self._slot}")

    def set(self, text: str) -> None:
        self._out.effect(f"store {self.type} {text}, ptr {self._slot}")


class Function:
    """One function as it grows. `result` is its LLVM type, `parameters` are "type %name" each."""

    def __init__(self, name: str, result: str, *parameters: str, attributes: str = ""):
        self.out = Writer()
        self.result = result
        self._head = (
            f'define {attributes} {result} @"{name}"({", ".join(parameters)}) nounwind {{\nstart:\n'
        )

    def text(self) -> str:
        return self._head + self.out.body() + "\n}\n"

    # Values ---------------------------------------------------------------------------------------

    def op(self, opcode: str, type_name: str, a: str | int, b: str | int) -> str:
        return self.out.pure(f"{opcode} {type_name} {a}, {b}")

    def add(self, a: str | int, b: str | int, type_name: str = "i64") -> str:
        return self.op("add", type_name, a, b)

    def mul(self, a: str | int, b: str | int, type_name: str = "i64") -> str:
        return self.op("mul", type_name, a, b)

    def test(self, predicate: str, type_name: str, a: str | int, b: str | int) -> str:
        return self.out.pure(f"icmp {predicate} {type_name} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.op("and", "i1", a, b)

    def either(self, a: str, b: str) -> str:
        return self.op("or", "i1", a, b)

    def no(self, a: str) -> str:
        return self.op("xor", "i1", a, "true")

    def choose(self, condition: str, type_name: str, a: str | int, b: str | int) -> str:
        return self.out.pure(f"select i1 {condition}, {type_name} {a}, {type_name} {b}")

    def cast(self, word: str, origin: str, text: str, target: str) -> str:
        return self.out.pure(f"{word} {origin} {text} to {target}")

    def wide(self, text: str) -> str:
        """An unsigned i32 as i64."""
        return self.cast("zext", "i32", text, "i64")

    def low(self, text: str) -> str:
        """The lower half of an i64."""
        return self.cast("trunc", "i64", text, "i32")

    # Memory ---------------------------------------------------------------------------------------

    def at(self, pointer: str, offset: str | int, type_name: str = "i8") -> str:
        """A pointer `offset` elements further on."""
        return self.out.pure(f"getelementptr {type_name}, ptr {pointer}, i64 {offset}")

    def load(self, type_name: str, pointer: str) -> str:
        return self.out.result(f"load {type_name}, ptr {pointer}")

    def store(self, type_name: str, text: str | int, pointer: str) -> None:
        self.out.effect(f"store {type_name} {text}, ptr {pointer}")

    def word(self, index: int, base: str = "%context") -> str:
        """A word of 8 bytes of the context, or of another table."""
        return self.load("i64", self.at(base, index, "i64"))

    def pointer(self, index: int, base: str = "%context") -> str:
        return self.load("ptr", self.at(base, index, "i64"))

    def put(self, index: int, text: str | int, base: str = "%context") -> None:
        self.store("i64", text, self.at(base, index, "i64"))

    def call(self, result: str, name: str, *arguments: str) -> str:
        text = f'call {result} @"{name}"({", ".join(arguments)})'
        if result == "void":
            self.out.effect(text)
            return ""
        return self.out.result(text)

    # Control --------------------------------------------------------------------------------------

    def variable(self, type_name: str, initial: str | int) -> Variable:
        return Variable(self, type_name, str(initial))

    def give(self, text: str | int = "") -> None:
        """Return from here; what is written next is reached by nobody until a block starts."""
        self.out.effect(f"ret {self.result} {text}".rstrip())
        self.out.start(self.out.fresh("dead"))

    def finish(self, text: str | int = "") -> str:
        """The last return, and the function's text."""
        self.out.effect(f"ret {self.result} {text}".rstrip())
        return self.text()

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        inside, behind = self.out.fresh("then"), self.out.fresh("done")
        self.out.branch(condition, inside, behind)
        self.out.start(inside)
        with self.out.scope():
            yield
        self.out.jump(behind)
        self.out.start(behind)

    @contextmanager
    def below(self, count: str | int) -> Iterator[str]:
        """A loop over i64 indices from 0 to `count` - 1."""
        index = self.variable("i64", 0)
        with self.repeat() as leave:
            at = index.get()
            leave(self.test("uge", "i64", at, count))
            yield at
            index.set(self.out.result(f"add i64 {at}, 1"))

    @contextmanager
    def repeat(self) -> Iterator[Leave]:
        """A loop that goes on until what it yields is called with a condition that holds."""
        head, behind = self.out.fresh("loop"), self.out.fresh("behind")
        self.out.jump(head)
        self.out.start(head)
        with self.out.scope():
            yield Leave(self, behind)
            self.out.jump(head)
        self.out.start(behind)


class Leave:
    """The way out of a loop."""

    def __init__(self, function: Function, target: str):
        self._out, self._target = function.out, target

    def __call__(self, condition: str) -> None:
        going_on = self._out.fresh("on")
        self._out.branch(condition, self._target, going_on)
        self._out.start(going_on)
