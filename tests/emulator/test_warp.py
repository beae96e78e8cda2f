"""What the lanes of a warp do together: shuffles, votes, matches, reductions, matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.emulator import EmulatedDevice, EmulationError
from tests.emulator.kernels import ptx_of, to_bf16
from tests.emulator.single import Array, run

words = st.integers(0, 2**32 - 1)
lanes_of_words = st.lists(words, min_size=32, max_size=32)
FULL = 0xFFFFFFFF


def shuffled(mode: str, values: list[int], by: list[int], control: int) -> list[tuple[int, int]]:
    """Value and predicate of each lane."""
    segment, clamp = control >> 8 & 31, control & 31
    found = []
    for lane in range(32):
        low = lane & segment
        high = low | clamp & ~segment & 31
        step = by[lane] & 31
        origin = {"up": lane - step, "down": lane + step, "bfly": lane ^ step,
                  "idx": low | step & ~segment & 31}[mode]  # fmt: skip
        inside = origin >= high if mode == "up" else origin <= high
        found.append((values[origin if inside else lane], int(inside)))
    return found


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@given(lanes_of_words, st.lists(st.integers(0, 40), min_size=32, max_size=32),
       st.sampled_from([(32, 0), (16, 16), (8, 24), (4, 28)]))  # fmt: skip
@settings(max_examples=10)
def test_shuffles(mode: str, values: list[int], by: list[int], parts: tuple[int, int]) -> None:
    """CUDA's width w is the segment mask 32 - w, with the clamp 0 for up and 31 otherwise."""
    control = parts[1] << 8 | (0 if mode == "up" else 31)
    if mode in ("up", "down", "bfly"):
        by = [by[0]] * 32
    arrays = [np.array(x, np.uint32) for x in (values, by, [control] * 32)]
    expected = shuffled(mode, values, by, control)
    line = f"shfl.sync.{mode}.b32 %d|%p0, %x0, %x1, %x2, -1;"
    found = run(line, ["b32"] * 4, *arrays, out=np.uint32)
    assert found.tolist() == [value for value, _ in expected]
    predicate = [f"shfl.sync.{mode}.b32 %w0|%p0, %x0, %x1, %x2, -1;", "selp.u32 %d, 1, 0, %p0;"]
    inside = run(predicate, ["b32"] * 4, *arrays, out=np.uint32)
    assert inside.tolist() == [flag for _, flag in expected]


@given(st.lists(st.integers(0, 1), min_size=32, max_size=32))
@settings(max_examples=10)
def test_votes(flags: list[int]) -> None:
    array = np.array(flags, np.uint8)
    ballot = sum(flag << lane for lane, flag in enumerate(flags))
    found = run("vote.sync.ballot.b32 %d, %x0, -1;", ["b32", "pred"], array, out=np.uint32)
    assert found.tolist() == [ballot] * 32
    expected = {"all": ballot == FULL, "any": ballot != 0, "uni": ballot in (0, FULL)}
    for mode, value in expected.items():
        line = f"vote.sync.{mode}.pred %d, %x0, -1;"
        assert run(line, ["pred", "pred"], array, out=np.uint8).tolist() == [value] * 32


@given(st.lists(st.integers(0, 3), min_size=32, max_size=32))
@settings(max_examples=10)
def test_matches(values: list[int]) -> None:
    array = np.array(values, np.uint64)
    found = run("match.any.sync.b64 %d, %x0, -1;", ["b32", "b64"], array, out=np.uint32)
    expected = [sum((v == w) << n for n, w in enumerate(values)) for v in values]
    assert found.tolist() == expected
    line = "match.all.sync.b64 %d|%p0, %x0, -1;"
    found = run(line, ["b32", "b64"], array, out=np.uint32)
    assert found.tolist() == [FULL if len(set(values)) == 1 else 0] * 32


REDUCTIONS: dict[str, Callable[[list[int]], int]] = {
    "add.u32": sum, "min.u32": min, "max.u32": max,
    "and.b32": lambda v: int(np.bitwise_and.reduce(v)),
    "or.b32": lambda v: int(np.bitwise_or.reduce(v)),
    "xor.b32": lambda v: int(np.bitwise_xor.reduce(v)),
}  # fmt: skip


