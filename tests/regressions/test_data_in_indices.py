"""An index that is read from a buffer was read at the time of a copy, or taken for unchanging."""

from tensorc.errors import Kind
from tests.schedule.checking import check, refused, schedule

GATHER = """
def f(I: Buffer["i32", 6], B: Buffer["i32", 4], C: Buffer["i32", 6, "out"]):
    for i in range(6):
        C[i] = B[index(I[i]) % 4]
"""
MOVING = """
def f(I: Buffer["i32", 6, "inout"], B: Buffer["i32", 9], C: Buffer["i32", 6, 4, "out"]):
    for i in range(6):
        I[i] = I[i] * 0
        for j in range(4):
            C[i, j] = B[index(I[i] % 4) + j]
"""
SCATTER = """
def f(I: Buffer["i32", 1, "inout"], X: Buffer["i32", 99, "inout"]):
    for j in range(8):
        X[index(I[0] % 4) * 8 + j] = j32 + 1
        I[0] = I[0] - 1
"""


def test_a_layout_is_undecided() -> None:
    s = schedule(GATHER)
    with refused(s, "UNS001") as found:
        s.cache_read("C", "B", layout=("i",))
    assert found.violation.kind is Kind.UNSUPPORTED


def test_a_box_is_the_whole_buffer() -> None:
    s = schedule(GATHER)
    s.cache_read("C", "B")
    check(s)


def test_a_box_does_not_follow_data() -> None:
    s = schedule(MOVING)
    s.cache_read("C", "B", at="i")
    check(s)


def test_a_written_index_separates_nothing() -> None:
    s = schedule(SCATTER.replace("j32", "i32(j)"))
    with refused(s, "UNS001"):
        s.vectorize("j")


def test_a_gather_from_a_temporary_is_not_copied_whole() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 6], C: Buffer["i32", 6, "out"]):
    T = alloc("i32", 8)
    for k in range(4):
        T[k] = i32(k)
    for i in range(6):
        C[i] = T[index(I[i]) % 4]
"""
    )
    with refused(s, "UNS001"):
        s.cache_read("C", "T")


def test_a_stage_whose_flow_is_not_affine_stays() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N], E: Buffer["i32", N, "out"]):
    D = alloc("i32", N, N)
    for k in range(N):
        for l in range(N):
            D[k, l] = A[k] + A[l]
    for n in range(N):
        E[n] = D[n, n]
"""
    )
    s.fuse("k", "l")
    with refused(s, "UNS001"):
        s.reverse_compute_at("E", "k_l")
