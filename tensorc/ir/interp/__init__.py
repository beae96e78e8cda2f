"""The reference interpreter: what a program means, checked at every access."""

from tensorc.ir.interp.arrays import STORAGE, from_storage, to_storage
from tensorc.ir.interp.program import evaluate
from tensorc.ir.interp.run import Access, Result, run, run_in_place

__all__ = [
    "STORAGE",
    "Access",
    "Result",
    "evaluate",
    "from_storage",
    "run",
    "run_in_place",
    "to_storage",
]
