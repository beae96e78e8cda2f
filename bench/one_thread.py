"""Import this before numpy and torch: their libraries read how many threads to use when loaded."""

from __future__ import annotations

import os
import sys

# isort: split
import bench.harness  # noqa: F401  (it too sets what OpenBLAS reads)

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORC_NUM_THREADS")

if any(os.environ.get(name) != "1" for name in VARIABLES) and "numpy" in sys.modules:
    raise RuntimeError("numpy is loaded with its own number of threads: import this first")
os.environ.update(dict.fromkeys(VARIABLES, "1"))
