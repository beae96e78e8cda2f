"""The sixteen workloads that compilers and libraries are compared on, beside their peers.

    python -m bench.workloads                              on one thread and on two
    python -m bench.workloads --only mm512 --threads 2     one of them, on two threads
    python -m bench.workloads --json workloads.json        the same figures as data

All take turns within one run, in a process of its own for each workload and number of threads. Each
is a torch module: torch runs it eagerly, ONNX Runtime as torch exports it, and we as `tc.compile`
makes it; times include the call from Python. Weights are constants, which we and ONNX Runtime may
pack; the operands of mm, bmm_attn and of the last four are arguments. NumPy runs what it has one
call for. On several threads, everyone's threads come to rest before another one's turn: some wait
for work so actively that they take a processor from it. Rates are of 1e9 operations a second, for
the last four of 1e9 bytes that are read and written once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

# isort: split
from bench import harness

# isort: split
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.compare import heading
from tensorc import config
from tensorc.cli.peers import peer
from tensorc.cli.run import profile_of
from tensorc.cli.subject import Subject, relative_error
from tensorc.graph.compile import compile_network
from tensorc.graph.network import load
from tensorc.target import Target

PEERS = ("torch", "onnxruntime")
GELU = "tanh"
REST = 0.1
"""Seconds after which the threads of all runners have stopped waiting for work."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A module, its arguments, and the work of one call: operations, or bytes (`unit` says which).

    `numpy` runs the same on the arguments as arrays, where NumPy has it.
    """

    module: nn.Module
    arguments: tuple[torch.Tensor, ...]
    amount: float
    unit: str = "GFLOP/s"
    numpy: Callable[..., Any] | None = None


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        return self.function(*arguments)


def matmul(size: int) -> Workload:
    operands = torch.randn(size, size), torch.randn(size, size)
    return Workload(Function(torch.matmul), operands, 2.0 * size**3, numpy=np.matmul)


def gemv() -> Workload:
    layer, x = nn.Linear(4096, 4096, bias=False), torch.randn(1, 4096)
    weights = layer.weight.detach().numpy()
    return Workload(layer, (x,), 2.0 * 4096**2, numpy=lambda v: (weights @ v[0])[None])


def ffn() -> Workload:
    layers = nn.Sequential(nn.Linear(768, 3072), nn.GELU(GELU), nn.Linear(3072, 768))
    return Workload(layers, (torch.randn(128, 768),), 4.0 * 128 * 768 * 3072)


def products_of_attention() -> Workload:
    a, b = torch.randn(12, 128, 64), torch.randn(12, 64, 128)
    return Workload(Function(torch.bmm), (a, b), 2.0 * 12 * 128 * 64 * 128, numpy=np.matmul)


def convolution(
    channels: int, filters: int, size: int, kernel: int, step: int = 1, *, groups: int = 1,
    bias: bool = False, after: nn.Module | None = None,
) -> Workload:  # fmt: skip
    layer = nn.Conv2d(channels, filters, kernel, step, kernel // 2, groups=groups, bias=bias)
    module = layer if after is None else nn.Sequential(layer, after)
    x = torch.randn(1, channels, size, size)
    with torch.no_grad():
        result = layer(x)
    amount = 2.0 * result.numel() * (channels // groups) * kernel**2
    return Workload(module, (x,), amount)


def stream(
    function: Callable[..., torch.Tensor], *shapes: Sequence[int], written: int,
    numpy: Callable[..., Any] | None = None,
) -> Workload:  # fmt: skip
    arguments = tuple(torch.randn(*shape) for shape in shapes)
    moved = 4.0 * (sum(map(math.prod, shapes)) + written)
    return Workload(Function(function), arguments, moved, "GB/s", numpy)


def gelu_mul_add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate=GELU) * y + z


WORKLOADS: Mapping[str, Callable[[], Workload]] = MappingProxyType(
    {
        "mm128": lambda: matmul(128),
        "mm512": lambda: matmul(512),
        "mm1024": lambda: matmul(1024),
        "gemv4096": gemv,
        "ffn_gelu": ffn,
        "bmm_attn": products_of_attention,
        "conv3x3_c64_56": lambda: convolution(64, 64, 56, 3),
        "conv3x3_c256_14": lambda: convolution(256, 256, 14, 3),
        "conv7x7_s2_224": lambda: convolution(3, 64, 224, 7, 2),
        "conv1x1_256_64_56_bias_relu": lambda: convolution(
            256, 64, 56, 1, bias=True, after=nn.ReLU()
        ),
        "dw3x3_s2_c96_112": lambda: convolution(96, 96, 112, 3, 2, groups=96),
        "dw3x3_s1_c384_14_relu6": lambda: convolution(
            384, 384, 14, 3, groups=384, after=nn.ReLU6()
        ),
        "softmax": lambda: stream(
            lambda x: torch.softmax(x, -1), (1536, 128), written=1536 * 128
        ),
        "layernorm": lambda: stream(
            lambda x, a, b: functional.layer_norm(x, (768,), a, b), (512, 768), (768,), (768,),
            written=512 * 768,
        ),
        "gelu_mul_add": lambda: stream(gelu_mul_add, *[(4 << 20,)] * 3, written=4 << 20),
        "sum16m": lambda: stream(torch.sum, (16 << 20,), written=1, numpy=np.sum),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Rates of one workload by one runner; a ratio is ours over its, of the same kind of figure.

    For ours, `kernels` is the best time in the kernels, as the profile has it, over the best time
    of a call, and `roofline` the least time that the machine's peaks allow for them, over it.
    """

    workload: str
    threads: int
    runner: str
    unit: str
    best: float
    median: float
    best_ratio: float
    median_ratio: float
    error: float
    kernels: float | None = None
    roofline: float | None = None


