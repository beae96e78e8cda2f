"""The records of a `.pt2` file, checked before torch reads it: torch takes zeros for bytes that a
record lacks."""

from __future__ import annotations

import json
import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Bytes of an element, by torch.export's numbers of dtypes; what is not here is not checked.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}


def short_records(path: Path) -> Iterator[str]:
    """What is missing of the tensors of a file, in words. Raises what `zipfile` and `json` do."""
    with zipfile.ZipFile(path) as archive:
        held = {entry.filename: entry.file_size for entry in archive.infolist()}
        for name in held:
            if name.endswith(("weights_config.json", "constants_config.json")):
                config = json.loads(archive.read(name)).get("config", {})
                for tensor, entry in config.items():
                    record = posixpath.join(posixpath.dirname(name), str(entry.get("path_name")))
                    needed = _needed(entry)
                    if needed is not None and held.get(record, 0) < needed:
                        has = f"{held.get(record, 0)} bytes, its shape needs {needed}"
                        yield f"the record of tensor `{tensor}` has {has}"


def _needed(entry: Any) -> int | None:
    """The bytes up to the end of a tensor's last element; None where they are not told."""
    match entry:
        case {
            "use_pickle": False,
            "tensor_meta": {
                "dtype": int(dtype),
                "sizes": list(sizes),
                "strides": list(strides),
                "storage_offset": {"as_int": int(offset)},
            },
        } if dtype in _BYTES:
            try:
                pairs = [
                    (size["as_int"], stride["as_int"])
                    for size, stride in zip(sizes, strides, strict=True)
                ]
            except (KeyError, TypeError, ValueError):
                return None
            if any(size == 0 for size, _ in pairs):
                return 0
            last: int = offset + sum((size - 1) * stride for size, stride in pairs)
            return (last + 1) * _BYTES[dtype]
    return None
