"""`tensorc emulate` on files of PTX and CUDA C++."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorc.cli.app import app
from tests.emulator.kernels import MATMUL, ptx_of


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["emulate", *(str(a) for a in arguments)])
    return done.exit_code, done.output


@pytest.fixture
def ptx(tmp_path: Path) -> Path:
    file = tmp_path / "matmul.ptx"
    file.write_text(ptx_of(MATMUL))
    return file


def arguments(*arrays: str) -> list[str]:
    return [part for array in (*arrays, "i32:32", "i32:32") for part in ("--arg", array)]


PLACE = ("--grid", "2,2", "--block", "16,16")


def test_a_clean_kernel_exits_with_0_and_its_result_is_saved(ptx: Path, tmp_path: Path) -> None:
    a, b = np.eye(32, dtype=np.float32), np.arange(1024, dtype=np.float32).reshape(32, 32)
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
    names = (f"{tmp_path}/a.npy", f"{tmp_path}/b.npy", "f32[32,32]:undefined")
    code, text = run(ptx, *PLACE, *arguments(*names), "--save", f"2={tmp_path}/c.npy")
    assert (code, text) == (0, "matmul: grid (2, 2, 1), block (16, 16, 1): nothing found\n")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), b.ravel())


def test_counters_are_by_source_line(ptx: Path) -> None:
    arrays = ("f32[32,32]", "f32[32,32]:zeros", "f32[32,32]:undefined")
    code, text = run(ptx, *PLACE, *arguments(*arrays), "--counters")
    assert code == 0
    assert "kernel.cu:9" in text
    assert "conflict factor 1.00" in text
    assert "4.00 sectors a request, 100% of their bytes used" in text


def test_findings_are_data_and_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "racy.cu"
    file.write_text(MATMUL.replace("__syncthreads();", ""))
    arrays = ("f32[32,32]", "f32[32,32]", "f32[32,32]:undefined")
    code, text = run(file, *PLACE, *arguments(*arrays), "--json", "--order", "random")
    assert code == 1
    found = json.loads(text)
    assert found["completed"]
    assert {each["finding"] for each in found["findings"]} == {"Race", "Uninitialised"}
    assert {each["access"]["place"]["file"] for each in found["findings"]} == {"racy.cu"}


@pytest.mark.parametrize(("change", "message"), [
    (("--arg", "i32:7"), "takes 5, not 6"),
    (("--grid", "2,x"), "no extent"),
    (("--block", "64,64"), "more than 1024"),
    (("--block", "17,16"), "at most 256 threads"),
    (("--order", "upwards"), "legal here: sequential, reverse, random"),
    (("--kernel", "other"), "it has matmul"),
    (("--shared", "300000"), "a block has 232448"),
    (("--save", "9=x.npy"), "does not name an array"),
])  # fmt: skip
def test_refusals(ptx: Path, change: tuple[str, ...], message: str) -> None:
    source = MATMUL.replace("__global__ void", "__global__ __launch_bounds__(256) void")
    ptx.write_text(ptx_of(source))
    code, text = run(ptx, *PLACE, *arguments(*["f32[32,32]"] * 3), *change)
    assert code == 1
    assert message in text


@pytest.mark.parametrize(("argument", "message"), [
    ("missing.npy", "cannot be read"), ("f33[3]", "there is no type"), ("i32:1.5", "no value"),
    ("i8:300", "no value"), ("nonsense", "legal here: FILE.npy"), ("i64:1", "has 4 bytes"),
])  # fmt: skip
def test_arguments_that_are_none(ptx: Path, argument: str, message: str) -> None:
    values = ["--arg", "f32[4]", "--arg", "f32[4]", "--arg", "f32[4]", "--arg", "i32:1"]
    code, text = run(ptx, *PLACE, *values, "--arg", argument)
    assert code == 1
    assert message in text


def test_files_that_are_no_program(tmp_path: Path) -> None:
    assert run(tmp_path / "none.ptx", *PLACE)[0] == 1
    file = tmp_path / "bad.ptx"
    file.write_text(".version 8.0\n.target sm_90\n.visible .entry f( {\n")
    code, text = run(file, *PLACE, "--json")
    assert code == 1
    error = json.loads(text)["error"]
    assert (error["type"], error["line"], error["file"]) == ("PtxError", 3, "bad.ptx")
