"""VectorSimilarity PR#990, taichi PR#2863, apache/tvm PR#18857: aligned loads where nothing was."""

import numpy as np
import pytest

import tensorc as tc
from tests.codegen.guard import Guarded
from tests.schedule.checking import schedule

ALIGNMENT = 64


def view(n: int, element: str, offset: int) -> np.ndarray:
    """An array `offset` bytes past a multiple of 64, and less than 64 before untouchable memory."""
    kind = np.dtype(element)
    memory = Guarded(n * kind.itemsize + 2 * ALIGNMENT)
    inside = memory.array((-1,), np.uint8)
    last = (inside.size - n * kind.itemsize + inside.ctypes.data - offset) % ALIGNMENT
    start = inside.size - n * kind.itemsize - last
    found = inside[start : start + n * kind.itemsize].view(kind)
    assert found.ctypes.data % ALIGNMENT == offset
    return found


def doubled(dtype: str, extent: str, lanes: int) -> tc.Schedule:
    s = schedule(
        f"""
def f(A: Buffer["{dtype}", {extent}], B: Buffer["{dtype}", {extent}, "out"]):
    for i in range({extent}):
        B[i] = A[i] + A[i]
"""
    )
    s.vectorize(s.split("i", lanes)[1])
    return s


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("n", [19, 64])
def test_a_float_array_4_bytes_past_a_boundary(n: int, symbolic: bool) -> None:
    module = tc.build(doubled("f32", "n" if symbolic else str(n), 8))
    values = np.arange(n, dtype=np.float32)
    for at_input, at_output in ((4, 0), (0, 4), (4, 4), (60, 20)):
        a, b = view(n, "f4", at_input), view(n, "f4", at_output)
        a[:] = values
        module(a, b)
        assert b.tolist() == (2 * values).tolist()
        assert a.tolist() == values.tolist()


def test_an_alignment_that_is_promised_is_checked() -> None:
    text = """
def f(A: Buffer["f32", 19, "alignment": 64], B: Buffer["f32", 19, "out"]):
    for i in range(19):
        B[i] = A[i] + A[i]
"""
    s = schedule(text)
    s.vectorize(s.split("i", 8)[1])
    module = tc.build(s)
    a, b = view(19, "f4", 4), np.full(19, 7.0, np.float32)
    a[:] = 1.0
    with pytest.raises(tc.ArgumentError, match="needed an address aligned to 64 bytes") as caught:
        module(a, b)
    assert caught.value.argument == "A"
    assert b.tolist() == [7.0] * 19
    fine = view(19, "f4", 0)
    fine[:] = 1.0
    module(fine, b)
    assert b.tolist() == [2.0] * 19


@pytest.mark.parametrize("fields", ["i4 f8 f4", "f4 i4 f8", "f8 f4 i4"])
def test_fields_of_a_packed_struct(fields: str) -> None:
    """A field is read where it is, or refused: [i32, f64, f32] puts the f64 at 4 bytes."""
    record = np.dtype([(f"x{n}", kind) for n, kind in enumerate(fields.split())])
    assert record.itemsize == 16
    for n, kind in enumerate(fields.split()):
        dtype = {"i4": "i32", "f8": "f64", "f4": "f32"}[kind]
        module = tc.build(doubled(dtype, "1", 1))
        memory = view(64, "u1", 0)
        rows = memory.view(record)
        rows[f"x{n}"] = 3
        field, out = rows[f"x{n}"][1:2], np.zeros(1, kind)
        if field.ctypes.data % field.itemsize:
            with pytest.raises(tc.ArgumentError, match="needed an address aligned to 8 bytes"):
                module(field, out)
            assert out.tolist() == [0]
        else:
            module(field, out)
            assert out.tolist() == [6]


def test_scalars_of_three_sizes_reach_the_workers() -> None:
    """They travel in a struct of [i32, f64, f32] to the body of a parallel loop."""
    s = schedule(
        """
def f(a: i32, b: f64, c: f32, O: Buffer["f64", 65, 3, "out"]):
    for i in range(65):
        O[i, 0] = f64(a)
        O[i, 1] = b
        O[i, 2] = f64(c)
"""
    )
    s.parallel("i")
    found = tc.build(s).run(-7, 1 / 3, 0.5)
    assert found.tolist() == [[-7.0, 1 / 3, 0.5]] * 65


@pytest.mark.parametrize(
    ("dtype", "element", "lanes", "offset"),
    [("i32", "i4", 4, 4), ("f64", "f8", 8, 8), ("f16", "f2", 2, 2), ("u8", "u1", 16, 1)],
)
def test_the_kind_in_other_widths(dtype: str, element: str, lanes: int, offset: int) -> None:
    for n in (3, 19, 64):
        a, b = view(n, element, offset), view(n, element, offset)
        a[:] = np.arange(n)
        tc.build(doubled(dtype, "n", lanes))(a, b)
        assert b.tolist() == (2 * np.arange(n)).tolist()
