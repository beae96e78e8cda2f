"""Counters of memory traffic, from the addresses that a launch really used.

The model is the published one: a warp's access to global memory touches sectors of 32 bytes; shared
memory has 32 banks of 4 bytes, each serving one word at a time, so that an access takes as many
wavefronts as the busiest bank has different words. Accesses of 16 bytes are served by quarters of a
warp, of 8 by halves. The k-th time that each lane of a warp executes an instruction between two
barriers of the block is taken as one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.emulator.emitter import Site
from tensorc.emulator.layout import REGION_SHIFT, SHARED_REGION
from tensorc.emulator.ptx import Place

__all__ = ["AccessCounters", "by_line", "count_accesses"]

Words = NDArray[np.int64]
SECTOR, BANKS, BANK_BYTES = 32, 32, 4


@dataclass(frozen=True, slots=True)
class AccessCounters:
    """Traffic of one instruction, or of all of a source line with the same space and kind.

    `requests` are executions by a warp, `lanes` by its threads, `used` the different bytes touched.
    For shared memory `wavefronts` are those needed and `ideal` those without a conflict; for global
    memory `sectors` are those touched.
    """

    place: Place
    instruction: str
    space: str
    kind: str
    bytes: int
    requests: int
    lanes: int
    sectors: int
    used: int
    wavefronts: int
    ideal: int

    @property
    def conflict_factor(self) -> float:
        """Wavefronts per wavefront without conflicts: 1.0 is best."""
        return self.wavefronts / self.ideal if self.ideal else 1.0

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def efficiency(self) -> float:
        """The part of the sectors' bytes that somebody wanted."""
        return self.used / (SECTOR * self.sectors) if self.sectors else 1.0

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        if self.space == "shared":
            return {**found, "conflict_factor": self.conflict_factor}
        return {
            **found,
            "sectors_per_request": self.sectors_per_request,
            "efficiency": self.efficiency,
        }

    def __str__(self) -> str:
        head = f"{self.place}: {self.requests} {self.space} {self.kind} requests of {self.bytes} B"
        if self.space == "shared":
            return f"{head}, conflict factor {self.conflict_factor:.2f}"
        return (
            f"{head}, {self.sectors_per_request:.2f} sectors a request, "
            f"{self.efficiency:.0%} of their bytes used"
        )


def count_accesses(events: Words, sites: Sequence[Site]) -> tuple[AccessCounters, ...]:
    """Counters of each site out of a block's log, rows as in `layout.Log`."""
    if not len(events):
        return ()
    who, address = events[:, 0], events[:, 1]
    thread = who & 0x3FF
    site = (who & 0xFFFFFFFF) >> 10
    warp = thread >> 5
    # The occurrence of each access among those of its thread, site and epoch.
    order = np.argsort(who, kind="stable")
    sorted_who = who[order]
    first = np.r_[True, sorted_who[1:] != sorted_who[:-1]]
    starts = np.flatnonzero(first)
    ranks = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = ranks
    found = []
    for number in np.unique(site):
        mine = site == number
        request = np.unique(
            np.stack([who[mine] >> 32, warp[mine], occurrence[mine]]), axis=1, return_inverse=True
        )[1].ravel()
        found.append(_of_site(sites[number], request, thread[mine] & 31, address[mine]))
    return tuple(found)


def _of_site(site: Site, request: Words, lane: Words, address: Words) -> AccessCounters:
    size = site.size
    offsets = address & ((1 << REGION_SHIFT) - 1)
    shared = site.space == "shared" or bool((address >> REGION_SHIFT == SHARED_REGION).all())
    requests = int(request.max()) + 1
    sectors = wavefronts = ideal = 0
    if shared:
        wavefronts, ideal = _wavefronts(request, lane, offsets, size)
    else:
        sectors = _different(request, address, size, SECTOR)
    place, text = site.instruction.place, site.instruction.name
    return AccessCounters(
        place,
        text,
        "shared" if shared else "global",
        site.kind,
        size,
        requests,
        len(request),
        sectors,
        _different(request, address, size, 1),
        wavefronts,
        ideal,
    )


def _pieces(address: Words, size: int, unit: int) -> Words:
    """The units of `unit` bytes that each access of `size` bytes touches; a column for each."""
    return np.stack([address // unit + n for n in range(max(size // unit, 1))], axis=1)


def _different(request: Words, address: Words, size: int, unit: int) -> int:
    """How many different units the requests touch, each counted for itself."""
    pieces = _pieces(address, size, unit)
    keys = np.stack([np.repeat(request, pieces.shape[1]), pieces.ravel()])
    return int(np.unique(keys, axis=1).shape[1])


def _wavefronts(request: Words, lane: Words, offset: Words, size: int) -> tuple[int, int]:
    """Wavefronts of all requests, and how many there would be without conflicts."""
    lanes_at_once = {16: 8, 8: 16}.get(size, 32)
    wave = request * 4 + lane // lanes_at_once
    words = _pieces(offset, size, BANK_BYTES)
    keys = np.stack([np.repeat(wave, words.shape[1]), words.ravel()])
    wave_of, word = np.unique(keys, axis=1)
    # Different words of one wave in one bank: the busiest bank says how long the wave takes.
    pairs, count = np.unique(np.stack([wave_of, word % BANKS]), axis=1, return_counts=True)
    waves, index = np.unique(pairs[0], return_inverse=True)
    busiest = np.zeros(len(waves), np.int64)
    np.maximum.at(busiest, index.ravel(), count)
    return int(busiest.sum()), len(waves)


def merged(parts: Sequence[AccessCounters]) -> tuple[AccessCounters, ...]:
    """The sums over blocks, an entry for each instruction, in the order of their lines."""
    found: dict[tuple[int, str], AccessCounters] = {}
    for part in parts:
        key = (part.place.line, part.kind)
        found[key] = part if key not in found else _sum(found[key], part)
    return tuple(found[key] for key in sorted(found))


def by_line(parts: Sequence[AccessCounters]) -> tuple[AccessCounters, ...]:
    """The sums over the instructions of each source line, by space, kind and width."""
    found: dict[tuple[str, int, str, str, int], AccessCounters] = {}
    for part in parts:
        place = part.place
        line = place.source_line or place.line
        key = (place.file, line, part.space, part.kind, part.bytes)
        found[key] = part if key not in found else _sum(found[key], part)
    return tuple(found.values())


def _sum(a: AccessCounters, b: AccessCounters) -> AccessCounters:
    return replace(
        a,
        requests=a.requests + b.requests,
        lanes=a.lanes + b.lanes,
        sectors=a.sectors + b.sectors,
        used=a.used + b.used,
        wavefronts=a.wavefronts + b.wavefronts,
        ideal=a.ideal + b.ideal,
    )
