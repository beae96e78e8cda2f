"""The annotations that users see: a program of theirs passes a strict type checker."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
WRONG = """
import tensorc as tc

A = tc.placeholder((4,), "f32")
one = tc.compute((4,), lambda i: A[i])
first, second = one
tc.Schedule(tc.func_of([A], [one])).split("i", "8")
"""


def strictly_checked(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    options = ["--strict", "--config-file", os.devnull, "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cache, check=False)


@pytest.mark.timeout(300)
def test_a_users_program_passes_and_mistakes_do_not(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    right, mistaken = (strictly_checked(path, tmp_path) for path in (PROGRAM, wrong))
    assert right.returncode == 0, right.stdout + right.stderr
    lines = {line.split(":")[1] for line in mistaken.stdout.splitlines() if "error:" in line}
    assert lines == {"6", "7"}, mistaken.stdout + mistaken.stderr


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path(str(PROGRAM))
    np.testing.assert_array_equal(made["result"], np.full((64, 32), 4.0))
    np.testing.assert_array_equal(made["skewed"], np.full((64, 4), 2.0))
    assert all(path.exists() for path in made["files"])
    assert made["count"] == 2
