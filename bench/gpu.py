"""One script for the day there is a GPU: golden kernels checked, timed against others, counted.

    python -m bench.gpu prepare folder --target cuda:H200      # where NVRTC is, no GPU needed
    python -m bench.gpu run folder --log gpu.json              # where the GPU is, no NVRTC needed

`prepare` schedules the golden kernels, by their own steps or by the rules, and writes their cubins,
their PTX and how they are launched; of two also in small, with the counters of the emulator. `run`
checks each against NumPy, times it beside torch, torch.compile and Triton, has the two examined by
compute-sanitizer and counted by ncu if these are installed, and fits the constants of the analytic
model. What would begin after `--limit` seconds is left out. With `--device emulated` it runs up to
the launch on a CPU, without times.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_kernels import CASES
from bench.gpu_peers import emulated_counters, examined, peers, seconds
from tensorc.codegen.cuda.host import Launch
from tensorc.codegen.pipeline import Options
from tensorc.emulator.device import EmulatedDevice
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Alloc, Buffer, Seq, Stmt
from tensorc.runtime.cuda import ArrayDevice, CudaModule, device_named

EXAMINED = ("matmul f32", "transpose")
SMALL = "small"
"""The folder of what is examined."""
KINDS: Mapping[str, type[np.generic]] = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
"""The element types of the golden kernels, as they are stored."""
PRODUCTS: Mapping[str, str] = {
    "matmul f32": "operations of f32 a second",
    "matmul bf16": "operations of tensor cores a second",
}
COPIED = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("prepare", "run", "one"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:H200")
    parser.add_argument("--device", default="cupy", choices=("cupy", "emulated"))
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--small", action="store_true", help="sizes for the emulator")
    parser.add_argument("--limit", type=float, default=540.0, metavar="SECONDS")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    names = options.case or list(CASES)
    if options.action == "prepare":
        for name in names:
            prepare(options.folder, name, options.target, small=options.small)
            if name in EXAMINED:
                prepare(options.folder / SMALL, name, options.target, small=True)
                count(options.folder / SMALL, name)
        return
    if options.action == "one":
        checked(options.folder, names[0], device_named(options.device))
        return
    found = run(options.folder, names, options.device, options.limit)
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


def count(folder: Path, name: str) -> dict[str, float]:
    """The counters of the emulator for one run of a kernel, which are written down, too."""
    device = EmulatedDevice(counters=True)
    checked(folder, name, device)
    found = emulated_counters(device.reports)
    text = json.dumps(found, indent=1) + "\n"
    (_place(folder, name) / "counters.json").write_text(text, encoding="utf-8")
    return found


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


def run(
    folder: Path, names: list[str], device: str | ArrayDevice, limit: float = 540.0
) -> dict[str, Any]:
    """Check and time the kernels, and examine two of them."""
    where, until = device_named(device), time.monotonic() + limit
    found: dict[str, Any] = {"device": where.name, "kernels": {}}
    for name in names:
        print(name, file=sys.stderr, flush=True)
        found["kernels"][name] = checked(folder, name, where)
    if where.name == "emulated":
        return found
    for name in names:
        found["kernels"][name] |= timed(folder, name, where, until)
    overhead = 0.0
    if "transpose" in names:
        # So small that it takes as long as its launch.
        overhead = seconds(loaded(folder / SMALL, "transpose", where)[1], where.sync)
    found["constants"] = fitted(found["kernels"], where, overhead)
    found["examined"] = {
        name: examined(folder / SMALL, name, predicted(folder, name))
        for name in EXAMINED
        if name in names and time.monotonic() < until
    }
    return found


def predicted(folder: Path, name: str) -> dict[str, float]:
    """The counters that `count` has written down."""
    text = (_place(folder / SMALL, name) / "counters.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def checked(folder: Path, name: str, device: Any) -> dict[str, Any]:
    """Run a kernel once on fresh inputs, and compare its output with NumPy's."""
    plan, launch, memory, given = loaded(folder, name, device)
    launch()
    device.sync()
    shape, kind = plan["memory"][plan["output"]]
    out = np.empty(shape, KINDS[kind])
    device.copy(out, memory[plan["output"]])
    expected = CASES[name].reference(*(wide(given[n]) for n in plan["inputs"]))
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
        given[buffer] = drawn(draw, shape, kind)
        device.copy(memory[buffer], given[buffer])
    functions = {x["kernel"]: module.function(x["kernel"]) for x in plan["launches"]}

    def launch() -> None:
        for x in plan["launches"]:
            arguments = [memory[n] for n in x["arguments"]]
            device.launch(functions[x["kernel"]], x["grid"], x["block"], arguments, x["shared"])

    return plan, launch, memory, given


