"""One script for the day there is a GPU: golden kernels checked, timed against others, counted.

    python -m bench.gpu prepare folder --target cuda:H200      # where NVRTC is, no GPU needed
    python -m bench.gpu run folder --log gpu.json              # where the GPU is, no NVRTC needed

`prepare` schedules the golden kernels, by their own steps or by the rules, and writes their cubins,
their PTX and how they are launched. `run` checks each against NumPy, times it beside torch and
torch.compile, has two of them examined by compute-sanitizer and counted by ncu if these are
installed, and fits the constants of the analytic model. With `--device emulated` it runs up to the
launch on a CPU, without times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_kernels import CASES, Golden
from tensorc.codegen.cuda.host import Launch
from tensorc.codegen.pipeline import Options
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Alloc, Buffer, Seq, Stmt
from tensorc.runtime.cuda import CudaModule, device_named

EXAMINED = ("matmul f32", "transpose")
KINDS: Mapping[str, type[np.generic]] = {"f32": np.float32, "f16": np.float16}
"""The element types of the golden kernels."""
RUNS = 20
METRICS = (
    "l1tex__data_bank_conflicts_pipe_lsu.sum,smsp__sass_average_data_bytes_per_sector_mem_global"
    ".pct,sm__throughput.avg.pct_of_peak_sustained_elapsed"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("prepare", "run", "one"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:H200")
    parser.add_argument("--device", default="cupy", choices=("cupy", "emulated"))
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--small", action="store_true", help="sizes for the emulator")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    names = options.case or list(CASES)
    if options.action == "prepare":
        for name in names:
            prepare(options.folder, name, options.target, small=options.small)
        return
    if options.action == "one":
        checked(options.folder, names[0], device_named(options.device))
        return
    found = run(options.folder, names, options.device)
    if options.log is not None:
        options.log.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


# Before ---------------------------------------------------------------------------------------


def prepare(folder: Path, name: str, target: str, *, small: bool) -> None:
    """Compile a golden kernel, and write down how it is launched."""
    golden = CASES[name]
    sizes = golden.small if small else golden.large
    func = golden.make(*sizes)
    schedule = golden.schedule(func, target)
    module = CudaModule(schedule.func, schedule.target, Options(), (), "emulated")
    memory: dict[str, Buffer] = {
        p.name: p.value for p in func.params if isinstance(p.value, Buffer)
    }
    launches = list(_launches(module, module.program.host, memory))
    record = {
        "name": name,
        "target": target,
        "sizes": sizes,
        "memory": {n: [[constant(e) for e in b.shape], str(b.dtype)] for n, b in memory.items()},
        "inputs": [p.name for p in func.params if p.mode == "in"],
        "output": next(p.name for p in func.params if p.mode == "out"),
        "launches": launches,
        "reports": [report.as_dict() for report in module.report()],
    }
    place = _place(folder, name)
    place.mkdir(parents=True, exist_ok=True)
    (place / "kernel.cubin").write_bytes(module.cubin())
    (place / "kernel.ptx").write_text(module.ptx(), encoding="utf-8")
    (place / "plan.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _place(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "-")


def _launches(
    module: CudaModule, host: Stmt, memory: dict[str, Buffer]
) -> Iterator[dict[str, Any]]:
    """The launches in order; temporaries join `memory`."""
    match host:
        case Seq(body=parts):
            for part in parts:
                yield from _launches(module, part, memory)
        case Alloc(buffer=buffer, body=body):
            memory[buffer.name] = buffer
            yield from _launches(module, body, memory)
        case Launch(kernel=number):
            kernel = module.kernels[number]
            yield {
                "kernel": kernel.text.name,
                "grid": [constant(extent) for extent in kernel.grid],
                "block": kernel.text.block,
                "shared": kernel.text.dynamic,
                "arguments": [parameter.name for parameter in kernel.text.parameters],
            }
        case _:
            raise TypeError(f"a golden kernel has no {type(host).__name__} of the host")


# On the device ----------------------------------------------------------------------------------


def run(folder: Path, names: list[str], device: str) -> dict[str, Any]:
    """Check and time the kernels, and examine two of them."""
    where = device_named(device)
    found: dict[str, Any] = {"device": device, "kernels": {}}
    for name in names:
        print(name, file=sys.stderr, flush=True)
        result = checked(folder, name, where)
        if device == "cupy":
            result |= timed(folder, name, where)
        found["kernels"][name] = result
    if device == "cupy":
        found["examined"] = {name: examined(folder, name) for name in EXAMINED if name in names}
        found["constants"] = fitted(found["kernels"])
    return found


def checked(folder: Path, name: str, device: Any) -> dict[str, Any]:
    """Run a kernel once on fresh inputs, and compare its output with NumPy's."""
    plan, launch, memory, given = loaded(folder, name, device)
    launch()
    device.sync()
    shape, kind = plan["memory"][plan["output"]]
    out = np.empty(shape, KINDS[kind])
    device.copy(out, memory[plan["output"]])
    expected = CASES[name].reference(*(given[n].astype(np.float64) for n in plan["inputs"]))
    error = float(np.abs(out - expected).max() / max(np.abs(expected).max(), 1e-30))
    if not error < CASES[name].tolerance:
        raise SystemExit(f"{name}: relative error {error:.2g}")
    return {"error": error, "registers": [r["registers"] for r in plan["reports"]]}


