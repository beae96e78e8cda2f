"""This machine: its processor as LLVM names it, and its caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tensorc.target.processors import ARCHITECTURES, architecture_of, refusal, vector_unit


def facts() -> dict[str, Any]:
    """What can be found out about this machine, as arguments of `Target`.

    Raises:
        TargetError: tensorc does not know the architecture.
    """
    # llvmlite takes 80 ms to import, and only this question needs it.
    from llvmlite import binding

    triple = binding.get_process_triple()
    architecture = architecture_of(triple)
    if architecture not in ARCHITECTURES:
        raise refusal("the architecture of this machine", architecture, ARCHITECTURES)
    found = binding.get_host_cpu_features()
    features = {name if present else f"-{name}" for name, present in found.items()}
    # LLVM can list nothing on some systems; the base set is always there.
    features |= set(ARCHITECTURES[architecture].features)
    return {
        "kind": "cpu",
        "triple": triple,
        "cpu": binding.get_host_cpu_name(),
        "features": tuple(features),
        **vector_unit(architecture, features),
        "cores": processors(),
        **cache_sizes(),
    }


def processors() -> int:
    """How many processors this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    else:
        return os.cpu_count() or 1


_SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
_SYSCONF = {
    "l1": "SC_LEVEL1_DCACHE_SIZE",
    "l2": "SC_LEVEL2_CACHE_SIZE",
    "l3": "SC_LEVEL3_CACHE_SIZE",
}


def cache_sizes(sysfs: Path = _SYSFS) -> dict[str, int]:
    """Bytes of the data caches "l1" to "l3", from Linux's sysfs, else from libc.

    A level that neither knows is left out: `Target` has defaults.
    """
    sizes: dict[str, int] = {}
    for entry in sorted(sysfs.glob("index*")):
        try:
            kind, level, size = (
                (entry / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            # Containers and some ARM kernels hide a file or the whole folder.
            continue
        if kind in ("Data", "Unified") and f"l{level}" in _SYSCONF and size.endswith("K"):
            sizes[f"l{level}"] = int(size[:-1]) * 1024
    known = getattr(os, "sysconf_names", {})
    for level, name in _SYSCONF.items():
        if level not in sizes and name in known and os.sysconf(name) > 0:
            sizes[level] = os.sysconf(name)
    return sizes
