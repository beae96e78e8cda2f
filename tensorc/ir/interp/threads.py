"""Kernels as their threads run them: from barrier to barrier, one thread after another.

A phase of a block is not run where it stands: it is put down, with the values that it needs, until
a barrier or the end of the block. Then each thread, in an order drawn from a seed, runs its part of
all that has been put down. So threads run as far ahead of each other as the barriers let them.
"""

from __future__ import annotations

from tensorc.ir.grid import (
    THREADS,
    Kernel,
    axis_of,
    extent_of,
    group_of,
    is_across,
    is_block,
    is_thread,
    kernels,
)
from tensorc.ir.interp.program import Statements
from tensorc.ir.interp.together import run_threads
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Commit,
    For,
    If,
    MaskedStore,
    Reduce,
    Seq,
    Stmt,
    Store,
    Wait,
)
from tensorc.ir.walk import nodes

PENDING = "pending = []"


class ThreadStatements(Statements):
    """Generates the statements of a function whose bound loops run as threads."""

    thread = "place"
    kernel: Kernel | None = None
    inside = entering = False
    settled: frozenset[str] = frozenset()

    def _stmt(self, stmt: Stmt) -> None:
        if self.kernel is None and isinstance(stmt, For) and (is_block(stmt) or is_thread(stmt)):
            self._kernel(stmt)
        elif self.kernel is None or (not self.inside and not _is_phase(stmt)):
            self._outside(stmt)
        elif self.inside:
            self._in_thread(stmt)
        else:
            self._phase(stmt)

    def _outside(self, stmt: Stmt) -> None:
        match stmt:
            case Barrier():
                self._flush()
            case Commit():
                self._line("pending.append((copies.commit, ()))")
            case Wait(groups=groups):
                self._line(f"pending.append((copies.wait, ({groups},)))")
            case _:
                super()._stmt(stmt)

    def _kernel(self, loop: For) -> None:
        """A grid: its blocks one after the other, and all that a block has put down at its end."""
        self.kernel = next(k for k in kernels(self.func) if self._same(k, loop))
        if is_block(loop):
            super()._stmt(loop)
        else:
            self._block(loop)
        self.kernel = None

    def _same(self, kernel: Kernel, loop: For) -> bool:
        first = kernel.blocks[0][1] if kernel.blocks else next(iter(kernel.outermost()))[1]
        return first.var == loop.var

    def _nested(self, body: Stmt) -> None:
        """The body of the innermost loop bound to blocks is what a block runs."""
        if self.entering:
            self.entering = False
            with self._indented():
                self._block(body)
        else:
            super()._nested(body)

    def _block(self, body: Stmt) -> None:
        if PENDING not in self.source.functions:
            # Where the functions that deep nests are split into see it, too.
            self.source.functions.append(PENDING)
        self._stmt(body)
        self._flush()

    def _flush(self) -> None:
        assert self.kernel is not None
        x, y, z = self.kernel.block()
        if next(self.kernel.across(), None) is not None:
            self.source.constants["run_threads"] = run_threads
            self._line(f"run_threads(pending, ({x}, {y}, {z}), permute)")
            self._line("pending.clear()")
            return
        self._line(f"for thread in permute(range({x * y * z})):")
        self._line(f" place = (thread % {x}, thread // {x} % {y}, thread // {x * y})")
        self._line(" for part, given in pending: part(place, *given)")
        self._line("pending.clear()")

    def _phase(self, stmt: Stmt) -> None:
        """Put a phase down, with the values of all names that it can see."""
        lines, indent = self.lines, self.indent
        self.lines, self.indent, self.inside = [], 0, True
        self._in_thread(stmt)
        body, self.lines, self.indent, self.inside = self.lines, lines, indent, False
        name, names = self.source.fresh("phase"), self.scope.names()
        text = "".join(f"\n  {line}" for line in body)
        self.source.functions.append(
            f"def {name}({', '.join(filter(None, ('place', names)))}):{text}"
        )
        together = "".join(f", {_together(x)}" for x in nodes(stmt, For) if is_across(x))
        self._line(f"pending.append(({name}, ({names}{',' if names else ''}){together}))")

    # Within a phase -------------------------------------------------------------------------------

    def _in_thread(self, stmt: Stmt) -> None:
        """What lies in no loop of an axis is left to the first thread on it."""
        assert self.kernel is not None
        within = {axis_of(loop) for loop in nodes(stmt, For)}
        sizes = zip(THREADS, self.kernel.block(), strict=True)
        alone = [a for a, n in sizes if n > 1 and a not in self.settled and a not in within]
        before, self.settled = self.settled, self.settled.union(alone)
        if alone:
            self._line(f"if {' and '.join(f'not place[{THREADS.index(a)}]' for a in alone)}:")
            with self._indented():
                super()._stmt(stmt)
        else:
            super()._stmt(stmt)
        self.settled = before

    def _for(self, stmt: For) -> None:
        axis = axis_of(stmt)
        if axis not in THREADS:
            blocks = () if self.kernel is None else self.kernel.blocks
            self.entering = bool(blocks) and blocks[-1][1].var == stmt.var
            super()._for(stmt)
            return
        begin, end = self.expressions.value(stmt.begin), self.expressions.value(stmt.end)
        at, before = f"({begin}) + place[{THREADS.index(axis)}]", self.settled
        self.settled |= {axis}
        count = group_of(stmt) if is_across(stmt) else 1
        self._run(stmt, f"range({at}, min({at} + {count}, {end}))")
        self.settled = before


def _together(loop: For) -> tuple[int, int, int]:
    """Which threads combine the iterations of a loop: the axis, and how many of how many do."""
    return THREADS.index(str(axis_of(loop))), group_of(loop), extent_of(loop) or 0


def _is_phase(stmt: Stmt) -> bool:
    """Whether a thread runs a statement in one piece: it is bound to threads, or no part of it is,
    and no barrier stands in it."""
    match stmt:
        case For() if is_thread(stmt):
            return True
        case For() if is_block(stmt):
            return False
        case For() | If():
            threads = any(map(is_thread, nodes(stmt, For)))
            return not threads and next(nodes(stmt, Barrier), None) is None
        case Seq() | Alloc():
            return False
    return isinstance(stmt, Store | Reduce | MaskedStore | AsyncCopy)
