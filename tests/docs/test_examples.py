"""Every example runs on its own, and what it computes is right by its own comparison."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
COMPILERS = ("cc", "gcc", "clang")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    if example.stem == "embed" and not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C compiler (cc, gcc or clang) on this machine")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        env=os.environ | {"TENSORC_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(example.stem, done.stdout)


def check(name: str, printed: str) -> None:
    match name:
        case "matmul" | "conv" | "softmax":
            difference = re.search(r"largest difference from NumPy: (\S+)", printed)
            assert difference is not None
            assert float(difference[1]) < 1e-3
        case "custom_op":
            assert "error[DEP001]: cannot run `t` in parallel" in printed
            assert printed.endswith("different from NumPy's: 0\n")
        case "symbolic":
            assert printed.count("equal to NumPy: True") == 4
            assert "int32_t distances(const float *A, const float *B, float *C," in printed
        case "embed":
            assert printed.endswith("12\n24\n36\n48\n60\n\n")
        case _:
            raise AssertionError(f"{name}: say here what the example must print")
