"""The benches measure what they say: cases take turns, no kernel is optimised away."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import harness, levels, peak
from tensorc.codegen.jit import compile_module
from tensorc.runtime import parallel
from tensorc.target import Target

ROOT = Path(__file__).parent.parent
V4 = Target.parse("cpu:x86-64-v4")


def test_samples_alternate() -> None:
    calls: list[str] = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    timings = harness.alternate(functions, repeats=4, sample_seconds=0.0)
    assert list(timings) == ["a", "b", "c"]
    # One call each to warm up and one to find out how long it takes, then a new first every round.
    assert "".join(calls) == "aabbcc" + "abc" + "bca" + "cab" + "abc"
    assert timings["a"].best_ratio == timings["a"].median_ratio == 1.0
    assert all(0 < timing.best <= timing.median for timing in timings.values())


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    count: int
    share: float


def test_tables_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("a", 1, 0.12345), Row("longer", 20000, 12345.6)]
    harness.report("a machine", rows, tmp_path / "out.json")
    assert capsys.readouterr().out.splitlines() == [
        "a machine",
        "name    count  share",
        "a           1  0.123",
        "longer  20000  12346",
    ]
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["machine"] == "a machine"
    assert written["rows"][1] == {"name": "longer", "count": 20000, "share": 12345.6}
    assert harness.table([]) == ""


@pytest.mark.parametrize(("imports", "code"), [("", 0), ("import numpy;", 1)])
def test_slow_kernels_of_openblas_are_not_the_peer(imports: str, code: int) -> None:
    script = f"{imports}import os, bench.harness; print('OPENBLAS_CORETYPE' in os.environ)"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == code
    assert done.stdout == ("False\n" if code == 0 else "")


@pytest.mark.parametrize("bits", [256, 512])
def test_the_peak_is_of_independent_multiply_adds(bits: int) -> None:
    assembly = compile_module(peak.fma_text(bits), V4).assembly()
    register = {256: "ymm", 512: "zmm"}[bits]
    steps = [line for line in assembly.splitlines() if "vfmadd" in line]
    assert len(steps) == peak.CHAINS >= 10
    assert len({line.rpartition("%")[2] for line in steps}) == peak.CHAINS
    assert all(register in line for line in steps)


@pytest.mark.parametrize("kernel", peak.MEMORY)
def test_memory_kernels_move_all_bytes(kernel: str) -> None:
    target = Target.parse("cpu")
    count, parts = 4 * peak.UNROLL * target.lanes(32), 2
    blocks = [(ctypes.c_char * (4 * count + 64))() for _ in range(3)]
    aligned = [-(-ctypes.addressof(block) // 64) * 64 for block in blocks]
    a, b, c = ((ctypes.c_float * count).from_address(address) for address in aligned)
    a[:], b[:], c[:] = [1.0] * count, list(range(count)), [2.0] * count
    context = (ctypes.c_int64 * 5)(*aligned, 4 * count // parts, 1)
    module = compile_module(peak.memory_text(kernel, target), target)
    body = module.address(kernel)
    assert parallel.parallel_for(body, ctypes.addressof(context), parts) == 0
    expected = {
        "read": [1.0] * count,
        "copy": list(range(count)),
        "triad": [6.0 + number for number in range(count)],
    }
    assert list(a) == expected[kernel]
    # Every vector of every array is one operand in memory.
    assembly = compile_module(peak.memory_text(kernel, V4), V4).assembly()
    operands = [line for line in assembly.splitlines() if re.search(r"\(%r\w+,%r\w+\).*zmm", line)]
    stores = [line for line in assembly.splitlines() if re.search(r"zmm\d+, .*\(%r\w+,%r", line)]
    assert len(operands) + len(stores) == peak.UNROLL * peak.MEMORY[kernel]


@pytest.mark.parametrize("level", ["none", "short", "full"])
def test_the_kernels_of_the_levels_are_right(level: str) -> None:
    host = Target.parse("cpu")
    memory = [(ctypes.c_float * (1 << 17))() for _ in range(3)]
    a, b, c = memory
    a[:], b[:] = [0.5] * len(a), [2.0] * len(b)
    for kernel, text, depth, size in (
        ("tile", levels.tile_text(8), levels.DEPTH, levels.TILES * levels.ROWS * 16),
        ("nest", levels.nest_text(), levels.SIDE, levels.SIDE**2),
    ):
        c[:] = [1.0] * len(c)
        module = compile_module(text, host, opt=level)  # type: ignore[arg-type]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(module.address(kernel))
        assert function(*memory) == 0
        assert list(c) == [1.0 + depth] * size + [1.0] * (len(c) - size)
