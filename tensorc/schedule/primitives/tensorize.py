"""tensorize: a nest is computed by an instruction of tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.tensor_cores import INSTRUCTIONS, NOTE, instruction_of, product_of
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.errors import Kind
from tensorc.ir.walk import replace
from tensorc.schedule.rewrite import put
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, check_loops


@dataclass(frozen=True, slots=True)
class Tensorize(Step):
    """Compute a nest by an instruction of tensor cores, one for each of its innermost three loops.

    The instructions are mma_m16n8k16_f16, mma_m16n8k16_bf16, mma_m16n8k8_f16, mma_m16n8k8_bf16,
    mma_m16n8k8_tf32, mma_m16n8k32_i8, mma_m16n8k16_i8, mma_m16n8k32_u8 and mma_m16n8k16_u8:
    products of matrices with 16 rows, 8 columns and the depth behind the k, summed in f32 or i32.
    A warp computes one of them together: 8 groups of 4 threads, along y and x of the block. Each
    thread sums 2 rows and 2 columns in its registers, so the nest stays as it is, and so does its
    meaning; only sums of floats may be taken in another order, and tf32 reads its operands with 10
    bits of mantissa.

    Loops of the nest around these three are tiles: what an operand reads in them is loaded once for
    all tiles that share it, from shared memory by ldmatrix where the layout allows.

    rewrite:
        for g in parallel(8, bind="threadIdx.y"):
            for t in parallel(4, bind="threadIdx.x"):
                R = alloc("f32", 2, 2, scope="register")
                for i in range(2):
                    for j in range(2):
                        R[i, j] = 0.0
                for r in range(2):
                    for c in range(2):
                        for k in range(8):
                            R[r, c] += A[r * 8 + g, k] * B[k, t * 2 + c]
                for i2 in range(2):
                    for j2 in range(2):
                        C[i2 * 8 + g, t * 2 + j2] = R[i2, j2]
      tensorize("r", "mma_m16n8k8_tf32")
        for g in parallel(8, bind="threadIdx.y"):
            for t in parallel(4, bind="threadIdx.x"):
                R = alloc("f32", 2, 2, scope="register")
                for i in range(2):
                    for j in range(2):
                        R[i, j] = 0.0
                for r in range(2, tensorize="mma_m16n8k8_tf32"):
                    for c in range(2):
                        for k in range(8):
                            R[r, c] += A[r * 8 + g, k] * B[k, t * 2 + c]
                for i2 in range(2):
                    for j2 in range(2):
                        C[i2 * 8 + g, t * 2 + j2] = R[i2, j2]

    legal when:
        the loop exists (REF001, REF002); there is an instruction of this name, and the target is a
        cuda one (ARG001) whose devices have it (TGT001)
        the loop is not computed by an instruction already (STR008)
        it is inside of loops bound to threadIdx.y and .x, which run 8 and 4 times, from 0, and to
        whose iterations no condition and no bound around it refers; the loops of the nest are
        serial, of constant extents, and have no condition; the innermost three run 2 and 2 times
        and as often as the depth, from 0; the statement sums the products of two elements of the
        instruction's type, each cast to the type of the sums unless that is the same, in registers;
        one operand reads neither the loop of columns nor threadIdx.x, the other one neither the
        loop of rows nor threadIdx.y; both lie in shared or global memory (STR007)
        the block has 4 x 8 threads along x and y (STR009), also after later steps
        the order of sums is free (FLT001)
    """

    primitive: ClassVar[str] = "tensorize"
    targets: ClassVar[tuple[str, ...]] = ("cuda",)
    loop: str
    instruction: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, found in loops(state.func).items():
            for instruction in INSTRUCTIONS:
                if isinstance(product_of(state.func, found.path, instruction), str):
                    continue
                yield cls(name, instruction)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.loop))
        if self.instruction not in INSTRUCTIONS:
            advice = f"the instructions are {', '.join(INSTRUCTIONS)}"
            reason = f"there is no instruction {self.instruction!r:.80}"
            missing.append(malformed("ARG001", f"{self._refused()}: {reason}", advice=advice))
        elif state.target.kind not in self.targets:
            reason = f"a {state.target.kind} target has no {self.instruction}"
            advice = 'schedule for a cuda target, such as "cuda:sm_90"'
            missing.append(malformed("ARG001", f"{self._refused()}: {reason}", advice=advice))
        yield from missing
        if missing:
            return
        found = state.loop(self.loop)
        if instruction_of(found.node) is not None:
            reason = f"{instruction_of(found.node)} computes it already"
            yield malformed("STR008", f"{self._refused()}: {reason}", found.path)
            return
        product = product_of(state.func, found.path, self.instruction)
        if isinstance(product, str):
            yield malformed("STR007", f"{self._refused()}: {product}", found.path)
        elif state.strict_float and product.instruction.result.is_float:
            reason = "the order of its sums is the device's, which strict_float forbids"
            message = f"{self._refused()}: {reason}"
            yield Violation("FLT001", Kind.ILLEGAL, message, (Mark(found.path),))

    def _refused(self) -> str:
        return f"cannot compute `{self.loop}` by an instruction"

    def keeps_promises(self, state: State) -> bool:
        return True

    def apply(self, state: State) -> State:
        old = state.loop(self.loop)
        notes = (*old.node.annotations, (NOTE, self.instruction))
        return state.with_func(put(state.func, old.path, replace(old.node, annotations=notes)))
