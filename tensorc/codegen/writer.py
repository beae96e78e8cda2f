"""The text of one LLVM function as it grows: numbered values, basic blocks, value numbering.

A pure instruction whose text was already written in a dominating place is not written again: its
text is the key of a table, and leaving a scope takes back what was learnt in it. A load is known
under its text and the version of the memory that it reads; a store makes a new version, and is
itself remembered as the value of the load that would follow. Index arithmetic that does not change
with a loop is written in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_UNFIT = re.compile(r"[^A-Za-z0-9_]")
_OPERAND = re.compile(r"%[A-Za-z0-9_.]+")
_INDEX = re.compile(
    r"(add|sub|mul|sdiv|srem|shl|ashr|and|icmp \w+)( nsw)? i64 |getelementptr |select i1 .* i64 "
)


class Writer:
    """`lines` is the body so far; `allocas` go to the head of the entry block.

    An entry of `lines` that is a list holds the lines in front of a loop, to which more come while
    the loop is written.
    """

    __slots__ = (
        "_age", "_count", "_depths", "_fronts", "_known", "_log", "_versions", "allocas", "block",
        "lines",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lines: list[str | list[str]] = []
        self._fronts: list[list[str]] = []
        self._depths: dict[str, int] = {}
        self.allocas: list[str] = []
        self.block = "entry"
        self._count = 0
        self._age = 0
        self._known: dict[str, str] = {}
        self._log: list[tuple[str, str | None]] = []
        self._versions: dict[str, int] = {}

    def fresh(self, hint: str = "t") -> str:
        """A local name that no other value or block of the function has."""
        self._count += 1
        name = f"%{hint}{self._count}"
        if self._fronts:
            self._depths[name] = len(self._fronts)
        return name

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
            depth = self._depth(text)
            if depth < len(self._fronts):
                self._fronts[depth].append(f"  {found} = {text}")
            else:
                self.lines.append(f"  {found} = {text}")
            if depth:
                self._depths[found] = depth
            self._remember(text, found)
        return found

    def _depth(self, text: str) -> int:
        """In how many loops an instruction has to stand: as its operands, for index arithmetic."""
        if not self._fronts or not _INDEX.match(text):
            return len(self._fronts)
        return max((self._depths.get(name, 0) for name in _OPERAND.findall(text)), default=0)

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
        key = self._load_key(memory, text)
        found = self._known.get(key)
        if found is None:
            found = self.result(text)
            self._remember(key, found)
        return found

    def stored(self, memory: str, load: str | None = None, value: str = "") -> None:
        """Memory was written; `load` is the text of a load that would give `value` from now on."""
        self._versions[memory] = self._versions.get(memory, 0) + 1
        if load is not None:
            self._remember(self._load_key(memory, load), value)

    def _load_key(self, memory: str, text: str) -> str:
        return f"{text}@{memory}.{self._versions.get(memory, 0)}.{self._age}"

    def forget_loads(self) -> None:
        """Load anew what is needed from here on. To keep a value takes a register, and a load that
        comes much later is cheaper than that."""
        self._age += 1
        self.effect('fence syncscope("singlethread") acq_rel')

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
    def loop(self, front: list[str]) -> Iterator[None]:
        """The inside of a loop; `front` is the place in front of it, an entry of `lines`."""
        self._fronts.append(front)
        try:
            yield
        finally:
            self._fronts.pop()

    def body(self) -> str:
        """The text of the function's body."""
        lines = self.allocas[:]
        for line in self.lines:
            lines += line if isinstance(line, list) else (line,)
        return "\n".join(lines)

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
