"""rfactor: a reduction in parts; names; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

SUM = """
def f(A: Buffer["{t}", {n}, {k}], C: Buffer["{t}", {n}, "inout"]):
    for i in range({n}):
        for k in range({k}):
            {reduce}
"""
OPS = {
    "sum": ("f32", "C[i] += A[i, k]"),
    "prod": ("i32", "C[i] *= A[i, k]"),
    "max": ("f32", 'reduce("max", C[i], A[i, k])'),
    "min": ("i8", 'reduce("min", C[i], A[i, k])'),
    "any": ("bool", 'reduce("any", C[i], A[i, k])'),
    "all": ("bool", 'reduce("all", C[i], A[i, k])'),
    "bitand": ("u8", "C[i] &= A[i, k]"),
    "bitor": ("i16", "C[i] |= A[i, k]"),
    "bitxor": ("i64", "C[i] ^= A[i, k]"),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("n", "k"), [(1, 7), (3, 0), (3, 1), ("N", "K")])
def test_operators_and_extents(op: str, n: object, k: object) -> None:
    dtype, reduce = OPS[op]
    s = schedule(SUM.format(t=dtype, n=n, k=k, reduce=reduce))
    assert s.rfactor("k") == ("C.rf",)
    check(s)


@pytest.mark.parametrize("loop", ["k0", "k1"])
@pytest.mark.parametrize("extent", [7, 8])
def test_a_part_of_a_split_reduction(loop: str, extent: int) -> None:
    s = schedule(SUM.format(t="i32", n=3, k=extent, reduce="C[i] += A[i, k]"))
    s.split("k", 4)
    s.rfactor(loop)
    consumed = {"k0": "k1", "k1": "k0"}[loop]
    assert s.loops("C") == ("i", loop)
    assert s.loops("C.rf") == ("i", "k0.rf", "k1.rf")
    with refused(s, "REF002"):
        s.unroll(consumed)
    s.parallel(f"{loop}.rf")
    check(s)


@pytest.mark.parametrize(
    ("op", "buffers", "values"),
    [
        ("argmax", ("f32", "i32"), "A[k], i32(k)"),
        ("argmin", ("f32", "i64"), "A[k], i64(k)"),
        ("welford", ("f32",) * 3, "A[k], 0.0, 1.0"),
        ("logsumexp", ("f32",) * 2, "A[k], 1.0"),
    ],
)
def test_reductions_over_several_buffers(op: str, buffers: tuple[str, ...], values: str) -> None:
    names = "XYZ"[: len(buffers)]
    declared = ", ".join(
        f'{n}: Buffer["{t}", "inout"]' for n, t in zip(names, buffers, strict=True)
    )
    s = schedule(
        f"""
def f(A: Buffer["f32", 13], {declared}):
    for k in range(13):
        reduce("{op}", ({", ".join(f"{n}[()]" for n in names)}), ({values}))
"""
    )
    s.split("k", 4)
    assert s.rfactor("k1") == tuple(f"{n}.rf" for n in names)
    check(s)


def test_a_spatial_loop_inside_of_the_reduction() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5, 4], C: Buffer["i32", 4, "inout"]):
    for k in range(5):
        for i in range(4):
            C[i] += A[k, i]
"""
    )
    s.rfactor("k")
    assert set(s.loops("C")) == {"i", "k"}
    check(s)


def test_rfactor_refused() -> None:
    s = schedule(SUM.format(t="f32", n=3, k=5, reduce="C[i] += A[i, k]"))
    with refused(s, "REF001"):
        s.rfactor("x")
    with refused(s, "STR007"):
        s.rfactor("i")
    s.unroll("k")
    with refused(s, "STR003"):
        s.rfactor("k")
    s = schedule(SUM.format(t="f32", n=3, k=5, reduce="C[i] += A[i, k] * C[0]"))
    with refused(s, "STR007"):
        s.rfactor("k")
    s = schedule(SUM.format(t="f32", n=3, k=5, reduce="C[i] = A[i, k]"))
    with refused(s, "STR007"):
        s.rfactor("k")


def test_rfactor_refused_nests_that_hold_more() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 3], C: Buffer["i32", "inout"], D: Buffer["i32", 4, "out"]):
    for k in range(4):
        D[k] = 0
        for l in range(3):
            C[()] += A[k, l]
"""
    )
    with refused(s, "STR007"):
        s.rfactor("l")


def test_rfactor_refused_bounds_of_kept_loops() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 6], C: Buffer["i32", 6, "inout"]):
    for k in range(6):
        for i in range(k):
            C[i] += A[k, i]
"""
    )
    with refused(s, "STR006"):
        s.rfactor("k")


def test_rfactor_refused_strict() -> None:
    s = schedule(
        SUM.format(t="f32", n=3, k=5, reduce="C[i] += A[i, k]"),
        strict_float=True,
    )
    with refused(s, "FLT001"):
        s.rfactor("k")
    s = schedule(SUM.format(t="f32", n=3, k=5, reduce=OPS["max"][1]), strict_float=True)
    s.rfactor("k")
    check(s)
