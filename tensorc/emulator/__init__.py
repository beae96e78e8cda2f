"""CUDA kernels on the CPU: PTX is translated to LLVM IR and run with detectors of what is wrong.

    device = EmulatedDevice()
    function = device.load(ptx).function("matmul")
    a = device.wrap(array)                        # no copy; or alloc and copy
    device.launch(function, grid, block, [a, b, c, np.int32(n)])     # raises EmulationError

A kernel is cut at barriers and at operations of a warp. Between two cuts a thread runs alone, as
machine code; what it needs behind a cut is kept in its frame. The stages, in order: `ptx` and
`ptx_parse` (text to data), `inline` (calls), `flow` (blocks, cuts, liveness), `lower` with one file
for each kind of instruction, `operations` and `matrices` (what a warp does together),
`schedule_text` and `race_text` (scheduler and detectors, in LLVM text), `launch`, `device`.

Not emulated: recursion and calls through pointers, wgmma, TMA and mbarrier, clusters, named
barriers of some threads, textures. Blocks run one after another, so that a kernel in which one
waits for another ends at the limit of steps.
"""

from tensorc.emulator.counters import AccessCounters, by_line
from tensorc.emulator.device import EmulatedDevice, EmulationError
from tensorc.emulator.emitter import UnsupportedInstructionError
from tensorc.emulator.launch import LaunchReport
from tensorc.emulator.memory_map import EmulatedMemory
from tensorc.emulator.ptx_parse import PtxError, parse_ptx
from tensorc.emulator.reports import Finding

__all__ = [
    "AccessCounters",
    "EmulatedDevice",
    "EmulatedMemory",
    "EmulationError",
    "Finding",
    "LaunchReport",
    "PtxError",
    "UnsupportedInstructionError",
    "by_line",
    "parse_ptx",
]
