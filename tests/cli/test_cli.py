"""The commands on small files: text, data, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorc.cli.app import app
from tensorc.cli.explain import hot_loop
from tensorc.schedule.trace import Trace

SOURCE = """
import tensorc as tc

@tc.func
def skew(A: tc.Buffer["f32", "N", 64]):
    for i in range(1, 64):
        for k in range(63):
            A[i, k] = A[i - 1, k + 1] * 2.0

def matmul():
    A, B = tc.placeholder((16, 16), "f32", name="A"), tc.placeholder((16, 16), "f32", name="B")
    k = tc.reduce_axis(16, name="k")
    C = tc.compute((16, 16), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")

def nothing():
    return 3

other = matmul()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "programs.py"
    file.write_text(SOURCE)
    return file


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    return done.exit_code, done.output


def test_show_prints_every_step(source: Path) -> None:
    code, text = run("show", f"{source}:matmul")
    assert code == 0
    assert '# step 1: decompose_reduction("C")' in text
    assert "+    for i.init in range(16):" in text


def test_show_json_holds_every_nest(source: Path) -> None:
    code, text = run("show", f"{source}:matmul", "--json")
    records = json.loads(text)
    assert code == 0
    assert records[0]["step"] == ""
    assert "vectorize" in records[-1]["nest"]


def test_check_refuses_with_the_report(source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.py"
    trace.write_text('s.split("i", [4])\ns.reorder("k", "i1")\n')
    code, text = run("check", f"{source}:skew", "--trace", trace)
    assert code == 1
    assert 'ok         1  split("i", 4)' in text
    assert "error[DEP002]" in text
    code, text = run("check", f"{source}:skew", "--trace", trace, "--json")
    data = json.loads(text)
    assert code == 1
    assert data["legal"] is False
    assert data["steps"][-1]["code"] == "DEP002"


def test_replay_round_trips(source: Path, tmp_path: Path) -> None:
    code, nest = run("replay", f"{source}:matmul")
    _, python = run("replay", f"{source}:matmul", "--python")
    trace = tmp_path / "trace.py"
    trace.write_text(python)
    assert code == 0
    assert run("replay", f"{source}:matmul", "--trace", trace) == (0, nest)
    _, data = run("replay", f"{source}:matmul", "--json")
    other = tmp_path / "trace.json"
    other.write_text(json.dumps(json.loads(data)["trace"]))
    assert run("replay", f"{source}:matmul", "--trace", other) == (0, nest)


def test_text_files_are_programs(tmp_path: Path) -> None:
    file = tmp_path / "copy.txt"
    file.write_text(
        """def copy(A: Buffer["f32", 64], B: Buffer["f32", 64, "out"]):
    for i in range(64):
        B[i] = A[i]
"""
    )
    code, text = run("replay", file)
    assert code == 0
    assert "vectorize" in text


def test_compile_writes_an_object_and_a_header(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "mm.o"
    code, _ = run("compile", f"{source}:matmul", "-o", out, "--target", "cpu:x86-64-v2")
    assert code == 0
    assert out.stat().st_size > 0
    assert "matmul" in out.with_suffix(".h").read_text()


def test_explain_shows_stages_and_the_hot_loop(source: Path) -> None:
    code, text = run("explain", f"{source}:matmul", "--target", "cpu:x86-64-v3")
    assert code == 0
    for title in ("# stage schedule", "# stage vectors", "# llvm", "# hot loop"):
        assert title in text
    code, text = run("explain", f"{source}:matmul", "--target", "cpu:x86-64-v3", "--json")
    data = json.loads(text)
    assert data["hot"]["multiply_adds"] > 0
    assert 0 < data["hot"]["share"] <= 1


def test_hot_loop_takes_the_innermost() -> None:
    found = hot_loop(
        "f:\n.L0:\n\tvmovups (%rax), %ymm0\n.L1:\n\tvfmadd231ps (%rcx), %ymm0, %ymm1\n"
        "\tjne .L1\n\tjne .L0\n\tret\n"
    )
    assert found is not None
    assert (found.label, found.multiply_adds, found.memory_operands) == (".L1", 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "missing.py:f"), "there is no file 'missing.py'"),
        (("show", "{source}:missing"), "has no 'missing'"),
        (("show", "{source}:"), "name one"),
        (("show", "{source}:nothing"), "not a Func or Schedule"),
        (("show", "{source}:skew", "--target", "tpu"), "tpu"),
        (("check", "{source}:skew", "--trace", "missing.json"), "there is no file 'missing.json'"),
    ],
)
def test_bad_input_is_one_clear_message(
    source: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, text = run(*(a.format(source=source) for a in arguments))
    assert code == 1
    assert message in text
    assert "Traceback" not in text


def test_a_report_blames_the_line_of_the_trace(source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.py"
    trace.write_text('# two steps\ns.split("i", 4)\n\ns.reorder("k", "i1")\n')
    _, text = run("check", f"{source}:skew", "--trace", trace)
    assert '  --> trace.py:4   step 2: s.reorder("k", "i1")' in text
    other = tmp_path / "trace.json"
    other.write_text(Trace.from_python(trace.read_text()).to_json())
    _, text = run("check", f"{source}:skew", "--trace", other)
    assert '  --> trace.json:5   step 2: s.reorder("k", "i1")' in text
