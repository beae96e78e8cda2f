"""set_scope: where a temporary lives; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["f32", {n}], B: Buffer["f32", {n}, "out"]):
    T = alloc("f32", {n})
    for i in range({n}):
        T[i] = A[i]
    for j in range({n}):
        B[j] = T[j]
"""


@pytest.mark.parametrize("extent", [0, 1, 9])
def test_scopes(extent: int) -> None:
    s = schedule(TEXT.format(n=extent))
    for scope in ("local", "register", "global"):
        s.set_scope("T", scope)
        check(s)


def test_set_scope_refused() -> None:
    s = schedule(TEXT.format(n=9))
    with refused(s, "REF004"):
        s.set_scope("x", "local")
    with refused(s, "RGN004"):
        s.set_scope("A", "local")
    with refused(s, "ARG001"):
        s.set_scope("T", "nowhere")
    with refused(s, "STR008"):
        s.set_scope("T", "global")
    s.parallel("j")
    with refused(s, "STR003"):
        s.set_scope("T", "local")
    s.inline("T")
    with refused(s, "REF002"):
        s.set_scope("T", "local")


def test_set_scope_refused_sizes() -> None:
    s = schedule(TEXT.format(n="N"))
    with refused(s, "STR004"):
        s.set_scope("T", "local")
    s = schedule(TEXT.format(n=5000))
    with refused(s, "TGT001"):
        s.set_scope("T", "register")
