"""The static report: registers, occupancy, and the census of main loops, against NVIDIA's tools."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tensorc.codegen.cubin import resources
from tensorc.codegen.cuda.occupancy import occupancy
from tensorc.codegen.cuda.report import Launched, report
from tensorc.codegen.cuda.sass import OPERATIONS, instructions
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.errors import CompileError
from tensorc.target import Target

# Loads of all widths, shared memory, a stack, a shuffle, special functions and doubles.
SOURCE = r"""
extern "C" __global__ void mixed(const float4 *a, float4 *b, float *c, double *d, int n, short *h) {
    __shared__ __align__(16) float s[512];
    float sum = 0, own[32];
    double wide = d[0];
    for (int i = 0; i < 32; i++) own[i] = c[i];
    for (int i = threadIdx.x; i < n; i += 32) {
        float4 v = a[i];
        *(float4 *)&s[threadIdx.x * 4] = v;
        __syncthreads();
        sum = fmaf(v.y, s[threadIdx.x ^ 3], sum) * v.x + own[i & 31];
        own[(i * 7) & 31] = sum;
        sum += __shfl_down_sync(~0u, sum, 4) + __expf(v.z) + h[i];
        wide = fma(wide, wide, d[i]);
        b[i] = v;
        __syncthreads();
    }
    c[0] = sum;
    d[1] = wide;
}
extern "C" __global__ void matrix(const float *g, float *c, int n) {
    __shared__ __align__(16) unsigned s[2048];
    unsigned a[4], at = (unsigned)__cvta_generic_to_shared(s + threadIdx.x * 4);
    float d[4] = {0, 0, 0, 0};
    #pragma unroll 1
    for (int k = 0; k < n; k++) {
        COPY
        __syncthreads();
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
            : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
            " {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]));
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) c[threadIdx.x * 4 + i] = d[i];
}
"""
COPY = """asm volatile("cp.async.cg.shared.global [%0],[%1],16;" :: "r"(at), "l"(g + k * 64));
        asm volatile("cp.async.ca.shared.global [%0],[%1],8;" :: "r"(at + 4096), "l"(g + k * 64));
        asm volatile("cp.async.wait_all;");"""


def compiled(architecture: str) -> tuple[bytes, str]:
    copy = "" if architecture == "sm_75" else COPY
    source = SOURCE.replace("COPY", copy)
    made = compile_cuda(source, architecture, "cubin", ["--ptxas-options=-v"])
    return made.image, made.log


def disassembled(image: bytes, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """The opcodes and operands by nvdisasm, which the extra `nvrtc` brings."""
    parts = "nvidia/cu13/bin/nvdisasm"
    tool = next(p for p in (Path(folder_) / parts for folder_ in sys.path) if p.is_file())
    file = folder / "kernel.cubin"
    file.write_bytes(image)
    text = subprocess.run([tool, "-json", file], capture_output=True, check=True).stdout
    return {
        found["function-name"]: [
            (x["opcode"], x.get("operands", "")) for x in found["sass-instructions"]
        ]
        for found in json.loads(text)[1]
    }


@pytest.mark.parametrize("architecture", ["sm_75", "sm_86", "sm_90", "sm_120"])
def test_instructions_are_those_that_nvdisasm_shows(architecture: str, tmp_path: Path) -> None:
    image, log = compiled(architecture)
    shown = disassembled(image, tmp_path)
    seen: Counter[str] = Counter()
    for name, taken in resources(image).items():
        if name not in ("mixed", "matrix"):
            continue
        found = instructions(taken.code, int(architecture[3:]))
        # A function that the compiler calls lies behind, and is shown apart.
        assert len(shown[name]) <= len(found) < len(shown[name]) + 100
        for made, (opcode, operands) in zip(found, shown[name], strict=False):
            base, *rest = opcode.split(".")
            assert made.name == (base if base in OPERATIONS.values() else "other"), opcode
            seen[made.name] += 1
            if made.bits:
                width = next((int(x) for x in rest if x in ("64", "128")), 32)
                narrow = next((int(x[1:]) for x in rest if re.fullmatch(r"[US](8|16)", x)), width)
                assert made.bits == narrow, opcode
            if made.target is not None and "UR" not in operands:
                assert made.target * 16 == int(operands.split(",")[-1].strip("` ()"), 16), operands
        used = re.search(rf"function '{name}'.*?Used (\d+) registers", log, re.DOTALL)
        stack = re.search(
            rf"properties for {name}\s+(\d+) bytes stack|'{name}'.*?(\d+) bytes stack",
            log,
            re.DOTALL,
        )
        assert used is not None
        assert stack is not None
        assert taken.registers == int(used[1])
        assert taken.stack == int(stack[1] or stack[2])
    assert {"HMMA", "LDSM", "LDL", "STL", "SHFL", "MUFU", "FFMA", "DFMA", "BAR", "BRA"} <= set(seen)
    assert ("LDGSTS" in seen) == (architecture != "sm_75")


def test_the_report_of_a_kernel() -> None:
    image, _ = compiled("sm_90")
    mixed, matrix = report(
        image, Target.parse("cuda:sm_90"), {"mixed": Launched(32), "matrix": Launched(32, 1024)}
    )
    assert mixed.stack == 128
    assert mixed.spills > 0
    assert (mixed.shared, matrix.shared) == (2048, 8192 + 1024)
    assert mixed.loop.wide is False
    assert matrix.loop.tensor == 1
    assert matrix.loop.operations["LDGSTS.128"] == 1
    assert matrix.loop.pipes["tensor"] == 16 * 8 * 16 * 2 / 4096
    assert sum(matrix.loop.operations.values()) <= matrix.loop.instructions < matrix.instructions
    assert any("bound by" in line for line in matrix.lines())


# Examples by cuda_occupancy.h: architecture, registers, shared bytes, threads; blocks.
OCCUPIED = [
    ("sm_90", 32, 0, 256, 8), ("sm_90", 128, 0, 256, 2), ("sm_90", 255, 0, 256, 1),
    ("sm_90", 33, 0, 1024, 1), ("sm_90", 32, 100 * 1024, 128, 2), ("sm_90", 16, 0, 32, 32),
    ("sm_80", 40, 48 * 1024, 128, 3), ("sm_75", 64, 0, 128, 8), ("sm_75", 16, 33 * 1024, 64, 1),
    ("sm_89", 32, 0, 1024, 1), ("sm_90", 32, 228 * 1024, 32, 0), ("sm_86", 24, 1024, 96, 16),
]  # fmt: skip


@pytest.mark.parametrize(("name", "registers", "shared", "threads", "blocks"), OCCUPIED)
def test_occupancy(name: str, registers: int, shared: int, threads: int, blocks: int) -> None:
    found = occupancy(Target.parse(f"cuda:{name}"), registers, shared, threads)
    assert found.blocks == blocks
    assert found.warps == blocks * -(-threads // 32)
    assert 0.0 <= found.share <= 1.0


@pytest.mark.parametrize("image", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(80)])
def test_what_is_no_cubin_is_refused(image: bytes) -> None:
    with pytest.raises(CompileError, match="cubin"):
        resources(image)
