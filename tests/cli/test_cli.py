"""The commands on small files: text, data, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tensorc as tc
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

def needs(size):
    return matmul()

def fails():
    return tc.placeholder((-1,), "f32")

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


def test_explain_reports_what_kernels_take(source: Path) -> None:
    code, text = run("explain", f"{source}:matmul", "--target", "cuda:A100")
    assert code == 0
    for part in (
        "# stage barriers of matmul",
        "__global__",
        "# kernel matmul",
        "registers",
        "bound by",
    ):
        assert part in text
    code, text = run("explain", f"{source}:matmul", "--target", "cuda:A100", "--json")
    (kernel,) = json.loads(text)["kernels"]
    assert kernel["occupancy"]["blocks"] > 0
    assert kernel["loop"]["pipes"][kernel["loop"]["bound"]] == max(kernel["loop"]["pipes"].values())


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
        (("show", "x" * 300 + ".py:f"), "there is no file 'xxxx"),
        (("show", "{source}:missing"), "has no 'missing'"),
        (("show", "{source}:"), "name one"),
        (("show", "{source}:nothing"), "not a Func or Schedule"),
        (("show", "{source}:missing"), "it has fails, matmul, nothing, other, skew"),
        (("show", "{source}:needs"), "needs takes arguments"),
        (("show", "."), "there is no file '.'"),
        (("compile", "{source}:matmul", "-o", "nowhere/x.o"), "there is no folder 'nowhere'"),
        (("compile", "{source}:matmul", "-o", "x.xyz"), "x.xyz"),
        (("bench", "{source}:skew"), "N is symbolic: give --size N=... (the sizes are N)"),
        (("bench", "{source}:skew", "--size", "M=3"), "N is symbolic"),
        (("bench", "{source}:skew", "--size", "N=4", "--size", "M=3"), "there is no size 'M'"),
        (("bench", "{source}:skew", "--size", "N=4", "--size", "N=3"), "N is given twice"),
        (("bench", "{source}:skew", "--size", "N=-4"), "expected NAME=NUMBER"),
        (("bench", "{source}:skew", "--size", "N"), "expected NAME=NUMBER"),
        (("bench", "{source}:skew", "--size", "N=9999999999999"), "of shape (9999999999999, 64)"),
        (("run", "nope"), "there is no 'nope'; legal here: resnet50"),
        (("tasks", "nope"), "there is no 'nope'; legal here: resnet50"),
        (("tasks", "missing.pt2"), "there is no file 'missing.pt2'"),
        (("run", "missing.onnx"), "missing.onnx"),
        (("run", "missing.pt2", "--layers", "3"), "missing.pt2 takes no number of layers"),
        (("show", "-", "--trace", "-"), "standard input holds the program already"),
        (("show", "{source}:skew", "--target", "tpu"), "tpu"),
        (("check", "{source}:skew", "--trace", "missing.json"), "there is no file 'missing.json'"),
    ],
)
def test_bad_input_is_one_clear_message(
    source: Path, arguments: tuple[str, ...], message: str
) -> None:
    arguments = tuple(a.format(source=source) for a in arguments)
    code, text = run(*arguments)
    assert code == 1
    assert message in text
    assert "Traceback" not in text
    done = CliRunner().invoke(app, [*arguments, "--json"])
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == 1
    assert message in error["report"]
    assert error["type"] == "ArgumentError" or error["type"] == "TargetError"
    assert error["kind"] is error["code"] is None
    assert error["message"] in error["report"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "mlp", "--threads", "-3"),
        ("run", "mlp", "--threads", "100000"),
        ("run", "mlp", "--threads", "many"),
        ("run", "mlp", "--compare", "numpy"),
        ("run", "mlp", "--compare", "torch,numpy"),
        ("run", "mlp", "--rounds", "0"),
        ("run", "llama-7b", "--layers", "0"),
        ("tasks", "mlp", "--threads", "-3"),
        ("tasks",),
        ("bench", "{source}:matmul", "--repeats", "0"),
        ("bench", "{source}:matmul", "--repeats", "-1"),
        ("show",),
    ],
)
def test_options_that_cannot_be_are_usage_errors(source: Path, arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [a.format(source=source) for a in arguments])
    assert done.exit_code == 2
    assert "Usage:" in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_report_blames_the_line_of_the_trace(source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.py"
    trace.write_text('# two steps\ns.split("i", 4)\n\ns.reorder("k", "i1")\n')
    _, text = run("check", f"{source}:skew", "--trace", trace)
    assert '  --> trace.py:4   step 2: s.reorder("k", "i1")' in text
    other = tmp_path / "trace.json"
    other.write_text(Trace.from_python(trace.read_text()).to_json())
    _, text = run("check", f"{source}:skew", "--trace", other)
    assert '  --> trace.json:5   step 2: s.reorder("k", "i1")' in text


SCAN = """def scan(A: Buffer["f32", 32], B: Buffer["f32", 33, "inout"]):
    for i in range(32):
        B[i + 1] = B[i] + A[i]
