"""What `bench.gpu` asks of others on a GPU: times of torch, torch.compile and Triton, and the
findings and counters of NVIDIA's tools, beside those of the emulator.
"""

from __future__ import annotations

import csv
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_kernels import Golden

RUNS, ROUNDS = 20, 5
METRICS: Mapping[str, str] = {
    "bank conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "sectors read": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "sectors written": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}
"""Counters by our names, and what ncu calls them."""
TRITON = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}
"""Options of torch's inductor that have products made by Triton, and tuned."""
TOOL_SECONDS = 60


def seconds(call: Callable[[], object], sync: Callable[[], object]) -> float:
    """The least of several rounds, each of many calls."""
    call()
    sync()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(RUNS):
            call()
        sync()
        best = min(best, (time.perf_counter() - start) / RUNS)
    return best


def peers(
    golden: Golden, given: Sequence[np.ndarray[Any, Any]], kinds: Sequence[str], until: float
) -> dict[str, float]:
    """Seconds of torch, which calls cuBLAS and cuDNN, of torch.compile, and for products of Triton;
    those that are installed, begun before `until` on the clock `time.monotonic`."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    x = [tensor(array, kind).cuda() for array, kind in zip(given, kinds, strict=True)]
    plain = eval(f"lambda *x: {golden.torch}", {"torch": torch})
    ways: dict[str, Callable[[], Callable[..., object]]] = {"torch": lambda: plain}
    if importlib.util.find_spec("triton") is not None:
        ways["torch.compile"] = lambda: torch.compile(plain)
        if " @ " in golden.torch:
            ways["triton"] = lambda: torch.compile(plain, options=TRITON)
    found = {}
    for name, make in ways.items():
        if time.monotonic() < until:
            call = make()
            found[name] = seconds(lambda call=call: call(*x), torch.cuda.synchronize)
            torch.compiler.reset()
    return found


def tensor(array: np.ndarray[Any, Any], kind: str) -> Any:
    """An array in storage form, in which bf16 is its bits, as a tensor of the CPU."""
    import torch

    made = torch.from_numpy(array)
    return made.view(torch.bfloat16) if kind == "bf16" else made


def examined(folder: Path, name: str, predicted: Mapping[str, float]) -> dict[str, Any]:
    """What NVIDIA's tools say of one run at the small sizes: whether compute-sanitizer found
    anything, and the counters of ncu with those that the emulator has `predicted`. Of tools that
    are not there, nothing."""
    this = [sys.executable, "-m", "bench.gpu", "one", str(folder), "--case", name]
    found: dict[str, Any] = {}
    for tool in ("racecheck", "memcheck"):
        output = _run(["compute-sanitizer", "--tool", tool, *this])
        if output is not None:
            found[tool] = {"clean": "ERROR SUMMARY: 0 errors" in output
                           or "RACECHECK SUMMARY: 0 hazards" in output,
                           "output": output[-2000:]}  # fmt: skip
    metrics = ",".join(METRICS.values())
    output = _run(["ncu", "--csv", "--clock-control", "none", "--metrics", metrics, *this])
    if output is not None:
        measured = counters(output)
        found["counters"] = {
            metric: {"ncu": measured.get(metric), "emulator": predicted[metric]}
            for metric in METRICS
        }
    return found


def _run(command: Sequence[str]) -> str | None:
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
    )
    return done.stdout + done.stderr


def counters(output: str) -> dict[str, float]:
    """Our counters out of what `ncu --csv` prints, summed over the launches."""
    lines = output.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, float] = {}
    for row in csv.DictReader(lines[start:]):
        for name, metric in METRICS.items():
            if row.get("Metric Name") == metric:
                value = float((row["Metric Value"] or "0").replace(",", ""))
                found[name] = found.get(name, 0.0) + value
    return found


def emulated_counters(reports: Sequence[Any]) -> dict[str, float]:
    """The same counters out of the reports of an emulated device's launches."""
    parts = [part for report in reports for part in report.counters]
    shared = [part for part in parts if part.space == "shared"]

    def sectors(kind: str) -> float:
        # ncu counts what cp.async reads apart.
        found = (x for x in parts if x.space == "global" and x.kind == kind)
        return float(sum(x.sectors for x in found if not x.instruction.startswith("cp.")))

    return {
        "bank conflicts": float(sum(part.wavefronts - part.ideal for part in shared)),
        "sectors read": sectors("read"),
        "sectors written": sectors("write"),
    }
