"""Programs that leave their buffers for certain are refused before they are compiled."""

import pytest

import tensorc as tc
from tensorc.errors import VerifyError

OUTSIDE = {
    "behind": ("for i in range(8):\n        A[i + 1] = 1.0", r"A\[8\] at \(.*i=7\) .* shape \(8\)"),
    "before": ("for i in range(8):\n        A[i - 1] = 1.0", r"A\[-1\] at \(.*i=0\)"),
    "far": ("A[100000000] = 1.0", r"A\[100000000\] at .* is outside"),
    "read": ("for i in range(8):\n        A[i] = B[i, M]", r"B\[0,1\] at \(N=1,M=1,i=0\)"),
    "guarded": (
        "for i in range(9):\n        if i > 3:\n            A[i] = 1.0",
        r"A\[8\] at \(N=1,M=1,i=8\)",
    ),
}
INSIDE = {
    "guard": "for i in range(8):\n        if i < 7:\n            A[i + 1] = 1.0",
    "choice": "for i in range(8):\n        A[i] = select(i < 7, B[0, min(i, 0)], 0.0)",
    "sizes that may fit": "for i in range(N):\n        A[i] = B[i, 0]",
    "data": "for i in range(8):\n        A[i] = B[index(B[0, 0]) % 9, 0]",
    "empty": "for i in range(0):\n        A[i + 9] = 1.0",
}
TEXT = 'def f(A: Buffer["f32", 8, "inout"], B: Buffer["f32", N, M]):\n    {}\n'


@pytest.mark.parametrize("name", OUTSIDE)
def test_outside(name: str) -> None:
    body, message = OUTSIDE[name]
    for entry in (tc.build, tc.Schedule):
        with pytest.raises(VerifyError, match=message):
            entry(tc.parse(TEXT.format(body)))


def test_the_line_of_the_statement_is_named() -> None:
    text = TEXT.format("for i in range(8):\n        A[i + 1] = 1.0")
    with pytest.raises(VerifyError, match=r"outside of the shape \(8\)\n  --> prog\.py:3$"):
        tc.build(tc.parse(text, "prog.py"))
    text = text.replace("i + 1", "i").replace('"inout"', '"in"')
    with pytest.raises(VerifyError, match=r'its mode is "in"\n  --> prog\.py:3$'):
        tc.Schedule(tc.parse(text, "prog.py"))


@pytest.mark.parametrize("name", INSIDE)
def test_not_for_certain(name: str) -> None:
    tc.build(tc.parse(TEXT.format(INSIDE[name])))


def test_checks_find_it_in_the_run() -> None:
    tc.build(tc.parse(TEXT.format(OUTSIDE["far"][0])), checks=True)
