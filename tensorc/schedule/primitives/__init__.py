"""The primitives, one file each; importing this package registers them all."""

from tensorc.schedule.primitives.bind import Bind
from tensorc.schedule.primitives.cache_read import CacheRead
from tensorc.schedule.primitives.cache_write import CacheWrite
from tensorc.schedule.primitives.compute_at import ComputeAt, ReverseComputeAt
from tensorc.schedule.primitives.decompose_reduction import DecomposeReduction
from tensorc.schedule.primitives.double_buffer import DoubleBuffer
from tensorc.schedule.primitives.fission import Fission, Merge
from tensorc.schedule.primitives.fuse import Fuse
from tensorc.schedule.primitives.inline import Inline, ReverseInline
from tensorc.schedule.primitives.kinds import Annotate, Parallel, Unroll, Vectorize
from tensorc.schedule.primitives.pad import Pad
from tensorc.schedule.primitives.reorder import Reorder
from tensorc.schedule.primitives.rfactor import Rfactor
from tensorc.schedule.primitives.set_scope import SetScope
from tensorc.schedule.primitives.split import Split
from tensorc.schedule.primitives.tensorize import Tensorize
from tensorc.schedule.primitives.transform_layout import TransformLayout

__all__ = [
    "Annotate",
    "Bind",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "DecomposeReduction",
    "DoubleBuffer",
    "Fission",
    "Fuse",
    "Inline",
    "Merge",
    "Pad",
    "Parallel",
    "Reorder",
    "ReverseComputeAt",
    "ReverseInline",
    "Rfactor",
    "SetScope",
    "Split",
    "Tensorize",
    "TransformLayout",
    "Unroll",
    "Vectorize",
]