@pytest.mark.parametrize("operation", REDUCTIONS)
@given(values=lanes_of_words)
@settings(max_examples=5)
def test_reductions(operation: str, values: list[int]) -> None:
    array = np.array(values, np.uint32)
    found = run(f"redux.sync.{operation} %d, %x0, -1;", ["b32", "b32"], array, out=np.uint32)
    assert found.tolist() == [REDUCTIONS[operation](values) % 2**32] * 32
    if operation.startswith("m"):
        signed = array.view(np.int32)
        line = f"redux.sync.{operation[:3]}.s32 %d, %x0, -1;"
        found = run(line, ["b32", "b32"], array, out=np.uint32).view(np.int32)
        assert found.tolist() == [REDUCTIONS[operation](signed.tolist())] * 32


def test_lanes_of_a_branch_are_the_active_ones() -> None:
    lines = ["and.b32 %w0, %t, 1;", "setp.eq.u32 %p0, %w0, 0;", "@%p0 bra EVEN;",
             "activemask.b32 %d;", "bra END;", "EVEN: activemask.b32 %d;", "END:"]  # fmt: skip
    found = run(lines, ["b32", "b32"], np.zeros(32, np.uint32), out=np.uint32)
    assert found.tolist() == [0x55555555, 0xAAAAAAAA] * 16


def test_one_lane_is_elected() -> None:
    lines = ["elect.sync %w0|%p0, 0xFFFFFFFF;", "selp.u32 %w1, 100, 0, %p0;",
             "add.u32 %d, %w0, %w1;"]  # fmt: skip
    found = run(lines, ["b32", "b32"], np.zeros(32, np.uint32), out=np.uint32)
    assert found.tolist() == [100, *[0] * 31]


@pytest.mark.parametrize(
    "lines",
    [
        ["@!%p0 shfl.sync.down.b32 %d, %x0, 1, 31, -1;", "bar.sync 0;"],
        ["@%p0 bar.warp.sync 0x0F;", "mov.u32 %d, 0;"],
        ["@%p0 vote.sync.ballot.b32 %d, %p0, -1;", "bar.sync 0;"],
        ["@%p0 vote.sync.ballot.b32 %d, %p0, -1;", "@!%p0 redux.sync.add.u32 %d, %x0, -1;"],
    ],
)
def test_lanes_that_do_not_come_are_reported(lines: list[str]) -> None:
    five = "setp.eq.u32 %p0, %t, 5;"
    with pytest.raises(EmulationError, match="WarpDivergence") as caught:
        run([five, *lines], ["b32", "b32"], np.zeros(32, np.uint32), out=np.uint32)
    assert not caught.value.report.completed


def test_a_lane_that_takes_no_part_has_no_value() -> None:
    """Lanes 0 to 15 meet, and the last of them takes the value of lane 16."""
    lines = ["setp.lt.u32 %p0, %t, 16;", "@%p0 shfl.sync.down.b32 %d, %x0, 1, 31, 0xFFFF;"]
    with pytest.raises(EmulationError, match="ShuffleSource: lane 16"):
        run(lines, ["b32", "b32"], np.zeros(32, np.uint32), out=np.uint32)


# --- matrix products --------------------------------------------------------------------------

PRODUCTS = {
    "m16n8k8.f16": (2, 1), "m16n8k8.bf16": (2, 1), "m16n8k16.f16": (4, 2), "m16n8k16.bf16": (4, 2),
    "m16n8k4.tf32": (2, 1), "m16n8k8.tf32": (4, 2), "m16n8k16.s8": (2, 1), "m16n8k32.s8": (4, 2),
    "m16n8k16.u8": (2, 1), "m16n8k32.u8": (4, 2),
}  # fmt: skip


def stored(values: np.ndarray, kind: str) -> Array:
    match kind:
        case "f16":
            return values.astype(np.float16).view(np.uint16)
        case "bf16":
            return to_bf16(values.astype(np.float32))
        case "tf32":
            return values.astype(np.float32).view(np.uint32)
        case _:
            return values.astype(np.int64).astype(np.uint8)