def loaded(
    folder: Path, name: str, device: Any
) -> tuple[dict[str, Any], Callable[[], None], dict[str, Any], dict[str, Any]]:
    """The plan of a kernel, what launches it, its memory on the device, and its inputs."""
    place = _place(folder, name)
    plan = json.loads((place / "plan.json").read_text(encoding="utf-8"))
    image = "kernel.ptx" if device.name == "emulated" else "kernel.cubin"
    module = device.load((place / image).read_bytes())
    draw, given, memory = np.random.default_rng(0), {}, {}
    for buffer in plan["memory"]:
        memory[buffer] = device.alloc(_bytes(plan, buffer))
    for buffer in plan["inputs"]:
        shape, kind = plan["memory"][buffer]
        given[buffer] = draw.standard_normal(shape, dtype=np.float32).astype(KINDS[kind])
        device.copy(memory[buffer], given[buffer])
    functions = {x["kernel"]: module.function(x["kernel"]) for x in plan["launches"]}

    def launch() -> None:
        for x in plan["launches"]:
            arguments = [memory[n] for n in x["arguments"]]
            device.launch(functions[x["kernel"]], x["grid"], x["block"], arguments, x["shared"])

    return plan, launch, memory, given


def _bytes(plan: Mapping[str, Any], buffer: str) -> int:
    shape, kind = plan["memory"][buffer]
    return int(np.prod(shape, dtype=int)) * np.dtype(KINDS[kind]).itemsize


def timed(folder: Path, name: str, device: Any) -> dict[str, Any]:
    """Seconds of a call, and those of torch and torch.compile on the same inputs."""
    plan, launch, _, given = loaded(folder, name, device)
    golden = CASES[name]
    seconds = {"tensorc": _seconds(launch, device.sync), **_peers(golden, plan, given)}
    bytes_ = sum(_bytes(plan, buffer) for buffer in [*plan["inputs"], plan["output"]])
    flops = golden.flops(*plan["sizes"])
    best = seconds["tensorc"]
    return {"seconds": seconds, "flops": flops, "bytes": bytes_, "launches": len(plan["launches"]),
            "flops a second": flops / best, "bytes a second": bytes_ / best}  # fmt: skip


def _seconds(call: Callable[[], object], sync: Callable[[], object]) -> float:
    """The least of several rounds, each of many calls."""
    call()
    sync()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(RUNS):
            call()
        sync()
        best = min(best, (time.perf_counter() - start) / RUNS)
    return best


def _peers(golden: Golden, plan: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, float]:
    try:
        import torch
    except ImportError:
        return {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    x = [torch.from_numpy(given[n]).cuda() for n in plan["inputs"]]
    plain = eval(f"lambda *x: {golden.torch}", {"torch": torch})
    sync = torch.cuda.synchronize
    found = {"torch": _seconds(lambda: plain(*x), sync)}
    if shutil.which("cc") or shutil.which("gcc"):
        # What torch.compile makes for a device is Triton's.
        compiled = torch.compile(plain)
        found["torch.compile"] = _seconds(lambda: compiled(*x), sync)
    return found


def examined(folder: Path, name: str) -> dict[str, str]:
    """What NVIDIA's tools say of one launch; of those that are not there, nothing."""
    this = [sys.executable, "-m", "bench.gpu", "one", str(folder), "--case", name]
    tools = {
        "compute-sanitizer": ["compute-sanitizer", "--tool", "racecheck", *this],
        "ncu": ["ncu", "--clock-control", "none", "--metrics", METRICS, *this],
    }
    found = {}
    for tool, command in tools.items():
        if shutil.which(tool):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            found[tool] = (done.stdout + done.stderr)[-4000:]
    return found


def fitted(kernels: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Constants of the analytic model, by the kernels that they bound."""
    found = {}
    if "elementwise" in kernels:
        found["bytes of memory a second"] = kernels["elementwise"]["bytes a second"]
    if "matmul f32" in kernels:
        found["operations of f32 a second"] = kernels["matmul f32"]["flops a second"]
    return found


def table(found: Mapping[str, Any]) -> str:
    """One line for each kernel."""
    lines = [f"{'kernel':18}{'error':>10}{'registers':>11}{'ms':>10}{'torch':>8}{'compile':>9}"]
    for name, x in found["kernels"].items():
        seconds = x.get("seconds", {})
        own = seconds.get("tensorc")
        ratios = (f"{seconds[p] / own:.2f}x" if p in seconds else "-"
                  for p in ("torch", "torch.compile"))  # fmt: skip
        torch_, compile_ = ratios
        shown = "-" if own is None else f"{own * 1e3:.3f}"
        registers = max(x["registers"])
        lines.append(
            f"{name:18}{x['error']:10.1e}{registers:11}{shown:>10}{torch_:>8}{compile_:>9}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
