"""What blocks of channels are worth: the convolutional networks in blocks, in planes, and in ONNX
Runtime.

    python -m bench.blocks                             all three, one thread and two
    python -m bench.blocks --only resnet50 --threads 2

Each takes five calls in a row after one that is not counted, then the next one its turn: a network
alone finds its weights where its last call left them. Best (median) times in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.compare import heading
from tensorc import config
from tensorc.cli.peers import peer
from tensorc.cli.subject import Subject, subject
from tensorc.graph.compile import CompiledNetwork, compile_network
from tensorc.graph.executor import CompiledTask, Executor
from tensorc.graph.kernels import build_kernels
from tensorc.graph.passes import clean_up, fold_batch_norm, fuse, move_scales
from tensorc.graph.tasks import partition
from tensorc.target import Target

NETWORKS = ("resnet50", "mobilenetv2", "efficientnet-b0")
IN_A_ROW = 5


def in_planes(made: Subject, target: Target) -> CompiledNetwork:
    """The network without the pass that blocks channels."""
    graph = clean_up(move_scales(fold_batch_norm(clean_up(made.network.graph))))
    parts = partition(graph, fuse(graph))
    kernels = build_kernels([task.func for task in parts.tasks], target, "default")
    executor = Executor(graph, parts, [CompiledTask(kernel) for kernel in kernels])
    return CompiledNetwork(made.network, parts, executor)


def times(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call of each runner."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            for _ in range(IN_A_ROW):
                start = time.perf_counter()
                call()
                found[name].append(time.perf_counter() - start)
    return found


def measured(name: str, threads: int, rounds: int) -> tuple[str, ...]:
    """A row of the table."""
    import torch

    made = subject(name)
    target = Target.parse("cpu")
    torch.set_num_threads(threads)
    with (
        tempfile.TemporaryDirectory() as folder,
        config.scope(num_threads=threads),
        torch.no_grad(),
    ):
        blocks, planes = compile_network(made.network, target), in_planes(made, target)
        calls = {
            "blocks": lambda: blocks(*made.arguments),
            "planes": lambda: planes(*made.arguments),
            "onnxruntime": peer("onnxruntime", made, threads, Path(folder)),
        }
        found = times(calls, rounds)
    cells = [f"{min(t) * 1e3:.2f} ({statistics.median(t) * 1e3:.2f})" for t in found.values()]
    ours, _, theirs = found.values()
    ratio = f"{min(theirs) / min(ours):.2f}"
    middle = f"({statistics.median(theirs) / statistics.median(ours):.2f})"
    return name, str(threads), *cells, f"{ratio} {middle}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(NETWORKS), metavar="NAME,...")
    parser.add_argument("--threads", type=int, default=0, help="0: one, then two")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(heading())
    print("network, threads, in blocks, in planes, ONNX Runtime, ratio to ONNX Runtime")
    for name in options.only.split(","):
        for threads in (options.threads,) if options.threads else (1, 2):
            print(" | ".join(measured(name, threads, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
