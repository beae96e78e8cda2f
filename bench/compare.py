"""Ours against a peer and against the machine's roof, all in turns within one run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bench import peak
from bench.harness import alternate
from tensorc.codegen.jit import compile_module
from tensorc.target import Target

ROUNDS = 30


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
    """A kernel that does `amount` (operations, bytes) as fast as this machine can."""

    name: str
    run: Callable[[], object]
    amount: float


def multiply_adds(bits: int, workers: int = 1) -> Roof:
    """Independent multiply-adds in registers, f32, vectors of so many bits."""
    module = compile_module(peak.fma_text(bits), Target.parse("cpu"))
    context = (ctypes.c_float * 1024)(0.5)
    run = peak.on_workers(module.address(f"fma{bits}"), ctypes.addressof(context), workers)
    return Roof(
        f"fma {bits}",
        _keeping(run, module, context),
        float(peak.fma_operations(bits) * workers),
    )


def stream(kernel: str, total_bytes: int) -> Roof:
    """`read`, `copy` or `triad` on one thread, over arrays of so many bytes together."""
    target = Target.parse("cpu")
    arrays = peak.MEMORY[kernel]
    grain = peak.UNROLL * target.vector_bits // 8
    part = max(total_bytes // arrays // grain, 1) * grain
    storage = [ctypes.create_string_buffer(part + 2 * peak.ALIGNMENT) for _ in range(arrays)]
    bases = [-(-ctypes.addressof(s) // peak.ALIGNMENT) * peak.ALIGNMENT for s in storage]
    for base in bases:
        # Memory that nobody wrote is one page of zeros, which every cache holds.
        ctypes.memset(base, 1, part)
    bases += bases[:1] * (3 - arrays)
    module = compile_module(peak.memory_text(kernel, target), target)
    context = (ctypes.c_int64 * 5)(*bases, part, 1)
    run = peak.on_workers(module.address(kernel), ctypes.addressof(context), 1)
    return Roof(kernel, _keeping(run, module, context, storage), float(part * arrays))


def _keeping(run: Callable[[], object], *owners: object) -> Callable[[], object]:
    """`run`, which holds on to those whose memory it uses by address."""

    def held() -> object:
        return owners and run()

    return held


def compare(
    case: str,
    amount: float,
    unit: str,
    ours: Mapping[str, tuple[Callable[[], object], Roof]],
    peers: Mapping[str, Callable[[], object]],
    repeats: int = ROUNDS,
) -> list[Row]:
    """Times all in turns: a row for each of ours beside each peer.

    `amount` is the work of one call, in operations or bytes; the unit is 1e9 of it a second.
    """
    roofs = {f"roof {roof.name}": roof for _, roof in ours.values()}
    runs: dict[str, Callable[[], object]] = {name: run for name, (run, _) in ours.items()}
    runs |= peers
    runs |= {name: roof.run for name, roof in roofs.items()}
    timings = alternate(runs, repeats)
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


def heading(threads: int = 1) -> str:
    """When and on what: the load tells whether others were using the machine."""
    now = datetime.now().astimezone().isoformat(" ", "minutes")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{now}, {threads} thread{'s' * (threads > 1)}{load}; {Target.parse('cpu').describe()}"
