"""NVRTC: source to PTX and cubin without a GPU, and what it says to bad input."""

from __future__ import annotations

import pickle

import pytest

from tensorc.codegen import nvrtc
from tensorc.codegen.nvrtc import NvrtcError, NvrtcMissingError, compile_cuda
from tensorc.errors import ArgumentError, TargetError

ADD = """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def test_both_outputs_are_deterministic() -> None:
    ptx = compile_cuda(ADD, "sm_90", "ptx", ("-lineinfo",))
    assert ".entry add(" in ptx.text
    assert ".target sm_90" in ptx.text
    assert "kernel.cu" in ptx.text
    cubin = compile_cuda(ADD, "sm_90a", "cubin", ("--ptxas-options=-v",))
    assert cubin.image[:4] == b"\x7fELF"
    assert "registers" in cubin.log
    assert cubin.warnings == ()
    assert cubin.image == compile_cuda(ADD, "sm_90a", "cubin", ("--ptxas-options=-v",)).image


@pytest.mark.parametrize("number", [75, 80, 86, 90, 100, 120])
def test_every_supported_architecture_compiles(number: int) -> None:
    assert number in nvrtc.architectures()
    assert compile_cuda(ADD, f"sm_{number}").warnings == ()


def test_warnings_and_errors_name_the_line() -> None:
    unused = 'extern "C" __global__ void f() {\n  int unused;\n}'
    assert any("kernel.cu(2)" in line for line in compile_cuda(unused).warnings)
    with pytest.raises(NvrtcError) as caught:
        compile_cuda('extern "C" __global__ void f() {\n  missing = 1;\n}', name="mine.cu")
    assert "mine.cu(2)" in caught.value.log
    assert "NVRTC_ERROR_COMPILATION" in caught.value.status
    with pytest.raises(NvrtcError, match="--no-such-option"):
        compile_cuda(ADD, options=("--no-such-option",))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.log, again.options) == (caught.value.log, caught.value.options)


@pytest.mark.parametrize("name", ["sm_70", "sm_9", "90", "compute_90", "sm_", "cpu"])
def test_unknown_architectures_are_refused(name: str) -> None:
    with pytest.raises(TargetError, match="sm_90"):
        compile_cuda(ADD, name)


def test_unknown_outputs_are_refused() -> None:
    with pytest.raises(ArgumentError, match="ptx, cubin"):
        compile_cuda(ADD, output="sass")  # type: ignore[arg-type]


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_IN_WHEELS", ("nvidia/none/libnvrtc.so.0",))
    monkeypatch.setattr(nvrtc, "_IN_SYSTEM", ("libnvrtc-none.so",))
    with pytest.raises(NvrtcMissingError, match=r"tensorc\[nvrtc\]") as caught:
        nvrtc._library.__wrapped__()
    assert "libnvrtc-none.so" in caught.value.searched
