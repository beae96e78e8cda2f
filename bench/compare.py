"""Ours against a peer and against the machine's roof, all in turns within one run."""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

# isort: split
from bench import harness

# isort: split
import numpy as np

from bench import peak
from tensorc.codegen.jit import compile_module
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Turns:
    """How cases are timed: the number of rounds, and whose time counts.

    On one thread its processor time is what the case takes when nobody else wants the processor,
    apart from the caches and the memory that others use meanwhile.
    """

    rounds: int
    processor_time: bool

    @property
    def clock(self) -> Callable[[], float]:
        return time.thread_time if self.processor_time else time.perf_counter


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of the benches on one thread."""
    parser = harness.arguments(description)
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the thread's time on the processor: for a machine that others use too",
    )
    return parser


def turns_of(options: argparse.Namespace) -> Turns:
    return Turns(options.repeats, options.processor_time)


@dataclass(frozen=True, slots=True)
class Row:
    """Rates in `unit`, the highest and the median of all rounds.

    A ratio is ours over the peer's, of the same kind of figure; `share` is our best over the best
    of `roof`. All three took turns.
    """

    case: str
    ours: str
    unit: str
    best: float
    median: float
    peer: str
    peer_best: float
    peer_median: float
    best_ratio: float
    median_ratio: float
    roof: str
    share: float


@dataclass(frozen=True, slots=True)
class Roof:
    """A kernel that does `amount` (operations, bytes) as fast as this machine can.

    `owners` hold the memory that `run` knows by address.
    """

    name: str
    run: Callable[[], object]
    amount: float
    owners: tuple[object, ...] = ()


def multiply_adds(bits: int, workers: int = 1) -> Roof:
    """Independent multiply-adds in registers, f32, vectors of so many bits."""
    module = compile_module(peak.fma_text(bits), Target.parse("cpu"))
    context = (ctypes.c_float * 1024)(0.5)
    run = peak.on_workers(module.address(f"fma{bits}"), ctypes.addressof(context), workers)
    amount = float(peak.fma_operations(bits) * workers)
    return Roof(f"fma {bits}", run, amount, (module, context))


def stream(kernel: str, *arrays: np.ndarray) -> Roof:
    """`read`, `copy` or `triad` on one thread, over arrays of one size, the result first.

    They are those of the cases beside it, so that the caches hold as much of them for one as for
    another. They begin with a cache line and are whole rounds of the kernel.
    """
    target = Target.parse("cpu")
    size, addresses = arrays[0].nbytes, [array.ctypes.data for array in arrays]
    wrong = [n for n in addresses if n % peak.ALIGNMENT] + [size % (8 * target.vector_bits)]
    if len(arrays) != peak.MEMORY[kernel] or any(wrong):
        raise ValueError(f"{kernel} cannot run over {len(arrays)} arrays of {size} bytes here")
    addresses += addresses[:1] * (3 - len(arrays))
    module = compile_module(peak.memory_text(kernel, target), target)
    context = (ctypes.c_int64 * 5)(*addresses, size, 1)
    run = peak.on_workers(module.address(kernel), ctypes.addressof(context), 1)
    return Roof(kernel, run, float(size * len(arrays)), (module, context, arrays))


def compare(
    case: str,
    amount: float,
    unit: str,
    ours: Mapping[str, tuple[Callable[[], object], Roof]],
    peers: Mapping[str, Callable[[], object]],
    turns: Turns,
) -> list[Row]:
    """Times all in turns: a row for each of ours beside each peer.

    `amount` is the work of one call, in operations or bytes; the unit is 1e9 of it a second.
    """
    roofs = {f"roof {roof.name}": roof for _, roof in ours.values()}
    runs: dict[str, Callable[[], object]] = {name: run for name, (run, _) in ours.items()}
    runs |= peers
    runs |= {name: roof.run for name, roof in roofs.items()}
    timings = harness.alternate(runs, turns.rounds, clock=turns.clock)
    rows = []
    for name, (_, roof) in ours.items():
        mine = timings[name]
        limit = roof.amount / timings[f"roof {roof.name}"].best
        for peer in peers:
            other = timings[peer]
            rows.append(
                Row(
                    case,
                    name,
                    unit,
                    amount / mine.best / 1e9,
                    amount / mine.median / 1e9,
                    peer,
                    amount / other.best / 1e9,
                    amount / other.median / 1e9,
                    other.best / mine.best,
                    other.median / mine.median,
                    roof.name,
                    amount / mine.best / limit,
                )
            )
    return rows


def heading(turns: Turns | None = None, threads: int = 1) -> str:
    """When and on what: the load tells whether others were using the machine."""
    parts = [datetime.now().astimezone().isoformat(" ", "minutes")]
    parts.append(f"{threads} thread{'s' * (threads > 1)}")
    if turns is not None and turns.processor_time:
        parts.append("processor time")
    if hasattr(os, "getloadavg"):
        parts.append(f"load {os.getloadavg()[0]:.1f}")
    return f"{', '.join(parts)}; {Target.parse('cpu').describe()}"
