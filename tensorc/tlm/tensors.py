"""The tensors of a safetensors file, read with NumPy alone.

The format is that of https://huggingface.co/docs/safetensors: the length of a header in eight
bytes, little-endian, the header in JSON, which gives for each tensor its type, its shape and where
its bytes begin and end, and then the bytes of all tensors, without gaps.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from tensorc.tlm.network import Floats

TYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}


def tensors(data: bytes) -> dict[str, Floats]:
    """All tensors of a file, by name, as f32.

    Raises:
        ValueError: the bytes are not a whole file of this format, or a tensor is of another type.
    """
    first = 8 + int.from_bytes(data[:8], "little")
    if len(data) < max(first, 8):
        raise ValueError("the file ends within its header")
    header = json.loads(data[8:first])
    if not isinstance(header, dict):
        raise ValueError("its header is no table")
    entries = {str(name): entry for name, entry in header.items() if name != "__metadata__"}
    body = memoryview(data)[first:]
    found = {name: _tensor(name, entry, body) for name, entry in entries.items()}
    covered = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in entries.values())
    if covered != len(body):
        raise ValueError(f"its tensors have {covered} bytes, and {len(body)} are there")
    return found


def _tensor(name: str, entry: Any, data: memoryview) -> Floats:
    try:
        element, (begin, end) = entry["dtype"], entry["data_offsets"]
        shape = tuple(map(int, entry["shape"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"its header does not say what {name} is") from None
    if element not in TYPES:
        raise ValueError(f"{name} is of the type {element!r:.20}; legal: {', '.join(TYPES)}")
    kind = TYPES[element]
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{name} is cut off, or not of its shape {shape}")
    return np.frombuffer(data[begin:end], kind).reshape(shape).astype(np.float32)
