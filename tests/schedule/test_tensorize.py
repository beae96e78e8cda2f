"""tensorize: which nests are products of small matrices; every refusal."""

from __future__ import annotations

import pytest

import tensorc.schedule.primitives as p
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step
from tests.codegen.cuda.products import Warps, on_tensor_cores, program
from tests.schedule.checking import CUDA, TARGET, check, refused, schedule

NEST = """
def nest(A: Buffer["{kind}", 32, 32], B: Buffer["{kind}", 32, 32],
         C: Buffer["{sums}", 32, 32, "out"]):
    for g in parallel(8, bind="threadIdx.y"):
        for t in parallel(4, bind="threadIdx.x"):
            R = alloc("{sums}", 2, 2, scope="register")
            for i in range(2):
                for j in range(2):
                    R[i, j] = {zero}
            for r in range(2):
                for c in range(2):
                    for k in range({depth}):
                        R[r, c] += {value}
            for i2 in range(2):
                for j2 in range(2):
                    C[i2 * 8 + g, t * 2 + j2] = R[i2, j2]
"""
VALUE = "A[r * 8 + g, k] * B[k, t * 2 + c]"
CAST = "{0}(A[r * 8 + g, k]) * {0}(B[k, t * 2 + c])"


def nest(kind: str = "f32", depth: int = 8, value: str = VALUE, *changes: tuple[str, str]) -> str:
    sums = "i32" if kind in ("i8", "u8") else "f32"
    zero = "0" if sums == "i32" else "0.0"
    text = NEST.format(kind=kind, sums=sums, zero=zero, depth=depth, value=value)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("name", "kind", "order"),
    [("mma_m16n8k8_tf32", "f32", "rck"), ("mma_m16n8k8_tf32", "f32", "kcr"),
     ("mma_m16n8k8_f16", "f16", "crk"), ("mma_m16n8k16_bf16", "bf16", "rck"),
     ("mma_m16n8k16_u8", "u8", "rkc")],
)  # fmt: skip
def test_products(name: str, kind: str, order: str) -> None:
    """The meaning is that of the nest, whatever the order of its three loops."""
    depth = int(name.split("_")[1].partition("k")[2])
    value = VALUE if kind == "f32" else CAST.format("i32" if kind in ("i8", "u8") else "f32")
    s = schedule(nest(kind, depth, value), CUDA)
    s.reorder(*order)
    s.tensorize(order[0], name)
    assert p.Tensorize(order[0], name) in p.Tensorize.choices(s.state)
    check(s)


def test_operands_in_any_place_and_order() -> None:
    """What matters is which loops an operand reads, not how."""
    s = schedule(nest("f32", 8, "B[31 - k, t * 2 + c] * A[k, 31 - r - 2 * g]"), CUDA)
    s.tensorize("r", "mma_m16n8k8_tf32")
    check(s)


def test_tiles_around() -> None:
    s = on_tensor_cores(
        program("f16", 32, 16, 32), "mma_m16n8k8_f16", Warps(1, 1, 2, 2, 2, 2), CUDA
    )
    assert s.steps[-1] == p.Tensorize("k1", "mma_m16n8k8_f16")