"""


@pytest.mark.parametrize("command", ["replay", "bench", "show", "explain", "compile"])
def test_a_refused_step_is_data(tmp_path: Path, command: str) -> None:
    program, trace = tmp_path / "scan.txt", tmp_path / "trace.py"
    program.write_text(SCAN)
    trace.write_text('s.vectorize("i")\n')
    output = ["-o", str(tmp_path / "scan.o")] if command == "compile" else []
    arguments = [command, str(program), "--trace", str(trace), "--json", *output]
    done = CliRunner().invoke(app, arguments)
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == 1
    assert (error["type"], error["kind"], error["code"]) == ("ScheduleError", "illegal", "DEP003")
    assert error["message"].startswith("cannot vectorize `i`")
    assert error["report"].startswith("error[DEP003]: cannot vectorize `i`")
    assert error["alternatives"] == ["split i", "unroll i"]
    _, text = run("check", program, "--trace", trace, "--json")
    assert json.loads(text)["steps"][0]["report"] == error["report"]


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"version":1\n', "Expecting ',' delimiter"), ('{"version": 1, "steps": 3}', "a list")],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    program, trace = tmp_path / "scan.txt", tmp_path / "bad.json"
    program.write_text(SCAN)
    trace.write_text(text)
    code, shown = run("check", program, "--trace", trace)
    assert code == 1
    assert message in shown
    assert "bad.json:" in shown
    _, shown = run("check", program, "--trace", trace, "--json")
    assert json.loads(shown)["error"]["line"] == text.count("\n") + 1


def test_a_program_that_is_none_is_placed(tmp_path: Path) -> None:
    program = tmp_path / "broken.txt"
    program.write_text("def f(A):\n")
    _, shown = run("show", program, "--json")
    error = json.loads(shown)["error"]
    assert (error["type"], error["line"], error["file"]) == ("ParseError", 1, str(program))


def test_compile_says_what_it_wrote(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "mm.o"
    _, text = run("compile", f"{source}:matmul", "-o", out, "--target", "cpu:x86-64-v3")
    assert text == f"wrote {out} and {out.with_suffix('.h')}\n"
    _, text = run("compile", f"{source}:matmul", "-o", out, "--json", "--target", "cpu:x86-64-v3")
    data = json.loads(text)
    assert data["written"] == [str(out), str(out.with_suffix(".h"))]
    assert "matmul" in data["signature"]
    assert "x86-64-v3" in data["target"]


PRINTING = """
import beside
import tensorc as tc

print("loading")
f = tc.parse(beside.TEXT)

def g():
    import later
    print("making")
    return f
