"""The emulator: time of whole launches with and without detectors, and the race detector's fuzz.

    python -m bench.emulator                  the launches
    python -m bench.emulator --fuzz 20000     random programs against brute force, besides
    python -m bench.emulator --json FILE      the launches as data

Times are those of the processor: an emulated launch runs in one thread and waits for nothing.
`prototype` is what the first experiment took (PTX to C++ by g++, fibers) on a quiet machine of the
same kind; `build` is the time from PTX text to machine code, in the prototype about 330 ms.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial

from bench.harness import alternate, arguments, report, table  # isort: split

import numpy as np

from tensorc.emulator import EmulatedDevice
from tensorc.emulator.device import EmulatedFunction
from tensorc.emulator.module import PtxModule
from tensorc.emulator.schedule_text import runtime
from tensorc.target import Target
from tests.emulator.kernels import (
    Case,
    histogram,
    matmul,
    reduction,
    registers,
    softmax,
    tensor_cores,
    transpose,
)
from tests.emulator.race_programs import detected, races, random_program

# (case, milliseconds of the prototype without and with detectors; None where it has none)
CASES: tuple[tuple[str, Case, float | None, float | None], ...] = (
    ("matmul 256^3", matmul(256, 256, 256), 117.0, 760.0),
    ("registers 256^3", registers(256, 256), 44.0, 157.0),
    ("softmax 32 x 1000", softmax(32, 1000), None, 23.0),
    ("bf16 mma 128^3", tensor_cores(128, 128), 9.0, 33.0),
    ("histogram 5000", histogram(5000), None, 5.0),
    ("transpose 256", transpose(256), None, None),
    ("reduction 100000", reduction(100_000), None, None),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one launch in milliseconds, the best of several."""

    kernel: str
    detectors: str
    build: float
    best: float
    median: float
    prototype: float | None


@dataclass(frozen=True, slots=True)
class Fuzz:
    """Programs by what brute force and the detector say of them."""

    kernel: str
    programs: int
    racy: int
    false_alarms: int
    missed: int


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(repeats=5)
    parser.add_argument("--fuzz", type=int, default=0, metavar="N", help="random programs")
    parser.add_argument("--seed", type=int, default=1, help="of the random programs")
    given = parser.parse_args()
    # Scheduler and detectors are compiled once per process, before the first kernel is.
    runtime()
    rows = [row for case in CASES for row in _timed(*case, given.repeats)] if given.repeats else []
    report(Target.parse("cpu").describe(), rows, given.json)
    if given.fuzz:
        print(table([_fuzz(given.fuzz, given.seed, masks) for masks in (False, True)]))


def _timed(
    name: str, case: Case, plain: float | None, checked: float | None, repeats: int
) -> list[Row]:
    rows = []
    for detect, prototype in ((False, plain), (True, checked)):
        start = time.process_time()
        PtxModule(case.ptx()).compiled(case.name, detect)
        build = time.process_time() - start
        device = EmulatedDevice(detect=detect)
        memory = [device.wrap(array) for array in case.arrays()]
        values = [*memory, *(np.int32(value) for value in case.scalars)]
        function: EmulatedFunction = device.load(case.ptx()).function(case.name)
        run = partial(device.launch, function, case.grid, case.block, values, case.shared)
        timing = alternate({"run": run}, repeats, clock=time.process_time)["run"]
        what = "on" if detect else "off"
        rows.append(Row(name, what, 1e3 * build, 1e3 * timing.best, 1e3 * timing.median, prototype))
    return rows


def _fuzz(count: int, seed: int, masks: bool) -> Fuzz:
    generator = random.Random(seed)
    racy = false_alarms = missed = 0
    for number in range(count):
        program = random_program(generator.choice, masks)
        order = generator.choice(["sequential", "reverse", "random"])
        wanted, found = races(program), detected(program, order, number)
        racy += wanted
        false_alarms += found and not wanted
        missed += wanted and not found
    kind = "parts of a warp meet" if masks else "whole warps meet"
    return Fuzz(f"fuzz, {kind}", count, racy, false_alarms, missed)


if __name__ == "__main__":
    main()