def drawn(draw: np.random.Generator, shape: list[int], kind: str) -> np.ndarray[Any, Any]:
    """Normal numbers in storage form: bf16 is the upper half of the bits of an f32."""
    values = draw.standard_normal(shape, dtype=np.float32)
    if kind == "bf16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(KINDS[kind])


def wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers of an array in storage form, as f64."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float64)


def _bytes(plan: Mapping[str, Any], buffer: str) -> int:
    shape, kind = plan["memory"][buffer]
    return int(np.prod(shape, dtype=int)) * np.dtype(KINDS[kind]).itemsize


def timed(folder: Path, name: str, device: Any, until: float) -> dict[str, Any]:
    """Seconds of a call, and those of others on the same inputs."""
    plan, launch, _, given = loaded(folder, name, device)
    golden, inputs = CASES[name], plan["inputs"]
    own = seconds(launch, device.sync)
    kinds = [plan["memory"][n][1] for n in inputs]
    others = peers(golden, [given[n] for n in inputs], kinds, until)
    bytes_ = sum(_bytes(plan, buffer) for buffer in [*inputs, plan["output"]])
    flops = golden.flops(*plan["sizes"])
    return {"seconds": {"tensorc": own, **others}, "flops": flops, "bytes": bytes_,
            "launches": len(plan["launches"]), "flops a second": flops / own,
            "bytes a second": bytes_ / own}  # fmt: skip


def fitted(
    kernels: Mapping[str, Mapping[str, Any]], device: Any, overhead: float
) -> dict[str, Any]:
    """Constants of the analytic model, and how well it ranks: a kernel takes its launches, and the
    time of its bytes at the bandwidth of a copy or that of its operations at the rate of the
    product whose pipe it uses, whichever is longer. Products that were not run limit nothing."""
    half = COPIED // 2
    source, target = device.alloc(half), device.alloc(half)
    copied = seconds(lambda: device.copy(target, source), device.sync)
    bandwidth = COPIED / copied
    found: dict[str, Any] = {"seconds of a launch": overhead, "bytes of memory a second": bandwidth}
    for name, constant_ in PRODUCTS.items():
        if name in kernels:
            found[constant_] = kernels[name]["flops a second"]
    rates = [found.get(constant_) for constant_ in PRODUCTS.values()]
    model, measured = [], []
    for name, kernel in kernels.items():
        rate = rates[name in ("matmul bf16", "attention")]
        compute = kernel["flops"] / rate if rate else 0.0
        launches = kernel["launches"] * overhead
        model.append(launches + max(kernel["bytes"] / bandwidth, compute))
        measured.append(kernel["seconds"]["tensorc"])
    found["rank correlation of the model"] = rank_correlation(model, measured)
    return found


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's coefficient of two lists without ties; 1 for fewer than two numbers."""
    n = len(a)
    if n < 2:
        return 1.0
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(1 - 6 * np.sum((ranks[0] - ranks[1]) ** 2) / (n * (n * n - 1)))


OTHERS = ("torch", "torch.compile", "triton")


def table(found: Mapping[str, Any]) -> str:
    """One line for each kernel: how often our time goes into that of others, and the share of the
    bandwidth of a copy; then the constants, and what the tools found."""
    others = "".join(f"{name:>15}" for name in OTHERS)
    lines = [f"{'kernel':18}{'error':>10}{'registers':>11}{'ms':>10}{others}{'of a copy':>11}"]
    constants = found.get("constants", {})
    for name, x in found["kernels"].items():
        times = x.get("seconds", {})
        own = times.get("tensorc")
        ratios = "".join(
            f"{times[other] / own:14.2f}x" if other in times else f"{'-':>15}" for other in OTHERS
        )
        shown, share = "-", "-"
        if own is not None:
            shown = f"{own * 1e3:.3f}"
            share = f"{x['bytes a second'] / constants['bytes of memory a second']:.0%}"
        registers = max(x["registers"])
        lines.append(f"{name:18}{x['error']:10.1e}{registers:11}{shown:>10}{ratios}{share:>11}")
    lines += [f"{name}: {value:.4g}" for name, value in constants.items()]
    for name, tools in found.get("examined", {}).items():
        for tool in ("racecheck", "memcheck"):
            if tool in tools:
                lines.append(f"{name}, {tool}: {'clean' if tools[tool]['clean'] else 'findings'}")
        for metric, pair in tools.get("counters", {}).items():
            lines.append(f"{name}, {metric}: ncu {pair['ncu']}, emulator {pair['emulator']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
