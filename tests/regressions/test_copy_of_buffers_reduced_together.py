"""Of two buffers that one reduction combines, only one got a copy, or both the same loop names."""

from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["f32", 5, 7], V: Buffer["f32", 5, "out"], I: Buffer["i32", 5, "out"]):
    for i in range(5):
        V[i] = -inf
        I[i] = 2147483647
        for k in range(7):
            reduce("argmax", (V[i], I[i]), (A[i, k], i32(k)))
"""


def test_the_reduction() -> None:
    s = schedule(TEXT)
    s.cache_write("V")
    check(s)


def test_the_fill_of_one_takes_both() -> None:
    s = schedule(TEXT)
    made = s.cache_write("V.init", at="i")
    assert made == ("V.acc", "I.acc")
    check(s)


def test_different_shapes_have_no_common_copy() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 7], V: Buffer["f32", 3, "inout"], I: Buffer["i32", 4, "inout"]):
    for k in range(7):
        reduce("argmax", (V[2], I[2]), (A[k], i32(k)))
"""
    )
    with refused(s, "STR007"):
        s.cache_write("V")


def test_a_buffer_reduced_with_others_moves_but_keeps_its_shape() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 5, 7], I: Buffer["i32", 5, "inout"], B: Buffer["f32", 5, "out"]):
    V = alloc("f32", 5)
    for i in range(5):
        V[i] = -inf
    for j in range(5):
        for k in range(7):
            reduce("argmax", (V[j], I[j]), (A[j, k], i32(k)))
        B[j] = V[j]
"""
    )
    s.compute_at("V.init", "j")
    check(s)
