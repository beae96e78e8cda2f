"""The text of one LLVM function as it grows: numbered values, basic blocks, value numbering.

A pure instruction whose text was already written in a dominating place is not written again: its
text is the key of a table, and leaving a scope takes back what was learnt in it. A load is known
under its text and the version of the memory that it reads; a store makes a new version, and is
itself remembered as the value of the load that would follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_UNFIT = re.compile(r"[^A-Za-z0-9_]")


class Writer:
    """`lines` is the body so far; `allocas` go to the head of the entry block."""

    __slots__ = ("_count", "_known", "_log", "_versions", "allocas", "block", "lines")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.block = "entry"
        self._count = 0
        self._known: dict[str, str] = {}
        self._log: list[tuple[str, str | None]] = []
        self._versions: dict[str, int] = {}

    def fresh(self, hint: str = "t") -> str:
        """A local name that no other value or block of the function has."""
        self._count += 1
        return f"%{hint}{self._count}"

    def named(self, name: str) -> str:
        """A fresh local name that reminds of a name of the program."""
        # A digit at the start would make it one of LLVM's own numbered names.
        return self.fresh(f"{'_' * name[:1].isdigit()}{_UNFIT.sub('_', name)}.")

    # Instructions ---------------------------------------------------------------------------------

    def pure(self, text: str) -> str:
        """The value of an instruction that depends on its operands alone."""
        found = self._known.get(text)
        if found is None:
            self._count += 1
            found = f"%t{self._count}"
            self.lines.append(f"  {found} = {text}")
            self._remember(text, found)
        return found

    def result(self, text: str, hint: str = "t") -> str:
        """The value of an instruction that must be executed where it stands."""
        name = self.fresh(hint)
        self.lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        self.lines.append("  " + text)

    def once(self, key: str) -> bool:
        """Whether this key was not given before in a dominating place."""
        if key in self._known:
            return False
        self._remember(key, key)
        return True

    def load(self, memory: str, text: str) -> str:
        """A load from the memory of this name, or what is known to lie there."""
        key = f"{text}@{memory}.{self._versions.get(memory, 0)}"
        found = self._known.get(key)
        if found is None:
            found = self.result(text)
            self._remember(key, found)
        return found

    def knows_load(self, memory: str, text: str) -> bool:
        return f"{text}@{memory}.{self._versions.get(memory, 0)}" in self._known

    def stored(self, memory: str, load: str | None = None, value: str = "") -> None:
        """Memory was written; `load` is the text of a load that would give `value` from now on."""
        version = self._versions.get(memory, 0) + 1
        self._versions[memory] = version
        if load is not None:
            self._remember(f"{load}@{memory}.{version}", value)

    def _remember(self, key: str, value: str) -> None:
        self._log.append((key, self._known.get(key)))
        self._known[key] = value

    # Blocks ---------------------------------------------------------------------------------------

    def start(self, block: str) -> None:
        """Begin a basic block; `block` is a local name."""
        self.lines.append(f"{block[1:]}:")
        self.block = block[1:]

    def jump(self, block: str) -> None:
        self.lines.append(f"  br label {block}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.lines.append(f"  br i1 {condition}, label {then}, label {otherwise}")

    def leave_unless_zero(self, code: str) -> None:
        """Return a code from the function, unless it is 0."""
        failed, going_on = self.fresh("failed"), self.fresh("on")
        self.branch(self.pure(f"icmp ne i32 {code}, 0"), failed, going_on)
        self.start(failed)
        self.effect(f"ret i32 {code}")
        self.start(going_on)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is learnt inside is forgotten at the end, since it may not have been executed."""
        mark = len(self._log)
        try:
            yield
        finally:
            known, log = self._known, self._log
            while len(log) > mark:
                key, before = log.pop()
                if before is None:
                    del known[key]
                else:
                    known[key] = before
