"""The bench of tasks beside TVM, without TVM: the translation, what is left by each command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from bench import tvm_tasks
from bench.tvm_record import Tuned
from bench.tvm_script import TranslationError, ordered, translate
from bench.tvm_subject import by_the_rules, subject
from tensorc.ir.interp import run as interpret
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.runtime.abi import extents
from tensorc.tasks import task_set
from tensorc.testing.tasks import tasks
from tests import tensorir
from tests.golden import Golden

SMALL = "efficientnet-b0@1x224.04"

# One of each kind of nest that the test set has.
GOLDEN = (
    "transposed.1-128-64-64-4-2-1-relu",  # guarded loads, strides, weights
    "resnet50@8x224.01",  # a maximum, padded with minus infinity
    "gpt2@4x16.03",  # attention: chains of reductions and maps, divided indices
    "gpt2@1x128.00",  # an index that is data
    "layer_norm.1-2048",  # results of rank 0
    "depthwise.1-2048-7x7-3-1-1-hardswish",
    "elementwise.gelu-512x6144",
    "ordered.topk-8x256-5",  # integers, several results, lazy conditions
)


@pytest.mark.parametrize("name", GOLDEN)
def test_text(name: str, golden: Golden) -> None:
    golden.check(translate(task_set()[name].func))


def test_every_task_of_the_test_set_is_translated() -> None:
    for task in task_set().of_split("test"):
        assert translate(task.func).startswith("@T.prim_func")


def agrees(func: Func, seed: int = 0) -> None:
    """Run the text, and the program in our interpreter, on small numbers of both signs."""
    draw = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for param in func.params:
        shape, dtype = extents(param.value, {}), STORAGE[param.value.dtype]
        arrays[param.name] = draw.integers(-3, 4, shape).astype(dtype)
    inputs = {param.name: arrays[param.name] for param in func.params if param.mode != "out"}
    expected = interpret(func, {name: array.copy() for name, array in inputs.items()}).outputs
    tensorir.run(translate(func), [arrays[param.name] for param in ordered(func)])
    for name, wanted in expected.items():
        np.testing.assert_allclose(arrays[name], wanted, rtol=2e-5, atol=2e-5, err_msg=name)


PROGRAMS = {
    "the guard of a load": """
def f(A: Buffer["f32", 5], Y: Buffer["f32", 7, "out"]):
    for i in range(7):
        Y[i] = select(i >= 1 and i < 6, A[i - 1], 0.0)
""",
    "a load in both branches": """
def f(A: Buffer["f32", 5], Y: Buffer["f32", 5, "out"]):
    for i in range(5):
        Y[i] = select(A[i] > 0.0, A[i], A[i] * 0.5)
""",
    "a condition that guards a load of its own": """
def f(A: Buffer["f32", 5], Y: Buffer["f32", 6, "out"]):
    for i in range(6):
        Y[i] = select(i > 0 and A[i - 1] > 0.0, A[i - 1], -1.0)
""",
    "a load behind or": """
def f(A: Buffer["f32", 5], Y: Buffer["f32", 6, "out"]):
    for i in range(6):
        Y[i] = select(i == 5 or A[i] > 0.0, 1.0, 2.0)
""",
    "an index that is data": """
def f(A: Buffer["f32", 9, 2], I: Buffer["i64", 5], Y: Buffer["f32", 5, 2, "out"]):
    for i in range(5):
        for j in range(2):
            Y[i, j] = A[index(min(max(I[i], 0), 8)), j]
""",
    "results of rank 0 and a parallel loop": """
def f(A: Buffer["f32", 6, 3], S: Buffer["f32", "out"], M: Buffer["f32", 3, "out"]):
    T = alloc("f32")
    T[()] = 0.0
    for i in range(6):
        for j in range(3):
            T[()] += A[i, j]
    S[()] = T[()] / 18.0
    for j2 in parallel(3):
        M[j2] = -inf
        for i2 in range(6):
            reduce("max", M[j2], A[i2, j2])
""",
    "an output before the inputs, a start that is no identity": """
