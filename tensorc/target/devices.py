"""CUDA devices by name: their architecture, its hard limits, and the size of the device.

The limits are those of the CUDA C++ Programming Guide, appendix "Compute Capabilities", technical
specifications per compute capability; sizes of devices are from NVIDIA's data sheets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tensorc.target.processors import refusal

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the devices of one architecture differ in from those of others.

    Attributes:
        threads, blocks: most of them at one time on a multiprocessor.
        shared: bytes of shared memory of a multiprocessor.
        shared_dynamic: bytes that one block may have when it asks for more than 48 KiB.
        shared_reserved: bytes that the driver takes of the memory of each block.
        shared_unit: bytes in which shared memory is given out.
        l1: bytes of the first-level cache and shared memory of a multiprocessor together.
    """

    threads: int
    blocks: int
    shared: int
    shared_dynamic: int
    shared_reserved: int
    shared_unit: int
    l1: int


ARCHITECTURES = {
    "sm_75": Architecture(1024, 16, 64 * KIB, 64 * KIB, 0, 256, 96 * KIB),
    "sm_80": Architecture(2048, 32, 164 * KIB, 163 * KIB, 1024, 128, 192 * KIB),
    "sm_86": Architecture(1536, 16, 100 * KIB, 99 * KIB, 1024, 128, 128 * KIB),
    "sm_89": Architecture(1536, 24, 100 * KIB, 99 * KIB, 1024, 128, 128 * KIB),
    "sm_90": Architecture(2048, 32, 228 * KIB, 227 * KIB, 1024, 128, 256 * KIB),
    "sm_100": Architecture(2048, 32, 228 * KIB, 227 * KIB, 1024, 128, 256 * KIB),
    "sm_120": Architecture(1536, 24, 100 * KIB, 99 * KIB, 1024, 128, 128 * KIB),
}

# What holds for all of them. A grid has more blocks along x than along y and z, a block fewer
# threads along z; registers are those of 32 bits.
_COMMON = {
    "warp_size": 32,
    "threads_per_block": 1024,
    "block_x": 1024,
    "block_y": 1024,
    "block_z": 64,
    "grid_x": 2**31 - 1,
    "grid_y": 65535,
    "grid_z": 65535,
    "registers_per_thread": 255,
    "registers_per_block": 65536,
    "registers_per_sm": 65536,
    "register_unit": 256,
    "shared_static_per_block": 48 * KIB,
    "vector_bytes": 16,
    "parameter_bytes": 4096,
}


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its architecture, its multiprocessors, and the bytes of its second-level cache."""

    architecture: str
    multiprocessors: int
    l2: int


DEVICES = {
    "T4": Device("sm_75", 40, 4 * MIB),
    "A100": Device("sm_80", 108, 40 * MIB),
    "RTX 3090": Device("sm_86", 82, 6 * MIB),
    "RTX 4090": Device("sm_89", 128, 72 * MIB),
    "H100": Device("sm_90", 132, 50 * MIB),
    "H200": Device("sm_90", 132, 60 * MIB),
    "B200": Device("sm_100", 148, 126 * MIB),
    "RTX 5090": Device("sm_120", 170, 96 * MIB),
}

# A target that names only an architecture is the first device of it.
_FIRST = {device.architecture: device for device in reversed(DEVICES.values())}

# A thread's registers hold so many vectors of 128 bits, the widest access to memory.
_VECTORS_PER_THREAD = 63


def facts(name: str, text: str) -> dict[str, Any]:
    """The fields of the target with this name, of an architecture or of a device.

    Raises:
        TargetError: there is none of this name; the message lists those there are.
    """
    devices = {_plain(known): device for known, device in DEVICES.items()}
    found = _FIRST.get(name) or devices.get(_plain(name))
    if found is None:
        raise refusal("the cuda device", name, (*ARCHITECTURES, *DEVICES), text)
    architecture = ARCHITECTURES[found.architecture]
    return {
        "kind": "cuda",
        "triple": "",
        "cpu": found.architecture,
        "vector_bits": 128,
        "vector_registers": _VECTORS_PER_THREAD,
        "fma": True,
        "cores": found.multiprocessors,
        "l1": architecture.l1,
        "l2": found.l2,
        "l3": 0,
        "alignment": 256,
        "limits": tuple(_limits(architecture).items()),
    }


def is_architecture(name: str) -> bool:
    """Whether a name has the form of one, such as sm_90 or sm_90a."""
    return re.fullmatch(r"sm_[1-9][0-9]*[af]?", name) is not None


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _limits(architecture: Architecture) -> dict[str, int]:
    return {
        **_COMMON,
        "threads_per_sm": architecture.threads,
        "blocks_per_sm": architecture.blocks,
        "shared_per_sm": architecture.shared,
        "shared_dynamic_per_block": architecture.shared_dynamic,
        "shared_reserved_per_block": architecture.shared_reserved,
        "shared_unit": architecture.shared_unit,
    }
