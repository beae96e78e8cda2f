"""The weights that the package comes with, `weights.safetensors`, and `MODEL_CARD.md`, which says
what they were trained on and how they do. `python -m bench.ship` makes both files.

The weights are in half precision (binary16, "F16" of safetensors): 2 bytes each, 7.2 MB for 3.6
million where single precision takes 14.4. Both networks read them back to single precision,
exactly, and so write the same tokens. What it costs is paid once, where they are made: a weight is
off by at most 1/2048 of itself, so that scores move in the third or fourth digit, and where two
options are as good as each other the other one may be taken. The model card says how often that
was. (bfloat16 is as large and eight times as coarse; eight bits a weight need scales of their own
and a format that others do not read.)
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

WEIGHTS, CARD = "weights.safetensors", "MODEL_CARD.md"


def weights() -> Path:
    """Where the file of weights is; it may not exist, since a working copy can be without."""
    # What is installed is files: caches are named by hashes of the sources.
    return Path(str(files(__name__) / WEIGHTS))
