"""Requests for what later iterations read: which, how they are spread, and that they do nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.codegen.passes.prefetches import FEWEST_BYTES, LINE, MOST_LINES, prefetches
from tensorc.codegen.pipeline import lower
from tensorc.dtype import DType
from tensorc.ir.arith import constant, index
from tensorc.ir.interp import run
from tensorc.ir.nodes import Buffer, Const, For, Func, Node, Param, Prefetch, Reduce, Seq
from tensorc.ir.parse import parse
from tensorc.ir.print import print_expr
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes, replace, rewrite
from tests.codegen.running import check, check_stages, host, random_arguments

WORDS = LINE // 4


def product(
    rows: int, columns: int, depth: int, tile: tuple[int, int, int], offset: int = 1
) -> tc.Schedule:
    """Rows times weights that are packed in blocks of columns, with requests for a later block."""
    A = tc.placeholder((rows, depth), "f32", name="A")
    B = tc.placeholder((depth, columns), "f32", name="B", mode="const")
    k = tc.reduce_axis(depth, name="k")
    C = tc.compute((rows, columns), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tc.Schedule(tc.func_of([A, B], [C], name="product"), target=host())
    width = tile[1]
    s.transform_layout("B", lambda k, j: (j // width, k, j % width))
    s.decompose_reduction("C")
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, tile[0])
    j0, j1 = s.split(j, width)
    k0, k1 = s.split(k, tile[2])
    s.reorder(j0, i0, k0, k1, i1, j1)
    s.cache_write("C", at=i0, scope="register")
    s.vectorize(j1)
    s.unroll(i1)
    s.unroll(k1)
    s.annotate(j0, "prefetch", "B")
    if offset > 1:
        s.annotate(j0, "prefetch_offset", offset)
    return s


def lowered(func: Func) -> Func:
    return lower(func, host()).func


def asking(func: Func) -> list[tuple[For, list[str]]]:
    """The loops whose turns ask, and for what."""
    found = []
    for loop in nodes(func, For):
        parts = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
        own = [
            print_expr(part.indices[0], DType.INDEX) for part in parts if isinstance(part, Prefetch)
        ]
        if own:
            found.append((loop, own))
    return found


def test_the_next_panel_in_the_turns_of_the_inner_loop():
    func = lowered(product(24, 64, 96, (8, 16, 4)).func)
    ((loop, indices),) = asking(func)
    assert loop.var.name == "k0"
    # 96 * 16 elements in 3 * 24 turns: 22 in each, which are two lines.
    assert indices == [
        "j0 * 1536 + i0 * 528 + k0 * 22 + 1536",
        "j0 * 1536 + i0 * 528 + k0 * 22 + 1552",
    ]
    verify(func, lowered=True)
    assert parse(str(func)) == func


def test_a_loop_that_turns_too_often_leaves_it_to_the_next():
    ((loop, indices),) = asking(lowered(product(640, 64, 64, (8, 16, 4)).func))
    assert loop.var.name == "i0"
    assert indices == ["j0 * 1024 + i0 * 13 + 1024"]


def test_a_later_iteration():
    ((_, indices),) = asking(lowered(product(24, 64, 96, (8, 16, 4), offset=3).func))
    assert indices[0] == "j0 * 1536 + i0 * 528 + k0 * 22 + 4608"


def test_a_loop_in_which_nothing_turns_asks_for_itself():
    func = parse("""
def f(A: Buffer["f32", 512], B: Buffer["f32", 16, "out"]):
    for j in range(16, prefetch="A", prefetch_offset=4):
        B[j] = 0.0
        for k in unroll(32):
            B[j] += A[j * 32 + k]
""")
    ((loop, indices),) = asking(prefetches(func))
    assert loop.var.name == "j"
    assert indices == ["j * 32 + 128", "j * 32 + 144"]


REFUSED = {
    "windows overlap": ("A[j * 8 + k]", "for k in range(32):"),
    "another iteration reads the same": ("A[k]", "for k in range(32):"),
    "the place is no sum": ("A[(j * 32 + k) // 2]", "for k in range(32):"),
    "data tell the place": ("A[i64(I[k]) + j * 32]", "for k in range(32):"),
    "too much for one turn": ("A[j * 4096 + k * 2048]", "for k in range(2):"),
    "too much for the loop itself": ("A[j * 4096 + k * 64]", "for k in unroll(32):"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_no_request_where(why: str):
    access, loop = REFUSED[why]
    text = f"""
