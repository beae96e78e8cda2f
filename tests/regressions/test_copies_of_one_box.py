"""Buffers that are reduced together share the box of their copies; one of them touched less of it,
and its copy ran over the whole box, outside of the buffer."""

from tests.schedule.checking import check, schedule


def test_each_copy_keeps_to_the_elements_of_its_buffer() -> None:
    s = schedule(
        """
def f(A: Buffer["i8", 2, "inout"], B: Buffer["i32", 2, "out"]):
    D = alloc("i32", 2)
    for i in range(2):
        for k in range(8):
            if k < 1:
                D[i + k] = 5
        for j in range(1):
            reduce("argmin", (A[i], D[i]), (1, 1))
    for l in range(2):
        B[l] = D[l]
"""
    )
    s.cache_write("A", at="i")
    check(s)
