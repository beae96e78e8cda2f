"""The primitives, one file each; importing this package registers them all."""

from tensorc.schedule.primitives.cache_read import CacheRead
from tensorc.schedule.primitives.cache_write import CacheWrite
from tensorc.schedule.primitives.compute_at import ComputeAt, ReverseComputeAt
from tensorc.schedule.primitives.decompose_reduction import DecomposeReduction
from tensorc.schedule.primitives.fission import Fission, Merge
from tensorc.schedule.primitives.fuse import Fuse
from tensorc.schedule.primitives.inline import Inline, ReverseInline
from tensorc.schedule.primitives.kinds import Annotate, Parallel, Unroll, Vectorize
from tensorc.schedule.primitives.reorder import Reorder
from tensorc.schedule.primitives.split import Split

__all__ = [
    "Annotate",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "DecomposeReduction",
    "Fission",
    "Fuse",
    "Inline",
    "Merge",
    "Parallel",
    "Reorder",
    "ReverseComputeAt",
    "ReverseInline",
    "Split",
    "Unroll",
    "Vectorize",
]