def measure(name: str, threads: int, repeats: int) -> list[Row]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    work = WORKLOADS[name]()
    module = work.module.eval()
    with (
        torch.no_grad(), config.scope(num_threads=threads), tempfile.TemporaryDirectory() as folder,
    ):  # fmt: skip
        imported = load(module, work.arguments)
        network = compile_network(imported, Target.parse("cpu"))
        runs: dict[str, Callable[[], Any]] = {"tensorc": lambda: network(*work.arguments)}
        subject = Subject(name, imported, work.arguments, {}, module, module, 0.0)
        runs |= {one: peer(one, subject, threads, Path(folder)) for one in PEERS}
        if work.numpy is not None:
            arrays = [argument.numpy() for argument in work.arguments]
            runs["numpy"] = lambda: work.numpy(*arrays)
        expected = module(*work.arguments)
        errors = {one: relative_error(run(), expected) for one, run in runs.items()}
        timings = harness.alternate(runs, repeats, rest=REST if threads > 1 else 0.0)
        tasks = profile_of(subject, network, threads).tasks
    ours, inside = timings["tensorc"], sum(task.best for task in tasks)
    roof = sum(task.bound or 0.0 for task in tasks) / inside
    shares = {"tensorc": (inside / ours.best, roof)}
    return [
        Row(
            name, threads, one, work.unit, work.amount / timing.best / 1e9,
            work.amount / timing.median / 1e9, timing.best / ours.best,
            timing.median / ours.median, errors[one], *shares.get(one, ()),
        )
        for one, timing in timings.items()
    ]  # fmt: skip


def apart(name: str, threads: int, repeats: int) -> list[Row]:
    """The same in a process of its own, whose libraries start with so many threads."""
    command = [sys.executable, "-m", "bench.workloads", "--child", name, "--threads", str(threads),
               "--repeats", str(repeats)]  # fmt: skip
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=_environment(threads)
    )
    return [Row(**record) for record in json.loads(done.stdout.splitlines()[-1])]


def _environment(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORC_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of the best ratios: over each peer, and over each workload's best peer."""
    lines = []
    for threads in sorted({row.threads for row in rows}):
        own = [row for row in rows if row.threads == threads and row.runner != "tensorc"]
        for runner in dict.fromkeys(row.runner for row in own):
            ratios = [row.best_ratio for row in own if row.runner == runner]
            lines.append(f"{threads} threads: {_mean(ratios):.2f}x {runner} over {len(ratios)}")
        best = [
            min(row.best_ratio for row in own if row.workload == name)
            for name in dict.fromkeys(row.workload for row in own)
        ]
        lines.append(f"{threads} threads: {_mean(best):.2f}x the best peer, least {min(best):.2f}x")
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> int:
    parser = harness.arguments(__doc__)
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="repeatable")
    parser.add_argument("--threads", type=int, action="append", help="1 and 2 by default")
    parser.add_argument("--child", choices=WORKLOADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        rows = measure(options.child, options.threads[0], options.repeats)
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    rows = []
    for name in options.only or WORKLOADS:
        for threads in options.threads or (1, 2):
            rows += apart(name, threads, options.repeats)
    harness.report(heading(threads=max(options.threads or (2,))), rows, options.json)
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
