"""Cuts change nothing: registers live across barriers and warp operations keep their values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.emulator.flow import flow_of
from tensorc.emulator.ptx_parse import parse_ptx
from tests.emulator.single import HEAD, kernel, run

CUTS = ("bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.idx.b32 %w7, %w7, %t, 31, -1;")
REGISTERS = [f"%w{n}" for n in range(6)]


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Arithmetic in six registers, loops and branches of the same way for all, and cuts."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        a, b, c = (draw(st.sampled_from(REGISTERS)) for _ in range(3))
        kind = draw(st.sampled_from(["add", "mul", "guard", "cut", "cut", "loop", "if"]))
        label = f"L{draw(st.integers(0, 10**9))}"
        match kind:
            case "add":
                lines.append(f"add.u32 {a}, {b}, {c};")
            case "mul":
                lines.append(f"mad.lo.u32 {a}, {b}, {c}, %t;")
            case "guard":
                lines += [f"setp.gt.u32 %p1, {b}, {c};", f"@%p1 xor.b32 {a}, {a}, {b};"]
            case "cut":
                lines.append(draw(st.sampled_from(CUTS)))
            case "loop" if depth < 2:
                count = f"%h{depth}"
                lines += [
                    f"mov.u16 {count}, 0;",
                    f"{label}:",
                    *draw(bodies(depth + 1)),
                    f"add.u16 {count}, {count}, 1;",
                    f"setp.lt.u16 %p2, {count}, {draw(st.integers(1, 3))};",
                    f"@%p2 bra {label};",
                ]
            case "if" if depth < 2:
                lines += [
                    f"setp.eq.u32 %p3, %x1, {draw(st.integers(0, 1))};",
                    f"@%p3 bra {label};",
                    *draw(bodies(depth + 1)),
                    f"{label}:",
                ]
    return lines


def distinct(lines: list[str]) -> bool:
    labels = [line for line in lines if line.endswith(":")]
    return len(labels) == len(set(labels))


def result(lines: list[str], inputs: tuple[np.ndarray, np.ndarray]) -> list[int]:
    first = [f"mad.lo.u32 {r}, %x0, {n + 3}, {n};" for n, r in enumerate(REGISTERS)]
    last = ["mov.u32 %d, 0;", *(f"mad.lo.u32 %d, %d, 31, {r};" for r in REGISTERS)]
    lines = ["mov.u32 %w7, 5;", *first, *lines, *last]
    found: list[int] = run(lines, ["b32", "b32", "b32"], *inputs, out=np.uint32).tolist()
    return found


@given(bodies().filter(distinct), st.integers(0, 1))
@settings(max_examples=60)
def test_cuts_change_no_register(lines: list[str], way: int) -> None:
    inputs = np.arange(64, dtype=np.uint32), np.full(64, way, np.uint32)
    plain = [line for line in lines if line not in CUTS]
    assert result(lines, inputs) == result(plain, inputs)


def test_only_what_changed_is_saved() -> None:
    lines = ["mov.u32 %w0, 1;", "mov.u32 %w1, 2;", "bar.sync 0;", "add.u32 %w1, %w1, 1;",
             "bar.sync 0;", "add.u32 %d, %w0, %w1;"]  # fmt: skip
    module = parse_ptx(HEAD + kernel("k", lines, ["b32"]))
    flow = flow_of(module.kernels[0])
    first, second = flow.save.values()
    # %a0 is the address that the last store needs, %d is not yet alive.
    assert set(first) == {"%w0", "%w1", "%a0"}
    assert set(second) == {"%w1"}
    before, behind = flow.restore.values()
    assert set(before) == {"%w1"}
    assert set(behind) == {"%w0", "%w1", "%a0"}


def test_scopes_have_labels_of_their_own() -> None:
    """Inline assembly that loops repeats its label wherever it is inlined."""

    def scope(step: int) -> list[str]:
        return ["{ .reg .pred p;", f"L: add.u32 %w1, %w1, {step};",
                "setp.lt.u32 p, %w1, %w2;", "@p bra L;", "}"]  # fmt: skip

    lines = ["mov.u32 %w1, 0;", "mov.u32 %w2, 5;", *scope(3), "mov.u32 %w2, 20;", *scope(7),
             "bra L;", "mov.u32 %w1, 0;", "L: add.u32 %d, %w1, %x0;"]  # fmt: skip
    # 3, 6; 13, 20; and the last branch is over one instruction, to the label of the kernel.
    assert run(lines, ["b32", "b32"], np.arange(2, dtype=np.uint32), out=np.uint32).tolist() == [
        20,
        21,
    ]