def f(Y: Buffer["f32", 3, "out"], B: Buffer["f32", 3], A: Buffer["f32", 3, 4]):
    for i in range(3):
        Y[i] = B[i] * 2.0
        for k in range(4):
            Y[i] += A[i, k]
""",
    "names that the parser takes for others": """
def f(
    T: Buffer["f32", 4], v_i: Buffer["f32", 4],
    Y.out: Buffer["f32", 4, "out"], Y_out: Buffer["f32", 4, "out"],
):
    for i in range(4):
        Y.out[i] = exp(T[i]) - v_i[i]
    for T in range(4):
        Y_out[T] = Y.out[T] + 1.0
""",
    "divided and negated indices": """
def f(A: Buffer["f32", 3, 4], Y: Buffer["f32", 12, "out"]):
    for i in range(12):
        Y[i] = -A[2 - i // 4, i % 4] - (1.0 - A[i // 4, 3 - i % 4])
""",
    "integers and conversions": """
def f(A: Buffer["i64", 6], Y: Buffer["f32", 6, "out"], P: Buffer["i64", 6, "out"]):
    for i in range(6):
        Y[i] = f32(A[i]) + select(not (A[i] > 0) and i != 2, 1.0, f32(i64(i)))
    for j in range(6):
        P[j] = -9223372036854775808
        for k in range(6):
            reduce("max", P[j], A[k] - i64(j))
""",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_computes_the_same(name: str) -> None:
    agrees(parse(PROGRAMS[name]))


@given(func=tasks())
@settings(max_examples=12)
def test_the_texts_of_random_tasks_compute_the_same(func: Func) -> None:
    agrees(func)


def test_weights_are_free_in_their_layout() -> None:
    func = parse("""
def f(
    W: Buffer["f32", 4, "const"], Y: Buffer["f32", 4, "out"],
    A: Buffer["f32", 4], B: Buffer["f32", 4, "const"],
):
    for i in range(4):
        Y[i] = W[i] + A[i] * B[i]
""")
    assert [param.name for param in ordered(func)] == ["W", "A", "B", "Y"]
    assert '"layout_free_buffers": [0, 2]' in translate(func)


REFUSED = {
    "loop k runs as often as i1 says": task_set()["scan.cumsum-64x128-1"].text,
    "argmax.value reduces into 2 buffers at once": task_set()["reduction.argmax-128x1000-1"].text,
    "alpha is a number that is given to each call": """
def f(alpha: f32, Y: Buffer["f32", 4, "out"]):
    for i in range(4):
        Y[i] = alpha
""",
    "A has a size that only a call knows": """
def f(A: Buffer["f32", N], Y: Buffer["f32", N, "out"]):
    for i in range(N):
        Y[i] = A[i]
""",
    "Y is read and written": """
def f(Y: Buffer["f32", 4, "inout"]):
    for i in range(4):
        Y[i] = Y[i] + 1.0
""",
    "Y is of f16, which is rounded at each operator here": """
def f(Y: Buffer["f16", 4, "out"]):
    for i in range(4):
        Y[i] = 1.0
""",
    "Y has more elements than 32 bits can count": """
def f(Y: Buffer["f32", 65536, 65536, "out"]):
    for i in range(65536):
        for j in range(65536):
            Y[i, j] = 1.0
""",
    "loop i is around 2 statements": """
def f(Y: Buffer["f32", 4, "out"], Z: Buffer["f32", 4, "out"]):
    for i in range(4):
        Y[i] = 1.0
        Z[i] = Y[i]
""",
    "T is made anew in each iteration": """
def f(Y: Buffer["f32", 4, "out"]):
    for i in range(4):
        T = alloc("f32", 1)
        T[0] = 1.0
        Y[i] = T[0]
""",
    "no store of its initial value stands right before reduction Y": """
def f(A: Buffer["f32", 4, 3], Y: Buffer["f32", 4, "out"]):
    for i in range(4):
        Y[i] = 0.0
    for j in range(4):
        for k in range(3):
            Y[j] += A[j, k]
""",
    "loop i does not begin at 0": """
def f(Y: Buffer["f32", 4, "out"]):
    for i in range(1, 4):
        Y[i] = 1.0
""",
    "the indices that Y writes at are not its loops, one each": """
def f(Y: Buffer["f32", 8, "out"]):
    for i in range(4):
        for j in range(2):
            Y[i * 2 + j] = 1.0
""",
    "Y reads what it writes": """
def f(Y: Buffer["f32", 4, "out"]):
    for i in range(4):
        Y[i] = select(i > 0, Y[i - 1], 0.0)
""",
    "Y is written in several places": """
def f(Y: Buffer["f32", 2, 4, "out"]):
    for i in range(4):
        Y[0, i] = 1.0
    for j in range(4):
        Y[1, j] = 2.0
""",
    "there is a statement of kind If": """
def f(Y: Buffer["f32", 4, "out"]):
    for i in range(4):
        if i > 0:
            Y[i] = 1.0
""",
    "a float is converted to an integer, saturating here alone": """
def f(A: Buffer["f32", 4], Y: Buffer["i32", 4, "out"]):
    for i in range(4):
        Y[i] = i32(A[i])
""",
    "truncdiv by what may not be positive": """
def f(A: Buffer["i32", 4], Y: Buffer["i32", 4, "out"]):
    for i in range(4):
        Y[i] = truncdiv(A[i], A[i])
""",
    "shl by what may be no less than the width": """
def f(A: Buffer["i32", 4], Y: Buffer["i32", 4, "out"]):
    for i in range(4):
        Y[i] = A[i] << 32
""",
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_translated_says_why(reason: str) -> None:
    with pytest.raises(TranslationError) as error:
        translate(parse(REFUSED[reason]))
    assert str(error.value) == reason


# Commands ----------------------------------------------------------------------------------------

# An interpreter that plays TVM's: it has the right results, or others, and a call takes a second.
PEER = f"""#!{sys.executable}
import sys
import numpy as np
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with np.load(options["--inputs"]) as inputs:
    x, weight, bias = (inputs[name].astype("f8") for name in inputs.files)
result = 1.0 / (1.0 + np.exp(-(weight @ x + bias)))
np.savez(options["--results"], result.astype("f4") + np.float32(DIFFERENCE))
print("ready", flush=True)
for line in sys.stdin:
    print(1.0, flush=True)
"""


def peer(folder: Path, difference: float = 0.0) -> str:
    file = folder / f"python{difference}"
    file.write_text(PEER.replace("DIFFERENCE", str(difference)))
    file.chmod(0o755)
    return str(file)


def command(monkeypatch: pytest.MonkeyPatch, *options: object) -> int:
    monkeypatch.setattr(sys, "argv", ["bench.tvm_tasks", *map(str, options)])
    return tvm_tasks.main()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the programs of the training set, of which some are refused."""
    folder = tmp_path / "work"
    folder.mkdir()
    known = task_set()
    some = [known[name] for name in (SMALL, "scan.cumsum-64x128-1")]
    monkeypatch.setattr(type(known), "of_split", lambda self, split: tuple(some))
    assert command(monkeypatch, "translate", "--work", folder) == 0
    return folder


def test_programs_and_refusals_are_written(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = work / SMALL / "program.py"
    assert program.read_text() == translate(task_set()[SMALL].func)
    record = json.loads((work / "tasks.json").read_text())
    assert record["tasks"] == [SMALL]
    assert record["refused"] == {"scan.cumsum-64x128-1": "loop k runs as often as i1 says"}
    assert command(monkeypatch, "translate", "--work", work) == 0
    program.write_text("another one")
    with pytest.raises(SystemExit, match=f"has other programs for {SMALL}"):
        command(monkeypatch, "translate", "--work", work)


def test_a_task_that_is_not_there_is_refused(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("check", "--python", peer(work), "--work")
    with pytest.raises(SystemExit, match="is not translated: loop k runs as often as i1 says"):
        command(monkeypatch, *options, work, "--only", "scan.cumsum-64x128-1")
    with pytest.raises(SystemExit, match="there is no mm"):
        command(monkeypatch, *options, work, "--only", "mm")
    with pytest.raises(SystemExit, match="run `translate` first"):
        command(monkeypatch, *options, work / SMALL)


def test_results_are_checked(work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert command(monkeypatch, "check", "--work", work, "--python", peer(work)) == 0
    assert command(monkeypatch, "check", "--work", work, "--python", peer(work, 1e-3)) == 1
    printed = capsys.readouterr().out
    assert f"# {SMALL}: right\n" in printed
    assert f"# {SMALL}: 32 of 32 elements of Y are wrong" in printed


def tuned(work: Path, threads: int, python: str) -> None:
    folder = work / SMALL / f"threads-{threads}"
    folder.mkdir()
    Tuned(64, 60, 12.5, "a-cpu", threads, threads, False, {}, python).save(folder)


def test_turns_leave_a_row_and_what_has_none_a_reason(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = work / "tvm.json"
    options = ("compare", "--work", work, "--json", file, "--repeats", 2)
    tuned(work, 1, peer(work))
    assert command(monkeypatch, *options) == 0
    record = json.loads(file.read_text())
    (row,) = record["rows"]
    assert (row["task"], row["family"], row["threads"]) == (SMALL, "2d convolution", 1)
    assert row["tvm"] == 1.0
    assert row["ratio"] == 1.0 / row["ours"]
    assert (len(row["ours_samples"]), row["tvm_samples"]) == (2, [1.0, 1.0])
    assert (row["trials"], row["records"]) == (64, 60)
    assert record["missing"] == [
        {"task": "scan.cumsum-64x128-1", "reason": "loop k runs as often as i1 says"},
        {"task": SMALL, "threads": 2, "reason": "it is not tuned"},
    ]

    tuned(work, 2, peer(work, 1e-3))
    assert command(monkeypatch, *options) == 0
    record = json.loads(file.read_text())
    assert record["rows"] == [row]
    assert record["missing"][1]["reason"].startswith("TVM's result: 32 of 32 elements of Y")
    assert "over 1, least" in capsys.readouterr().out

    assert command(monkeypatch, "seconds", "--json", file) == 0
    assert json.loads(capsys.readouterr().out) == {SMALL: 1.0}


def test_a_process_that_ends_is_a_reason(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = work / "ends"
    ends.write_text(f"#!{sys.executable}\n")
    ends.chmod(0o755)
    tuned(work, 1, str(ends))
    file = work / "tvm.json"
    options = ("--work", work, "--json", file, "--threads", 1)
    assert command(monkeypatch, "compare", *options) == 0
    record = json.loads(file.read_text())
    assert record["rows"] == []
    assert record["missing"][1]["reason"].endswith("ended before it answered")


def test_what_is_tuned_is_not_tuned_again(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def apart(program: str, name: str, folder: Path, threads: int) -> bool:
        asked.append((name, threads))
        return threads != 2

    monkeypatch.setattr(tvm_tasks.tvm_peer, "apart", apart)
    tuned(work, 1, "python")
    assert command(monkeypatch, "tune", "--work", work, "--threads", 1) == 0
    assert asked == []
    assert command(monkeypatch, "tune", "--work", work) == 1
    assert command(monkeypatch, "tune", "--work", work, "--threads", 1, "--trials", 65) == 0
    assert asked == [(SMALL, 2), (SMALL, 1)]


def test_constants_have_copies_and_inputs_their_order() -> None:
    case = subject(SMALL, "whole")
    assert [array.shape for array in case.given] == [(8,), (32, 8), (32,)]
    kernel = case.kernel(Path("program.py"), Path("tuning"))
    assert (kernel.constants, kernel.copies) == ((1, 2), 16)
    assert case.kernel(Path("program.py")).copies == 1
    with by_the_rules(case, 1) as (sample, wrong):
        assert sample(3) > 0.0
        assert wrong() == ""
