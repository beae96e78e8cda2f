"""How many blocks of a kernel a multiprocessor runs at a time.

The rules are those of NVIDIA's occupancy calculator (cuda_occupancy.h): registers are given out to
warps in units, within one of the four parts of a multiprocessor; shared memory to blocks in units.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.target import Target

PARTS = 4
"""Each part of a multiprocessor has a quarter of its registers."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`blocks` of a multiprocessor, the `warps` that these have, the share of the most there can
    be, and what allows no more: "threads", "blocks", "registers" or "shared"."""

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(target: Target, registers: int, shared: int, threads: int) -> Occupancy:
    """Of a kernel with so many registers a thread, bytes of shared memory and threads a block.

    Raises:
        TargetError: the target is not a cuda device.
    """
    limit, warp = target.limit, target.limit("warp_size")
    warps = -(-threads // warp)
    unit = limit("register_unit")
    of_warp = -(-max(registers, 1) * warp // unit) * unit
    of_block = shared + limit("shared_reserved_per_block")
    of_block = -(-of_block // limit("shared_unit")) * limit("shared_unit")
    allowed = {
        "threads": limit("threads_per_sm") // warp // warps,
        "blocks": limit("blocks_per_sm"),
        "registers": limit("registers_per_sm") // PARTS // of_warp * PARTS // warps,
        "shared": limit("shared_per_sm") // of_block if of_block else limit("blocks_per_sm"),
    }
    fits = shared <= limit("shared_dynamic_per_block") and threads <= limit("threads_per_block")
    blocks = min(allowed.values()) if fits else 0
    by = min(allowed, key=lambda name: allowed[name])
    most = limit("threads_per_sm") // warp
    return Occupancy(blocks, blocks * warps, blocks * warps / most, by)
