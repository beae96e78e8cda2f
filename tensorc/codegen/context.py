"""What the emission of one LLVM function shares: its writer, its names and its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tensorc.codegen.passes.storage import Storage
from tensorc.codegen.values import Value
from tensorc.codegen.writer import Writer
from tensorc.ir.nodes import Buffer, Expr, Stmt
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies: a pointer, and the alignment in bytes that it is known to have.

    `elements` is their number for a buffer of our own, all of which may be touched at any time.
    With `unit`, the buffer is a set of separate stack slots of so many elements each, all of which
    are accessed whole.
    """

    pointer: str
    alignment: int
    elements: int | None = None
    unit: int = 0


class Check(NamedTuple):
    """What failed: the statement (or the loop whose bounds are computed), the buffer that it was
    about to touch ("" for none), and what is wrong."""

    statement: str
    buffer: str
    what: str


@dataclass(slots=True)
class Checks:
    """The checks of a function. `shadows` holds the shadow of each buffer that has one."""

    shadows: Mapping[str, Buffer]
    statement: str = ""
    buffer: str = ""
    table: dict[Check, int] = field(default_factory=dict)

    def code(self, what: str) -> int:
        """The code for a check at this place, from 1."""
        check = Check(self.statement, self.buffer, what)
        return self.table.setdefault(check, len(self.table) + 1)


@dataclass(slots=True)
class Module:
    """The functions of an LLVM module, as text, in the order of their making."""

    target: Target
    symbol: str
    strict: bool
    parallel: bool = False
    functions: list[str] = field(default_factory=list)
    maths: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join([*self.maths.values(), *self.functions])


Evaluate: TypeAlias = Callable[["Context", Expr], Value]
Execute: TypeAlias = Callable[["Context", Stmt], None]


class Context:
    """`variables` holds loop variables, sizes, scalar parameters and `Let`s: an int where the
    value is known here, which is how a loop is unrolled.

    `depths` counts the loops around the definition of a variable; `natural` are those that are
    never negative. `seen` are the loads that were
    performed in the statement so far, whatever the data: they may be repeated without a guard.
    `active` is the mask of the lanes whose values the statement uses.
    `evaluate` and `execute` are those of `emit_expr` and `emit_stmt`, for the modules below.
    """

    def __init__(self, module: Module, storage: Storage, evaluate: Evaluate, execute: Execute):
        self.module = module
        self.evaluate = evaluate
        self.execute = execute
        self.storage = storage
        self.slots = {slot.buffer: slot for slot in storage.slots}
        self.shared = self.worker = ""
        self.inside_parallel = False
        self.checks: Checks | None = None
        self.writes: dict[int, frozenset[str]] = {}
        self.target = module.target
        self.out = Writer()
        self.flags = "" if module.strict else "contract "
        self.variables: dict[str, int | Value] = {}
        self.places: dict[str, Place] = {}
        self.depths: dict[str, int] = {}
        self.natural: set[str] = set()
        self.depth = 0
        self.seen: frozenset[Expr] = frozenset()
        self.active: Expr | None = None
        self.units: dict[str, dict[int, str]] = {}
        self.atom_depths: dict[Expr, int] = {}
        x86 = self.target.architecture == "x86_64"
        self.rounds_in_hardware = not x86 or self.target.has("sse4.1")
        self.halves_in_hardware = (
            self.target.has("f16c") if x86 else self.target.architecture == "aarch64"
        )
