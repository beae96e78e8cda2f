"""bind: a loop runs on the blocks or the threads of a CUDA grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.across import across, combinable, combined
from tensorc.analysis.legality import concurrent
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.errors import Kind
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.grid import AXES, BIND, THREADS
from tensorc.ir.nodes import For, LoopKind, Reduce
from tensorc.ir.walk import enclosing, replace
from tensorc.schedule.rewrite import put
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, check_loops, check_serial


@dataclass(frozen=True, slots=True)
class Bind(Step):
    """Run the iterations of a loop at the same time, on an axis of a CUDA grid.

    The axes are blockIdx.x, .y, .z, threadIdx.x, .y, .z, and "vthread". The outermost bound loop
    of a nest is one kernel: its blocks run in any order and share nothing but global memory. The
    loops bound to threads in it need not stand in one nest; each outermost one of them is a phase
    of the block, and the code generator puts a barrier between two phases where a value passes
    from one thread to another. A statement in no such loop is run by the first thread. Loops of
    different extents may be bound to one axis: threads past the end of one skip it. The
    iterations of a virtual thread are written out in each thread.

    A loop that carries nothing but reductions may be bound to threads, too. It stays a serial loop:
    each thread reduces its iteration into an element of its own, then the threads combine these, by
    shuffles within a warp and through shared memory across warps. This reassociates.

    rewrite:
        for i in range(4):
            for j in range(64):
                B[i, j] = A[i, j]
      bind("i", "blockIdx.x")
        for i in parallel(4, bind="blockIdx.x"):
            for j in range(64):
                B[i, j] = A[i, j]

    legal when:
        the loop exists (REF001, REF002), is serial and not inside a vector (STR003); the axis is
        one of those named, and the target is a cuda one (ARG001)
        no dependence connects two of its iterations (DEP001), not even a reduction's own; but
        threads combine a reduction into one element, which nothing else touches in the loop
        threads that combine do so in a loop that is bound to threads alone and in full (STR009),
        where it can be written which iterations there are (UNS003), and not under strict_float
        if the operator rounds (FLT001)
        loops bound to blocks are the outermost of a kernel, directly in each other, and no axis
        is bound twice on the way to a statement (STR009); their bounds do not read each other
        (STR006); the extent of threads is a constant (STR004)
        extents, the threads of a block and its shared memory are within the device's limits
        (TGT001)
        shared memory, of a size that is known (STR004), is allocated around the threads (STR002),
        local and register memory not around the grid (STR003)
        within a phase, and through a register or local temporary, no dependence connects two
        threads (DEP007)
    """

    primitive: ClassVar[str] = "bind"
    targets: ClassVar[tuple[str, ...]] = ("cuda",)
    loop: str
    axis: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, found in loops(state.func).items():
            if found.node.kind == "serial":
                for axis in AXES:
                    yield cls(name, axis)

    def keeps_promises(self, state: State) -> bool:
        return True

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.loop))
        if self.axis not in AXES:
            advice = f"the axes are {', '.join(AXES)}"
            message = f"cannot bind `{self.loop}`: there is no axis {self.axis!r}"
            missing.append(malformed("ARG001", message, advice=advice))
        elif state.target.kind not in self.targets:
            message = f"cannot bind `{self.loop}`: a {state.target.kind} target has no {self.axis}"
            advice = 'schedule for a cuda target, such as "cuda:sm_90"'
            missing.append(malformed("ARG001", message, advice=advice))
        yield from missing
        if missing:
            return
        broken = [*check_serial(state, self.loop), *self._vectors(state)]
        yield from broken
        if broken:
            return
        path = state.loop(self.loop).path
        if not self._combines(state):
            yield from concurrent(state.func, self.loop, Mark(path))
            return
        yield from across(state.func, path, state.loop(self.loop).node)
        if state.strict_float and self._rounds(state):
            refused = f"threads would reassociate the reductions of `{self.loop}`"
            message = f"{refused}, which strict_float forbids"
            yield Violation("FLT001", Kind.ILLEGAL, message, (Mark(path),))

    def _combines(self, state: State) -> bool:
        """Whether threads combine the iterations, which are a reduction's."""
        return self.axis in THREADS and combinable(state.func, state.loop(self.loop).node)

    def _rounds(self, state: State) -> bool:
        found = (s.node for s in combined(state.func, state.loop(self.loop).node))
        return any(
            isinstance(node, Reduce)
            and COMBINERS[node.op].rounds
            and any(buffer.dtype.is_float for buffer in node.buffers)
            for node in found
        )

    def _vectors(self, state: State) -> Iterator[Violation]:
        for path, outer in enclosing(state.func, state.loop(self.loop).path):
            if isinstance(outer, For) and outer.kind == "vectorize":
                reason = f"it is inside the vectorized loop `{outer.var.name}`"
                yield malformed("STR003", f"cannot bind `{self.loop}`: {reason}", path)

    def apply(self, state: State) -> State:
        old = state.loop(self.loop)
        notes = dict(old.node.annotations) | {BIND: self.axis}
        kind: LoopKind = "serial" if self._combines(state) else "parallel"
        new = replace(old.node, kind=kind, annotations=tuple(notes.items()))
        return state.with_func(put(state.func, old.path, new))