REFUSED: dict[str, tuple[str, str]] = {
    "one row": ("for r in range(2)", "for r in range(1)"),
    "another depth": ("for k in range(8)", "for k in range(4)"),
    "a loop that begins elsewhere": ("for k in range(8)", "for k in range(2, 10)"),
    "a left operand by column": ("A[r * 8 + g, k]", "A[r * 8 + g, k + c]"),
    "a left operand by place": ("A[r * 8 + g, k]", "A[r * 8 + g, k + t]"),
    "a right operand by row": ("B[k, t * 2 + c]", "B[k + r, t * 2 + c]"),
    "a right operand by group": ("B[k, t * 2 + c]", "B[k + g, t * 2 + c]"),
    "one element of a thread": ("R[r, c] +=", "R[r, 0] +="),
    "a sum by depth": ("R[r, c] +=", "R[r, (c + k) % 2] +="),
    "a sum of sums": (f"R[r, c] += {VALUE}", f"R[r, c] += {VALUE.replace('*', '+')}"),
    "another reduction": (f"R[r, c] += {VALUE}", f'reduce("max", R[r, c], {VALUE})'),
    "an operand in a register": ("A[r * 8 + g, k]", "R[0, 0]"),
    "a condition": ("R[r, c] +=", "if r < 1: R[r, c] +="),
    "a condition on threads": ("for r in range(2)", "for r in range(2 - g // 7)"),
    "fewer groups": ("g in parallel(8", "g in parallel(7"),
    "more places": ("t in parallel(4", "t in parallel(8"),
    "no places": ('t in parallel(4, bind="threadIdx.x")', "t in range(4)"),
    "not in registers": (', scope="register"', ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_refused(name: str) -> None:
    s = schedule(nest("f32", 8, VALUE, REFUSED[name]), CUDA)
    with refused(s, "STR007"):
        s.tensorize("r", "mma_m16n8k8_tf32")


def test_another_type() -> None:
    s = schedule(nest("f16", 8, CAST.format("f32")), CUDA)
    with refused(s, "STR007") as found:
        s.tensorize("r", "mma_m16n8k8_bf16")
    assert "two elements of bf16" in found.text
    s.tensorize("r", "mma_m16n8k8_f16")


def test_refused() -> None:
    s = schedule(nest(), CUDA)
    with refused(s, "REF001"):
        s.tensorize("z", "mma_m16n8k8_tf32")
    with refused(s, "ARG001") as found:
        s.tensorize("r", "wmma")
    assert "mma_m16n8k16_bf16" in found.text
    with refused(s, "STR007"):
        s.tensorize("c", "mma_m16n8k8_tf32")
    strict = schedule(nest(), CUDA, strict_float=True)
    with refused(strict, "FLT001"):
        strict.tensorize("r", "mma_m16n8k8_tf32")
    s.tensorize("r", "mma_m16n8k8_tf32")
    with refused(s, "STR008"):
        s.tensorize("r", "mma_m16n8k8_tf32")
    with refused(s, "ARG001"):
        s.annotate("r", "tensorize", "mma_m16n8k8_tf32")


def test_other_targets() -> None:
    on_a_cpu = Schedule(parse(nest()), TARGET)
    with refused(on_a_cpu, "ARG001"):
        on_a_cpu.tensorize("r", "mma_m16n8k8_tf32")
    older = Schedule(parse(nest()), "cuda:T4")
    with refused(older, "TGT001") as found:
        older.tensorize("r", "mma_m16n8k8_tf32")
    assert "sm_80" in found.text


@pytest.mark.parametrize("step", [p.Reorder(("k", "c")), p.Unroll("c"), p.Split("r", (1,))])
def test_later_steps_that_keep_the_product(step: Step) -> None:
    """One order of its loops is as good as another; a loop that is made anew has no note."""
    s = schedule(nest(), CUDA)
    s.tensorize("r", "mma_m16n8k8_tf32")
    s.apply(step)
    check(s)


@pytest.mark.parametrize("step", [p.Split("k", (2,)), p.Vectorize("c"), p.Fuse("c", "k")])
def test_later_steps_that_break_it(step: Step) -> None:
    s = schedule(nest(), CUDA)
    s.tensorize("r", "mma_m16n8k8_tf32")
    with refused(s, "STR007"):
        s.apply(step)


BLOCK = """
def block(A: Buffer["f32", 32, 32], B: Buffer["f32", 32, 32], C: Buffer["f32", 33, 64, "out"]):
    for b in parallel(1, bind="blockIdx.x"):
        R = alloc("f32", 16, 8, scope="register")
        for g in parallel(8, bind="threadIdx.y"):
            for t in parallel(4, bind="threadIdx.x"):
                for r in range(2):
                    for c in range(2):
                        R[r * 8 + g, t * 2 + c] = 0.0
                        for k in range(8):
                            R[r * 8 + g, t * 2 + c] += A[r * 8 + g, k] * B[k, t * 2 + c]
                for i in range(2):
                    for j in range(2):
                        C[i * 8 + g, t * 2 + j] = R[i * 8 + g, t * 2 + j]
        for x in range(64):
            C[32, x] = 0.0
"""


def test_more_threads_later() -> None:
    """A phase of other threads would take the warps apart."""
    s = schedule(BLOCK, CUDA)
    s.decompose_reduction("R", at="r")
    s.tensorize("r", "mma_m16n8k8_tf32")
    with refused(s, "STR009"):
        s.bind("x", "threadIdx.x")
    s.bind(s.split("x", 4)[1], "threadIdx.x")
    check(s)