def f(A: Buffer["f32", 65536], I: Buffer["i32", 32], B: Buffer["f32", 16, "out"]):
    for j in range(16, prefetch="A"):
        B[j] = 0.0
        {loop}
            B[j] += {access.replace("i64(", "index(")}
"""
    func = parse(text)
    assert prefetches(func) == func


def marked(func: Func, name: str, iteration: int, extent: int) -> set[int]:
    """The elements that one iteration of the loop that wishes asks for, as the interpreter has it:
    each request becomes a count in a buffer."""
    log = Buffer("requests", (index(extent),), DType.I32)

    def change(node: Node) -> Node | None:
        match node:
            case Prefetch(indices=indices):
                return Reduce("requests", "sum", (log,), indices, (Const(1, DType.I32),))
            case For(annotations=notes) if dict(notes).get("prefetch") == name:
                return replace(node, begin=index(iteration), end=index(iteration + 1))
        return None

    counted = rewrite(replace(func, params=(*func.params, Param(log, "inout"))), change)
    arguments = {}
    for param in counted.params:
        buffer = param.value
        assert isinstance(buffer, Buffer)
        shape = tuple(constant(e) or 0 for e in buffer.shape)
        arguments[param.name] = np.zeros(shape, np.int32 if param.value is log else np.float32)
    starts = np.flatnonzero(run(counted, arguments).outputs["requests"])
    return {int(start) + word for start in starts for word in range(WORDS)}


@given(
    st.integers(1, 40),
    st.integers(2, 4),
    st.integers(1, 40),
    st.tuples(st.integers(1, 8), st.sampled_from((4, 8, 16)), st.integers(1, 5)),
    st.integers(1, 2),
    st.data(),
)
def test_every_element_of_the_block_and_little_else(rows, blocks, depth, tile, offset, data):
    """Ragged tiles are partitioned: the copies of a loop share the block between them."""
    width = tile[1]
    func = lowered(product(rows, blocks * width, depth, tile, offset).func)
    found = asking(func)
    turns = -(-rows // tile[0]) * max(depth // tile[2], 1)
    if not found:
        # Nothing turns, or so seldom that a turn would have to ask for too much.
        assert turns == 1 or depth * width * 4 > turns * MOST_LINES * LINE
        return
    block = depth * width
    iteration = data.draw(st.integers(0, blocks - 1))
    start = (iteration + offset) * block
    asked = marked(func, "B", iteration, start + 8 * block + 64 * WORDS)
    assert set(range(start, start + block)) <= asked
    assert min(asked) >= start
    # The last turns may reach into the block behind it: by rounding, at most a share of each turn.
    slack = sum(len(indices) for _, indices in found) * WORDS + turns * (FEWEST_BYTES + WORDS)
    assert max(asked) < start + block + slack


@given(st.integers(1, 24), st.integers(1, 3), st.integers(1, 24), st.integers(1, 4))
def test_requests_change_nothing(rows, blocks, depth, height):
    func = product(rows, blocks * 8, depth, (height, 8, 2)).func
    arguments = random_arguments(func, {})
    check_stages(func, arguments)


def test_requests_beyond_the_end_of_an_array_are_harmless():
    """The last iteration asks for what lies behind the array, here a page that nobody may touch."""
    func = product(24, 64, 96, (8, 16, 4)).func
    code = check(func, random_arguments(func, {}))
    assert "@llvm.prefetch" in code.kernel.text


def test_two_wishes_may_ask_in_one_loop():
    func = parse("""
def f(A: Buffer["f32", 512], D: Buffer["f32", 512], B: Buffer["f32", 16, "out"]):
    for h in range(1, prefetch="D"):
        for j in range(16, prefetch="A"):
            B[j] = 0.0
            for k in range(8):
                for l in unroll(4):
                    B[j] += A[j * 32 + k * 4 + l] * D[h * 512 + j * 32 + k * 4 + l]
""")
    ((loop, indices),) = asking(prefetches(func))
    assert loop.var.name == "k"
    assert indices == ["h * 512 + j * 32 + k * 4 + 512", "j * 32 + k * 4 + 32"]
