"""What generated code shares: names, constants, and what is known at one place of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorc.ir.interp.ranges import Range
from tensorc.ir.interp.sites import Site
from tensorc.ir.nodes import Buffer


@dataclass(frozen=True, slots=True)
class Slot:
    """How generated code refers to a buffer: the list of its elements, and its extents."""

    buffer: Buffer
    name: str
    extents: tuple[str, ...]
    instance: str
    starts_undefined: bool
    writable: bool


@dataclass(slots=True)
class Scope:
    """The names that generated code may use at one place, and what is known of them."""

    variables: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    loops: tuple[str, ...] = ()
    statement: str = ""
    in_lanes: bool = False

    def loop_values(self) -> str:
        return tuple_of([self.variables[name] for name in self.loops])

    def names(self) -> str:
        """Every name of Python that is in scope: what a function split off here takes."""
        found = [*self.variables.values(), *(["lane"] if self.in_lanes else [])]
        for slot in self.slots.values():
            found += [slot.name, *slot.extents, slot.instance]
        return ", ".join(dict.fromkeys(name for name in found if name.isidentifier()))


@dataclass(slots=True)
class Source:
    """Fresh names, the constants of the generated module, and the functions split off in it.

    Some fresh names also become variables of the program, so none is in `reserved`.
    """

    reserved: frozenset[str] = frozenset()
    constants: dict[str, object] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    sites: dict[Site, str] = field(default_factory=dict)
    count: int = 0

    def fresh(self, hint: str) -> str:
        letters = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint)
        while True:
            self.count += 1
            name = f"{letters if letters[:1].isalpha() else 'v' + letters}_{self.count}"
            if name not in self.reserved:
                return name

    def site(self, scope: Scope, buffer: Buffer) -> str:
        """The name of the constant that stands for an access to `buffer` here."""
        site = Site(scope.statement, buffer.name, scope.loops)
        if site not in self.sites:
            self.sites[site] = self.fresh("site")
            self.constants[self.sites[site]] = site
        return self.sites[site]

    def split_off(self, lines: Sequence[str], scope: Scope) -> str:
        """Make a function of some lines; the source of a call to it."""
        name, arguments = self.fresh("part"), scope.names()
        body = "".join(f"\n  {line}" for line in lines)
        self.functions.append(f"def {name}({arguments}):{body}")
        return f"{name}({arguments})"


def tuple_of(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
