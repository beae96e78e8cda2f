"""A box was the whole dimension where one access named a loop of one iteration and one did not."""

from tests.schedule.checking import check, schedule


def test_a_loop_of_one_iteration_is_where_it_begins() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 12], C: Buffer["f32", 12, "out"]):
    for i in range(12):
        C[i] = 0.0
        for k in range(3):
            C[i] += A[i]
"""
    )
    s.decompose_reduction("C")
    i0, i1, i2 = s.split("i", [2, 8])
    s.reorder(i0, i1, "k", i2)
    s.compute_at("C.init", i1)
    s.cache_write("C", at=i1, scope="register")
    assert 'C.acc = alloc("f32", 8, scope="register")' in str(s)
    check(s)