def fragments(matrix: Array, registers: int, of_a: bool) -> np.ndarray:
    """Registers of each lane, by the tables of the ISA: rows of A, columns of B."""
    per_word = 4 // matrix.itemsize
    found = np.zeros((32, registers), np.uint32)
    for lane in range(32):
        group, place = divmod(lane, 4)
        for number in range(registers):
            row = group + 8 * (number % 2) if of_a else group
            first = place * per_word + 4 * per_word * (number // 2 if of_a else number)
            line = matrix[row] if of_a else matrix[:, row]
            word = np.ascontiguousarray(line[first : first + per_word])
            found[lane, number] = word.view(np.uint32)[0]
    return found


@pytest.mark.parametrize("shape", PRODUCTS)
def test_matrix_products(shape: str) -> None:
    size, kind = shape.split(".")
    depth = int(size.split("k")[1])
    integer = kind in ("s8", "u8")
    generator = np.random.default_rng(0)
    low = 0 if kind == "u8" else -8
    a, b = (generator.integers(low, 8, s) for s in ((16, depth), (depth, 8)))
    c = generator.integers(-100, 100, (16, 8))
    a_words, b_words = PRODUCTS[shape]
    words_a = fragments(stored(a, kind), a_words, True)
    words_b = fragments(stored(b, kind), b_words, False)
    out_type = "s32" if integer else "f32"
    held = c.astype(np.int32) if integer else c.astype(np.float32)
    words_c = fragments_of_c(held.view(np.uint32))
    inputs = [np.ascontiguousarray(w) for w in np.hstack([words_a, words_b, words_c]).T]
    names = [f"%x{n}" for n in range(len(inputs))]
    x, y = names[:a_words], names[a_words : a_words + b_words]
    operands = ", ".join(f"{{{', '.join(part)}}}" for part in (x, y, names[-4:]))
    for number in range(4):
        targets = ", ".join("%d" if n == number else f"%w{n}" for n in range(4))
        line = (
            f"mma.sync.aligned.{size}.row.col.{out_type}.{kind}.{kind}.{out_type} "
            f"{{{targets}}}, {operands};"
        )
        types = ["b32"] * (len(inputs) + 1)
        found = run(line, types, *inputs, out=held.dtype)
        expected = fragments_of_c((a @ b + c).astype(held.dtype).view(np.uint32))
        np.testing.assert_array_equal(found.view(np.uint32), expected[:, number])


def fragments_of_c(matrix: Array) -> np.ndarray:
    lanes = np.arange(32)
    return np.stack(
        [matrix[lanes // 4 + 8 * (n // 2), lanes % 4 * 2 + n % 2] for n in range(4)], axis=1
    )


TRANSPOSED = """
extern "C" __global__ void load(const unsigned short* in, unsigned* out) {
  __shared__ __align__(16) unsigned short tile[8][8];
  int t = threadIdx.x;
  tile[t / 4][t % 4 * 2] = in[2 * t];
  tile[t / 4][t % 4 * 2 + 1] = in[2 * t + 1];
  __syncwarp();
  unsigned row = (unsigned)__cvta_generic_to_shared(&tile[t % 8][0]), word;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(word) : "r"(row));
  out[t] = word;
}
"""


def test_matrices_are_loaded_transposed() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    out = np.zeros(32, np.uint32)
    device = EmulatedDevice()
    function = device.load(ptx_of(TRANSPOSED)).function("load")
    device.launch(function, 1, 32, [device.wrap(matrix), device.wrap(out)])
    np.testing.assert_array_equal(out.view(np.uint16).reshape(8, 8), matrix.T)


def test_half_accumulators_round_once() -> None:
    ones = np.full(32, 0x3C003C00, np.uint32)
    names = [f"%x{n}" for n in range(8)]
    line = (
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d, %w0}, "
        f"{{{', '.join(names[:4])}}}, {{{', '.join(names[4:6])}}}, {{{', '.join(names[6:])}}};"
    )
    found = run(line, ["b32"] * 9, *[ones] * 8, out=np.uint32).view(np.float16)
    assert found.tolist() == [17.0] * 64