"""


def test_a_program_runs_in_its_folder_and_prints_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(f"TEXT = {SCAN!r}\n")
    (tmp_path / "later.py").write_text("")
    program = tmp_path / "json.py"
    program.write_text(PRINTING)
    before = sys.path.copy()
    for name in ("f", "g"):
        done = CliRunner().invoke(app, ["replay", f"{program}:{name}", "--json"])
        assert "scan" in json.loads(done.stdout)["nest"]
        assert "loading\n" in done.stderr
    assert "making\n" in done.stderr
    assert sys.path == before
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x = 1\nx / 0\n", ["line 2, in <module>\n    x / 0\n", "ZeroDivisionError: division"]),
        ("import tensorc as tc\ntc.placeholder((-1,), 3)\n", ["line 2, in", "ArgumentError: arg"]),
        ("def f(:\n", ["line 1\n    def f(:\n", "SyntaxError: invalid syntax"]),
        ("import sys\nsys.exit(3)\n", ["line 2, in <module>\n    sys.exit(3)", "SystemExit: 3"]),
        ("import no_such_module\n", ["line 1, in", "No module named 'no_such_module'"]),
    ],
)
def test_a_failure_of_a_program_shows_its_own_lines(
    tmp_path: Path, text: str, shown: list[str]
) -> None:
    program = tmp_path / "failing.py"
    program.write_text(text)
    for arguments in (["show", str(program)], ["show", f"{program}:f"]):
        code, message = run(*arguments)
        assert code == 1
        assert message.startswith(f"{program} failed:\n")
        for part in shown:
            assert part in message
        assert "importlib" not in message
        assert "tensorc/" not in message
    _, message = run("show", f"{program}:f", "--json")
    assert json.loads(message)["error"]["type"] == "ScriptError"


def test_a_failure_while_making_shows_its_own_lines(source: Path) -> None:
    code, message = run("show", f"{source}:fails")
    assert code == 1
    assert 'in fails\n    return tc.placeholder((-1,), "f32")\n' in message
    assert "tensorc/" not in message


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_a_program(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", name], input=SCAN)
    assert done.exit_code == 0
    assert "def scan" in done.output
    trace = 's.split("i", 4)\n'
    program = tmp_path / "scan.txt"
    program.write_text(SCAN)
    for text in (trace, Trace.from_python(trace).to_json()):
        done = CliRunner().invoke(app, ["check", str(program), "--trace", name], input=text)
        assert done.output == 'ok         1  split("i", 4)\n'
    done = CliRunner().invoke(app, ["show", name], input="def f(")
    assert done.exit_code == 1
    assert "<stdin>:1:" in done.stderr


def test_a_trace_may_name_what_calls_give(source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.py"
    trace.write_text("i0, i1 = s.split('i', 4)\nk0, k1 = s.split('k', 8)\ns.reorder(k0, i1)\n")
    code, text = run("check", f"{source}:skew", "--trace", trace)
    assert code == 1
    assert "ok         2" in text
    assert 'trace.py:3   step 3: s.reorder("k0", "i1")' in text


def test_the_version_is_told() -> None:
    assert run("--version") == (0, f"tensorc {tc.__version__}\n")


def test_symbolic_sizes_are_given(source: Path) -> None:
    code, text = run("bench", f"{source}:skew", "--size", "N=64", "--repeats", 2, "--json")
    assert code == 0
    assert all(row["best"] > 0 for row in json.loads(text).values())
    code, text = run("bench", f"{source}:skew", "--size", "N=40", "--repeats", 2, "--json")
    assert code == 1
    assert json.loads(text)["error"]["type"] == "RuntimeCheckError"


def test_every_kernel_with_a_loop_has_a_hot_one(source: Path) -> None:
    _, text = run("explain", f"{source}:skew", "--target", "cpu:x86-64-v3")
    title, _, rest = text.rpartition("# hot loop: ")[2].partition("\n")
    assert title.startswith("no multiply-adds in ")
    assert "vaddss" in rest
    _, text = run("explain", f"{source}:skew", "--target", "cpu:generic;triple=aarch64-linux-gnu")
    assert "# hot loop: no multiply-adds in " in text


def test_the_longest_loop_is_hot_without_multiply_adds() -> None:
    short = ".L1:\n\tmovss (%rax), %xmm0\n\tjne .L1\n"
    long = ".L2:\n\tleaq (%rax), %rcx\n\tmovss (%rax), %xmm0\n\tmulss %xmm0, %xmm1\n\tjne .L2\n"
    for assembly in (short + long, long + short):
        found = hot_loop(assembly)
        assert found is not None
        assert (found.label, found.instructions, found.memory_operands) == (".L2", 4, 1)
    assert hot_loop("f:\n\tret\n") is None


def test_a_network_runs_alone() -> None:
    done = CliRunner().invoke(app, ["run", "mlp", "--threads", "1", "--json"])
    data = json.loads(done.stdout)
    assert done.exit_code == 0
    assert data["threads"] == 1
    assert list(data["runners"]) == ["tensorc"]
    assert data["roof"]["bandwidth"] > 0
    assert len(data["tasks"]) == 3


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "bytes.txt"
    program.write_bytes(b"\xff\xfe\xff")
    for name, given in ((str(program), ""), ("-", b"\xff\xfe\xff")):
        done = CliRunner().invoke(app, ["show", name], input=given)
        assert done.exit_code == 1
        assert f"{name} cannot be read" in done.stderr
