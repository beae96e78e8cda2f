"""The primitives, one file each; importing this package registers them all."""

from tensorc.schedule.primitives.cache_read import CacheRead
from tensorc.schedule.primitives.cache_write import CacheWrite
from tensorc.schedule.primitives.decompose_reduction import DecomposeReduction
from tensorc.schedule.primitives.fuse import Fuse
from tensorc.schedule.primitives.kinds import Annotate, Parallel, Unroll, Vectorize
from tensorc.schedule.primitives.reorder import Reorder
from tensorc.schedule.primitives.split import Split

__all__ = [
    "Annotate",
    "CacheRead",
    "CacheWrite",
    "DecomposeReduction",
    "Fuse",
    "Parallel",
    "Reorder",
    "Split",
    "Unroll",
    "Vectorize",
]
