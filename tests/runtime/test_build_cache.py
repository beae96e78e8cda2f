"""The compile cache as `build` uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from tensorc import config
from tensorc.codegen.pipeline import Options
from tensorc.errors import CacheWarning
from tensorc.ir.print import print_func
from tensorc.runtime import code
from tensorc.runtime.cache import CacheKey, CompileCache
from tensorc.runtime.module import build
from tensorc.target import Target
from tests.runtime import programs


# J5: features are part of the key, not only the processor's name.
def test_j5_equal_processors_with_different_features_have_entries_of_their_own(folder):
    whole = Target.parse("cpu:x86-64-v3")
    less = replace(whole, features=tuple(f for f in whole.features if f != "fma"))
    for target in (whole, less, whole):
        build(programs.EXP, target)
    assert len(list(folder.iterdir())) == 2


@pytest.fixture
def folder(tmp_path):
    with config.scope(cache_dir=tmp_path):
        yield tmp_path / "compiled"


def refuse_to_compile(*_, **__):
    raise AssertionError("LLVM was asked to compile")


def test_a_second_build_takes_the_object_from_the_cache(folder, monkeypatch):
    first = build(programs.ROWS)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(code, "compile_module", refuse_to_compile)
    monkeypatch.setattr(code, "lower", refuse_to_compile)
    again = build(programs.ROWS)
    assert again.signature == first.signature
    a = np.linspace(-2, 2, 120, dtype=np.float32).reshape(3, 40)
    np.testing.assert_array_equal(again.run(a), first.run(a))


PROCESS = """
import sys, numpy
from tensorc.runtime import code
from tensorc.runtime.module import build
from tests.runtime import programs
def refuse(*_, **__): raise AssertionError("LLVM was asked to compile")
code.compile_module = code.lower = refuse
a = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
numpy.testing.assert_allclose(build(programs.ROWS).run(a), numpy.exp(a) / 2, rtol=1e-5)
"""


def test_another_process_finds_it(folder):
    environment = {**os.environ, "TENSORC_CACHE_DIR": str(folder.parent)}
    command = [sys.executable, "-c", PROCESS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "LLVM was asked to compile" in done.stderr
    build(programs.ROWS)
    subprocess.run(command, env=environment, check=True)


def test_programs_targets_and_options_have_entries_of_their_own(folder):
    build(programs.ROWS)
    build(programs.ROWS, name="other")
    build(programs.ROWS, "cpu:x86-64-v2")
    build(programs.EXP)
    assert len(list(folder.iterdir())) == 4


DAMAGES = {
    "shorter": lambda data: data[:-1],
    "header alone": lambda data: data[:70],
    "empty": lambda data: b"",
    "one bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_compiled_anew_and_said_so(folder, damage):
    build(programs.ROWS)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    with pytest.warns(CacheWarning, match="compiled anew"):
        module = build(programs.ROWS)
    a = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(module.run(a), np.exp(a) / 2, rtol=1e-5)
    assert entry.read_bytes() == whole


NOT_OURS = [
    b"",
    b"\xff\xff\xff\xff",
    b"\x02\0\0\0{}",
    b"\x03\0\0\0[1]",
    b"\x01\0\0\0\xff",
    b"\x40\0\0\0" + b'{"symbol": "f"}',
]


@pytest.mark.parametrize("payload", NOT_OURS)
def test_an_entry_that_is_whole_but_not_ours_is_compiled_anew_and_said_so(folder, payload):
    key = CacheKey.of(print_func(programs.ROWS), Target.parse("cpu"), **asdict(Options()))
    CompileCache(folder).put(key, payload)
    with pytest.warns(CacheWarning, match="rows is damaged; it is compiled anew"):
        module = build(programs.ROWS)
    assert module.run(np.zeros((1, 1), np.float32)) == 0.5


def test_a_cache_that_cannot_be_written_is_said_so_and_does_not_matter(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with config.scope(cache_dir=tmp_path / "file"), pytest.warns(CacheWarning):
        module = build(programs.ROWS)
    assert module.run(np.zeros((1, 1), np.float32)) == 0.5
