"""The tasks of whole networks, compiled for a CUDA device by the rules: how many kernels, and what
they take. Needs NVRTC and no device.

    python -m bench.gpu_networks --network resnet50 --target cuda:sm_80 --log networks.json
    python -m bench.gpu_networks --emulate       small ones, run on the emulator beside the CPU
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorc.codegen.nvrtc import compile_cuda
from tensorc.codegen.pipeline import Options
from tensorc.emulator.device import EmulatedDevice
from tensorc.graph.compile import compile_network, partitioned
from tensorc.graph.cuda import Place, scheduled
from tensorc.graph.kernels import UnscheduledWarning
from tensorc.graph.network import load
from tensorc.graph.networks import RECIPES, another_input, logits, network
from tensorc.runtime.cuda import CudaModule
from tensorc.target import Target

LAYERS: Mapping[str, Mapping[str, int]] = {"llama-7b": {"num_hidden_layers": 1}}
"""What is left out of a network whose weights are many: all its layers are alike."""
SMALL: Mapping[str, Mapping[str, Any]] = {
    "resnet50": {"size": 32, "depths": [1, 1, 1, 1]},
    "mobilenetv2": {"size": 32},
    "efficientnet-b0": {"size": 32},
    "bert-base": {"size": 8, "num_hidden_layers": 1, "vocab_size": 1000},
    "gpt2": {"size": 8, "n_layer": 1, "vocab_size": 1000},
    "llama-7b": {"size": 8, "num_hidden_layers": 1, "vocab_size": 1000, "hidden_size": 256,
                 "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4},
}  # fmt: skip
"""Sizes in which the emulator takes seconds for a network."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="append", choices=sorted(RECIPES))
    parser.add_argument("--target", default="cuda:sm_80")
    parser.add_argument("--size", type=int, help="pixels a side, or tokens")
    parser.add_argument("--emulate", action="store_true", help="run small ones on the emulator")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    target, found = Target.parse(options.target), {}
    for name in options.network or RECIPES:
        if options.emulate:
            found[name] = emulated(name, target)
        else:
            found[name] = compiled(name, target, options.size)
        print(name, json.dumps(found[name]), flush=True)
        if options.log is not None:
            options.log.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def compiled(name: str, target: Target, size: int | None) -> dict[str, Any]:
    """Compile every task of a network."""
    made, inputs = network(name, size=size, **LAYERS.get(name, {}))
    _, parts = partitioned(load(made, inputs, None), target)
    start, reports, unscheduled, warned = time.perf_counter(), [], [], []
    for task in parts.tasks:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UnscheduledWarning)
            nest = scheduled(task.func, target, "default")
        unscheduled += [str(w.message) for w in caught]
        module = CudaModule(nest, target, Options(), (), "emulated")
        warned += compile_cuda(module.source(), target.cpu).warnings
        reports += [(task, report) for report in module.report()]
    return {
        "tasks": len(parts.tasks),
        "kernels": len(reports),
        "kernels with a stack": [f"{t.label}: {r.name}" for t, r in reports if r.stack],
        "most registers": max(r.registers for _, r in reports),
        "unscheduled": unscheduled,
        "warnings": warned,
        "seconds": round(time.perf_counter() - start, 1),
    }


def emulated(name: str, target: Target) -> dict[str, Any]:
    """Run a small version of a network on the emulator, its launches captured from the second call
    on, and compare with what it gives on the CPU."""
    module, inputs = network(name, **SMALL[name])
    device = EmulatedDevice()
    ours = compile_network(
        load(module, inputs), target, place=Place(target, device, "default", True)
    )
    here = compile_network(load(module, inputs), Target.parse("cpu"))
    start, errors = time.perf_counter(), []
    for seed in range(3):
        given = another_input(inputs, seed)
        found, expected = (logits(one(*given)).double() for one in (ours, here))
        errors.append(float((found - expected).norm() / expected.norm()))
    return {
        "launches": len(device.reports),
        "findings": sum(len(report.findings) for report in device.reports),
        "relative errors": [float(f"{error:.2g}") for error in errors],
        "seconds": round(time.perf_counter() - start, 1),
    }


if __name__ == "__main__":
    main()
